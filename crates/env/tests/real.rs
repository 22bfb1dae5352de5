//! Tests that only the machine can run.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use fulgurite_env::LockMode::{Exclusive, Shared};
use fulgurite_env::{
    AlignedBuf, Dir, DiskError, Env, Lock, LockHolder, LockMode, Locking, OpenOptions, RealEnv, raw_os_error,
};
use rustix::fs::{FlockOperation, Mode, OFlags};

fn dir(path: &Path) -> Arc<dyn Dir> {
    RealEnv::new().disk().open_dir(path).expect("open")
}

/// The lock, or the holder that excludes it.
fn lock(path: &Path, mode: LockMode) -> Result<Box<dyn Lock>, LockHolder> {
    match dir(path).lock("LOCK", mode).expect("lock") {
        Locking::Taken(lock) => Ok(lock),
        Locking::Held(holder) => Err(holder),
    }
}

#[test]
fn two_locks_of_one_process_conflict_and_the_holder_is_named() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let held = lock(temporary.path(), Exclusive).expect("free");
    let holder = lock(temporary.path(), Exclusive).expect_err("held");
    assert!(holder.this_process);
    assert_eq!(holder.pid, Some(std::process::id()));
    let now_ms = RealEnv::new().clock().wall_ms();
    assert!(now_ms.abs_diff(holder.since_ms.expect("noted")) < 60_000, "{holder:?} at {now_ms}");
    drop(held);
    drop(lock(temporary.path(), Exclusive).expect("released"));
}

#[test]
fn a_lock_holds_when_its_file_is_removed_or_replaced() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let held = lock(temporary.path(), Exclusive).expect("free");
    dir(temporary.path()).remove("LOCK").expect("removed");
    assert!(lock(temporary.path(), Exclusive).expect_err("held").this_process);
    dir(temporary.path()).open("LOCK", OpenOptions::CreateNew).expect("replaced");
    lock(temporary.path(), Shared).expect_err("held");
    drop(held);
    lock(temporary.path(), Exclusive).expect("released");
}

/// As on a file system that does not lock directories: another process holds the lock of the file alone.
#[test]
fn the_lock_of_the_file_alone_excludes() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    drop(lock(temporary.path(), Exclusive).expect("free"));
    let (path, mode) = (temporary.path().join("LOCK"), Mode::empty());
    let other = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, mode).expect("open");
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).expect("free");
    lock(temporary.path(), Exclusive).expect_err("held");
    lock(temporary.path(), Shared).expect_err("held");
    drop(other);
    lock(temporary.path(), Exclusive).expect("released");
}

#[test]
fn a_lock_goes_with_the_directory_that_is_moved() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let (old, new) = (temporary.path().join("old"), temporary.path().join("new"));
    RealEnv::new().disk().create_dir_all(&old).expect("mkdir");
    let _held = lock(&old, Exclusive).expect("free");
    RealEnv::new().disk().rename(&old, &new).expect("moved");
    RealEnv::new().disk().create_dir_all(&old).expect("mkdir");
    lock(&new, Exclusive).expect_err("held");
    lock(&old, Exclusive).expect("another directory");
}

#[test]
fn readers_share_a_lock_and_make_no_file() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let first = lock(temporary.path(), Shared).expect("free");
    let second = lock(temporary.path(), Shared).expect("shared");
    assert!(dir(temporary.path()).list().expect("list").is_empty());
    let holder = lock(temporary.path(), Exclusive).expect_err("readers");
    assert!(holder.is_shared && holder.this_process, "{holder:?}");
    drop(first);
    let holder = lock(temporary.path(), Exclusive).expect_err("a reader, whose lock is as it was");
    assert!(holder.is_shared, "{holder:?}");
    drop(second);
    lock(temporary.path(), Exclusive).expect("released");
}

/// The file names a process that has long let go.
#[test]
fn no_writer_is_named_when_readers_hold_the_lock() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    drop(lock(temporary.path(), Exclusive).expect("free"));
    let reader = lock(temporary.path(), Shared).expect("free");
    let holder = lock(temporary.path(), Exclusive).expect_err("a reader");
    assert_eq!((holder.is_shared, holder.pid, holder.since_ms), (true, None, None));
    drop(reader);
    let _writer = lock(temporary.path(), Exclusive).expect("released");
    for mode in [Exclusive, Shared] {
        let holder = lock(temporary.path(), mode).expect_err("a writer");
        assert_eq!((holder.is_shared, holder.pid), (false, Some(std::process::id())));
    }
}

