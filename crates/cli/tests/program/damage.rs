//! A damaged database: readable data is read, and the reports are correct.

use crate::common::Sandbox;

/// A table with several leaves.
fn rows(sandbox: &Sandbox) {
    let rows: String = (0..5000).map(|row| format!("{row:05}\tsome value of row {row}\n")).collect();
    sandbox.write("rows.tsv", rows);
    sandbox.ok(&["load", "db", "t", "rows.tsv"]);
}

/// Regression: `get` read through a range, which reads the leaf first.
#[test]
fn an_acknowledged_value_in_the_log_was_not_found_because_its_leaf_was_damaged() {
    let sandbox = Sandbox::new();
    rows(&sandbox);
    sandbox.load_and_kill("t", "00007\tnewer\n");
    sandbox.damage_leaves("00007");
    assert_eq!(sandbox.ok(&["get", "db", "t", "00007"]), "newer");
    assert_eq!(
        sandbox.ok(&["get", "db", "t", "00007", "--json"]),
        "{\"key\":\"00007\",\"value\":\"newer\"}\n"
    );
    assert_eq!(sandbox.run(&["get", "db", "t", "00008"]).code, Some(3), "it was in that leaf only");
}

#[test]
fn get_tells_when_a_value_expires() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v", "--expires-in", "1h"]);
    let found = sandbox.objects(&["get", "db", "t", "k", "--json"]);
    assert!(found[0]["expires_at_ms"].as_u64() > Some(1_700_000_000_000), "{found:?}");
    sandbox.ok(&["put", "db", "t", "k", "v", "--expires-in", "1ms"]);
    sandbox.run(&["get", "db", "t", "k"]).fails(5, "no key \"k\"");
}

/// Regression: the problem said that a write mends it, but the last line asked to restore a backup.
#[test]
fn check_sent_for_a_backup_when_one_copy_of_the_superblock_was_bad() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    sandbox.flip("db/SUPERBLOCK", 40);
    let ran = sandbox.run(&["check", "db"]);
    let said = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(ran.code, Some(3));
    assert!(said.ends_with("\n1 problem: the next command that writes mends it\n"), "{said}");
    let report = &sandbox.objects(&["check", "db", "--json"])[0];
    assert_eq!((&report["sound"], &report["mendable_problems"]), (&false.into(), &1.into()));
    assert_eq!(sandbox.run(&["put", "db", "t", "k", "w"]).code, Some(0), "it warns");
    assert!(sandbox.ok(&["check", "db"]).ends_with("the database is sound\n"));
}

#[test]
fn check_sends_for_a_backup_when_a_leaf_is_bad_as_well() {
    let sandbox = Sandbox::new();
    rows(&sandbox);
    sandbox.damage_leaves("00007");
    sandbox.flip("db/SUPERBLOCK", 40);
    let said = String::from_utf8(sandbox.run(&["check", "db"]).stdout).unwrap();
    assert!(said.trim_end().ends_with(" problems: restore a backup"), "{said}");
}

/// Regression: a script that dumped all segments took them for sound.
#[test]
fn a_dump_of_a_damaged_segment_ended_with_success() {
    let sandbox = Sandbox::new();
    rows(&sandbox);
    let segment = sandbox.damage_leaves("00007")[0].to_string();
    for (args, code) in [
        (&["dump", "db", "--segment", &segment][..], 3),
        (&["dump", "db", "--segment", &segment, "--json"], 3),
        (&["dump", "db", "--segment", &segment, "--limit", "1"], 0),
        (&["dump", "db"], 3),
    ] {
        let ran = sandbox.run(args);
        let said = String::from_utf8(ran.stdout).unwrap();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "{args:?}: {said}");
        assert_eq!(said.contains("undecodable"), code == 3, "{args:?}: {said}");
    }
}

/// Regression: `dump` said that it was no database, `check` that it was a damaged one.
#[test]
fn a_database_without_its_superblock_was_called_none() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    sandbox.remove("db/SUPERBLOCK");
    for args in
        [&["dump", "db"][..], &["dump", "db", "--segment", "1"], &["check", "db"], &["get", "db", "t", "k"]]
    {
        sandbox.run(args).fails(3, "SUPERBLOCK: it is missing beside a log");
    }
    sandbox.make_dir("empty");
    sandbox.make_dir("theirs");
    sandbox.write("theirs/notes.txt", "mine");
    for dir in ["empty", "theirs"] {
        for command in ["dump", "check"] {
            sandbox.run(&[command, dir]).fails(1, "is not a Fulgurite database");
        }
    }
}
