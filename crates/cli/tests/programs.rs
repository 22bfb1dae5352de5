//! The interface for other programs: exit codes, errors as JSON, completions, man pages, events.

mod common;

use std::process::Command;

use common::Sandbox;
use serde_json::Value;

/// Regression: exit codes were listed in part; 130 was missing.
#[test]
fn all_exit_codes_are_in_one_list() {
    let sandbox = Sandbox::new();
    let help = sandbox.ok(&["--help"]);
    let list = help.split_once("EXIT CODES:\n").unwrap().1.split("\n\n").next().unwrap();
    let codes: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for code in ["0", "1", "2", "3", "4", "5", "130"] {
        assert!(codes.contains(&code), "{code} is not in {list}");
    }
    let document = include_str!("../../../docs/command-line.md");
    assert!(document.contains(list), "docs/command-line.md has another list than the help:\n{list}");
    assert!(sandbox.ok(&["man"]).contains("skip\\-damaged"));
}

/// Regression: with --json, errors were text.
#[test]
fn errors_are_json_for_programs() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    sandbox.write("bad.tsv", "oops\n");
    for (args, code, kind, words) in [
        (&["get", "db", "u", "k"][..], 1, "request", "there is no table `u`"),
        (&["get", "db", "t", "x"], 5, "not_found", "no key \"x\""),
        (&["scan", "nowhere", "t"], 1, "", "nowhere"),
        (&["load", "db", "t", "bad.tsv"], 1, "failed", "line 1"),
        (&["drop", "db", "u"], 1, "request", "there is no table `u`"),
        (&["rename", "db", "u", "x"], 1, "request", "there is no table `u`"),
        (&["export", "db", "t", "x.parquet"], 2, "usage", "no format is known"),
        (&["put", "db", "t"], 2, "usage", "required arguments were not provided"),
        (&["put", "db", "t", "k", "v", "--expires-in", "soon"], 2, "usage", "invalid value 'soon'"),
        (&["frobnicate"], 2, "usage", "unrecognized subcommand"),
    ] {
        let ran = sandbox.run(&[args, &["--json"]].concat());
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {}", ran.stderr);
        let error: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert!(error["error"].as_str().unwrap().contains(words), "{args:?}: {error}");
        assert_eq!(error["exit_code"], code, "{args:?}");
        assert!(kind.is_empty() || error["kind"] == kind, "{args:?}: {error}");
        assert!(!String::from_utf8_lossy(&ran.stdout).contains("error"));
    }
    sandbox.run(&["get", "db", "u", "k"]).fails(1, "there is no table `u`");
}

#[test]
fn shells_complete_commands_and_options() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = sandbox.ok(&["completions", shell]);
        for word in ["fulgurite", "export", "skip-damaged", "completions"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        if shell == "bash" {
            sandbox.write("script", script);
            let checked = Command::new("bash").arg("-n").arg(sandbox.file("script")).status().unwrap();
            assert!(checked.success());
        }
    }
    sandbox.run(&["completions", "tcsh"]).fails(2, "");
}

#[test]
fn there_is_a_man_page_for_each_command() {
    let sandbox = Sandbox::new();
    sandbox.make_dir("man1");
    sandbox.ok(&["man", "--out", "man1"]);
    for command in ["", "-load", "-export", "-probe", "-man"] {
        let page = String::from_utf8(sandbox.read(&format!("man1/fulgurite{command}.1"))).unwrap();
        for words in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH \"EXIT CODES\"", ".SH \"EXAMPLES\""] {
            assert!(page.contains(words), "fulgurite{command}.1 has no {words}");
        }
        assert_eq!(page.matches("EXIT CODES").count(), 1);
    }
    assert_eq!(sandbox.ok(&["man", "load"]).as_bytes(), sandbox.read("man1/fulgurite-load.1"));
    sandbox.run(&["man", "frobnicate"]).fails(2, "there is no command `frobnicate`");
    sandbox.run(&["man", "--out", "nowhere"]).fails(1, "nowhere");
}

