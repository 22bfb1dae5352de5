//! `load` killed with SIGKILL: every row that it reported as durable is there.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};

use common::Sandbox;
use fulgurite::env::{Env, RealEnv};

const ROWS: u64 = 50_000;
const KILLS: u64 = 3;

/// Keys are spread, so that the order of the input differs from the order of the table.
fn key(row: u64) -> String {
    format!("{:08x}", (row as u32).wrapping_mul(0x9e37_79b1))
}

fn lines(rows: std::ops::Range<u64>) -> Vec<u8> {
    rows.flat_map(|row| format!("{}\tvalue {row}\n", key(row)).into_bytes()).collect()
}

/// Loads the rows from `durable` on and kills the load when at least `wanted` more are reported; returns how many are.
fn load_and_kill(sandbox: &Sandbox, durable: u64, wanted: u64) -> u64 {
    let mut child = sandbox.start(&["load", "--json", "--batch", "100", "db", "t"]);
    let mut stdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut reported = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Fails once the program is killed. Until then the input does not end, so neither does the program.
            let _ = stdin.write_all(&lines(durable..ROWS)).and_then(|()| stdin.flush());
        });
        for line in stdout.lines() {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            let now = line["durable_rows"].as_u64().unwrap();
            assert!(now >= reported, "{now} after {reported}");
            reported = now;
            if reported >= wanted {
                child.kill().unwrap();
            }
        }
    });
    assert_eq!(child.wait().unwrap().code(), None, "it was killed");
    reported
}

/// Checks the value of each row in the table, and returns the numbers of the rows.
fn found(sandbox: &Sandbox) -> BTreeMap<u64, ()> {
    let mut found = BTreeMap::new();
    let by_key: BTreeMap<String, u64> = (0..ROWS).map(|row| (key(row), row)).collect();
    for line in sandbox.ok(&["export", "--raw", "db", "t"]).lines() {
        let (key, value) = line.split_once('\t').unwrap();
        let row = by_key[key];
        assert_eq!(value, format!("value {row}"));
        found.insert(row, ());
    }
    found
}

#[test]
fn every_reported_row_survives_a_kill() {
    let sandbox = Sandbox::new();
    let mut durable = 0;
    for kill in 0..KILLS {
        // A child that lost its turn may have loaded nearly all before it was killed.
        if ROWS - durable < 2 {
            break;
        }
        let wanted = 1 + RealEnv::new().random_u64() % ((ROWS - durable) / 2);
        durable += load_and_kill(&sandbox, durable, wanted);
        let found = found(&sandbox);
        let lost = (0..durable).find(|row| !found.contains_key(row));
        assert_eq!(lost, None, "kill {kill} at {durable} reported rows, {} are there", found.len());
        println!("kill {kill}: {durable} rows reported, {} found", found.len());
    }
    sandbox.write("rest.tsv", lines(durable..ROWS));
    sandbox.ok(&["load", "db", "t", "rest.tsv"]);
    assert_eq!(found(&sandbox).len() as u64, ROWS);
    assert!(sandbox.ok(&["check", "db"]).ends_with("the database is sound\n"));
}
