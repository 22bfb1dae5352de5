//! What a load leaves behind when it succeeds, fails or is interrupted.

use std::io::{BufRead, BufReader, Write};

use crate::common::Sandbox;
use serde_json::Value;

fn summary(said: &str) -> Value {
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// Regression: a load that failed at its first row left an empty table behind.
#[test]
fn a_failed_load_leaves_no_empty_table() {
    let sandbox = Sandbox::new();
    let long = "k".repeat(fulgurite::limits::KEY_BYTES_MAX + 1);
    sandbox.write("bad.tsv", "no tab\n");
    sandbox.write("long.tsv", format!("{long}\tv\n"));
    sandbox.write(
        "cut.jsonl",
        "{\"table\":\"a\"}\n{\"table\":\"b\",\"key\":1,\"value\":2}\n{\"table\":\"c\"}\noops\n",
    );
    sandbox.ok(&["put", "--create", "db", "kept", "k", "v"]);
    sandbox.ok(&["delete", "db", "kept", "k"]);
    sandbox.run(&["load", "db", "t", "bad.tsv"]).fails(1, "line 1: ");
    sandbox.run(&["load", "db", "t", "long.tsv"]).fails(1, "line 1: the key has ");
    sandbox.run(&["load", "--atomic", "db", "t", "long.tsv"]).fails(1, "line 1: the key has ");
    sandbox.run(&["load", "db", "t", "bad.tsv", "--key", "name"]).fails(1, "no column \"name\"");
    sandbox.run(&["load", "db", "kept", "bad.tsv"]).fails(1, "line 1: ");
    assert_eq!(sandbox.ok(&["tables", "db"]), "kept  about 0 entries\n");
    sandbox.run(&["load", "--all", "db", "cut.jsonl"]).fails(1, "line 4: it is not a JSON object");
    let tables = sandbox.ok(&["tables", "db"]);
    assert!(tables.starts_with("b ") && tables.lines().count() == 2, "{tables}");
    // A load that succeeds makes its table, even if the input is empty.
    sandbox.write("empty.tsv", "");
    sandbox.ok(&["load", "db", "empty", "empty.tsv"]);
    assert_eq!(sandbox.ok(&["scan", "db", "empty"]), "");
    sandbox.run(&["put", "--create", "db", "new", &long, "v"]).fails(1, "the key has ");
    sandbox.run(&["scan", "db", "new"]).fails(1, "there is no table `new`");
}

/// Regression: a misspelt name made a table.
#[test]
fn a_misspelt_table_is_not_made() {
    let sandbox = Sandbox::new();
    sandbox.run(&["put", "db", "t", "k", "v"]).fails(1, "; --create makes it");
    assert!(sandbox.names().is_empty(), "{:?}", sandbox.names());
    sandbox.ok(&["put", "--create", "db", "products", "k", "v"]);
    sandbox
        .run(&["put", "db", "prodcuts", "k", "v"])
        .fails(1, "there is no table `prodcuts`; --create makes it");
    assert_eq!(sandbox.ok(&["tables", "db"]), "products  about 1 entry\n");
    sandbox.ok(&["put", "db", "products", "k", "w"]);
    assert_eq!(sandbox.ok(&["get", "db", "products", "k"]), "w");
}

/// Regression: rows that replaced others were counted like rows that did not.
#[test]
fn duplicate_keys_are_counted() {
    let sandbox = Sandbox::new();
    let load = |args: &[&str], rows: &str| {
        sandbox.write("x.tsv", rows);
        let said = summary(&sandbox.ok(&[&["load", "--json", "db"], args, &["x.tsv"]].concat()));
        assert_eq!(said["replaced_rows_exact"], true);
        said["replaced_rows"].as_u64().unwrap()
    };
    assert_eq!(load(&["t"], "b\t1\na\t1\nb\t2\n"), 1, "in one batch");
    assert_eq!(sandbox.ok(&["scan", "db", "t"]), "a\t1\nb\t2\n");
    assert_eq!(load(&["t"], "c\t1\na\t2\nd\t1\n"), 1, "what was there before");
    assert_eq!(
        load(&["u", "--batch", "1"], "b\t1\na\t1\nb\t2\nb\t3\na\t2\nc\t1\n"),
        3,
        "in different batches"
    );
    assert_eq!(load(&["v", "--atomic"], "b\t1\na\t1\nb\t2\nb\t3\n"), 2);
    let many: String =
        (0..20_000u32).map(|row| format!("{}\tv\n", row.wrapping_mul(7919) % 15_000)).collect();
    assert_eq!(load(&["w"], &many), 5_000);
    sandbox.write("x.tsv", "b\t1\na\t1\nb\t2\n");
    let said = sandbox.ok(&["load", "db", "x", "x.tsv"]);
    assert!(said.starts_with("3 rows durable in table `x`, 1 replaced: 1 commit, "), "{said}");
    let said = sandbox.ok(&["load", "db", "y", "--batch", "1", "x.tsv"]);
    assert!(said.starts_with("3 rows durable in table `y`, 1 replaced: 3 commits, "), "{said}");
}

/// Regression: a file with a bad last row left all other rows in the table.
#[test]
fn an_atomic_load_is_all_or_nothing() {
    let sandbox = Sandbox::new();
    let rows: String = (0..5000).map(|row| format!("{row:05}\t{row}\n")).collect();
    sandbox.write("good.tsv", &rows);
    sandbox.write("bad.tsv", format!("{rows}oops\n"));
    sandbox.ok(&["put", "--create", "db", "t", "00001", "old"]);
    sandbox
        .run(&["load", "--atomic", "db", "t", "bad.tsv"])
        .fails(1, "bad.tsv, line 5001: 1 column found, at least 2 expected; 0 rows are durable");
    assert_eq!(sandbox.ok(&["scan", "db", "t"]), "00001\told\n");
    let said = sandbox.ok(&["load", "--atomic", "db", "t", "good.tsv"]);
    assert!(said.starts_with("5,000 rows durable in table `t`, 1 replaced: 1 commit, "), "{said}");
    assert_eq!(sandbox.ok(&["export", "db", "t"]), rows);
    let said = sandbox.ok(&["load", "--atomic", "--skip-bad", "--json", "db", "u", "bad.tsv"]);
    assert_eq!((&summary(&said)["rows"], &summary(&said)["bad_rows"]), (&5000.into(), &1.into()));
    assert_eq!(said.lines().filter(|line| line.starts_with("{\"durable_rows\"")).count(), 1, "{said}");
}

/// Regression: without a table, the file's name made one, and the load waited for rows on standard input.
#[test]
fn a_file_in_the_place_of_the_table_is_not_taken_for_one() {
    let sandbox = Sandbox::new();
    sandbox.write("dup.tsv", "a\t1\n");
    sandbox.run(&["load", "db", "dup.tsv"]).fails(2, "which table? `dup.tsv` is a file");
    assert_eq!(sandbox.names(), ["dup.tsv"]);
    sandbox.run_with(&["load", "db", "dup.tsv", "-"], b"b\t2\n").ok();
    assert_eq!(sandbox.ok(&["scan", "db", "dup.tsv"]), "b\t2\n");
}

/// Regression: rows were skipped, and no message named them.
#[test]
fn the_first_row_that_was_skipped_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("x.tsv", "a\t1\nbad\nb\t2\nworse\n");
    let said = sandbox.ok(&["load", "--skip-bad", "db", "t", "x.tsv"]);
    let line = "2 bad rows skipped; the first is x.tsv, line 2: 1 column found, at least 2 expected";
    assert_eq!(said.lines().last(), Some(line));
    let said = summary(&sandbox.ok(&["load", "--skip-bad", "--json", "db", "t", "x.tsv"]));
    assert_eq!((&said["bad_rows"], &said["first_bad_line"]), (&2.into(), &2.into()));
    assert_eq!(said["first_bad_reason"], "1 column found, at least 2 expected");
    sandbox.write("x.tsv", "a\t1\n");
    let said = summary(&sandbox.ok(&["load", "--skip-bad", "--json", "db", "t", "x.tsv"]));
    assert_eq!((&said["bad_rows"], &said["first_bad_line"]), (&0.into(), &Value::Null));
}

