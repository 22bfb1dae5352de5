//! A crash in the middle of an operation.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use fulgurite_env::sim::CrashKind::{Kill, PowerCut};
use fulgurite_env::sim::is_crashed;
use fulgurite_env::{AlignedBuf, Env, OpenOptions};

use super::{SECTOR, log, outcomes, root, stamps, with_log};

#[test]
fn the_nth_write_is_torn_and_everything_after_it_fails() {
    let (sim, file) = with_log(4, 1);
    sim.faults().crash_at(sim.faults().op_count() + 2);
    file.write_at(&[2; SECTOR], 3 * SECTOR as u64).expect("the one before");
    let disk = sim.disk();
    let errors = [
        file.write_at(&[3; 3 * SECTOR], 0).expect_err("the crash"),
        file.write_at(&[4; SECTOR], 0).expect_err("write"),
        file.write_at_dsync(&[4; SECTOR], 0).expect_err("dsync"),
        file.write_direct(&AlignedBuf::new(4_096), 0, true).expect_err("direct write"),
        file.sync_data().expect_err("sync"),
        file.set_len(0).expect_err("set_len"),
        file.len().expect_err("len"),
        file.read_at(&mut [0], 0).expect_err("read"),
        file.read_at_direct(&mut [0], 0).expect_err("direct read"),
        disk.open(log(), OpenOptions::Read).map(drop).expect_err("open"),
        disk.create_dir_all(Path::new("/d")).expect_err("mkdir"),
        disk.list(root()).map(drop).expect_err("list"),
        disk.rename(log(), Path::new("/other")).expect_err("rename"),
        disk.remove(log()).expect_err("remove"),
        disk.sync_dir(root()).expect_err("sync_dir"),
        disk.free_bytes(root()).map(drop).expect_err("free"),
        disk.device(root()).map(drop).expect_err("device"),
        disk.open_dir(root()).map(drop).expect_err("open_dir"),
    ];
    for error in &errors {
        assert!(is_crashed(error), "{error}");
    }
    assert!(sim.faults().has_crashed());
    let killed = outcomes(&sim, Kill);
    assert!(killed.iter().all(|outcome| outcome[3] == 2), "complete before the crash");
    assert_eq!(killed.len(), 8, "any subset of the torn write: {killed:?}");
    assert_eq!(outcomes(&sim, PowerCut).len(), 16);
}

#[test]
fn a_torn_append_may_have_any_length() {
    let (sim, file) = with_log(1, 1);
    sim.faults().crash_at(sim.faults().op_count() + 1);
    file.write_at_dsync(&[2; 3 * SECTOR], SECTOR as u64).expect_err("the crash");
    let lengths: BTreeSet<usize> = outcomes(&sim, PowerCut).iter().map(Vec::len).collect();
    assert_eq!(lengths, BTreeSet::from([1, 2, 3, 4]));
}

#[test]
fn an_interrupted_sync_or_change_of_names_may_have_happened() {
    let crash_in = |act: fn(&dyn fulgurite_env::Disk) -> io::Result<()>| {
        let (sim, file) = with_log(1, 1);
        file.write_at(&[2; SECTOR], 0).expect("write");
        sim.faults().crash_at(sim.faults().op_count() + 1);
        assert!(is_crashed(&act(sim.disk()).expect_err("the crash")));
        sim
    };
    let names = |sim: &fulgurite_env::SimEnv| -> BTreeSet<Vec<String>> {
        let listing = |seed| {
            let files = sim.crash(Kill, seed).list_raw().into_iter();
            files.map(|(path, _)| path.display().to_string()).collect()
        };
        (0..50).map(listing).collect()
    };
    let synced = crash_in(|disk| disk.open(log(), OpenOptions::Write)?.sync_data());
    assert_eq!(outcomes(&synced, PowerCut).len(), 2);
    let renamed = crash_in(|disk| disk.rename(log(), Path::new("/other")));
    assert_eq!(names(&renamed), BTreeSet::from([vec!["/log".to_owned()], vec!["/other".to_owned()]]));
    let removed = crash_in(|disk| disk.remove(log()));
    assert_eq!(names(&removed).len(), 2);
    let created = crash_in(|disk| disk.open(Path::new("/new"), OpenOptions::CreateNew).map(drop));
    assert_eq!(names(&created).len(), 2);
    let cut = crash_in(|disk| disk.open(log(), OpenOptions::Write)?.set_len(0));
    assert_eq!(outcomes(&cut, Kill).len(), 2);
}

#[test]
fn every_operation_of_a_run_can_be_hit() {
    let run = |crash_at: Option<u64>| {
        let (sim, file) = with_log(1, 1);
        let before = sim.faults().op_count();
        if let Some(n) = crash_at {
            sim.faults().crash_at(before + n);
        }
        let result = (|| -> io::Result<()> {
            sim.disk().create_dir_all(Path::new("/a/b"))?;
            let new = sim.disk().open(Path::new("/a/b/f"), OpenOptions::CreateNew)?;
            new.write_at(b"x", 0)?;
            new.write_vectored_at(&[io::IoSlice::new(b"y"), io::IoSlice::new(b"z")], 1)?;
            new.write_at_dsync(b"x", 0)?;
            new.write_direct(&AlignedBuf::new(4_096), 0, false)?;
            new.set_len(100)?;
            new.sync_data()?;
            sim.disk().rename(Path::new("/a/b/f"), Path::new("/a/b/g"))?;
            sim.disk().sync_dir(Path::new("/a/b"))?;
            sim.disk().remove(Path::new("/a/b/g"))?;
            file.read_at(&mut [0], 0)?;
            Ok(())
        })();
        (result, sim.faults().op_count() - before)
    };
    let (result, count) = run(None);
    result.expect("no fault");
    assert_eq!(count, 12, "two directories, a file, four writes, a length, two syncs, a rename, a removal");
    for n in 1..=count {
        let (result, reached) = run(Some(n));
        assert!(is_crashed(&result.expect_err("the crash")), "operation {n}");
        assert_eq!(reached, n);
    }
    run(Some(count + 1)).0.expect("not reached");
}

#[test]
fn a_crash_error_is_recognised_inside_another() {
    let (sim, file) = with_log(1, 1);
    sim.faults().crash_now();
    let error = file.sync_data().expect_err("crashed");
    assert!(is_crashed(&io::Error::other(error)));
    assert!(!is_crashed(&io::Error::other("something else")));
    assert!(!is_crashed(&io::Error::from_raw_os_error(5)));
}

#[test]
fn images_taken_while_threads_write_have_whole_sectors() {
    let (sim, file) = with_log(8, 1);
    let writers: Vec<_> = (2..4u8)
        .map(|byte| {
            let file = Arc::clone(&file);
            let body = move || {
                for _ in 0..200 {
                    file.write_at(&[byte; 8 * SECTOR], 0).expect("write");
                }
            };
            sim.spawn("writer", Box::new(body)).expect("spawn")
        })
        .collect();
    for seed in 0..200 {
        let kind = if seed % 2 == 0 { Kill } else { PowerCut };
        assert!(stamps(&sim.crash(kind, seed)).iter().all(|stamp| (1..4).contains(stamp)));
    }
    assert!(writers.into_iter().all(|writer| writer.join()));
}
