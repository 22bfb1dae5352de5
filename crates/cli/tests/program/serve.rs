//! `fulgurite serve`, as a client sees it: kills, signals, and what it refuses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::Sandbox;

/// A running server, and the address that it printed.
struct Serving {
    child: Child,
    address: String,
}

fn serve(sandbox: &Sandbox, more: &[&str]) -> Serving {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(["serve", "--dir", sandbox.file("db").to_str().unwrap(), "--bind", "127.0.0.1:0"])
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
    Serving { address: address.unwrap_or_else(|| panic!("{line}")).into(), child }
}

impl Drop for Serving {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A client that sends inline commands.
struct Client(BufReader<TcpStream>);

impl Serving {
    fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(BufReader::new(stream))
    }

    fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success()
        );
    }
}

impl Client {
    /// False once the server is gone.
    fn send(&mut self, commands: &str) -> bool {
        self.0.get_mut().write_all(commands.as_bytes()).is_ok()
    }

    /// The next reply, a bulk string or what a line says; `None` once the server is gone.
    fn receive(&mut self) -> Option<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        let Some(len) = line.strip_prefix('$').filter(|len| *len != "-1") else { return Some(line.into()) };
        let mut bytes = vec![0; len.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut bytes).ok()?;
        bytes.truncate(bytes.len() - 2);
        Some(String::from_utf8(bytes).unwrap())
    }

    fn ask(&mut self, command: &str) -> Option<String> {
        if self.send(&format!("{command}\r\n")) { self.receive() } else { None }
    }

    /// The number that a key has, 0 if there is none.
    fn number(&mut self, key: &str) -> u64 {
        self.ask(&format!("GET {key}")).unwrap().parse().unwrap_or(0)
    }
}

/// Commits until the server dies: by SET, by INCR, and by EXEC of two keys, three in flight at a time. Returns the last that was
/// acknowledged of each.
fn write_until_killed(client: &mut Client, from: u64, progress: &AtomicU64) -> u64 {
    let mut acknowledged = from;
    for n in from + 1.. {
        let commands = format!(
            "SET set {n}\r\nINCR count\r\nMULTI\r\nSET pair:a {n}\r\nSET pair:b {n}\r\nEXEC\r\nSET gone{n} x PX 1\r\n"
        );
        if !client.send(&commands) {
            return acknowledged;
        }
        let expected = ["+OK", &format!(":{n}"), "+OK", "+QUEUED", "+QUEUED", "*2", "+OK", "+OK", "+OK"];
        for expected in expected {
            match client.receive() {
                Some(reply) => assert_eq!(reply, expected),
                None => return acknowledged,
            }
        }
        acknowledged = n;
        progress.store(n, Ordering::SeqCst);
    }
    unreachable!("the server is killed")
}

/// Killed at random moments: all that was acknowledged is there, and nothing in part.
#[test]
fn acknowledged_writes_survive_kills() {
    let sandbox = Sandbox::new();
    survive_kills(&sandbox, 8, &[]);
    sandbox.ok(&["check", "db"]);
}

