//! A database that `export` wrote and `load` read is the same.

use crate::common::Sandbox;
use serde_json::Value;

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// A database with two sessions: one never expires, one expires in an hour.
fn with_a_session() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "sessions", "alice", "1", "--expires-in", "1h"]);
    sandbox.ok(&["put", "db", "sessions", "bob", "2"]);
    sandbox
}

/// Regression: in a backup, a session that had expired never expired.
#[test]
fn a_restored_entry_expires_when_it_did_before() {
    let sandbox = with_a_session();
    sandbox.ok(&["put", "db", "sessions", "carol", "3", "--expires-in", "3s"]);
    sandbox.ok(&["export", "db", "sessions", "backup.jsonl"]);
    let lines = sandbox.ok(&["scan", "db", "sessions", "--json"]);
    // On a busy machine she may expire between the two.
    let others = |text: &str| {
        text.lines().filter(|line| !line.contains("carol")).map(String::from).collect::<Vec<_>>()
    };
    let backup = String::from_utf8(sandbox.read("backup.jsonl")).unwrap();
    assert!(backup.contains("carol") && others(&backup).len() == 2, "{backup}");
    assert_eq!(others(&backup), others(&lines));
    sandbox.ok(&["load", "copy", "sessions", "backup.jsonl", "--json"]);
    let copied = sandbox.ok(&["scan", "copy", "sessions", "--json", "--prefix", "alice"]);
    assert!(copied.contains("\"expires_at_ms\":"), "{copied}");
    assert_eq!(copied, sandbox.ok(&["get", "db", "sessions", "alice", "--json"]));
    assert_eq!(
        sandbox.ok(&["get", "copy", "sessions", "bob", "--json"]),
        "{\"key\":\"bob\",\"value\":\"2\"}\n"
    );
    let backwards = sandbox.ok(&["scan", "copy", "sessions", "--json", "--reverse", "--prefix", "alice"]);
    assert_eq!(backwards, copied);
    std::thread::park_timeout(std::time::Duration::from_millis(3100));
    sandbox.run(&["get", "copy", "sessions", "carol"]).fails(5, "no key \"carol\"");
}

/// Regression: a format that cannot say when an entry expires was written as if it did not expire.
#[test]
fn a_format_without_expiry_refuses_entries_that_expire() {
    let sandbox = with_a_session();
    for (name, what) in [("x.tsv", "TSV"), ("x.csv.gz", "CSV")] {
        let ran = sandbox.run(&["export", "db", "sessions", name]);
        ran.fails(
            1,
            &format!("the row of key \"alice\" cannot be written: it expires, and {what} cannot say when"),
        );
        assert!(!sandbox.names().iter().any(|found| found.starts_with(name)), "{:?}", sandbox.names());
        sandbox.ok(&["export", "--without-expiry", "db", "sessions", name]);
        sandbox.ok(&["load", "copy", what, name]);
        assert_eq!(sandbox.ok(&["scan", "copy", what, "--json"]).matches("expires_at_ms").count(), 0);
    }
    sandbox.ok(&["delete", "db", "sessions", "alice"]);
    sandbox.ok(&["export", "db", "sessions", "x.tsv"]);
}

#[test]
fn a_time_of_expiry_that_is_none_is_a_bad_row() {
    let sandbox = Sandbox::new();
    for wrong in ["\"soon\"", "-5", "1.5", "0", "true"] {
        sandbox.write("x.jsonl", format!("{{\"key\":1,\"value\":2,\"expires_at_ms\":{wrong}}}\n"));
        sandbox
            .run(&["load", "db", "t", "x.jsonl"])
            .fails(1, "line 1: field \"expires_at_ms\" is not a number");
    }
    // Objects of other programs may use that name for something else, and another name for the expiry.
    sandbox.write("x.jsonl", "{\"id\":1,\"expires_at_ms\":\"in May\",\"until\":4102444800000}\n");
    let load = ["load", "db", "t", "x.jsonl", "--key-field", "id", "--value-field", "."];
    sandbox.ok(&load);
    assert!(!sandbox.ok(&["get", "db", "t", "1", "--json"]).ends_with(",\"expires_at_ms\":4102444800000}\n"));
    sandbox.ok(&[&load[..], &["--expiry-field", "until"]].concat());
    assert!(sandbox.ok(&["get", "db", "t", "1", "--json"]).ends_with(",\"expires_at_ms\":4102444800000}\n"));
    sandbox.write("y.jsonl", "{\"key\":\"k\",\"value\":1,\"expires_at_ms\":null}\n");
    sandbox.ok(&["load", "db", "t", "y.jsonl"]);
    assert_eq!(sandbox.ok(&["get", "db", "t", "k", "--json"]), "{\"key\":\"k\",\"value\":\"1\"}\n");
}