#[test]
fn a_full_device_says_so_with_operation_and_path() {
    let file = RealEnv::new().disk().open(Path::new("/dev/full"), OpenOptions::Write).expect("open");
    let errors = [file.write_at(b"x", 0), file.write_at_dsync(b"x", 0)];
    for error in errors.map(|result| result.expect_err("full")) {
        assert_eq!((error.kind(), raw_os_error(&error)), (ErrorKind::StorageFull, Some(28)), "{error}");
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<DiskError>()).expect("wrapped");
        assert_eq!(inner.path(), Path::new("/dev/full"));
        assert!(inner.operation().starts_with("pwrite"), "{error}");
    }
}

#[test]
fn direct_reads_work_where_the_file_system_refuses_them_or_the_name_is_gone() {
    for base in ["/dev/shm", "/proc/self/cwd", "/tmp"].map(Path::new).into_iter().filter(|base| base.is_dir())
    {
        let Ok(dir) = tempfile::tempdir_in(base) else { continue };
        let env = RealEnv::new();
        let path = dir.path().join("f");
        let file = env.disk().open(&path, OpenOptions::CreateNew).expect("create");
        file.write_at(&[7; 10_000], 0).expect("write");
        env.disk().remove(&path).expect("remove");
        let mut buf = vec![0; 9_000];
        assert_eq!(file.read_at_direct(&mut buf, 1_500).expect("direct read"), 8_500, "{}", base.display());
        assert!(buf[..8_500].iter().all(|byte| *byte == 7));
    }
}

#[test]
fn memory_takes_no_direct_writes() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let env = RealEnv::new();
    if env.disk().device(dir.path()).expect("statfs").file_system != "tmpfs" {
        return;
    }
    let file = env.disk().open(&dir.path().join("f"), OpenOptions::CreateNew).expect("create");
    assert!(!file.takes_direct_writes().expect("the kernel says it"), "whatever the kernel accepts");
    let error = file.write_direct(&AlignedBuf::new(1), 0, false).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(file.is_empty().expect("len"));
}

#[test]
#[should_panic(expected = "all three must be multiples of 4096")]
fn a_misaligned_direct_write_is_refused() {
    let file = RealEnv::new().disk().open(Path::new("/dev/null"), OpenOptions::Write).expect("open");
    let _ = file.write_direct(&AlignedBuf::new(8_192)[1..], 0, false);
}

/// The kernel's own file systems, for example; some FUSE and network ones, too.
#[test]
fn a_file_system_that_counts_no_blocks_is_not_full() {
    let disk = RealEnv::new();
    for path in ["/proc", "/sys"].map(Path::new).into_iter().filter(|path| path.is_dir()) {
        assert_eq!(disk.disk().free_bytes(path).expect("statvfs"), u64::MAX, "{}", path.display());
    }
}

/// One writes to a mapped file, until it gives it up.
#[test]
fn a_mapped_file_has_one_writer() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let env = RealEnv::new();
    if env.disk().device(dir.path()).expect("statfs").file_system != "tmpfs" {
        return;
    }
    let path = dir.path().join("m");
    let first = env.disk().create_mapped(&path, 4096).expect("create");
    for options in [OpenOptions::Write, OpenOptions::Read] {
        let error = env.disk().open_mapped(&path, options).expect_err("it is in use");
        assert!(
            error.kind() == ErrorKind::WouldBlock && error.to_string().contains("has it open"),
            "{error}"
        );
    }
    first.release();
    let second = env.disk().open_mapped(&path, OpenOptions::Write).expect("it was given up");
    drop(first);
    assert!(env.disk().open_mapped(&path, OpenOptions::Write).is_err(), "the second one has it");
    drop(second);
}

