//! Values much longer than the memory budget, stored and read by clients that are as slow as they like: this process, which has the server
//! and its clients, counts its allocations.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fulgurite::env::{Env, RealEnv};
use fulgurite::{Database, Options};
use fulgurite_server::Server;
use support::*;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: it passes every call to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(ALLOCATED.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// The memory of the database.
const BUDGET: usize = 32 * MIB;

/// What a connection takes at most while its value arrives, or its reply leaves: pieces of 256 KiB in the buffers of the connection and of
/// a worker, each buffer with room to grow into.
const CONNECTION: usize = 3 * MIB / 2;

/// Threads, their stacks apart, and what of the database is not in its budget.
const BESIDE: usize = 4 * MIB;

/// What a client of this test sends or receives at a time.
const CHUNK: usize = 64 << 10;

/// The bytes of a chunk of a value.
fn fill(chunk: &mut [u8], seed: usize, number: usize) {
    for (index, word) in chunk.chunks_mut(8).enumerate() {
        let mixed = (seed << 40 ^ number << 20 ^ index) as u64;
        word.copy_from_slice(&mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    }
}

fn set(server: &Server, seed: usize, len: usize) {
    let mut client = Client::connect(server);
    let key = format!("k{seed}");
    client.send(format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len()).as_bytes());
    let mut chunk = vec![0; CHUNK];
    for number in 0..len / CHUNK {
        fill(&mut chunk, seed, number);
        client.send(&chunk);
    }
    client.send(b"\r\n");
    assert_eq!(client.receive_text(), "OK");
}

fn get(server: &Server, seed: usize, len: usize) {
    let mut client = Client::connect(server);
    client.send(format!("GET k{seed}\r\n").as_bytes());
    let expected = format!("${len}\r\n");
    let mut header = vec![0; expected.len()];
    client.stream.read_exact(&mut header).unwrap();
    assert_eq!(header, expected.as_bytes());
    let (mut chunk, mut received) = (vec![0; CHUNK], vec![0; CHUNK]);
    for number in 0..len / CHUNK {
        fill(&mut chunk, seed, number);
        client.stream.read_exact(&mut received).unwrap();
        assert!(chunk == received, "chunk {number} of k{seed}");
    }
    client.stream.read_exact(&mut chunk[..2]).unwrap();
    assert_eq!(&chunk[..2], b"\r\n");
    client.stream.write_all(b"PING\r\n").unwrap();
    assert_eq!(client.receive_text(), "PONG");
}

/// One test counts at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A server over a database with [`BUDGET`].
fn serve_within_budget(dir: &tempfile::TempDir) -> (Database, Server) {
    let options = Options { memory_bytes: Some(BUDGET), ..Options::default() };
    let db = Database::open(dir.path().join("data"), options).unwrap();
    (db.clone(), Server::start(db, config()).unwrap())
}

/// Has so many clients work at the same time: together they take no more memory than they may.
fn step(what: &str, connections: usize, work: &(dyn Fn(usize) + Sync)) {
    let before = ALLOCATED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let env = RealEnv::new();
    let began_ns = env.clock().monotonic_ns();
    std::thread::scope(|scope| (0..connections).for_each(|number| _ = scope.spawn(move || work(number))));
    let seconds = (env.clock().monotonic_ns() - began_ns) as f64 / 1e9;
    let peak = PEAK.load(Relaxed);
    println!(
        "{what}: {connections} clients: {seconds:.1} s, {:.1} MiB allocated at most, {:.1} before",
        peak as f64 / MIB as f64,
        before as f64 / MIB as f64,
    );
    let bound = BUDGET + BESIDE + connections * (CONNECTION + 3 * CHUNK);
    assert!(peak < bound, "{what}: {peak} bytes, at most {bound} are allowed");
}

/// So many clients set values, get them, and set them again while others get them.
fn set_and_get(clients: usize, len: usize) {
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let (db, server) = serve_within_budget(&dir);
    step("SET", clients, &|number| set(&server, number, len));
    step("GET", clients, &|number| get(&server, number, len));
    step("SET beside GET", 2 * clients, &|number| match number % 2 {
        0 => set(&server, number / 2, len),
        _ => get(&server, number / 2, len),
    });
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("DBSIZE"), clients.to_string());
    assert_eq!(client.ask(&format!("STRLEN k{}", clients - 1)), len.to_string());
    assert_eq!(client.ask("FLUSHDB"), "OK");
    let rows = |table: &str| db.open_table(table).unwrap().range(..).unwrap().count();
    wait_until(|| rows("redis:content") == 0 && rows("redis:garbage") == 0);
}

#[test]
fn values_longer_than_the_budget_take_two_pieces_of_memory() {
    set_and_get(2, 96 * MIB);
}