/// Regression: a backup of several tables took several commands, each with a snapshot of its own.
#[test]
fn a_backup_of_all_tables_comes_back() {
    let sandbox = with_a_session();
    sandbox.ok(&["put", "--create", "db", "a \"b\"/\u{e9}", "k", "v"]);
    sandbox.ok(&["put", "--create", "db", "empty", "k", "v"]);
    sandbox.ok(&["delete", "db", "empty", "k"]);
    sandbox.run_with(&["put", "db", "sessions", "ff00", "--hex"], b"\xff\x00\n").ok();
    sandbox.ok(&["export", "--all", "db", "backup.jsonl.gz"]);
    let said = sandbox.ok(&["load", "--all", "copy", "backup.jsonl.gz"]);
    assert!(said.starts_with("4 rows durable: 1 commit"), "{said}");
    assert_eq!(sandbox.ok(&["export", "--all", "copy"]), sandbox.ok(&["export", "--all", "db", "-"]));
    let names = |db: &str| -> Vec<Value> {
        objects(&sandbox.ok(&["tables", db, "--json"])).iter().map(|table| table["name"].clone()).collect()
    };
    assert_eq!(names("copy"), names("db"));
    let some = objects(&sandbox.ok(&["export", "--table", "empty", "--table", "sessions", "db"]));
    let of = |table: &str| some.iter().filter(|row| row["table"] == table).count();
    assert_eq!((some.len(), of("empty"), of("sessions")), (5, 1, 4));
    // A file with several tables is not taken for one with a single table.
    sandbox.run(&["load", "copy", "t", "backup.jsonl.gz"]).fails(1, "line 1: there is no field \"key\"");
    sandbox.run(&["load", "--all", "copy", "-"]).ok();
    for args in [
        &["export", "--all", "db", "t", "x.jsonl"][..],
        &["export", "--all", "db", "x.tsv"],
        &["export", "db"],
        &["load", "db"],
        &["load", "--all", "--format", "csv", "db"],
        &["load", "--all", "db", "t", "x.jsonl"],
    ] {
        sandbox.run(args).fails(2, "");
    }
}

/// Regression: `export` wrote TSV into a file whose name says another format.
#[test]
fn a_file_name_of_another_format_is_refused() {
    let sandbox = with_a_session();
    for name in ["x.parquet", "x.json", "x.tsv.zst"] {
        sandbox
            .run(&["export", "db", "sessions", name])
            .fails(2, "no format is known for files that end with");
        sandbox.write(name, "a\t1\n");
        sandbox.run(&["load", "db", "new", name]).fails(2, "no format is known for files that end with");
    }
    sandbox.ok(&["load", "--format", "tsv", "db", "new", "x.parquet"]);
    assert_eq!(sandbox.ok(&["get", "db", "new", "a"]), "1");
}

/// Regression: `export` printed nothing, even where it replaced a file.
#[test]
fn an_export_says_what_it_wrote_and_replaced() {
    let sandbox = with_a_session();
    let export = |args: &[&str]| sandbox.run(&[&["export", "--all", "db", "x.jsonl"], args].concat()).stderr;
    assert_eq!(export(&[]), "2 rows of 1 table written to x.jsonl\n");
    let instead = "2 rows of 1 table written to x.jsonl, instead of the file that was there\n";
    assert_eq!(export(&[]), instead);
    let said = &objects(&export(&["--json"]))[0];
    assert_eq!((&said["rows"], &said["tables"], &said["replaced"]), (&2.into(), &1.into(), &true.into()));
    assert_eq!(sandbox.run(&["export", "--all", "db"]).stderr, "");
}

