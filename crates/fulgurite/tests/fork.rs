//! Children of `fork()` have a copy of every handle and none of the threads. In a child every operation fails, and no
//! call and no drop changes the parent's database.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::{Database, Durability, Error, Options, Result};

/// A child that hangs is killed after so many seconds.
const CHILD_SECONDS: u32 = 60;

/// A running child, and its messages.
struct Child {
    pid: libc::pid_t,
    says: PipeReader,
    /// The child continues when this is closed.
    holds: PipeWriter,
}

/// Forks; the child runs `act`, reports the message of a panic, and ends without running anything else. `act` gets a
/// pipe that the parent closes.
fn fork(act: impl FnOnce(PipeReader)) -> Child {
    // Two children that each have the end of the other's pipe would wait for each other.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let one = ONE_AT_A_TIME.lock().expect("nothing panics under it");
    let (says, mut say) = std::io::pipe().expect("a pipe");
    let (held, holds) = std::io::pipe().expect("a pipe");
    // SAFETY: the child continues in a copy of this thread, takes no lock that another thread may have held except
    // those of the allocator, which the C library puts in order, and ends by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid > 0 {
        return Child { pid, says, holds };
    }
    drop((says, holds, one));
    // SAFETY: it only sets a timer.
    unsafe { libc::alarm(CHILD_SECONDS) };
    let outcome = catch_unwind(AssertUnwindSafe(|| act(held)));
    let code = outcome.map_or_else(
        |panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            let _ = say.write_all(text.unwrap_or_default().as_bytes());
            1
        },
        |()| 0,
    );
    // SAFETY: it does not return.
    unsafe { libc::_exit(code) }
}

