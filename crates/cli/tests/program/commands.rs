//! Each command on a little data.

use crate::common::Sandbox;

fn elements() -> Sandbox {
    let sandbox = Sandbox::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/elements.tsv");
    let said = sandbox.ok(&["load", "--header", "db", "elements", file]);
    assert!(said.starts_with("118 rows durable in table `elements`"), "{said}");
    sandbox
}

#[test]
fn a_loaded_file_is_read_and_scanned() {
    let sandbox = elements();
    assert_eq!(sandbox.ok(&["get", "db", "elements", "Au"]), "79\tGold\t196.97");
    assert_eq!(
        sandbox.ok(&["get", "db", "elements", "4175", "--hex", "--json"]),
        concat!(r#"{"key":"Au","value":"79\tGold\t196.97"}"#, "\n")
    );
    assert_eq!(
        sandbox.ok(&["scan", "db", "elements", "--prefix", "A", "--keys-only"]),
        "Ac\nAg\nAl\nAm\nAr\nAs\nAt\nAu\n"
    );
    assert_eq!(sandbox.ok(&["scan", "db", "elements", "--count"]), "118\n");
    assert_eq!(
        sandbox.ok(&["scan", "db", "elements", "--from", "Zn", "--to", "Zr"]),
        "Zn\t30\tZinc\t65.38\n"
    );
    assert_eq!(
        sandbox.ok(&["scan", "db", "elements", "--reverse", "--limit", "2", "--keys-only"]),
        "Zr\nZn\n"
    );
    assert_eq!(sandbox.ok(&["scan", "db", "elements", "--prefix", "4175", "--hex", "--keys-only"]), "4175\n");
    assert_eq!(
        sandbox.ok(&["scan", "db", "elements", "--limit", "1", "--json"]),
        "{\"key\":\"Ac\",\"value\":\"89\\tActinium\\t\"}\n"
    );
    assert_eq!(sandbox.ok(&["tables", "db"]), "elements  about 118 entries\n");
}

#[test]
fn put_get_delete() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.ok(&["put", "--create", "db", "t", "a", "1"]), "");
    assert_eq!(sandbox.run_with(&["put", "--create", "db", "t", "b", "-"], b"two\n\xff").ok(), "");
    assert_eq!(sandbox.run_with(&["put", "--create", "db", "t", "c"], b"").ok(), "");
    sandbox.ok(&["put", "--create", "db", "t", "ff00", "binary", "--hex"]);
    assert_eq!(sandbox.run(&["get", "db", "t", "b"]).stdout, b"two\n\xff");
    assert_eq!(sandbox.ok(&["get", "db", "t", "c"]), "");
    assert!(sandbox.ok(&["put", "--create", "db", "t", "--json", "a", "2"]).starts_with("{\"csn\":"));
    assert_eq!(sandbox.ok(&["get", "db", "t", "a"]), "2");
    sandbox.ok(&["delete", "db", "t", "a"]);
    sandbox.ok(&["delete", "db", "t", "a"]);
    sandbox.run(&["get", "db", "t", "a"]).fails(5, "table `t` has no key \"a\"");
    assert_eq!(sandbox.ok(&["scan", "db", "t", "--count"]), "3\n");
    sandbox.ok(&["delete", "db", "t", "--prefix", "ff", "--hex"]);
    assert_eq!(sandbox.ok(&["scan", "db", "t", "--keys-only"]), "b\nc\n");
    sandbox.ok(&["delete", "db", "t", "--from", "c"]);
    assert_eq!(sandbox.ok(&["scan", "db", "t", "--keys-only"]), "b\n");
    sandbox.ok(&["delete", "db", "t", "--prefix", ""]);
    assert_eq!(sandbox.ok(&["scan", "db", "t"]), "");
}

#[test]
fn an_entry_expires() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "soon", "1", "--expires-in", "1ms"]);
    sandbox.ok(&["put", "--create", "db", "t", "late", "1", "--expires-in", "1h"]);
    assert_eq!(sandbox.ok(&["scan", "db", "t", "--keys-only"]), "late\n");
}

