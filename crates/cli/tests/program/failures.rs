//! A failure is reported in one line, with the right exit code.

use crate::common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;

use crate::common::Sandbox;

#[test]
fn a_bad_row_is_named_by_its_line() {
    let sandbox = Sandbox::new();
    sandbox.write("x.tsv", "a\t1\nb\t2\nbad\nc\t3\n");
    sandbox
        .run(&["load", "db", "t", "x.tsv"])
        .fails(1, "x.tsv, line 3: 1 column found, at least 2 expected; 2 rows are durable");
    assert_eq!(sandbox.ok(&["scan", "db", "t", "--keys-only"]), "a\nb\n");
    let said = sandbox.ok(&["load", "db", "u", "x.tsv", "--skip-bad", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["rows"], &summary["bad_rows"]), (&3.into(), &1.into()));
    sandbox.write("x.csv", "a,1\n\"two\nlines\",2\nbad\n");
    sandbox.run(&["load", "db", "t", "x.csv"]).fails(1, "x.csv, line 4: ");
    for (line, why) in [
        ("{\"key\":\"a\"}", "there is no field \"value\""),
        ("{\"value\":\"a\"}", "there is no field \"key\""),
        ("[1]", "it is not a JSON object"),
        ("{oops", "it is not a JSON object: key must be a string, at column 2; "),
        ("{\"key\":\"a\",\"value_base64\":\"!\"}", "is not base64"),
        ("{\"key\":\"\\ud800\",\"value\":1}", "field \"key\""),
        ("", "it is not a JSON object"),
    ] {
        sandbox.write("x.jsonl", format!("{{\"key\":1,\"value\":2}}\n{line}\n"));
        sandbox.run(&["load", "db", "t", "x.jsonl"]).fails(1, "x.jsonl, line 2: ");
        sandbox.run(&["load", "db", "t", "x.jsonl"]).fails(1, why);
    }
    sandbox.write("e.tsv", "a\t\\x\n");
    sandbox.run(&["load", "--escaped", "db", "t", "e.tsv"]).fails(1, "e.tsv, line 1: there is no escape \\x");
}

#[test]
fn a_key_that_is_too_long_is_a_bad_row() {
    let sandbox = Sandbox::new();
    let long = "k".repeat(fulgurite::limits::KEY_BYTES_MAX + 1);
    sandbox.write("x.tsv", format!("a\t1\n{long}\t2\nb\t3\n"));
    sandbox.run(&["load", "db", "t", "x.tsv"]).fails(1, "x.tsv, line 2: the key has 65536 bytes");
    sandbox.ok(&["load", "db", "t", "x.tsv", "--skip-bad"]);
    assert_eq!(sandbox.ok(&["scan", "db", "t", "--count"]), "2\n");
    sandbox.run(&["put", "--create", "db", "t", &long, "v"]).fails(1, "the key has 65536 bytes");
    sandbox.run(&["get", "db", "t", &long]).fails(1, "the key has 65536 bytes");
}

#[test]
fn a_missing_database_is_not_created() {
    let sandbox = Sandbox::new();
    for args in [
        &["get", "db", "t", "k"][..],
        &["scan", "db", "t"],
        &["delete", "db", "t", "k"],
        &["export", "db", "t", "x.tsv"],
        &["tables", "db"],
        &["drop", "db", "t"],
        &["rename", "db", "t", "u"],
        &["stat", "db"],
        &["check", "db"],
        &["dump", "db"],
    ] {
        sandbox.run(args).fails(1, "db is not a Fulgurite database: there is no such directory");
    }
    sandbox.run(&["load", "db", "t", "missing.tsv"]).fails(1, "opening missing.tsv: ");
    assert!(sandbox.names().is_empty(), "{:?}", sandbox.names());
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    sandbox.run(&["get", "db", "other", "k"]).fails(1, "there is no table `other`");
    sandbox.run(&["scan", "db", "other"]).fails(1, "there is no table `other`");
    assert_eq!(sandbox.ok(&["tables", "db", "--json"]).lines().count(), 1);
}

