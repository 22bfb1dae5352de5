//! Small benchmarks run to their end, their sums are right, and their reports are what is documented.

mod common;

use common::Place;
use serde_json::Value;

/// Runs `bench commit` with these arguments and `--json -`.
fn bench(place: &Place, args: &[&str]) -> Value {
    let mut all = vec!["bench", "commit", "--json", "-"];
    all.extend(args);
    let report = serde_json::from_str(&place.ok(&all)).expect("JSON");
    assert!(place.names().is_empty(), "left behind: {:?}", place.names());
    report
}

fn runs(report: &Value) -> Vec<&Value> {
    let series = report["series"].as_array().expect("a list");
    series.iter().flat_map(|series| series["runs"].as_array().expect("a list")).collect()
}

#[test]
fn inserts_of_every_scheme_are_all_there() {
    let place = Place::new();
    let report = bench(&place, &["--threads", "1,4", "--transactions", "50", "--rounds", "2"]);
    assert_eq!((&report["state"], &report["error"]), (&"complete".into(), &Value::Null));
    let names: Vec<(&str, u64)> = report["series"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|series| {
            (series["engine"].as_str().expect("a name"), series["threads"].as_u64().expect("a number"))
        })
        .collect();
    let expected = [1, 4].map(|threads| ["own-lsn", "aggregated", "combined"].map(|name| (name, threads)));
    assert_eq!(names, expected.concat());
    for series in report["series"].as_array().expect("a list") {
        let rows = 50 * series["threads"].as_u64().expect("a number");
        assert_eq!(series["runs"].as_array().map(Vec::len), Some(2));
        for run in series["runs"].as_array().expect("a list") {
            assert_eq!(
                (&run["rows"][0], &run["transactions"], &run["commits"]),
                (&rows.into(), &rows.into(), &rows.into())
            );
            assert!(run["writes"].as_f64() >= Some(1.0), "{run}");
        }
        if series["engine"] == "own-lsn" {
            assert_eq!(series["of_baseline"], 1.0);
        }
    }
}

#[test]
fn the_report_has_the_documented_shape() {
    let place = Place::new();
    let report =
        bench(&place, &["--threads", "2", "--seconds", "0.3", "--rounds", "1", "--scheme", "combined"]);
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().expect("an object").keys().cloned().collect() };
    let documented = include_str!("../../../docs/performance.md");
    let series = &report["series"][0];
    let parts = [
        &report,
        &report["settings"],
        &report["machine"],
        &report["bare_writes_per_second"],
        series,
        &series["summary"],
        &series["runs"][0],
    ];
    for part in parts {
        for key in keys(part) {
            assert!(documented.contains(&format!("`{key}`")), "docs/performance.md does not tell of {key}");
        }
    }
    assert_eq!(report["settings"]["seconds"], 0.3);
    assert_eq!(report["settings"]["transactions_per_thread"], Value::Null);
    assert_eq!(report["settings"]["durability"], "sync");
    let summary = &series["summary"];
    for metric in [
        "transactions_per_second",
        "of_bare_writes",
        "mean_latency_us",
        "sync_us",
        "p99_latency_us",
        "fairness",
    ] {
        let [least, median, most] = ["min", "median", "max"].map(|part| summary[metric][part].as_f64());
        assert!(least > Some(0.0) && least <= median && median <= most, "{metric}: {}", summary[metric]);
    }
    let latencies = ["p50", "p99", "p999", "max"]
        .map(|part| summary[format!("{part}_latency_us")]["median"].as_f64().expect("a number"));
    assert!(latencies.is_sorted(), "{latencies:?}");
    assert!(report["bare_writes_per_second"]["summary"]["median"].as_f64() > Some(0.0));
    assert_eq!(report["bare_writes_per_second"]["all"].as_array().map(Vec::len), Some(1));
}

#[test]
fn oltp_leaves_as_many_rows_as_it_found() {
    let place = Place::new();
    let report = bench(
        &place,
        &["--workload", "oltp", "--rows", "500", "--threads", "1,3", "--transactions", "40", "--rounds", "1"],
    );
    assert_eq!(report["settings"]["value_bytes"], 188);
    for run in runs(&report) {
        assert_eq!((&run["rows"][0], &run["rows"][1]), (&500.into(), &500.into()));
    }
}

#[test]
fn transactions_that_took_the_same_row_are_run_again() {
    let place = Place::new();
    let report = bench(
        &place,
        &[
            "--workload",
            "oltp",
            "--rows",
            "1",
            "--threads",
            "4",
            "--transactions",
            "200",
            "--rounds",
            "1",
            "--scheme",
            "combined",
        ],
    );
    let run = runs(&report)[0];
    assert_eq!((&run["rows"][0], &run["rows"][1]), (&1.into(), &1.into()));
    assert!(run["conflicts"].as_f64() > Some(0.0), "four threads on one row conflict: {run}");
}

#[test]
fn half_of_update_search_commits() {
    let place = Place::new();
    let report = bench(
        &place,
        &[
            "--workload",
            "update-search",
            "--rows",
            "300",
            "--threads",
            "2",
            "--transactions",
            "400",
            "--rounds",
            "1",
        ],
    );
    for run in runs(&report) {
        assert_eq!((&run["rows"][0], &run["transactions"]), (&300.into(), &800.into()));
        let commits = run["commits"].as_u64().expect("a number");
        assert!((300..500).contains(&commits), "{commits} of 800 transactions were updates");
    }
}

