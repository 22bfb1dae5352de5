//! `fulgurite-bench`: every workload and most figures at a tiny scale, the reports written of them, and reports side by
//! side.

mod common;

use common::Sandbox;
use serde_json::Value;

/// The report of a benchmark of one round that has to succeed and to leave no files.
fn bench(sandbox: &Sandbox, args: &[&str]) -> Value {
    let all = [args, &["--rounds", "1", "--json", "-"]].concat();
    let report: Value = serde_json::from_str(&sandbox.ok(&all)).expect("JSON");
    sandbox.assert_empty();
    report
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().expect("a list")
}

/// The only run of each row.
fn runs(report: &Value) -> Vec<&Value> {
    let rows = list(report, "rows").iter();
    rows.map(|row| {
        assert_eq!((&row["not_available"], list(row, "runs").len()), (&Value::Null, 1), "{row}");
        &row["runs"][0]
    })
    .collect()
}

/// The report of a workload with this many rows, each of which did something and passed the checks.
fn smoke(args: &[&str], rows: usize) -> Value {
    let sandbox = Sandbox::new();
    let report = bench(&sandbox, args);
    assert_eq!((&report["end"], &report["name"]), (&"complete".into(), &args[0].into()));
    let runs = runs(&report);
    assert_eq!(runs.len(), rows, "{args:?}");
    for run in runs {
        let number = |value: &Value| value.as_u64().expect("a number");
        let kinds = list(run, "kinds").iter();
        let of_kinds: u64 =
            kinds.map(|kind| number(&kind["operations"]) + number(&kind["rolled_back"])).sum();
        assert!(of_kinds > 0 && of_kinds == number(&run["operations"]), "{args:?}: {run}");
        assert!(number(&run["elapsed_ns"]) > 0 && run["interrupted"] == false, "{args:?}: {run}");
        assert!(run["bare_writes_per_second"].as_f64() > Some(0.0), "{args:?}: {run}");
    }
    report
}

#[test]
fn commits_of_every_kind() {
    let few = |workload| ["commit", "--workload", workload, "--rows", "300", "--operations", "40"];
    let report = smoke(&[&few("insert")[..], &["--threads", "1,3"]].concat(), 6);
    let rows: Vec<(&Value, &Value)> =
        list(&report, "rows").iter().map(|row| (&row["label"], &row["threads"])).collect();
    let labels = ["fulgurite:own-lsn", "fulgurite:aggregated", "fulgurite:combined"].map(Value::from);
    let threads = [Value::from(1), Value::from(3)];
    let expected: Vec<(&Value, &Value)> =
        threads.iter().flat_map(|threads| labels.iter().map(move |label| (label, threads))).collect();
    assert_eq!(rows, expected);
    for (row, run) in list(&report, "rows").iter().zip(runs(&report)) {
        assert_eq!(run["operations"], 40 * row["threads"].as_u64().expect("a number"));
        assert_eq!(run["operations"], run["counters"]["commits"]);
    }
    smoke(&[&few("update-search")[..], &["--threads", "2", "--tickets", "8"]].concat(), 3);
    smoke(&[&few("oltp")[..], &["--threads", "2", "--warm-up", "10"]].concat(), 3);
}

#[test]
fn ycsb_and_reads() {
    smoke(&["ycsb", "--records", "300", "--operations", "60", "--threads", "2"], 6);
    smoke(&["read", "--rows", "500", "--misses", "10", "--operations", "60", "--threads", "2", "--cold"], 1);
    smoke(&["scan", "--rows", "300", "--seconds", "0.05"], 4);
}

#[test]
fn tpc_and_linkbench() {
    let report = smoke(&["tpcc", "--scale", "0.01", "--operations", "60", "--threads", "2"], 1);
    assert_eq!(runs(&report)[0]["kinds"].as_array().map(Vec::len), Some(5));
    smoke(&["tpcb", "--branches", "2", "--accounts", "100", "--operations", "60", "--threads", "3"], 1);
    smoke(&["linkbench", "--nodes", "200", "--operations", "60", "--threads", "2"], 1);
}

#[test]
fn workloads_that_end() {
    smoke(&["wisckey", "--pairs", "50", "--writes", "60"], 1);
    smoke(&["load", "--rows", "500", "--threads", "2"], 2);
    smoke(&["job-queue", "--jobs", "300", "--threads", "1,3"], 4);
    smoke(&["mvcc-vs-lock", "--scale", "0.02", "--threads", "4"], 3);
}

#[test]
fn workloads_without_an_end() {
    smoke(&["page-vs-log", "--pairs", "500", "--operations", "30", "--threads", "2"], 5);
    smoke(&["delete-queue", "--backlog", "20", "--operations", "50", "--threads", "2"], 1);
    smoke(&["overwrite-steady", "--rows", "200", "--seconds", "0.2"], 1);
}