#[test]
fn a_foreign_directory_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.make_dir("theirs");
    sandbox.write("theirs/notes.txt", "mine");
    sandbox.write("file", "not a directory");
    for command in [&["get", "theirs", "t", "k"][..], &["put", "--create", "theirs", "t", "k", "v"]] {
        sandbox.run(command).fails(1, "theirs is not a Fulgurite database: it contains `notes.txt`");
    }
    sandbox.run(&["get", "file", "t", "k"]).fails(1, "file");
    sandbox.run(&["put", "--create", "file", "t", "k", "v"]).fails(1, "file");
    sandbox.run(&["dump", "file"]).fails(1, "file is not a Fulgurite database: it is a file");
    sandbox.run(&["load", "db", "t", "theirs"]).fails(1, "it is a directory");
    sandbox.run(&["put", "--create", "db", "", "k", "v"]).fails(1, "cannot be the name of a table");
}

#[test]
fn a_locked_database_has_its_exit_code() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.start(&["load", "--json", "db", "t"]);
    let mut stdin = holder.stdin.take().unwrap();
    stdin.write_all(b"a\t1\n").unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "{\"durable_rows\":1}\n", "rows are committed when the input pauses");
    sandbox.run(&["get", "db", "t", "a"]).fails(4, "is open in another process");
    sandbox.run(&["put", "--create", "db", "t", "a", "2"]).fails(4, "is open in another process");
    assert!(sandbox.ok(&["dump", "db"]).contains("copy 0"), "dump needs no lock");
    drop(stdin);
    assert!(holder.wait().unwrap().success());
    assert_eq!(sandbox.ok(&["get", "db", "t", "a"]), "1");
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let sandbox = Sandbox::new();
    let rows: String = (0..20_000).map(|row| format!("{row}\tsome value of row {row}\n")).collect();
    sandbox.write("x.tsv", &rows);
    sandbox.ok(&["load", "db", "t", "x.tsv"]);
    for args in [&["scan", "db", "t"][..], &["export", "db", "t", "--format", "csv"]] {
        let mut child = sandbox.start(args);
        child.stdout.take().unwrap().read_exact(&mut [0; 16]).unwrap();
        let ran: common::Ran = child.wait_with_output().unwrap().into();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    }
}

#[test]
fn a_signal_ends_a_load_between_batches() {
    let sandbox = Sandbox::new();
    let mut child = sandbox.start(&["load", "--json", "db", "t"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a\t1\nb\t2\nhalf a r").unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"durable_rows\":2}\n");
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let summary: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["durable_rows"], &summary["interrupted"]), (&2.into(), &true.into()));
    drop(stdin);
    assert_eq!(sandbox.ok(&["scan", "db", "t", "--count"]), "2\n");
}

/// Regression: the list of exit codes promised 130 for every command.
#[test]
fn a_scan_that_sigterm_ended_was_said_to_end_with_130() {
    use std::os::unix::process::ExitStatusExt;
    let sandbox = Sandbox::new();
    let rows: String = (0..20_000).map(|row| format!("{row}\tsome value of row {row}\n")).collect();
    sandbox.write("x.tsv", &rows);
    sandbox.ok(&["load", "db", "t", "x.tsv"]);
    for args in [&["scan", "db", "t"][..], &["export", "db", "t"]] {
        let mut child = sandbox.start(args);
        // It writes into a full pipe.
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 16]).unwrap();
        let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        assert_eq!(child.wait().unwrap().signal(), Some(15), "{args:?}");
    }
    let help = sandbox.ok(&["--help"]);
    assert!(help.contains("\n  143  what a shell reports of any other command that SIGTERM ended"), "{help}");
}

