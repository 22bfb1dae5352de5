//! A damaged database: readable data is read, and the reports are correct.

mod common;

use common::Place;

/// A table with several leaves.
fn rows(place: &Place) {
    let rows: String = (0..5000).map(|row| format!("{row:05}\tsome value of row {row}\n")).collect();
    place.write("rows.tsv", rows);
    place.ok(&["load", "db", "t", "rows.tsv"]);
}

/// Regression: `get` read through a range, which reads the leaf first.
#[test]
fn an_acknowledged_value_in_the_log_was_not_found_because_its_leaf_was_damaged() {
    let place = Place::new();
    rows(&place);
    place.load_and_kill("t", "00007\tnewer\n");
    place.damage_leaves("00007");
    assert_eq!(place.ok(&["get", "db", "t", "00007"]), "newer");
    assert_eq!(place.ok(&["get", "db", "t", "00007", "--json"]), "{\"key\":\"00007\",\"value\":\"newer\"}\n");
    assert_eq!(place.run(&["get", "db", "t", "00008"]).code, Some(3), "it was in that leaf only");
}

#[test]
fn get_tells_when_a_value_expires() {
    let place = Place::new();
    place.ok(&["put", "--create", "db", "t", "k", "v", "--expires-in", "1h"]);
    let found = place.objects(&["get", "db", "t", "k", "--json"]);
    assert!(found[0]["expires_at_ms"].as_u64() > Some(1_700_000_000_000), "{found:?}");
    place.ok(&["put", "db", "t", "k", "v", "--expires-in", "1ms"]);
    place.run(&["get", "db", "t", "k"]).fails(5, "no key \"k\"");
}

/// Regression: the problem said that a write mends it, but the last line asked to restore a backup.
#[test]
fn check_sent_for_a_backup_when_one_copy_of_the_superblock_was_bad() {
    let place = Place::new();
    place.ok(&["put", "--create", "db", "t", "k", "v"]);
    place.flip("db/SUPERBLOCK", 40);
    let ran = place.run(&["check", "db"]);
    let said = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(ran.code, Some(3));
    assert!(said.ends_with("\n1 problem: the next command that writes mends it\n"), "{said}");
    let report = &place.objects(&["check", "db", "--json"])[0];
    assert_eq!((&report["sound"], &report["mendable_problems"]), (&false.into(), &1.into()));
    assert_eq!(place.run(&["put", "db", "t", "k", "w"]).code, Some(0), "it warns");
    assert!(place.ok(&["check", "db"]).ends_with("the database is sound\n"));
}

#[test]
fn check_sends_for_a_backup_when_a_leaf_is_bad_as_well() {
    let place = Place::new();
    rows(&place);
    place.damage_leaves("00007");
    place.flip("db/SUPERBLOCK", 40);
    let said = String::from_utf8(place.run(&["check", "db"]).stdout).unwrap();
    assert!(said.trim_end().ends_with(" problems: restore a backup"), "{said}");
}

/// Regression: a script that dumped all segments took them for sound.
#[test]
fn a_dump_of_a_damaged_segment_ended_with_success() {
    let place = Place::new();
    rows(&place);
    let segment = place.damage_leaves("00007")[0].to_string();
    for (args, code) in [
        (&["dump", "db", "--segment", &segment][..], 3),
        (&["dump", "db", "--segment", &segment, "--json"], 3),
        (&["dump", "db", "--segment", &segment, "--limit", "1"], 0),
        (&["dump", "db"], 3),
    ] {
        let ran = place.run(args);
        let said = String::from_utf8(ran.stdout).unwrap();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "{args:?}: {said}");
        assert_eq!(said.contains("undecodable"), code == 3, "{args:?}: {said}");
    }
}

/// Regression: `dump` said that it was no database, `check` that it was a damaged one.
#[test]
fn a_database_without_its_superblock_was_called_none() {
    let place = Place::new();
    place.ok(&["put", "--create", "db", "t", "k", "v"]);
    place.remove("db/SUPERBLOCK");
    for args in
        [&["dump", "db"][..], &["dump", "db", "--segment", "1"], &["check", "db"], &["get", "db", "t", "k"]]
    {
        place.run(args).fails(3, "SUPERBLOCK: it is missing beside a log");
    }
    place.make_dir("empty");
    place.make_dir("theirs");
    place.write("theirs/notes.txt", "mine");
    for dir in ["empty", "theirs"] {
        for command in ["dump", "check"] {
            place.run(&[command, dir]).fails(1, "is not a Fulgurite database");
        }
    }
}