/// Regression: the note about a killed database was text before the error's object.
#[test]
fn a_note_was_text_between_the_objects_of_a_program() {
    let sandbox = Sandbox::new();
    sandbox.load_and_kill("t", "k\tv\n");
    for (args, code) in [
        (&["get", "db", "t", "x"][..], 5),
        (&["get", "db", "t", "k"], 0),
        (&["scan", "db", "t"], 0),
        (&["export", "db", "u"], 1),
        (&["export", "db", "t", "t.tsv"], 0),
        (&["check", "db"], 0),
    ] {
        let ran = sandbox.run(&[args, &["--json"]].concat());
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        let objects: Vec<Value> =
            ran.stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert!(objects[0]["note"].as_str().unwrap().starts_with("the database was not closed"), "{args:?}");
        assert_eq!(objects.iter().filter(|object| object["note"].is_string()).count(), 1, "{args:?}");
    }
    let ran = sandbox.run(&["get", "db", "t", "k"]);
    assert!(ran.stderr.starts_with("note: the database was not closed"), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "the note is printed once: {}", ran.stderr);
}

fn with_log(sandbox: &Sandbox, log: Option<&str>, args: &[&str]) -> common::Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fulgurite"));
    command.args(args).current_dir(sandbox.path()).env_remove("RUST_LOG");
    log.map(|log| command.env("RUST_LOG", log));
    command.output().unwrap().into()
}

/// Regression: a database without trouble printed no events, whatever was asked for.
#[test]
fn events_are_printed_on_demand() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    let get = ["get", "db", "t", "k"];
    for (log, flag, is_printed) in [
        (None, None, false),
        (None, Some("-v"), true),
        (Some("info"), None, true),
        (Some("fulgurite=info"), None, true),
        (Some("off"), None, false),
        (Some("somebody_else=trace"), None, false),
        (Some("somebody_else=trace"), Some("-vv"), true),
    ] {
        let ran = with_log(&sandbox, log, &[&get[..], flag.as_slice()].concat());
        assert_eq!((ran.code, &ran.stdout[..]), (Some(0), &b"v"[..]), "{}", ran.stderr);
        let opened =
            ran.stderr.lines().any(|line| line.contains(" INFO fulgurite") && line.contains("opened"));
        assert_eq!(opened, is_printed, "{log:?} {flag:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.is_empty(), !is_printed, "{log:?} {flag:?}: {}", ran.stderr);
    }
    with_log(&sandbox, Some("fulgurite=loud"), &get).fails(2, "RUST_LOG is `fulgurite=loud`");
}

/// Regression: the database warned of a bad copy of its superblock, and only -v showed it.
#[test]
fn a_warning_was_not_seen_without_being_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    sandbox.flip("db/SUPERBLOCK", 40);
    let get = ["get", "db", "t", "k"];
    for (log, is_printed) in
        [(None, true), (Some("fulgurite_log=debug"), true), (Some("off"), false), (Some("error"), false)]
    {
        let ran = with_log(&sandbox, log, &get);
        assert_eq!((ran.code, &ran.stdout[..]), (Some(0), &b"v"[..]), "{}", ran.stderr);
        let warned = ran.stderr.lines().any(|line| {
            line.contains(" WARN fulgurite::superblock: ") && line.contains("copies of the superblock")
        });
        assert_eq!(warned, is_printed, "{log:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.is_empty(), !is_printed, "{log:?}: {}", ran.stderr);
    }
    let ran = with_log(&sandbox, None, &[&get[..], &["--json"]].concat());
    let warning: Value = serde_json::from_str(&ran.stderr).expect(&ran.stderr);
    assert_eq!((&warning["level"], &warning["target"]), (&"warn".into(), &"fulgurite::superblock".into()));
    assert!(warning["event"].as_str().unwrap().contains("copies of the superblock"), "{warning}");
    assert!(warning["fields"]["path"].as_str().unwrap().ends_with("SUPERBLOCK"), "{warning}");
}
