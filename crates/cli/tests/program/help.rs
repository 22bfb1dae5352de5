//! Every command explains itself.

use crate::common::Sandbox;

const COMMANDS: [&str; 17] = [
    "load",
    "put",
    "get",
    "delete",
    "scan",
    "export",
    "tables",
    "drop",
    "rename",
    "reset-clock",
    "stat",
    "gc",
    "serve",
    "staging",
    "check",
    "dump",
    "probe",
];

#[test]
fn every_help_has_examples() {
    let sandbox = Sandbox::new();
    let overview = sandbox.ok(&["--help"]);
    assert!(overview.contains("EXIT CODES:") && overview.contains("EXAMPLES:"), "{overview}");
    for command in COMMANDS {
        assert!(overview.contains(&format!("\n  {command} ")), "{command} is missing from the overview");
        let help = sandbox.ok(&[command, "--help"]);
        assert!(help.contains("EXAMPLES:"), "{command}: {help}");
        assert!(help.contains(&format!("fulgurite {command} ")), "{command}: {help}");
        assert!(sandbox.ok(&[command, "-h"]).contains("EXAMPLES:"), "{command}");
    }
}

/// Regression: the usage named the key before the directory, and in that order the key was refused as no database.
#[test]
fn the_usage_of_delete_has_the_operands_in_their_order() {
    let sandbox = Sandbox::new();
    let order = "fulgurite delete [OPTIONS] <DIR> <TABLE> <KEY>";
    assert!(sandbox.ok(&["delete", "--help"]).contains(order));
    assert!(sandbox.ok(&["delete", "--help"]).contains("<DIR> <TABLE> --prefix <PREFIX>"));
    sandbox.run(&["delete", "db", "t"]).fails(2, order);
    let page = sandbox.ok(&["man", "delete"]);
    let synopsis = page.split(".SH DESCRIPTION").next().unwrap();
    assert!(synopsis.find("DIR") < synopsis.find("KEY"), "{synopsis}");
}

#[test]
fn bench_names_the_program_that_has_the_benchmarks() {
    let sandbox = Sandbox::new();
    sandbox.run(&["bench", "ycsb", "."]).fails(2, "run `fulgurite-bench` instead");
    let ran = sandbox.run(&["bench", "--json"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("`fulgurite-bench`"), "{}", ran.stderr);
}

#[test]
fn a_wrong_command_line_has_its_exit_code() {
    let sandbox = Sandbox::new();
    for args in [
        &["frobnicate"][..],
        &["get", "db"],
        &["load", "db", "t", "--key", "0"],
        &["load", "db", "t", "--batch", "0"],
        &["put", "--create", "db", "t", "k", "v", "--expires-in", "soon"],
        &["put", "--create", "db", "t", "k", "v", "--expires-in", "5"],
        &["delete", "db", "t"],
        &["delete", "db", "t", "k", "--prefix", "k"],
        &["scan", "db", "t", "--prefix", "a", "--from", "b"],
        &["get", "db", "t", "xyz", "--hex"],
        &["export", "db", "t", "x.csv", "--raw"],
        &["probe"],
        &["probe", ".", "--seconds", "0"],
    ] {
        sandbox.run(args).fails(2, "");
    }
    assert!(sandbox.names().is_empty(), "a wrong command line leaves nothing behind");
}