#[test]
fn latency_at_a_fixed_rate() {
    let tables = ["tail-latency", "--rows", "300", "--tables", "5", "--written", "2", "--batch", "3"];
    let paced = ["--rate", "50", "--seconds", "1.2", "--bare-device", "--threads", "2"];
    let report = smoke(&[&tables[..], &paced].concat(), 1);
    let (run, settings) = (runs(&report)[0], &report["settings"]);
    assert_eq!((&run["operations"], &run["timeline"]["rate"]), (&60.into(), &50.0.into()));
    assert_eq!(settings["rate"], "50 operations a second");
    let seconds = list(&run["timeline"], "seconds");
    assert_eq!([&seconds[0]["due"], &seconds[1]["due"]], [&Value::from(50), &Value::from(10)]);
    let first = &seconds[0];
    for number in [&first["latency"]["p999_ns"], &first["bare"]["max_ns"], &first["watched"]["stats_ns_max"]]
    {
        assert!(number.as_u64() > Some(0), "{first}");
    }
    assert!(first["watched"]["log_bytes"].is_u64() && first["watched"]["checkpoints"].is_u64(), "{first}");
    let report = smoke(&["tail-latency", "--rows", "300", "--rate", "max", "--seconds", "0.2"], 1);
    assert!(runs(&report)[0]["timeline"]["rate"].is_null());
    let share = ["--share", "0.5", "--warm-up", "300ms", "--seconds", "0.3", "--threads", "1,2"];
    let report = smoke(&[&["tail-latency", "--rows", "300"][..], &share].concat(), 2);
    assert_eq!(report["settings"]["rate"], "0.5 of the rate of the warm-up");
    assert!(runs(&report)[1]["timeline"]["rate"].as_f64() > Some(0.0));
}

#[test]
fn seconds_are_in_the_files() {
    let sandbox = Sandbox::new();
    let files = ["--json", "a.json", "--markdown", "a.md", "--svg", "a.svg", "--html", "a.html"];
    let args = ["tail-latency", "--rows", "300", "--rate", "50", "--seconds", "1.2", "--rounds", "2"];
    let said = sandbox.ok(&[&args[..], &files, &["--bare-device"]].concat());
    for words in ["target op/s", "bare max us", "stats max us", "checkpoints", "50 operations a second"] {
        assert!(said.contains(words), "{words} is missing:\n{said}");
    }
    let svg = sandbox.read("a.svg");
    is_svg(&svg);
    for words in ["fulgurite, p99", "fulgurite, max", "bare device, max"] {
        assert!(svg.contains(words), "{words} is missing:\n{svg}");
    }
    for page in ["a.html", "b.html"] {
        let text = sandbox.read(page);
        is_page(&text);
        assert!(text.contains("second by second") && text.matches("<svg").count() == 2, "{page}: {text}");
        sandbox.ok(&["page", "a.json", "--out", "b.html"]);
    }
    assert!(sandbox.read("a.md").contains("| 1 | 50 | "), "{}", sandbox.read("a.md"));
}