#[test]
fn every_durability_and_tickets_lose_nothing() {
    let place = Place::new();
    let small = ["--threads", "2", "--transactions", "60", "--rounds", "1", "--scheme", "combined"];
    let power_safe = ["--durability", "no-barrier", "--i-know", "the cache is power-safe"];
    for more in [
        &["--durability", "async:5ms"][..],
        &["--durability", "none"],
        &power_safe,
        &["--tickets", "1"],
        &["--tickets", "16"],
        &["--tickets", "16", "--workload", "update-search", "--rows", "60"],
        &["--tickets", "16", "--durability", "async:5ms", "--warm-up", "30"],
        &["--waiting", "block"],
        &["--waiting", "spin-then-block"],
        &["--sizes", "12,0"],
        &["--sizes", "40,5000"],
    ] {
        let report = bench(&place, &[&small, more].concat());
        let run = runs(&report)[0];
        let rows = if more.contains(&"--warm-up") {
            180
        } else if more.contains(&"--rows") {
            60
        } else {
            120
        };
        assert_eq!((&run["rows"][0], &run["transactions"]), (&rows.into(), &120.into()), "{more:?}");
        for setting in more.chunks(2).filter(|setting| ["--durability", "--waiting"].contains(&setting[0])) {
            assert_eq!(report["settings"][&setting[0][2..]], setting[1]);
        }
    }
}

#[test]
fn people_get_tables_and_a_picture() {
    let place = Place::new();
    let said = place.ok(&[
        "bench",
        "commit",
        "--threads",
        "1,2",
        "--transactions",
        "30",
        "--rounds",
        "1",
        "--svg",
        "x.svg",
        "--json",
        "x.json",
        "--baseline",
        "aggregated",
    ]);
    for heading in [
        "sync lock us",
        "flush wait us",
        "consol.",
        "aggre.",
        "of aggregated",
        "p99.9 us",
        "cpu us",
        "bare device",
    ] {
        assert!(said.contains(heading), "{heading} is missing:\n{said}");
    }
    for scheme in ["own-lsn", "aggregated", "combined"] {
        let rows = said.lines().filter(|line| line.contains(&format!("  {scheme} ")));
        assert_eq!(rows.count(), 4, "two numbers of threads in two tables:\n{said}");
    }
    let mut names = place.names();
    names.sort();
    assert_eq!(names, ["x.json", "x.svg"]);
    let svg = String::from_utf8(place.read("x.svg")).expect("text");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("own-lsn") && svg.contains("transactions/s"), "{svg}");
    let value: Value = serde_json::from_slice(&place.read("x.json")).expect("JSON");
    assert_eq!(value["settings"]["baseline"], "aggregated");
}

#[test]
fn a_signal_ends_the_run_and_prints_what_there_is() {
    let place = Place::new();
    let mut child = place.start(&[
        "bench",
        "commit",
        "--threads",
        "2",
        "--seconds",
        "20",
        "--rounds",
        "2",
        "--scheme",
        "combined",
        "--json",
        "-",
    ]);
    let pause = |ms| std::thread::park_timeout(std::time::Duration::from_millis(ms));
    let begun = || place.names().iter().any(|name| place.file(name).join("db/log").exists());
    while !begun() && child.try_wait().unwrap().is_none() {
        pause(20);
    }
    pause(500);
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let ran: common::Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    let report: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!((&report["state"], &report["series"][0]["partial"]), (&"interrupted".into(), &true.into()));
    let run = &report["series"][0]["runs"][0];
    assert_eq!((&run["interrupted"], &run["rows"][0]), (&true.into(), &run["transactions"]));
    assert!(place.names().is_empty(), "left behind: {:?}", place.names());
}

#[test]
fn what_is_not_known_is_told_with_what_is() {
    let place = Place::new();
    for (args, part) in [
        (&["--scheme", "best"][..], "own-lsn, aggregated, combined"),
        (&["--baseline", "best"], "own-lsn, aggregated, combined"),
        (&["--scheme", "combined", "--baseline", "own-lsn"], "own-lsn is not among the schemes"),
        (&["--scheme", "combined,combined"], "combined twice"),
        (&["--workload", "delete"], "insert, update-search, oltp"),
        (&["--durability", "fast"], "sync, async:TIME"),
        (&["--durability", "async"], "sync, async:TIME"),
        (&["--waiting", "spin"], "block, spin-then-block"),
        (&["--threads", "0"], "1..=4096"),
        (&["--threads", "1,1"], "1 twice"),
        (&["--transactions", "0"], "--transactions"),
        (&["--transactions", "1", "--seconds", "1"], "cannot be used with"),
        (&["--seconds", "0"], "0.01 to 86400"),
        (&["--rounds", "0"], "--rounds"),
        (&["--sizes", "4,100"], "12 to 1024 bytes"),
        (&["--sizes", "20"], "20,100"),
        (&["--workload", "oltp", "--sizes", "20,7"], "at least 8 bytes"),
        (&["--rows", "0"], "--rows"),
    ] {
        place.run(&[&["bench", "commit"], args].concat()).fails(2, part);
    }
    place.run(&["bench", "commit", "missing"]).fails(1, "missing: No such file or directory");
    place.run(&["bench", "commit", "--transactions", "1000000000000"]).fails(1, "give another directory");
    place.run(&["bench", "commit", "--json", "none/x.json"]).fails(1, "none/x.json");
    assert!(place.names().is_empty(), "left behind: {:?}", place.names());
    assert!(place.ok(&["bench", "commit", "--help"]).contains("EXAMPLES:"));
}