#[test]
fn tables_are_renamed_and_dropped() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "b", "k", "1"]);
    sandbox.ok(&["put", "--create", "db", "a", "k", "2"]);
    sandbox.ok(&["rename", "db", "b", "c"]);
    assert_eq!(sandbox.ok(&["get", "db", "c", "k"]), "1");
    sandbox.run(&["rename", "db", "a", "c"]).fails(1, "there is a table `c` already");
    sandbox.run(&["rename", "db", "b", "d"]).fails(1, "there is no table `b`");
    sandbox.ok(&["drop", "db", "a"]);
    sandbox.run(&["drop", "db", "a"]).fails(1, "there is no table `a`");
    assert_eq!(sandbox.ok(&["tables", "db", "--json"]), "{\"entries_estimate\":1,\"name\":\"c\"}\n");
}

/// Elements whose load was killed after they were durable: their commits are still in the log.
fn killed_elements() -> Sandbox {
    use std::io::{BufRead, Write};
    let sandbox = Sandbox::new();
    let mut child = sandbox.start(&["load", "--json", "--header", "--format", "tsv", "db", "elements"]);
    let rows = include_bytes!("../../../../examples/elements.tsv");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(rows).unwrap();
    stdin.flush().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("118") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended before the rows were durable");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    sandbox
}

#[test]
fn stat_and_check_and_dump() {
    let sandbox = killed_elements();
    let segment = sandbox.ok(&["dump", "db", "--segment", "1"]);
    assert!(segment.contains("table 1: put \"Au\" = \"79\\tGold\\t196.97\""), "{segment}");
    let items = sandbox.ok(&["dump", "db", "--segment", "1", "--json"]);
    let items: Vec<serde_json::Value> =
        items.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(items.iter().any(|item| item["item"] == "frame" && item["operations"].is_array()));
    assert_eq!(sandbox.ok(&["dump", "db", "--segment", "1", "--limit", "2", "--json"]).lines().count(), 2);
    sandbox.run(&["dump", "db", "--segment", "999"]).fails(1, "no segment 999");
    let ran = sandbox.run(&["stat", "db", "--json"]);
    let note = "its log does not say whether commit";
    assert!(ran.code == Some(0) && ran.stderr.contains(note), "{}", ran.stderr);
    assert!(ran.stderr.contains("What was acknowledged at Sync had"), "{}", ran.stderr);
    let said = sandbox.ok(&["stat", "db"]);
    assert!(said.contains("the log does not say whether commit"), "{said}");
    let said = sandbox.ok(&["check", "db"]);
    assert!(said.contains("read 0 entries of 1 table, and 118 operations that the log has"), "{said}");
    let stat: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&stat["tables"], &stat["entries_estimate"]), (&1.into(), &118.into()));
    let groups = stat["segments"].as_object().expect("by reason");
    let sum: u64 = groups.values().map(|group| group["bytes"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), stat["segment_bytes"].as_u64(), "{groups:?}");
    assert!(groups.contains_key("replay") || groups.contains_key("open"), "{groups:?}");
    assert_eq!((&stat["pinned_bytes"], &stat["seconds_left"]), (&0.into(), &serde_json::Value::Null));
    let memory = &stat["memory"];
    assert!(memory["budget_bytes"].as_u64() > memory["total_bytes"].as_u64(), "{memory}");
    assert_eq!((&memory["node_loads"]["merges"], &memory["waits"]["max_ns"]), (&0.into(), &0.into()));
    sandbox.ok(&["put", "db", "elements", "Au", "79\tGold\t196.97"]);
    let said = sandbox.ok(&["stat", "db"]);
    assert!(said.contains("tables") && said.contains("pinned") && said.contains("segment"), "{said}");
    assert!(said.contains("of a budget of") && said.contains("loaded nodes"), "{said}");
    let check: serde_json::Value = serde_json::from_str(&sandbox.ok(&["check", "db", "--json"])).unwrap();
    assert_eq!(check["sound"], true);
    assert_eq!(
        (&check["tables"], &check["entries"], &check["recent_versions"]),
        (&1.into(), &118.into(), &0.into())
    );
    assert!(sandbox.ok(&["check", "db"]).ends_with("the database is sound\n"));
    let dump = sandbox.ok(&["dump", "db"]);
    assert!(dump.starts_with("copy 0: ") && dump.contains("commit"), "{dump}");
}