#[test]
fn levels_are_configurations_and_a_missing_one_has_a_reason() {
    let sandbox = Sandbox::new();
    let levels = "sync,memory,async:5ms,no-barrier,unsynced";
    let args = ["commit", "--engine", "fulgurite", "--durability", levels, "--threads", "2"];
    let rest = ["--operations", "30", "--rounds", "1", "--json", "-", "--assume-power-safe-cache"];
    let ran = sandbox.run(&[&args[..], &rest].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("warning: what no-barrier acknowledges"), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let rows = list(&report, "rows");
    let labels: Vec<&str> = rows.iter().map(|row| row["label"].as_str().expect("a label")).collect();
    assert_eq!(
        labels.join("|"),
        levels.split(',').map(|level| format!("fulgurite, {level}")).collect::<Vec<_>>().join("|")
    );
    for row in &rows[..4] {
        assert_eq!(row["runs"][0]["operations"], 60, "{row}");
    }
    assert_eq!(rows[4]["runs"].as_array().map(Vec::len), Some(0));
    assert!(rows[4]["not_available"].as_str().is_some_and(|why| !why.is_empty()), "{}", rows[4]);
}

#[test]
fn the_requested_files_are_written() {
    let sandbox = Sandbox::new();
    let files = ["--json", "a.json", "--markdown", "a.md", "--svg", "a.svg", "--html", "a.html"];
    let args = ["commit", "--threads", "1,2", "--operations", "30", "--rounds", "1"];
    let said = sandbox.ok(&[&args[..], &files].concat());
    for words in ["Single inserts", "bare device", "aggregation", "fulgurite:own-lsn"] {
        assert!(said.contains(words), "{words} is missing:\n{said}");
    }
    let mut names = sandbox.names();
    names.sort();
    assert_eq!(names, ["a.html", "a.json", "a.md", "a.svg"]);
    let text = |name: &str| sandbox.read(name);
    let report: Value = serde_json::from_str(&text("a.json")).expect("JSON");
    assert_eq!(list(&report, "rows").len(), 6);
    is_svg(&text("a.svg"));
    assert!(text("a.md").contains("| fulgurite:aggregated |"), "{}", text("a.md"));
    is_page(&text("a.html"));
    sandbox.ok(&["page", "a.json", "a.json", "--out", "b.html"]);
    is_page(&text("b.html"));
    assert_eq!(text("b.html").matches("<svg").count(), 2 * text("a.html").matches("<svg").count());
}

fn is_svg(text: &str) {
    assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
    assert!(!text.contains("NaN"), "{text}");
}

fn is_page(text: &str) {
    assert!(
        text.to_lowercase().starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"),
        "{text}"
    );
    assert!(text.contains("<table") && text.contains("<svg") && !text.contains("NaN"), "{text}");
    let tags = "body html section svg table tr td th ol ul dl details figure div p li small";
    for tag in tags.split(' ') {
        let opened = text.matches(&format!("<{tag}>")).count() + text.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, text.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

/// Not run here: they do a fixed number of operations in many rows.
const LONG_FIGURES: [&str; 2] = ["flashtkv-figure5", "peers"];

#[test]
fn figures_write_all_there_is() {
    let sandbox = Sandbox::new();
    let said = sandbox.ok(&["list"]);
    assert!(said.contains("ENGINES\n  fulgurite ") && said.contains("isolation: snapshot"), "{said}");
    let figures = said.split("FIGURES AND TABLES\n").nth(1).expect("a list of figures").lines();
    let names = figures.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let names: Vec<&str> = names.filter_map(|line| line.split(',').next()).collect();
    assert!(names.len() > 15 && LONG_FIGURES.iter().all(|name| names.contains(name)), "{names:?}");
    for name in names.into_iter().filter(|name| !LONG_FIGURES.contains(name)) {
        let tiny =
            ["--scale", "0.01", "--seconds", "0.05", "--rounds", "1", "--threads", "2", "--out", "out"];
        let ran = sandbox.run(&[&[name], &tiny[..]].concat());
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        assert_eq!(sandbox.names(), ["out"], "{name}");
        let text = |end: &str| sandbox.read(&format!("out/{name}{end}"));
        let report: Value = serde_json::from_str(&text(".json")).expect("JSON");
        assert_eq!((&report["end"], &report["name"]), (&"complete".into(), &name.into()));
        for row in list(&report, "rows") {
            let was_run = !list(row, "runs").is_empty();
            assert_eq!(was_run, row["not_available"].is_null(), "{name}: {row}");
            assert!(row["not_available"].as_str().is_none_or(|why| why.len() > 5), "{name}: {row}");
        }
        assert!(text(".md").contains("| --"), "{name}");
        is_page(&text(".html"));
        let plots = ran
            .stderr
            .lines()
            .filter_map(|line| line.strip_prefix("wrote ").filter(|file| file.ends_with(".svg")));
        let plots: Vec<String> = plots.map(|file| sandbox.read(file)).collect();
        assert!(!plots.is_empty(), "{name}: {}", ran.stderr);
        plots.iter().for_each(|plot| is_svg(plot));
    }
}

#[test]
fn a_slower_report_is_a_regression_and_the_same_one_is_not() {
    let sandbox = Sandbox::new();
    let args = ["commit", "--engine", "fulgurite", "--threads", "1", "--operations", "30"];
    sandbox.ok(&[&args[..], &["--rounds", "3", "--json", "old.json"]].concat());
    let said = sandbox.ok(&["compare", "old.json", "old.json"]);
    assert!(said.contains("0 worse, 0 better, 2 the same"), "{said}");
    let mut report: Value = serde_json::from_str(&sandbox.read("old.json")).expect("JSON");
    for run in report["rows"][0]["runs"].as_array_mut().expect("a list") {
        run["elapsed_ns"] = (run["elapsed_ns"].as_u64().expect("a number") * 100).into();
    }
    sandbox.write("new.json", &report.to_string());
    let ran = sandbox.run(&["compare", "old.json", "new.json"]);
    let said = ran.stdout;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{said}");
    let row = said.lines().find(|line| line.contains("WORSE")).expect("a row");
    assert!(row.contains("insert") && row.contains("fulgurite") && row.contains("-9"), "{said}");
    assert!(sandbox.ok(&["compare", "new.json", "old.json"]).contains("1 better"));
}