/// A child of `fork()` has no mapping of the file: it could store into the parent's.
#[test]
fn a_mapped_file_is_not_inherited_and_has_all_of_its_space() {
    let Ok(temporary) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = temporary.path().join("not-inherited");
    let Ok(file) = RealEnv::new().disk().create_mapped(&path, 8192) else { return };
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let own = maps.split_once("not-inherited").expect("it is mapped").1;
    let flags = own.lines().find_map(|line| line.strip_prefix("VmFlags:")).expect("flags");
    // "Do not copy"; also: it is shared.
    assert!(["dc", "sh"].iter().all(|flag| flags.split_whitespace().any(|other| other == *flag)), "{flags}");
    let plain = RealEnv::new().disk().open(&path, OpenOptions::Read).expect("open");
    assert!(plain.allocated_bytes().expect("stat") >= 8192);
    drop(file);
    assert!(!std::fs::read_to_string("/proc/self/smaps").expect("smaps").contains("not-inherited"));
}

/// A page that cannot be accessed does not end the process: it reads as zeros, and is reported.
#[test]
fn a_lost_page_of_a_mapped_file_is_reported() {
    let Ok(temporary) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = temporary.path().join("lost");
    let env = RealEnv::new();
    let (Ok(file), Ok(other)) = (
        env.disk().create_mapped(&path, 4 * 4096),
        env.disk().create_mapped(&temporary.path().join("whole"), 4096),
    ) else {
        return;
    };
    (0..4).for_each(|page| file.store_word(page * 4096, 7));
    file.fence().expect("it is whole");
    let writer = env.disk().open(&path, OpenOptions::Write).expect("open");
    writer.set_len(2 * 4096).expect("truncate");
    file.check().expect("nothing was accessed");
    assert_eq!([0, 4096, 8192].map(|at| file.load_word(at)), [7, 7, 0]);
    let error = file.check().expect_err("a page is lost");
    assert!(
        error.to_string().contains("the page at byte 8192 of the mapped file cannot be accessed"),
        "{error}"
    );
    // A store to another one that is gone: it is lost, and no fence says otherwise.
    file.store_word(3 * 4096, 8);
    assert!(file.fence().is_err());
    other.fence().expect("another file is whole");
    drop(file);
    writer.set_len(4 * 4096).expect("extend");
    let again = env.disk().open_mapped(&path, OpenOptions::Write).expect("open");
    assert_eq!([0, 4096, 8192, 3 * 4096].map(|at| again.load_word(at)), [7, 7, 0, 0]);
    again.fence().expect("a new mapping");
}

/// The bus error of a mapping that is not ours ends the process, as it would without ours; so does one that was sent.
#[test]
fn a_bus_error_elsewhere_ends_the_process() {
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    const HOW: &str = "FULGURITE_TEST_BUS_ERROR";
    let Ok(how) = std::env::var(HOW) else {
        for how in ["elsewhere", "sent", "ours"] {
            let test = std::process::Command::new(std::env::current_exe().expect("a path"))
                .args(["--exact", "a_bus_error_elsewhere_ends_the_process"])
                .env(HOW, how)
                .output()
                .expect("run");
            let expected = if how == "ours" { None } else { Some(libc::SIGBUS) };
            assert_eq!(test.status.signal(), expected, "{how}: {test:?}");
        }
        return;
    };
    let temporary = tempfile::tempdir_in("/dev/shm").expect("tmpfs");
    let path = temporary.path().join("m");
    let ours = RealEnv::new().disk().create_mapped(&path, 4096).expect("create");
    if how == "sent" {
        // The handler of Rust's library, which was there before, expects an access that is repeated: one signal only resets it.
        // SAFETY: the second one ends the process.
        (0..2).for_each(|_| _ = unsafe { libc::raise(libc::SIGBUS) });
        return;
    }
    if how == "ours" {
        let file = RealEnv::new().disk().open(&path, OpenOptions::Write).expect("open");
        file.set_len(0).expect("truncate");
        ours.load_word(0);
        assert!(ours.check().is_err());
        return;
    }
    let file = tempfile::tempfile_in(temporary.path()).expect("a file");
    file.set_len(4096).expect("extend");
    let (flags, protection) = (rustix::mm::MapFlags::SHARED, rustix::mm::ProtFlags::READ);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let elsewhere =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, flags, file.as_fd(), 0) };
    let elsewhere = elsewhere.expect("mmap").cast::<u8>();
    file.set_len(0).expect("truncate");
    // SAFETY: it ends the process.
    unsafe { elsewhere.read_volatile() };
}