#[test]
fn garbage_is_collected() {
    let sandbox = elements();
    // Rows whose values are not in leaves, most of them overwritten.
    let rows = |round: usize, step: usize| -> String {
        let row = |n: usize| format!("key {n:04}\t{}\n", format!("{round} ").repeat(2000));
        (0..1000).step_by(step).map(row).collect()
    };
    sandbox.run_with(&["load", "db", "rows", "-"], rows(1, 1).as_bytes()).ok();
    for round in 2..6 {
        sandbox.run_with(&["load", "db", "rows", "-"], rows(round, round).as_bytes()).ok();
    }
    let said = sandbox.ok(&["gc", "db"]);
    assert!(said.contains(" on disk, ") && said.contains("times their live data"), "{said}");
    let found: serde_json::Value =
        serde_json::from_str(&sandbox.ok(&["gc", "db", "--until", "1.05", "--json"])).unwrap();
    assert_eq!(found["reached"], true, "{found}");
    assert!(found["after"]["ratio"].as_f64().unwrap() <= 1.05, "{found}");
    assert_eq!(sandbox.ok(&["scan", "db", "rows", "--count"]), "1000\n");
    assert!(sandbox.ok(&["check", "db"]).contains("sound"));
    sandbox.run(&["gc", "db", "--until", "0.9"]).fails(1, "allowed is 1.02 to 100");
    sandbox.run(&["gc", "nowhere"]).fails(1, "nowhere");
}

#[test]
fn dump_decodes_nodes() {
    let sandbox = elements();
    // Opening and closing for a read leaves the leaf in some segment; only one has it.
    let found = (1..20).any(|segment| {
        let ran = sandbox.run(&["dump", "db", "--segment", &segment.to_string(), "--json"]);
        let text = String::from_utf8(ran.stdout).unwrap();
        let mut items = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        items.any(|item| {
            let entries = item["entries"].as_array().cloned().unwrap_or_default();
            item["item"] == "node" && entries.iter().any(|entry| entry["value"] == "79\tGold\t196.97")
        })
    });
    assert!(found, "the leaf with gold is dumped");
    let rows: String = (0..5000).map(|row| format!("{row:05}\tvalue {row}\n")).collect();
    sandbox.write("rows.tsv", rows);
    sandbox.ok(&["load", "db", "rows", "rows.tsv"]);
    let inner = (1..20).any(|segment| {
        let ran = sandbox.run(&["dump", "db", "--segment", &segment.to_string()]);
        assert!(ran.code == Some(0) || ran.stderr.contains("no segment"), "{}", ran.stderr);
        String::from_utf8(ran.stdout).unwrap().contains("level 1, keys from \"\" to the end")
    });
    assert!(inner, "the root of the larger table is dumped");
    let people = (1..20).any(|segment| {
        let ran = sandbox.run(&["dump", "db", "--segment", &segment.to_string()]);
        String::from_utf8(ran.stdout).unwrap().contains("\"Au\" = \"79\\tGold\\t196.97\", commit ")
    });
    assert!(people);
}

#[test]
fn dump_writes_nothing() {
    let sandbox = killed_elements();
    let files = |sandbox: &Sandbox| sandbox.ok(&["dump", "db", "--json"]);
    let before = files(&sandbox);
    sandbox.ok(&["dump", "db", "--segment", "1"]);
    assert_eq!(files(&sandbox), before);
}

#[test]
fn a_clock_is_shown_and_reset() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "db", "t", "k", "v", "--expires-in", "1h", "--create"]);
    assert!(sandbox.ok(&["stat", "db"]).contains("follows"));
    assert!(sandbox.ok(&["stat", "db", "--json"]).contains("\"state\":\"follows\""));
    assert!(sandbox.ok(&["reset-clock", "db"]).contains(" UTC, now 20"));
    assert!(sandbox.ok(&["reset-clock", "db", "--json"]).contains("\"after_ms\":1"));
    assert_eq!(sandbox.ok(&["get", "db", "t", "k"]), "v");
    sandbox.run(&["reset-clock", "none"]).fails(1, "none");
    assert!(!sandbox.file("none").exists());
}
