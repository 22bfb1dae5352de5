//! Checks that all file operations of C code are counted.

mod common;

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bench_peers::interpose::counts;
use common::{child, child_with_store, each, engine, open, store_of_child, trace, write};
use fulgurite_bench::IoCounts;
use fulgurite_bench::engine::{Level, Needs, Store};

const CHILD_ALONE: &str = "INTERPOSE_ALONE";
const COMMITS: u64 = 50;

/// Whether this process runs the test `name` alone, as counts are per process; if not, starts a process that does, and
/// waits for it.
fn is_alone(name: &str) -> bool {
    if std::env::var(CHILD_ALONE).is_ok() {
        return true;
    }
    let output = child(name).env(CHILD_ALONE, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

fn c_open(path: &Path, flags: c_int) -> c_int {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a string that ends in 0.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    assert!(fd >= 0);
    fd
}

fn c_close(fd: c_int) {
    // SAFETY: the descriptor is this test's own.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

fn c_write(fd: c_int, len: usize, offset: Option<i64>) {
    let bytes = vec![1u8; len];
    let written = match offset {
        // SAFETY: the buffer is valid for `len` bytes.
        Some(offset) => unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), len, offset) },
        // SAFETY: as above.
        None => unsafe { libc::write(fd, bytes.as_ptr().cast(), len) },
    };
    assert_eq!(written, len as isize);
}

#[test]
fn calls_are_counted_by_kind() {
    if !is_alone("calls_are_counted_by_kind") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let before = counts();
    let fd = c_open(&path, libc::O_CREAT | libc::O_RDWR);
    c_write(fd, 100, None);
    c_write(fd, 100, None);
    c_write(fd, 4096, Some(0));
    c_write(fd, 10, Some(40_960));
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::fsync(fd) }, 0);
    let mut bytes = [0u8; 50];
    // SAFETY: the buffer is valid for 50 bytes.
    assert_eq!(unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), 50, 0) }, 50);
    c_close(fd);
    let synced = c_open(&path, libc::O_WRONLY | libc::O_DSYNC);
    c_write(synced, 10, Some(8192));
    c_close(synced);
    let counted = counts().since(&before);
    let expected = IoCounts {
        reads: 1,
        read_bytes: 50,
        sequential_writes: 3,
        sequential_bytes: 4296,
        random_writes: 2,
        random_bytes: 20,
        syncs: 2,
        sync_ns: 0,
    };
    assert_eq!(IoCounts { sync_ns: 0, ..counted }, expected);
    assert!(counted.sync_ns > 0);
}

#[test]
fn errors_stay_what_they_are_and_pipes_do_not_count() {
    if !is_alone("errors_stay_what_they_are_and_pipes_do_not_count") {
        return;
    }
    let before = counts();
    // SAFETY: there is no such descriptor, and nothing is written.
    assert_eq!(unsafe { libc::write(-1, std::ptr::null(), 0) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::fsync(-1) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    c_write(ends[1], 10, None);
    ends.into_iter().for_each(c_close);
    assert_eq!(counts(), before);
}

fn commit(store: &dyn Store) {
    let mut session = store.session().unwrap();
    for number in 0..COMMITS {
        write(&mut *session, |txn| txn.put(0, &number.to_be_bytes(), &[7; 100]));
    }
    drop(session);
    store.close().unwrap();
}

/// Engines whose calls go through the C library.
fn each_of_c(check: impl Fn(&str)) {
    each(Needs::default(), Level::Sync, |engine| {
        if !engine.name().starts_with("fulgurite") {
            check(engine.name());
        }
    });
}

#[test]
fn syncs_of_a_shared_library_are_counted() {
    each_of_c(|name| {
        let dir = tempfile::tempdir().unwrap();
        let before = counts();
        commit(&*open(&*engine(name), dir.path(), Level::Sync));
        let counted = counts().since(&before);
        assert!(counted.syncs >= COMMITS, "{name}: {counted:?}");
        assert!(counted.sequential_writes + counted.random_writes >= COMMITS, "{name}: {counted:?}");
        assert!(counted.sequential_bytes + counted.random_bytes >= COMMITS * 100, "{name}: {counted:?}");
    });
}

#[test]
fn child_that_is_traced() {
    let Some(store) = store_of_child() else { return };
    commit(&*store);
    println!("\ncounted {}", counts().syncs);
}

#[test]
fn the_kernel_counts_the_same_syncs() {
    each_of_c(|name| {
        let dir = tempfile::tempdir().unwrap();
        let child = child_with_store("child_that_is_traced", name, dir.path(), Level::Sync);
        let Some(traced) = trace(child, "fsync,fdatasync,msync") else { return };
        let counted = |line: &str| line.strip_prefix("counted ")?.parse::<usize>().ok();
        let counted = traced.stdout.lines().find_map(counted);
        let is_sync =
            |line: &&str| ["fsync(", "fdatasync(", "MS_SYNC"].iter().any(|call| line.contains(call));
        let syncs = traced.calls.lines().filter(is_sync).count();
        match name {
            // It also writes through a descriptor whose writes are synchronous.
            "lmdb" => assert!(counted > Some(syncs), "{name}: {counted:?}, {syncs}"),
            _ => assert_eq!(counted, Some(syncs), "{name}"),
        }
    });
}