#[test]
fn damage_has_its_exit_code() {
    let sandbox = Sandbox::new();
    let rows: String = (0..5000).map(|row| format!("{row:05}\tsome value of row {row}\n")).collect();
    sandbox.write("x.tsv", &rows);
    sandbox.ok(&["load", "db", "t", "x.tsv"]);
    let dump = sandbox.ok(&["dump", "db", "--json"]);
    let segments = dump.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let bulk =
        segments.filter(|line| line["stream"] == "bulk").max_by_key(|line| line["used_bytes"].as_u64());
    let name = format!("db/log/{:010}.seg", bulk.unwrap()["segment"].as_u64().unwrap());
    let mut bytes = sandbox.read(&name);
    bytes[40_000] ^= 1;
    sandbox.write(&name, bytes);
    let ran = sandbox.run(&["check", "db", "--json"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["sound"], false);
    assert!(report["problems"][0].as_str().unwrap().contains(".seg"), "{report}");
    assert_eq!(sandbox.run(&["check", "db"]).code, Some(3));
    for args in [&["scan", "db", "t"][..], &["export", "db", "t"]] {
        let ran = sandbox.run(args);
        let advice = "; restore a backup, or save what can be read with `fulgurite export --skip-damaged`";
        assert!(ran.code == Some(3) && ran.stderr.trim_end().ends_with(advice), "{}", ran.stderr);
    }
    sandbox.write("db/SUPERBLOCK", [0; 8192]);
    sandbox.run(&["get", "db", "t", "00001"]).fails(3, "no valid copy");
    assert_eq!(sandbox.run(&["check", "db", "--json"]).code, Some(3));
}

#[test]
fn compressed_input_that_is_cut_off_is_an_error() {
    let sandbox = Sandbox::new();
    let rows: String = (0..5000).map(|row| format!("{row}\t{}\n", row * 7919)).collect();
    sandbox.write("x.tsv", rows);
    sandbox.ok(&["load", "db", "t", "x.tsv"]);
    sandbox.ok(&["export", "db", "t", "x.tsv.gz"]);
    let bytes = sandbox.read("x.tsv.gz");
    sandbox.write("cut.tsv.gz", &bytes[..bytes.len() / 2]);
    sandbox.run(&["load", "db", "u", "cut.tsv.gz"]).fails(1, "reading cut.tsv.gz: ");
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    let id = std::process::Command::new("id").arg("-u").output().unwrap();
    if id.stdout.starts_with(b"0\n") {
        eprintln!("skipped: root may write to a read-only directory");
        return;
    }
    let log = sandbox.file("db/log");
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o555)).unwrap();
    let ran = sandbox.run(&["get", "db", "t", "k"]);
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o755)).unwrap();
    ran.fails(1, "ermission denied");
}

#[test]
fn a_full_disk_under_the_output_is_an_error() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    sandbox.run(&["export", "db", "t", "/dev/full"]).fails(1, "writing /dev/full: ");
    assert_eq!(sandbox.ok(&["get", "db", "t", "k"]), "v");
}

/// Closing then writes no checkpoint, which the delete does not need. Later deletes may be refused until some megabytes
/// are free (`docs/recovery.md`).
#[test]
fn a_delete_on_a_full_disk_succeeds() {
    let sandbox = Sandbox::new();
    let program = env!("CARGO_BIN_EXE_fulgurite");
    sandbox.make_dir("full");
    let script = format!(
        "mount -t tmpfs -o size=40m tmpfs full || exit 77\n\
         seq 1 400000 | awk '{{printf \"%010d\\t%0200d\\n\", ($1*7919)%10000000, $1}}' |\n\
             {program} load full/db t >/dev/null 2>&1\n\
         cat /dev/zero >full/filler 2>/dev/null\n\
         {program} delete full/db t --to 0000000100 || exit 1\n\
         truncate -s -4M full/filler\n\
         for to in 0000000200 0000000300; do {program} delete full/db t --to $to || exit 1; done\n\
         {program} scan full/db t --to 0000000300 --count"
    );
    let ran = Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(sandbox.path()).output();
    let Ok(ran) = ran else { return eprintln!("skipped: there is no unshare") };
    let errors = String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(77) || errors.contains("unshare") {
        return eprintln!("skipped: nothing can be mounted: {errors}");
    }
    let output = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{output}{errors}");
    assert_eq!(output.lines().last(), Some("0"), "{output}{errors}");
}