impl Child {
    /// Lets the child continue, and waits until it has ended without an error.
    fn join(self) {
        drop(self.holds);
        let mut status = 0;
        // SAFETY: `status` is writable, and the process is a child of this one that is waited for once.
        let waited = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!(waited, self.pid);
        let mut said = String::new();
        let mut says = self.says;
        // Another test's child may hold the other end of the pipe open.
        if status != 0 {
            says.read_to_string(&mut said).expect("readable");
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child: {status:#x} {said}");
    }
}

/// Runs `act` in a child, to its end.
fn in_child(act: impl FnOnce()) {
    fork(|_| act()).join();
}

#[track_caller]
fn refused<T>(what: &str, result: Result<T>) {
    match result {
        Ok(_) => panic!("{what} succeeds in the child"),
        Err(error) => {
            assert!(error.to_string().contains("was opened in another process"), "{what}: {error}");
        }
    }
}

fn open(path: &Path) -> Database {
    Database::open(path, Options::default()).expect("it opens")
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Every commit that the parent got acknowledged is durable, and none of the child's.
fn verify(path: &Path, count: u32) {
    let db = open(path);
    let table = db.open_table("t").expect("it was created");
    let mut found = 0u32;
    for entry in table.range(..).expect("readable") {
        let (key, value) = entry.expect("readable");
        assert_eq!((&key[..], &value[..]), (&found.to_be_bytes()[..], &b"parent"[..]));
        found += 1;
    }
    assert_eq!(found, count);
    let report = db.check(|_| {}).expect("checked");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_child_can_do_nothing_with_its_parents_handles_and_loses_it_nothing() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let db = open(temporary.path());
    let table = db.table("t").expect("created");
    table.put(key(0), b"parent").expect("acknowledged");
    let mut pending = db.begin();
    pending.put(&table, key(9), b"child").expect("nothing fails");
    let snapshot = db.snapshot();
    let mut range = snapshot.range(&table, ..).expect("readable");

    let child = fork(|held| {
        for n in 1..51 {
            refused("a put", table.put(key(n), b"child"));
        }
        refused("a get", table.get(key(0)));
        refused("a get without a wait", table.try_get(key(0)));
        refused("a delete", table.delete(key(0)));
        refused("a delete of a range", table.delete_range(key(0)..));
        refused("a range", table.range(..).map(drop));
        refused("a read of a snapshot", snapshot.get(&table, key(0)));
        refused("a new snapshot", db.snapshot().get(&table, key(0)));
        refused("an iteration", range.next().expect("an error, no end"));
        refused("a write in a transaction", pending.put(&table, key(8), b"child"));
        refused("a commit", pending.commit());
        refused("an empty commit", db.begin().commit());
        refused("a deferred commit", db.begin().commit_deferred());
        refused("a closure", db.transact(|txn| txn.put(&table, key(7), b"child")));
        refused("a new table", db.table("u").map(drop));
        refused("a table", db.table("t").map(drop));
        refused("a drop of a table", db.drop_table("t"));
        refused("a new name", db.rename_table("t", "u"));
        refused("the list of tables", db.tables().map(drop));
        refused("a checkpoint", db.checkpoint().map(drop));
        refused("maintenance", db.maintain().map(drop));
        refused("a check", db.check(|_| {}).map(drop));
        refused("waiting", db.wait_durable(db.snapshot().csn()));
        let _ = db.stats();
        assert_eq!(table.len_estimate(), 0);
        refused("closing", db.clone().close());
        let mut byte = [0];
        let mut held = held;
        assert_eq!(held.read(&mut byte).expect("readable"), 0);
    });
    for n in 1..51 {
        table.put(key(n), b"parent").expect("acknowledged");
    }
    child.join();
    for n in 51..60 {
        table.put(key(n), b"parent").expect("acknowledged");
    }
    drop((range, snapshot, table));
    db.close().expect("closed");
    verify(temporary.path(), 60);
}

/// The names and contents of all files.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    use fulgurite::env::{Env, OpenOptions, RealEnv};
    let env = RealEnv::new();
    let mut files = Vec::new();
    for entry in env.disk().list(dir).expect("listed") {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            files.extend(self::files(&path));
        } else {
            let file = env.disk().open(&path, OpenOptions::Read).expect("opened");
            let mut bytes = vec![0; file.len().expect("measured") as usize];
            file.read_exact_at(&mut bytes, 0).expect("read");
            files.push((entry.name, bytes));
        }
    }
    files
}

#[test]
fn a_child_that_drops_its_handles_changes_no_file_and_releases_no_lock() {
    for background in [true, false] {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let options = Options { background, ..Options::default() };
        let db = Database::open(temporary.path(), options.clone()).expect("it opens");
        let table = db.table("t").expect("created");
        table.put(key(0), b"parent").expect("acknowledged");
        let mut pending = db.begin();
        // Written ahead, into segments that the transaction pins.
        pending.put(&table, b"large", vec![7; 300_000]).expect("nothing fails");
        let snapshot = db.snapshot();
        // With threads, the database itself creates and removes files.
        let before = if background { Vec::new() } else { files(temporary.path()) };
        let handles = (pending, snapshot, table, db);
        let handles = std::cell::Cell::new(Some(handles));
        in_child(|| drop(handles.take()));
        let (pending, snapshot, table, db) = handles.take().expect("only the child took them");
        if !background {
            assert!(files(temporary.path()) == before, "the child changed a file");
        }
        let second = Database::open(temporary.path(), options).expect_err("the parent has it open");
        assert!(matches!(second, Error::Locked { .. }), "{second}");
        drop((pending, snapshot));
        table.put(key(1), b"parent").expect("acknowledged");
        drop(table);
        db.close().expect("closed");
        verify(temporary.path(), 2);
    }
}

/// A child neither stages nor drains, nor gives its parent's staging file away; and does not keep it.
#[test]
fn a_child_has_no_part_in_its_parents_staging() {
    use fulgurite::StagingOptions;
    use fulgurite::env::{Env, MemoryMedium, RealEnv};
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    if RealEnv::new().disk().device(memory.path()).expect("statfs").file_system != "tmpfs" {
        return;
    }
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let file = memory.path().join("staging");
    let staging = StagingOptions::new(&file, MemoryMedium::Volatile);
    let options = Options { staging: Some(staging), durability: Durability::Staged, ..Options::default() };
    let open = || Database::open(temporary.path(), options.clone()).expect("it opens");
    let db = open();
    let table = db.table("t").expect("created");
    (0..100).for_each(|n| _ = table.put(key(n), b"parent").expect("staged"));
    let handles = std::cell::Cell::new(Some((table, db)));
    in_child(|| {
        let (table, db) = handles.take().expect("it has a copy");
        refused("a put", table.put(key(500), b"child"));
        refused("a get", table.get(key(1)));
        let _ = db.stats();
        drop((table, db));
    });
    let (table, db) = handles.take().expect("only the child took them");
    let in_use = Database::inspect_staging(&file).expect_err("the parent has it");
    assert!(in_use.to_string().contains("has it open"), "{in_use}");
    (100..200).for_each(|n| _ = table.put(key(n), b"parent").expect("staged"));
    let child = fork(|mut held| {
        let _ = held.read(&mut [0]);
        refused("a get", table.get(key(0)));
    });
    drop(table.clone());
    db.close().expect("closed");
    let again = open();
    again.table("t").expect("there").put(key(200), b"parent").expect("staged");
    again.close().expect("closed");
    child.join();
    verify(temporary.path(), 201);
}

#[test]
fn a_child_that_lives_on_does_not_keep_the_parent_from_opening_again() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let db = open(temporary.path());
    let table = db.table("t").expect("created");
    table.put(key(0), b"parent").expect("acknowledged");
    let child = fork(|mut held| {
        let _ = held.read(&mut [0]);
        refused("a get", table.get(key(0)));
    });
    drop(table.clone());
    db.close().expect("closed");
    verify(temporary.path(), 1);
    child.join();
}