/// Acknowledged when they are in volatile memory: that survives the process. `FULGURITE_KILL_ROUNDS` sets the number of kills.
#[test]
fn staged_writes_survive_kills() {
    let Some(memory) = Sandbox::in_memory() else { return };
    let sandbox = Sandbox::new();
    let file = memory.file("staging");
    let file = file.to_str().unwrap();
    let staging = ["--staging", file, "--staging-medium", "volatile", "--staging-buffer", "1MiB"];
    let rounds = std::env::var("FULGURITE_KILL_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    survive_kills(&sandbox, rounds, &[&staging[..], &["--durability", "staged"]].concat());
    // The last one left commits in the file.
    sandbox.run(&["get", "db", "redis:heads", "x"]).fails(3, "the options name no staging file");
    let status = sandbox.ok(&["staging", "status", file]);
    assert!(status.contains("memory    volatile") && status.contains("buffers   2 of 1.0 MiB"), "{status}");
    assert!(status.contains("holds     commits "), "{status}");
    let stat = sandbox.ok(&[&["stat", "db", "--json"], &staging[..]].concat());
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!((&stat["staging"]["medium"], &stat["staging"]["file"]), (&"volatile".into(), &file.into()));
    assert!(stat["staging"]["staged_bytes"].as_u64().unwrap() > 0, "{stat}");
    let stat = sandbox.ok(&[&["stat", "db"], &staging[..]].concat());
    assert!(stat.contains("which survives a killed process alone"), "{stat}");
    sandbox.ok(&[&["check", "db"], &staging[..]].concat());
    assert!(
        sandbox
            .ok(&[&["staging", "drain", "db"], &staging[..]].concat())
            .contains("the log holds all commits up to")
    );
    sandbox.ok(&["check", "db"]);
}

#[test]
fn a_lost_staging_file_is_adopted_on_demand() {
    let Some(memory) = Sandbox::in_memory() else { return };
    let sandbox = Sandbox::new();
    let file = memory.file("staging");
    let file = file.to_str().unwrap();
    let staging = ["--staging", file, "--staging-medium", "volatile"];
    let mut serving = serve(&sandbox, &[&staging[..], &["--durability", "staged"]].concat());
    let mut client = serving.connect();
    assert_eq!(client.ask("DURABILITY").as_deref(), Some("staged"));
    assert_eq!(client.ask("SET a 1").as_deref(), Some("+OK"));
    sandbox.run(&["staging", "status", file]).fails(1, "has it open");
    let info = client.ask("INFO persistence").expect("a text");
    assert!(info.contains("fulgurite_staging:volatile\r\n") && info.contains(file), "{info}");
    serving.child.kill().unwrap();
    serving.child.wait().unwrap();
    memory.remove("staging");
    let get = ["tables", "db"];
    sandbox.run(&[&get[..], &staging[..]].concat()).fails(3, "there is no file");
    sandbox.run(&["staging", "drain", "db"]).fails(2, "--staging has to name the file");
    sandbox
        .run(&[&["staging", "adopt-loss", "db"], &staging[..]].concat())
        .fails(2, "to go on without what it held, leave --staging out");
    let adopted = sandbox.run(&["staging", "adopt-loss", "db", "--json"]);
    assert!(adopted.code == Some(0) && adopted.stderr.contains("without its staging file"), "{adopted:?}");
    sandbox.ok(&["check", "db"]);
    sandbox.ok(&[&get[..], &staging[..]].concat());
    sandbox.write("other", vec![7; 8192]);
    let wrong = ["--staging", sandbox.file("other").to_str().unwrap()].map(str::to_string);
    sandbox.run(&["put", "db", "t", "k", "v", &wrong[0], &wrong[1]]).fails(1, "");
    sandbox.run(&["staging", "status", "nowhere"]).fails(1, "nowhere");
}

fn survive_kills(sandbox: &Sandbox, rounds: u64, more: &[&str]) {
    let mut acknowledged = 0;
    for round in 0..rounds {
        let threads: &[&str] = if round % 2 == 0 { &[] } else { &["--io-threads", "2"] };
        let mut serving = serve(sandbox, &[threads, more].concat());
        let mut client = serving.connect();
        let [set, count, a, b] = ["set", "count", "pair:a", "pair:b"].map(|key| client.number(key));
        assert_eq!(a, b, "a transaction is there as a whole");
        for found in [set, count, a] {
            assert!(found >= acknowledged, "{found} of {acknowledged}");
            assert!(found <= acknowledged + 1, "what was not sent is not there");
        }
        assert_eq!(client.ask(&format!("GET gone{acknowledged}")).unwrap(), "$-1", "it expired");
        // All go on from one number.
        let newest = set.max(count).max(a);
        assert_eq!(
            client.ask(&format!("MSET set {newest} count {newest} pair:a {newest} pair:b {newest}")).unwrap(),
            "+OK"
        );
        let progress = &AtomicU64::new(0);
        acknowledged = std::thread::scope(|scope| {
            let writer = scope.spawn(move || write_until_killed(&mut client, newest, progress));
            while progress.load(Ordering::SeqCst) == 0 {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            std::thread::park_timeout(Duration::from_millis(31 * (round % 8)));
            serving.child.kill().unwrap();
            serving.child.wait().unwrap();
            writer.join().unwrap()
        });
    }
}

#[test]
fn a_signal_ends_it_with_the_replies_that_are_due() {
    let sandbox = Sandbox::new();
    for signal in ["-TERM", "-INT"] {
        let mut serving = serve(&sandbox, &[]);
        let mut client = serving.connect();
        let before = client.number("n");
        assert!(client.send(&"INCR n\r\n".repeat(500)));
        assert_eq!(client.receive().unwrap(), format!(":{}", before + 1));
        serving.signal(signal);
        let mut replies = 1;
        while client.receive().is_some() {
            replies += 1;
        }
        assert_eq!(serving.child.wait().unwrap().code(), Some(0), "{signal}");
        let again = serve(&sandbox, &[]);
        assert_eq!(again.connect().number("n"), before + replies, "each was acknowledged");
    }
}

#[test]
fn a_client_ends_it() {
    let sandbox = Sandbox::new();
    let mut serving = serve(&sandbox, &["--io-threads", "2"]);
    let (mut client, mut another) = (serving.connect(), serving.connect());
    assert_eq!(another.ask("INCR n").unwrap(), ":1");
    assert_eq!(client.ask("DURABILITY none").unwrap(), "+OK");
    assert_eq!(client.ask("INCR n").unwrap(), ":2");
    assert_eq!(client.ask("SHUTDOWN"), None);
    assert_eq!(another.ask("PING"), None);
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
    assert_eq!(serve(&sandbox, &[]).connect().number("n"), 2);
}

#[test]
fn what_it_cannot_do_it_says() {
    let sandbox = Sandbox::new();
    sandbox.run(&["serve", "--dir", "db", "--bind", "0.0.0.0:0"]).fails(2, "there is no password");
    sandbox.run(&["serve", "--dir", "db", "--io-threads", "0"]).fails(2, "io_threads is 0, the least is 1");
    sandbox.run(&["serve", "--dir", "db", "--idle-poll", "1001"]).fails(2, "1001 is not in 0..=1000");
    sandbox.run(&["serve", "--dir", "db", "--bind", "nowhere"]).fails(2, "invalid value 'nowhere'");
    sandbox
        .run(&["serve", "--dir", "db", "--durability", "fsync"])
        .fails(2, "the levels are sync, staged, async:MS and none");
    sandbox
        .run(&["serve", "--dir", "db", "--durability", "async:soon"])
        .fails(2, "not a number of milliseconds");
    sandbox.run(&["serve"]).fails(2, "--dir <DIR>");
    assert!(!sandbox.file("db").exists(), "nothing was made");
    let first = serve(&sandbox, &[]);
    let address = first.address.clone();
    sandbox.run(&["serve", "--dir", "db"]).fails(4, "is open in another process");
    sandbox
        .run(&["serve", "--dir", "other", "--bind", &address])
        .fails(1, &format!("cannot listen on {address}"));
    drop(first);
}

#[test]
fn connections_begin_at_the_level_that_it_was_given() {
    for (given, level) in [("sync", "sync"), ("async:250", "async 250"), ("none", "none")] {
        let sandbox = Sandbox::new();
        let server = serve(&sandbox, &["--durability", given]);
        let mut client = server.connect();
        assert_eq!(client.ask("DURABILITY").as_deref(), Some(level));
        assert_eq!(client.ask("SET key value").as_deref(), Some("+OK"));
        assert_eq!(client.ask("DURABILITY sync").as_deref(), Some("+OK"));
        assert_eq!(server.connect().ask("DURABILITY").as_deref(), Some(level), "another is another's");
        assert_eq!(client.ask("RESET").as_deref(), Some("+RESET"));
        assert_eq!(client.ask("DURABILITY").as_deref(), Some(level));
    }
}