/// The first file that an open creates is the lock file.
#[test]
fn a_full_disk_under_a_new_database_is_called_that() {
    let sandbox = Sandbox::new();
    let program = env!("CARGO_BIN_EXE_fulgurite");
    // One inode for the root, one for a directory.
    for (inodes, dir) in [(1, "full/db"), (1, "full"), (2, "full/db")] {
        sandbox.make_dir("full");
        let script = format!(
            "mount -t tmpfs -o size=64m,nr_inodes={inodes} tmpfs full || exit 77\n\
             {program} put --create {dir} t k v"
        );
        let ran =
            Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(sandbox.path()).output();
        let Ok(ran) = ran else { return eprintln!("skipped: there is no unshare") };
        let errors = String::from_utf8_lossy(&ran.stderr);
        if ran.status.code() == Some(77) || errors.contains("unshare") {
            return eprintln!("skipped: nothing can be mounted: {errors}");
        }
        assert!(errors.starts_with("error: the disk is full: "), "{inodes} inodes, {dir}: {errors}");
        assert_eq!(ran.status.code(), Some(1));
    }
}

#[test]
fn a_csv_quote_that_never_closes_is_an_error_whatever_is_skipped() {
    let sandbox = Sandbox::new();
    sandbox.write("open.csv", "1,a\n2,\"oops\n3,c\n4,d\n");
    for skip in [false, true] {
        let mut args = vec!["load", "db", "t", "open.csv"];
        if skip {
            args.push("--skip-bad");
        }
        sandbox.run(&args).fails(1, "open.csv, line 2: a quoted field begins here and is never closed");
    }
    sandbox.write("behind.csv", "1,\"x\"tail\n2,b\n");
    sandbox.run(&["load", "db", "u", "behind.csv"]).fails(1, "line 1: text follows the closing quote");
    sandbox.ok(&["load", "--skip-bad", "db", "u", "behind.csv"]);
    assert_eq!(sandbox.ok(&["scan", "db", "u", "--count"]), "1\n");
}

#[test]
fn an_export_leaves_other_files_alone() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    sandbox.write("out.tsv.part", "precious");
    sandbox.ok(&["export", "db", "t", "out.tsv"]);
    assert_eq!(sandbox.read("out.tsv.part"), b"precious");
    assert_eq!(sandbox.read("out.tsv"), b"k\tv\n");
}

#[test]
fn an_export_made_a_private_file_readable_for_all() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    for mode in [0o600, 0o666, 0o400] {
        sandbox.write("out.tsv.gz", "old");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(sandbox.file("out.tsv.gz"), permissions).unwrap();
        sandbox.ok(&["export", "db", "t", "out.tsv.gz"]);
        let found = sandbox.file("out.tsv.gz").metadata().unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode, "{found:o} in place of {mode:o}");
        sandbox.remove("out.tsv.gz");
    }
}

#[test]
fn an_export_replaced_a_file_of_the_database() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["put", "--create", "db", "t", "k", "v"]);
    sandbox.make_dir("else");
    sandbox.rename("db/log", "else/log");
    std::os::unix::fs::symlink(sandbox.file("else/log"), sandbox.file("db/log")).unwrap();
    std::os::unix::fs::symlink("db/SUPERBLOCK", sandbox.file("link")).unwrap();
    for file in [
        "db/SUPERBLOCK",
        "db/new.tsv",
        "./else/../db/LOCK",
        "db/log/0000000001.seg",
        "else/log/x.tsv",
        "link",
    ] {
        for dir in ["db", "./else/../db"] {
            sandbox
                .run(&["export", "--format", "tsv", dir, "t", file])
                .fails(2, "is in the directory of the database");
        }
    }
    sandbox.run(&["export", "db", "t", "nowhere/x.tsv"]).fails(1, "nowhere/x.tsv");
    sandbox.ok(&["export", "db", "t", "else/x.tsv"]);
    sandbox.ok(&["export", "db", "t", "db.tsv"]);
    assert_eq!(sandbox.read("db.tsv"), b"k\tv\n");
    assert!(sandbox.ok(&["check", "db"]).ends_with("the database is sound\n"));
}
