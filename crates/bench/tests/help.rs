//! The help of the program and of each workload.

mod common;

use common::Sandbox;

#[test]
fn every_benchmark_explains_itself() {
    let sandbox = Sandbox::new();
    let overview = sandbox.ok(&["--help"]);
    for words in ["FIGURES:", "EXIT CODES:", "regression", "EXAMPLES:\n  fulgurite-bench commit"] {
        assert!(overview.contains(words), "{words} is not in {overview}");
    }
    let commands = overview.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.map_while(|line| line.strip_prefix("  ")?.split_once(' '));
    let others = ["", "list", "compare", "page", "help"];
    let workloads: Vec<(&str, &str)> = commands.filter(|(name, _)| !others.contains(name)).collect();
    assert_eq!(workloads.len(), 15, "{overview}");
    for (name, about) in workloads {
        let about = about.trim();
        let help = sandbox.ok(&[name, "--help"]);
        assert!(!about.is_empty() && help.starts_with(about), "{name}: {about}: {help}");
        for words in ["--engine <NAME,...>", "--durability", "--rounds", "--html", "Usage: fulgurite-bench"] {
            assert!(help.contains(words), "{name} has no {words}: {help}");
        }
        assert!(!help.contains("--scheme") && !help.contains("--transactions"), "{name}: {help}");
    }
    let ycsb = sandbox.ok(&["ycsb", "--help"]);
    let said: Vec<&str> = ycsb.split_whitespace().collect();
    assert!(said.join(" ").contains("scrambled Zipfian"), "{ycsb}");
    let figure = sandbox.ok(&["figure5a", "--help"]);
    assert!(figure.contains("Usage: fulgurite-bench") && figure.contains("--out <DIR>"), "{figure}");
}
