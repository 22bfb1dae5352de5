//! Probing a device: every row is there, as text and as JSON, and no file is left.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::{Ran, Sandbox};
use fulgurite::env::{Env, RealEnv};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn rows<'v>(report: &'v Value, list: &str) -> &'v [Value] {
    report[list].as_array().unwrap_or_else(|| panic!("{list} is missing: {report}"))
}

#[test]
fn a_short_run_has_all_rows_and_a_chart() {
    let sandbox = Sandbox::new();
    sandbox.make_dir("d");
    let report = json(&sandbox.ok(&["probe", "d", "--seconds", "1", "--json", "--svg", "chart.svg"]));
    assert_eq!((&report["version"], &report["directory"]), (&Value::from(1), &Value::from("d")));
    assert!(report["device"]["file_system"].is_string());
    let direct = report["device"]["takes_direct_writes"].as_bool().expect("known");
    let mut found = Vec::new();
    for row in rows(&report, "writes") {
        let variant = row["variant"].as_str().expect("a name");
        found.push((variant, row["bytes"].as_u64().expect("a size"), row["writes_per_sync"].as_u64()));
        if variant.starts_with("direct") && !direct {
            assert!(row["count"] == 0 && row["p50_us"].is_null(), "{row}");
        } else {
            check_figures(row, 3);
        }
    }
    let mut expected = Vec::new();
    for variant in ["append_sync", "zeroed_sync", "direct_sync", "direct"] {
        expected.extend([4, 8, 16, 64, 1024].map(|kib| (variant, kib << 10, Some(1))));
    }
    expected.extend([("zeroed_sync", 4096, Some(16)), ("zeroed_sync", 4096, Some(256))]);
    assert_eq!(found, expected);
    let reads = rows(&report, "reads").iter().inspect(|row| check_figures(row, 1));
    let reads: Vec<_> = reads.map(|row| (row["depth"].as_u64(), row["bytes"].as_u64())).collect();
    let expected = |depth| [4, 8, 16].map(|kib| (Some(depth), Some(kib << 10)));
    assert_eq!(reads, [expected(1), expected(32)].concat());
    let committers = rows(&report, "expected").iter().map(|row| row["committers"].as_u64());
    assert_eq!(committers.flatten().collect::<Vec<_>>(), [1, 16, 64, 256]);
    let options: Vec<_> = rows(&report, "settings").iter().map(|row| row["option"].as_str()).collect();
    assert!(options.starts_with(&[Some("research.flush_scheme"), Some("direct_io")]), "{options:?}");
    let chart = String::from_utf8(sandbox.read("chart.svg")).expect("text");
    assert!(chart.starts_with("<svg") && chart.trim_end().ends_with("</svg>"));
    let bars = chart.matches("<rect").count();
    assert!(bars > if direct { 40 } else { 20 }, "{bars} rectangles");
    assert!(directory_is_empty(&sandbox.file("d")));
}

fn check_figures(row: &Value, count_min: u64) {
    let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} is missing: {row}"));
    assert!(row["count"].as_u64() >= Some(count_min), "{row}");
    assert!(0.0 < number("p50_us") && number("p50_us") <= number("p99_us"), "{row}");
    let bytes = number("per_second") * number("bytes");
    assert!((number("bytes_per_second") / bytes - 1.0).abs() < 0.01, "{row}");
}

fn directory_is_empty(dir: &Path) -> bool {
    RealEnv::new().disk().list(dir).expect("listing").is_empty()
}

/// The names of all fields, at any depth.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                fields(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_is_documented() {
    let sandbox = Sandbox::new();
    let report = json(&sandbox.ok(&["probe", ".", "--seconds", "1", "--json"]));
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/probe.md");
    let document =
        String::from_utf8(sandbox.read(document.to_str().expect("the path is UTF-8"))).expect("text");
    let mut found = BTreeSet::new();
    fields(&report, &mut found);
    let said = |name: &str| ["`", "."].iter().any(|before| document.contains(&format!("{before}{name}")));
    let missing: Vec<_> = found.iter().filter(|name| !said(name)).collect();
    assert!(found.len() > 25 && missing.is_empty(), "{missing:?} of {found:?}");
}

#[test]
fn people_get_tables_and_reasons() {
    let sandbox = Sandbox::new();
    let text = sandbox.ok(&["probe", ".", "--seconds", "1"]);
    for words in [
        "the device's cache",
        "WRITES, one thread",
        "append, fdatasync ",
        "over zeros, direct, data-synchronous ",
        "over zeros, fdatasync every 256 writes ",
        "RANDOM DIRECT READS",
        "depth 32 ",
        "EXPECT of durable commits",
        "256 threads that wait ",
        "research.flush_scheme: combined",
        "direct_io: ",
    ] {
        assert!(text.contains(words), "{words} is missing:\n{text}");
    }
    assert!(sandbox.names().is_empty());
}

#[test]
fn memory_takes_no_direct_writes_and_is_not_durable() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    if RealEnv::new().disk().device(dir.path()).expect("statfs").file_system != "tmpfs" {
        return;
    }
    let path = dir.path().to_str().expect("the path is UTF-8");
    let text = Sandbox::new().ok(&["probe", path, "--seconds", "1"]);
    assert!(text.contains("n/a") && text.contains("in memory: nothing in it is durable"), "{text}");
    assert!(text.contains("takes no direct writes: the option has no effect"), "{text}");
}

#[test]
fn a_path_that_is_no_directory_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "");
    sandbox.run(&["probe", "missing"]).fails(1, "missing does not exist");
    sandbox.run(&["probe", "file"]).fails(1, "file is not a directory");
    sandbox.run(&["probe", "/proc", "--seconds", "1"]).fails(1, "/proc");
    sandbox.run(&["probe", ".", "--svg", "missing/chart.svg"]).fails(1, "missing/chart.svg");
    assert_eq!(sandbox.names(), ["file"]);
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    for signals in [1, 2] {
        let sandbox = Sandbox::new();
        let child = sandbox.start(&["probe", ".", "--seconds", "600", "--svg", "chart.svg"]);
        let clock = RealEnv::new();
        while sandbox.names().len() < 4 {
            clock.clock().sleep(Duration::from_millis(5));
        }
        for _ in 0..signals {
            let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            assert!(sent.expect("kill").success());
            clock.clock().sleep(Duration::from_millis(20));
        }
        let ran = Ran::from(child.wait_with_output().expect("waiting"));
        assert_eq!(ran.code, Some(130), "{}", ran.stderr);
        let left: Vec<_> =
            sandbox.names().into_iter().filter(|name| name.starts_with("fulgurite-probe")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