/// Regression: times in seconds are in 1970; the rows were counted as durable, and no read showed them.
#[test]
fn rows_that_had_expired_are_counted_apart() {
    let sandbox = Sandbox::new();
    let rows =
        "{\"key\":\"a\",\"value\":\"1\",\"expires_at_ms\":1893456000}\n{\"key\":\"b\",\"value\":\"2\"}\n";
    sandbox.write("x.jsonl", rows);
    for (table, atomic) in [("t", None), ("u", Some("--atomic"))] {
        let load = [&["load", "db", table, "x.jsonl"][..], atomic.as_slice()].concat();
        let said = sandbox.ok(&load);
        let expected = format!("2 rows durable in table `{table}`, 1 of them had expired already: 1 commit");
        assert!(said.starts_with(&expected), "{said}");
        let said = summary(&sandbox.ok(&[&load[..], &["--json"]].concat()));
        assert_eq!((&said["durable_rows"], &said["expired_rows"]), (&2.into(), &1.into()));
        assert_eq!(sandbox.ok(&["scan", "db", table]), "b\t2\n");
    }
}

#[test]
fn a_signal_or_a_kill_undoes_an_atomic_load() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "old", "1"]);
    for signal in ["-INT", "-KILL"] {
        let mut child = sandbox.start(&["load", "--atomic", "--json", "db", "t"]);
        let mut stdin = child.stdin.take().unwrap();
        // A reader that has taken all of this has begun to load it; the pause that follows commits nothing.
        let rows: String = (0..20_000).map(|row| format!("{row}\tsome value of row {row}\n")).collect();
        stdin.write_all(rows.as_bytes()).unwrap();
        std::thread::park_timeout(std::time::Duration::from_millis(300));
        let id = child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
        let mut said = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            said = line.unwrap();
        }
        let code = child.wait().unwrap().code();
        match signal {
            "-INT" => assert_eq!((code, &summary(&said)["rows"]), (Some(130), &0.into())),
            _ => assert_eq!((code, said.as_str()), (None, "")),
        }
        drop(stdin);
        assert_eq!(sandbox.ok(&["scan", "db", "t"]), "old\t1\n");
    }
}

#[test]
fn the_help_of_load_says_what_order_costs() {
    let help = Sandbox::new().ok(&["load", "--help"]);
    let words: Vec<&str> = help.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("Above ten million rows, input in the order of its keys")
            && words.contains("ten times as fast")
    );
}