#[test]
fn a_delimiter_may_be_chosen() {
    let sandbox = Sandbox::new();
    sandbox.write("x.csv", "id;name;mass\n1;\"one; or so\";1,5\n2;two;2,5\n");
    sandbox.ok(&["load", "--delimiter", ";", "--key", "id", "db", "t", "x.csv"]);
    assert_eq!(sandbox.ok(&["scan", "db", "t"]), "1\t\"one; or so\";1,5\n2\ttwo;2,5\n");
    sandbox.ok(&["load", "--delimiter", ";", "--key", "name", "--value", "mass", "db", "m", "x.csv"]);
    assert_eq!(sandbox.ok(&["get", "db", "m", "one; or so"]), "1,5");
    assert_eq!(sandbox.ok(&["export", "--delimiter", ";", "db", "m"]), "\"one; or so\";1,5\ntwo;2,5\n");
    sandbox.ok(&["export", "--delimiter", "\\t", "db", "m", "out.csv"]);
    assert_eq!(sandbox.read("out.csv"), b"one; or so\t1,5\ntwo\t2,5\n");
    sandbox.ok(&["load", "--delimiter", "\\t", "db", "n", "out.csv"]);
    assert_eq!(sandbox.ok(&["export", "db", "n"]), sandbox.ok(&["export", "db", "m"]));
    sandbox
        .run(&["export", "--delimiter", ";", "db", "m", "out.tsv"])
        .fails(2, "--delimiter goes with CSV only");
    sandbox.run(&["load", "--delimiter", ";;", "db", "m", "x.csv"]).fails(2, "");
}

/// Regression: one bad leaf of 13,079 stopped the export of all others.
#[test]
fn one_bad_leaf_does_not_stop_an_export_for_ever() {
    let sandbox = Sandbox::new();
    let rows: Vec<String> = (0..5000).map(|row| format!("{row:05}\tsome value of row {row}\n")).collect();
    sandbox.write("x.tsv", rows.concat());
    sandbox.ok(&["load", "db", "t", "x.tsv"]);
    let segments = objects(&sandbox.ok(&["dump", "db", "--json"]));
    let bulk = segments.iter().filter(|line| line["stream"] == "bulk");
    let bulk = bulk.max_by_key(|line| line["used_bytes"].as_u64()).unwrap();
    let name = format!("db/log/{:010}.seg", bulk["segment"].as_u64().unwrap());
    let mut bytes = sandbox.read(&name);
    bytes[40_000] ^= 1;
    sandbox.write(&name, bytes);

    sandbox.run(&["export", "db", "t", "all.tsv"]).fails(3, ".seg");
    assert!(!sandbox.names().contains(&"all.tsv".to_string()));
    let ran = sandbox.run(&["export", "--skip-damaged", "db", "t", "left.tsv"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.stderr);
    assert!(
        lines[0].starts_with("left out of table `t`: keys from ") && lines[0].contains(".seg"),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains("1 range could not be read and is named above"), "{}", lines[1]);

    let ran = sandbox.run(&["export", "--skip-damaged", "--json", "db", "t", "left.tsv"]);
    let said = objects(&ran.stderr);
    assert_eq!((ran.code, said.len()), (Some(3), 2), "{}", ran.stderr);
    assert_eq!((&said[0]["left_out"], &said[1]["exit_code"]), (&"t".into(), &3.into()));
    let (from, to) = (said[0]["from"].as_str().unwrap_or(""), said[0]["to"].as_str().unwrap_or("99999"));
    let is_left = |row: &&String| &row[..5] < from || &row[..5] >= to;
    let expected: String = rows.iter().filter(is_left).map(String::as_str).collect();
    assert!(expected.lines().count() > 4500, "{from} to {to}");
    assert_eq!(String::from_utf8(sandbox.read("left.tsv")).unwrap(), expected);
}

/// Regression: a power cut took the name of a backup that was reported as written, and the backup with it.
#[test]
fn the_name_of_a_backup_is_durable_when_the_export_ends() {
    let sandbox = with_a_session();
    let program = env!("CARGO_BIN_EXE_fulgurite");
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=rename,renameat,renameat2,fsync,openat", "-o", "trace", program]);
    let ran = command.args(["export", "--all", "db", "backup.jsonl.gz"]).current_dir(sandbox.path()).output();
    if !ran.is_ok_and(|ran| ran.status.success()) {
        return eprintln!("skipped: nothing can be traced");
    }
    let trace = String::from_utf8(sandbox.read("trace")).unwrap();
    let named = trace.lines().position(|line| line.contains("rename") && line.contains("backup.jsonl.gz"));
    let after: Vec<_> = trace.lines().skip(named.expect("it gets its name at the end")).collect();
    let opened = after.iter().position(|line| line.contains("openat") && line.contains("O_RDONLY"));
    let synced = after.iter().rposition(|line| line.contains("fsync("));
    assert!(opened.is_some() && opened < synced, "{after:#?}");
}