#[test]
fn a_child_that_dropped_its_handles_does_not_hold_the_lock_after_its_parent_was_killed() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let (mut ready, tell) = std::io::pipe().expect("a pipe");
    // A parent that can be killed, and its child, which outlives it.
    let parent = fork(|_| {
        let db = open(temporary.path());
        db.table("t").expect("created").put(key(0), b"parent").expect("acknowledged");
        let handles = std::cell::Cell::new(Some(db));
        let _grandchild = fork(|own| {
            drop((own, handles.take()));
            let mut tell = tell;
            tell.write_all(&std::process::id().to_le_bytes()).expect("the test reads");
            wait_for_a_signal();
        });
        wait_for_a_signal();
    });
    let mut grandchild = [0; 4];
    ready.read_exact(&mut grandchild).expect("the grandchild says so");
    // SAFETY: the process is a child of this one that was not waited for.
    assert_eq!(unsafe { libc::kill(parent.pid, libc::SIGKILL) }, 0);
    let mut status = 0;
    // SAFETY: as in `join`.
    assert_eq!(unsafe { libc::waitpid(parent.pid, &raw mut status, 0) }, parent.pid);
    verify(temporary.path(), 1);
    let grandchild = libc::pid_t::from_le_bytes(grandchild);
    // SAFETY: it waits for this, or for its alarm.
    assert_eq!(unsafe { libc::kill(grandchild, libc::SIGKILL) }, 0);
}

fn wait_for_a_signal() {
    // SAFETY: it only waits.
    unsafe { libc::pause() };
}

/// In a process of its own: a child may use more than system calls only if the other threads of its parent are idle at
/// the fork.
#[test]
fn a_child_of_an_idle_process_may_open_a_database_of_its_own() {
    let program = std::env::current_exe().expect("this test");
    let mut command = std::process::Command::new(program);
    let output = command.args(["--exact", "child_that_forks_alone", "--nocapture", "--ignored"]).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "run by the test above"]
fn child_that_forks_alone() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let (ours, theirs) = (temporary.path().join("parent"), temporary.path().join("child"));
    let options = Options { background: false, ..Options::default() };
    let db = Database::open(&ours, options).expect("it opens");
    let table = db.table("t").expect("created");
    in_child(|| {
        let own = open(&theirs);
        let own_table = own.table("t").expect("created");
        own_table.put(key(0), b"parent").expect("acknowledged");
        in_child(|| {
            refused("a put into the parent's", own_table.put(key(1), b"grandchild"));
            refused("a put into the grandparent's", table.put(key(1), b"grandchild"));
        });
        refused("a put into the parent's", table.put(key(1), b"child"));
        drop(own_table);
        own.close().expect("closed");
    });
    table.put(key(0), b"parent").expect("acknowledged");
    drop(table);
    db.close().expect("closed");
    verify(&ours, 1);
    verify(&theirs, 1);
}

#[test]
fn forks_beside_threads_that_commit_neither_hang_nor_lose_anything() {
    const THREADS: u32 = 3;
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let options = Options { memtable_bytes_max: Some(64 << 10), ..Options::default() };
    let db = Database::open(temporary.path(), options).expect("it opens");
    let table = db.table("t").expect("created");
    let done = AtomicBool::new(false);
    let committed: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (table, db, done) = (&table, &db, &done);
                scope.spawn(move || {
                    let mut count = 0;
                    while !done.load(Ordering::Relaxed) {
                        let mut txn = db.begin();
                        txn.put(table, [key(thread), key(count)].concat(), [1; 100]).expect("nothing fails");
                        if count % 3 == 0 {
                            txn.set_durability(Durability::None).expect("always there");
                        }
                        txn.commit_deferred().expect("nothing fails").wait().expect("acknowledged");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for _ in 0..20 {
            let mut txn = db.begin();
            txn.put(&table, b"never", b"committed").expect("nothing fails");
            let ticket = {
                let mut other = db.begin();
                other.put(&table, b"deferred", b"by the parent").expect("nothing fails");
                other.commit_deferred().expect("nothing fails")
            };
            let handles = std::cell::Cell::new(Some((txn, ticket, table.clone(), db.clone())));
            in_child(|| {
                let (txn, ticket, table, db) = handles.take().expect("a copy");
                refused("a get", table.get(b"deferred"));
                refused("a put", table.put(b"never", b"by a child"));
                refused("a commit", txn.commit());
                if let Some(Err(error)) = ticket.try_wait() {
                    refused::<()>("looking at a ticket", Err(error));
                }
                if let Err(error) = ticket.wait() {
                    refused::<()>("waiting for a ticket", Err(error));
                }
                refused("closing", db.close());
            });
            let (_, ticket, ..) = handles.take().expect("only the child took them");
            ticket.wait().expect("acknowledged");
        }
        done.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    drop(table);
    db.close().expect("closed");
    let db = open(temporary.path());
    let table = db.open_table("t").expect("it was created");
    for (thread, count) in (0..).zip(committed) {
        let found = table.prefix(key(thread)).expect("readable").count();
        assert_eq!(found, count as usize, "of thread {thread}");
    }
    assert_eq!(table.get(b"never").expect("readable"), None);
}
