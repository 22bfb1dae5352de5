//! The output on a narrow terminal.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::common::Sandbox;

/// Runs the program on a terminal of `columns` columns, made by script(1); `None` without that program.
fn on_a_terminal(sandbox: &Sandbox, columns: u32, args: &str) -> Option<String> {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("skipped: there is no script(1), of the package util-linux");
        return None;
    }
    let program = env!("CARGO_BIN_EXE_fulgurite");
    let line = format!("stty cols {columns} rows 24; {program} {args}");
    let ran = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(sandbox.path())
        .env("TERM", "xterm")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{text}");
    Some(text)
}

/// The lines that the terminal was sent, each without its control sequences.
fn lines(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => {
                let _sequence = chars.by_ref().skip(1).find(|c| c.is_ascii_alphabetic());
            }
            '\r' => plain.push('\n'),
            c => plain.push(c),
        }
    }
    plain.lines().map(String::from).collect()
}

/// Regression: the bar of a load was broken into several lines, and each update added more of them.
#[test]
fn a_progress_bar_fits_a_narrow_terminal() {
    let sandbox = Sandbox::new();
    let rows: String = (0..200_000).map(|row| format!("{row:07}\tsome value of row {row}\n")).collect();
    sandbox.write("rows.tsv", rows);
    let Some(text) = on_a_terminal(&sandbox, 40, "load db t rows.tsv") else { return };
    let bars: Vec<String> = lines(&text).into_iter().filter(|line| line.contains('%')).collect();
    assert!(
        bars.iter().any(|bar| bar.contains(" rows ") && bar.contains("/s ")),
        "no bar was drawn: {text:?}"
    );
    for bar in bars {
        assert!(bar.chars().count() <= 40, "{bar:?} has {} columns", bar.chars().count());
    }
}

/// Regression: a load without a file waited for rows without a message.
#[test]
fn a_load_from_the_terminal_says_that_it_reads() {
    let sandbox = Sandbox::new();
    if Command::new("script").arg("--version").output().is_err() {
        return eprintln!("skipped: there is no script(1), of the package util-linux");
    }
    let line = format!("{} load db t", env!("CARGO_BIN_EXE_fulgurite"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(sandbox.path()).env("TERM", "xterm");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut chunk) = (String::new(), [0; 1024]);
    while !shown.contains("reading from the terminal; ^D ends\r\n") {
        let read = screen.read(&mut chunk).unwrap();
        assert_ne!(read, 0, "it ended without a word: {shown:?}");
        shown += &String::from_utf8_lossy(&chunk[..read]);
    }
    keys.write_all(b"a\t1\n\x04").unwrap();
    screen.read_to_string(&mut shown).unwrap();
    assert!(shown.contains("1 row durable in table `t`"), "{shown:?}");
    assert!(child.wait().unwrap().success());
}

/// Regression: the terminal broke help in the middle of words.
#[test]
fn help_fits_the_terminal() {
    let sandbox = Sandbox::new();
    for (columns, args) in [(60, "export --help"), (60, "--help"), (80, "load --help"), (250, "load --help")]
    {
        let Some(text) = on_a_terminal(&sandbox, columns, args) else { return };
        let width = lines(&text).iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let most = columns.min(100) as usize;
        assert!(width <= most, "{args} on {columns} columns is {width} wide");
        assert!(width > most * 3 / 4, "{args} on {columns} columns is only {width} wide");
    }
}
