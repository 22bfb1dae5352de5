//! Loads of a whole file killed at random moments: the rows in the database are a prefix of the file, with at least all
//! rows that were reported as durable.
//!
//! `FULGURITE_KILL_FILE=rows.tsv.gz FULGURITE_KILLS=20 cargo test --release -p fulgurite-cli --test kill_file` does it
//! with a file of your own: TSV with a header line, keys without tabs and without repetition.

mod common;

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use common::Sandbox;
use fulgurite::env::{Env, RealEnv};

const ROWS: u64 = 60_000;
const KILLS: u64 = 2;

/// The file to load, and its lines after the header.
fn input(sandbox: &Sandbox) -> (PathBuf, Vec<Vec<u8>>) {
    let path = match std::env::var_os("FULGURITE_KILL_FILE") {
        Some(path) => PathBuf::from(path),
        None => {
            let row =
                |row: u64| format!("{:08x}\tvalue of row {row}\n", (row as u32).wrapping_mul(0x9e37_79b1));
            let text: String =
                std::iter::once("key\tvalue\n".to_string()).chain((0..ROWS).map(row)).collect();
            sandbox.write("rows.tsv", text);
            sandbox.file("rows.tsv")
        }
    };
    let bytes = sandbox.read(path.to_str().expect("the path is UTF-8"));
    let mut text = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(&*bytes).read_to_end(&mut text).expect("the file is gzip");
    } else {
        text = bytes;
    }
    let lines = text.split(|&byte| byte == b'\n').skip(1).filter(|line| !line.is_empty());
    (path, lines.map(<[u8]>::to_vec).collect())
}

fn load(sandbox: &Sandbox, file: &str) {
    sandbox.ok(&["load", "--header", "--format", "tsv", "db", "t", file]);
}

/// Loads the file and kills the load after `after`; returns how many rows were reported durable by then.
fn load_and_kill(sandbox: &Sandbox, file: &str, after: Duration) -> u64 {
    let mut child = sandbox.start(&["load", "--json", "--header", "--format", "tsv", "db", "t", file]);
    RealEnv::new().clock().sleep(after);
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // The kill may have cut off the last line.
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let reports = complete.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    reports.filter_map(|report| report["durable_rows"].as_u64()).max().unwrap_or(0)
}

#[test]
fn a_killed_load_leaves_a_prefix_with_all_reported_rows() {
    let sandbox = Sandbox::new();
    let (path, lines) = input(&sandbox);
    let file = path.to_str().unwrap();
    let env = RealEnv::new();
    let start = env.clock().monotonic_ns();
    load(&sandbox, file);
    let whole_ns = env.clock().monotonic_ns() - start;
    let mut sorted = lines.clone();
    sorted.sort_by(|a, b| key_of(a).cmp(key_of(b)));
    assert!(exported(&sandbox) == sorted, "the loaded table scans back sorted and identical");

    let kills = std::env::var("FULGURITE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    for kill in 0..kills {
        sandbox.remove_dir("db");
        let after = Duration::from_nanos(env.random_u64() % whole_ns);
        let reported = load_and_kill(&sandbox, file, after);
        if sandbox.run(&["tables", "db"]).stdout.is_empty() {
            assert_eq!(reported, 0, "kill {kill}: there is no table, and rows were reported");
            load(&sandbox, file);
            assert!(
                exported(&sandbox) == sorted,
                "kill {kill}: what it left was in the way of the next load"
            );
            println!("kill {kill} after {after:?}: before the first commit");
            continue;
        }
        let found = exported(&sandbox);
        assert!(
            found.len() as u64 >= reported,
            "kill {kill}: {reported} rows reported, {} found",
            found.len()
        );
        let mut prefix = lines[..found.len()].to_vec();
        prefix.sort_by(|a, b| key_of(a).cmp(key_of(b)));
        assert!(found == prefix, "kill {kill}: what is there is not a prefix of the file");
        assert!(sandbox.ok(&["check", "db"]).ends_with("the database is sound\n"));
        println!("kill {kill} after {after:?}: {reported} rows reported, {} found", found.len());
    }
}

fn key_of(line: &[u8]) -> &[u8] {
    line.split(|&byte| byte == b'\t').next().unwrap_or_default()
}

fn exported(sandbox: &Sandbox) -> Vec<Vec<u8>> {
    let out = sandbox.run(&["export", "--raw", "--format", "tsv", "db", "t"]);
    out.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}