/// The longest value that there is.
#[test]
#[ignore = "writes gigabytes"]
fn a_value_of_512_mib_takes_two_pieces_of_memory() {
    set_and_get(1, 512 * MIB);
}

/// Sends commands, the last of which has a long reply, and compares that with chunks of bytes that are made one by one.
fn ask_for(server: &Server, command: &str, expected: impl Iterator<Item = Vec<u8>>) {
    let mut client = Client::connect(server);
    let mut commands = command.split("; ").peekable();
    while let Some(command) = commands.next() {
        client.send_command(command);
        if commands.peek().is_some() {
            assert!(["OK", "QUEUED"].contains(&&*client.receive_text()));
        }
    }
    let mut received = Vec::with_capacity(CHUNK);
    for (number, chunk) in expected.enumerate() {
        received.resize(chunk.len(), 0);
        client.stream.read_exact(&mut received).unwrap();
        assert!(received == chunk, "chunk {number} of {:.20}", command);
    }
    client.stream.write_all(b"PING\r\n").unwrap();
    assert_eq!(client.receive_text(), "PONG");
}

/// A name of 500 bytes.
fn name(number: usize) -> String {
    format!("{number:0500}")
}

/// The bytes of an array of bulk strings.
fn array(items: impl ExactSizeIterator<Item = Vec<u8>>) -> impl Iterator<Item = Vec<u8>> {
    let header = format!("*{}\r\n", items.len()).into_bytes();
    let bulk = |item: Vec<u8>| [format!("${}\r\n", item.len()).as_bytes(), &item, b"\r\n"].concat();
    std::iter::once(header).chain(items.map(bulk))
}

/// Replies of 48 and of 96 MiB in all, of many values, fields, members and keys.
#[test]
fn replies_of_many_take_two_pieces_of_memory() {
    const VALUES: usize = 1536;
    const NAMES: usize = 100_000;
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let (_db, server) = serve_within_budget(&dir);
    let mut client = Client::connect(&server);
    let value = |number: usize| {
        let mut chunk = vec![0; CHUNK];
        fill(&mut chunk, 1, number);
        chunk
    };
    for number in 0..VALUES {
        let field = format!("v{number}");
        assert_eq!(client.ask_arguments(&[b"HSET", b"hash", field.as_bytes(), &value(number)]), "1");
        if number % 48 == 0 {
            set(&server, number / 48, 3 * MIB);
        }
    }
    let fields: Vec<String> = (0..VALUES).map(|number| format!("v{number}")).collect();
    let command = format!("HMGET hash {}", fields.join(" "));
    step("HMGET", 2, &|_| ask_for(&server, &command, array((0..VALUES).map(value))));
    let fields: Vec<String> = (0..VALUES).map(|number| format!("HGET hash v{number}")).collect();
    let commands = format!("MULTI; {}; EXEC", fields.join("; "));
    step("EXEC", 2, &|_| ask_for(&server, &commands, array((0..VALUES).map(value))));
    let keys: Vec<String> = (0..VALUES / 48).map(|number| format!("k{number}")).collect();
    let command = format!("MGET {}", keys.join(" "));
    let of_key = |key: usize| {
        let header = format!("${}\r\n", 3 * MIB).into_bytes();
        let chunks = (0..48).map(move |number| {
            let mut chunk = vec![0; CHUNK];
            fill(&mut chunk, key, number);
            chunk
        });
        std::iter::once(header).chain(chunks).chain([b"\r\n".to_vec()])
    };
    let all = || std::iter::once(b"*32\r\n".to_vec()).chain((0..32).flat_map(of_key));
    step("MGET", 2, &|_| ask_for(&server, &command, all()));
    assert_eq!(client.ask("FLUSHDB"), "OK");
    for from in (0..NAMES).step_by(100) {
        let (mut zadd, mut mset) = (vec!["ZADD".into(), "zset".into()], vec!["MSET".to_string()]);
        for number in from..from + 100 {
            zadd.extend([number.to_string(), name(number)]);
            mset.extend([name(number), number.to_string()]);
        }
        assert_eq!(client.ask_arguments(&zadd), "100");
        assert_eq!(client.ask_arguments(&mset), "OK");
    }
    let names = || array((0..NAMES).map(|number| name(number).into_bytes()));
    step("ZRANGE", 2, &|_| ask_for(&server, "ZRANGE zset 0 -1", names()));
    step("ZRANGEBYSCORE", 2, &|_| ask_for(&server, "ZRANGEBYSCORE zset 0 +inf LIMIT 0 100000", names()));
    step("KEYS", 2, &|_| ask_for(&server, "KEYS 0*", names()));
}
