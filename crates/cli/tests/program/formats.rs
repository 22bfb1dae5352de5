//! `load` reads back what `export` writes.

use crate::common::Sandbox;

/// Rows with every byte that a format might mishandle; keys in ascending order.
fn awkward() -> Vec<(Vec<u8>, Vec<u8>)> {
    let all: Vec<u8> = (0..=255).collect();
    vec![
        (b"".to_vec(), b"the empty key".to_vec()),
        (b"\t\r\n\\".to_vec(), b"\\t is no tab\tthis is".to_vec()),
        (b" blank ".to_vec(), b" \"quoted\", with commas ".to_vec()),
        (b"empty".to_vec(), b"".to_vec()),
        (b"ends".to_vec(), b"in a return\r".to_vec()),
        ("\u{e9}\u{1f980}".into(), "\u{2028}\u{0}\u{7f}".into()),
        (b"\xef\xbb\xbfmark".to_vec(), all.clone()),
        (all.iter().rev().copied().collect(), b"\n".to_vec()),
    ]
}

/// A database whose first table has the awkward rows, loaded as base64.
fn loaded() -> Sandbox {
    use base64::Engine;
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let lines: String = awkward()
        .iter()
        .map(|(key, value)| {
            format!("{{\"key_base64\":\"{}\",\"value_base64\":\"{}\"}}\n", base64(key), base64(value))
        })
        .collect();
    let sandbox = Sandbox::new();
    sandbox.write("in.jsonl", lines);
    sandbox.ok(&["load", "db", "t", "in.jsonl"]);
    sandbox
}

#[test]
fn all_formats_bring_awkward_bytes_back() {
    let sandbox = loaded();
    let hex: String = sandbox.ok(&["scan", "db", "t", "--hex"]);
    assert_eq!(hex.lines().count(), awkward().len());
    for (line, (key, value)) in hex.lines().zip(awkward()) {
        let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(line, format!("{}\t{}", text(&key), text(&value)));
    }
    for (table, name, flag) in [
        ("a", "x.tsv", "--escaped"),
        ("b", "x.tsv.gz", "--escaped"),
        ("c", "x.csv", "--json"),
        ("d", "x.csv.gz", "--json"),
        ("e", "x.jsonl", "--json"),
        ("f", "x.jsonl.gz", "--json"),
    ] {
        sandbox.ok(&["export", "db", "t", name]);
        sandbox.ok(&["load", flag, "db", table, name]);
        assert_eq!(sandbox.ok(&["scan", "db", table, "--hex"]), hex, "{name}");
        assert_eq!(sandbox.read(name).starts_with(&[0x1f, 0x8b]), name.ends_with(".gz"), "{name}");
    }
    assert!(!sandbox.names().iter().any(|name| name.ends_with(".part")));
}

#[test]
fn plain_rows_come_back_byte_by_byte() {
    let sandbox = Sandbox::new();
    let rows = "a\t1\ttwo\t\nb\t\nc\t\u{e9}\n";
    sandbox.write("rows.tsv", rows);
    sandbox.ok(&["load", "db", "t", "rows.tsv"]);
    assert_eq!(sandbox.ok(&["export", "db", "t"]), rows);
    assert_eq!(sandbox.ok(&["export", "db", "t", "-", "--raw"]), rows);
}

#[test]
fn raw_export_fails_rather_than_change_a_row() {
    let sandbox = Sandbox::new();
    sandbox.run_with(&["put", "--create", "db", "t", "k"], b"a\\b").ok();
    assert_eq!(sandbox.ok(&["export", "db", "t", "--raw"]), "k\ta\\b\n");
    assert_eq!(sandbox.ok(&["export", "db", "t"]), "k\ta\\\\b\n");
    sandbox.run_with(&["put", "--create", "db", "t", "k"], b"two\nlines").ok();
    sandbox.run(&["export", "db", "t", "x.tsv", "--raw"]).fails(1, "the row of key \"k\" cannot be written");
    assert!(!sandbox.names().iter().any(|name| name.starts_with("x.tsv")), "{:?}", sandbox.names());
}

#[test]
fn columns_are_chosen_by_number_and_name() {
    let sandbox = Sandbox::new();
    sandbox.write("x.tsv", "id\tname\tmass\n1\tone\t1.5\n2\ttwo\t2.5\n");
    sandbox.write("x.csv", "id,name,mass\r\n1,\"one, or so\",1.5\r\n2,two,2.5\r\n");
    let load = |table: &str, args: &[&str]| {
        let mut all = vec!["load", "db", table];
        all.extend_from_slice(args);
        sandbox.ok(&all);
        sandbox.ok(&["scan", "db", table])
    };
    assert_eq!(load("a", &["x.tsv", "--key", "name", "--value", "mass"]), "one\t1.5\ntwo\t2.5\n");
    assert_eq!(load("b", &["x.tsv", "--key", "2", "--header"]), "one\t1\t1.5\ntwo\t2\t2.5\n");
    assert_eq!(load("c", &["x.csv", "--key", "id", "--value", "name"]), "1\tone, or so\n2\ttwo\n");
    assert_eq!(load("d", &["x.csv", "--header"]), "1\t\"one, or so\",1.5\n2\ttwo,2.5\n");
    assert_eq!(load("e", &["x.csv", "--value", "3"]), "1\t1.5\n2\t2.5\nid\tmass\n");
    sandbox.run(&["load", "db", "f", "x.tsv", "--key", "nope"]).fails(1, "no column \"nope\"");
}

#[test]
fn json_fields_are_text_or_compact_json() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "x.jsonl",
        concat!(
            "{\"id\": 7, \"v\": \"text\\n\"}\n",
            "{\"id\": \"k\", \"v\": { \"b\" : [1.0, 1e400] , \"a\":null } }\n"
        ),
    );
    sandbox.ok(&["load", "db", "t", "x.jsonl", "--key-field", "id", "--value-field", "v"]);
    assert_eq!(sandbox.ok(&["scan", "db", "t"]), "7\ttext\\n\nk\t{\"b\":[1.0,1e400],\"a\":null}\n");
    sandbox.ok(&["load", "db", "u", "x.jsonl", "--key-field", "id", "--value-field", "."]);
    assert_eq!(sandbox.ok(&["get", "db", "u", "7"]), "{\"id\": 7, \"v\": \"text\\n\"}");
}

#[test]
fn standard_input_may_be_compressed_and_without_a_last_line_break() {
    let sandbox = Sandbox::new();
    sandbox.write("x.tsv", "a\t1\r\nb\t2");
    sandbox.ok(&["load", "db", "t", "x.tsv"]);
    sandbox.ok(&["export", "db", "t", "x.tsv.gz"]);
    sandbox.run_with(&["load", "db", "u", "-"], &sandbox.read("x.tsv.gz")).ok();
    assert_eq!(sandbox.ok(&["export", "db", "u"]), "a\t1\nb\t2\n");
    sandbox.run_with(&["load", "db", "v"], b"\x1f\tone byte of a mark").ok();
    assert_eq!(sandbox.run(&["scan", "db", "v"]).stdout, b"\x1f\tone byte of a mark\n");
}
