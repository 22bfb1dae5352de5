//! Segments: made, sized, recycled, freed.

use crate::support::*;
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, Loss, SimEnv};
use fulgurite_log::{
    BulkKind, CommitLog, Log, LogError, LogOptions, ReplayFrom, SegmentHeader, SegmentInfo, Stream,
};
use fulgurite_types::Csn;
use std::path::PathBuf;
use std::sync::Arc;

#[test]
fn a_new_log_is_small_and_a_growing_one_doubles_its_segments() {
    let env = SimEnv::new(1);
    let log = create(&env);
    assert_eq!(env.list_raw().iter().map(|(_, bytes)| bytes).sum::<u64>(), 16 * 1024);
    for _ in 0..60 {
        commit(&log, &[0; 1500]).expect("nothing fails");
    }
    let sizes: Vec<u32> = log
        .segments()
        .iter()
        .filter(|info| info.stream == Some(Stream::Commit))
        .map(|info| info.bytes)
        .collect();
    assert_eq!(sizes[0], 16 * 1024);
    assert!(sizes.is_sorted());
    assert_eq!(sizes.last(), Some(&(32 * 1024)), "the maximum is kept");
}

/// A bound holds from the next segment on, whatever the number of segments taken, and for both streams; a record that
/// needs a longer segment gets it.
#[test]
fn a_bound_holds_for_the_next_segments_but_not_for_a_long_record() {
    let env = SimEnv::new(1);
    let large = LogOptions { segment_bytes_max: 256 * 1024, ..options() };
    let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, large).expect("an empty directory");
    let write = |records: usize| {
        let before = log.segments().last().expect("there is one").number;
        for _ in 0..records {
            commit(&log, &[0; 1500]).expect("nothing fails");
            log.append_bulk(BulkKind::LeafNode, &[&[1; 1500]]).expect("nothing fails");
        }
        let later = log.segments().into_iter().filter(|info| info.number > before);
        later.map(|info| info.bytes).collect::<Vec<_>>()
    };
    log.bound_segments(100 * 1024);
    let sizes = write(300);
    assert_eq!(sizes.iter().max(), Some(&(64 * 1024)), "{sizes:?}");
    log.bound_segments(u64::MAX);
    assert_eq!(write(300).iter().max(), Some(&(256 * 1024)));
    log.bound_segments(0);
    // What was made ready before keeps its size.
    write(300);
    let sizes = write(100);
    assert!(sizes.iter().all(|bytes| *bytes == 16 * 1024), "{sizes:?}");
    let long = log.append_bulk(BulkKind::LeafNode, &[&[2; 100_000]]).expect("it fits into a larger one");
    let info = log.segments().into_iter().find(|info| info.number == long.segment()).expect("it is there");
    assert_eq!(info.bytes, 128 * 1024);
}

#[test]
fn infos_tell_stream_first_commit_and_fill() {
    let env = SimEnv::new(1);
    let log = create(&env);
    for _ in 0..20 {
        commit(&log, &[0; 1500]).expect("nothing fails");
    }
    let infos: Vec<_> =
        log.segments().into_iter().filter(|info| info.stream == Some(Stream::Commit)).collect();
    assert!(infos.len() > 1);
    assert_eq!(infos[0].first_csn, Csn(1));
    assert!(infos[1].first_csn > Csn(1));
    assert!(infos.iter().all(|info| info.used_bytes <= info.bytes && info.used_bytes > 4096));
    assert!(infos[0].open, "it holds the start of the epoch");
    assert!(infos.last().expect("several").open, "it is appended to");
}

#[test]
fn freed_segments_are_recycled_under_new_numbers() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let mut freed = 0;
    for n in 0..300u64 {
        let (csn, _) = commit(&log, &[n as u8; 1500]).expect("nothing fails");
        log.maintain().expect("nothing fails");
        log.drop_before(csn);
        let keep = log.replay_point(csn).segment();
        for info in log.segments() {
            if !info.open && info.number < keep {
                log.free_segment(info.number).expect("it is not needed");
                freed += 1;
            }
        }
    }
    let stats = log.stats();
    assert!(freed > 5 && stats.segments_recycled > 3, "{freed} freed, {} recycled", stats.segments_recycled);
    assert!(stats.segments < 6, "{} segments", stats.segments);
    let numbers: Vec<u32> = log.segments().iter().map(|info| info.number).collect();
    assert!(numbers[numbers.len() - 1] > 10, "numbers are never reused");
    assert!(env.list_raw().len() < 9);
}

#[test]
fn what_the_log_needs_is_not_freed() {
    let env = SimEnv::new(1);
    let log = create(&env);
    log.maintain().expect("nothing fails");
    for info in log.segments() {
        assert!(info.open);
        assert!(matches!(log.free_segment(info.number), Err(LogError::Usage(_))));
    }
    assert!(matches!(log.free_segment(99), Err(LogError::Usage(_))));
}

#[test]
fn creating_over_a_log_is_refused() {
    let env = SimEnv::new(1);
    drop(create(&env));
    let again = fulgurite_log::Log::create(env, dir(), ID, options());
    assert!(matches!(again, Err(LogError::Usage(_))));
}

/// The old name has to be durably gone before the content changes, or a crash leaves it with another segment's header.
#[test]
fn a_crash_while_recycling_is_harmless() {
    for op in 1..12 {
        for seed in 0..20 {
            let env = SimEnv::new(1);
            // Segments of one size: only a file of the right size is recycled.
            let equal = LogOptions { segment_bytes_max: options().segment_bytes_min, ..options() };
            let log = fulgurite_log::Log::create(env.clone(), dir(), ID, equal).expect("nothing fails");
            let first = log.append_bulk(BulkKind::LeafNode, &[&[1; 6000]]).expect("there is room").segment();
            for _ in 0..3 {
                log.append_bulk(BulkKind::LeafNode, &[&[1; 6000]]).expect("there is room");
            }
            log.sync_bulk().expect("nothing fails");
            log.free_segment(first).expect("it is sealed");
            env.faults().crash_at(env.faults().op_count() + op);
            while log.maintain().is_ok_and(|worked| worked) {}
            assert!(log.stats().segments_recycled > 0);
            drop(log);
            let env = env.crash(CrashKind::PowerCut, seed);
            open(&env, &ReplayFrom::beginning())
                .unwrap_or_else(|error| panic!("operation {op}, seed {seed}: {error}"));
        }
    }
}

#[test]
fn a_segment_that_another_process_made_is_not_replaced_and_ends_writing() {
    for suffix in ["seg", "new"] {
        let env = SimEnv::new(1);
        let log = create(&env);
        let next = log.segments().iter().map(|info| info.number).max().expect("one") + 1;
        let foreign = dir().join(format!("{next:010}.{suffix}"));
        env.write_raw(&foreign, b"acknowledged elsewhere").expect("made");
        let error = (0..60).find_map(|_| commit(&log, &[0; 1500]).err()).expect("a segment is needed");
        assert!(matches!(error, LogError::Poisoned(_)), "{error}");
        assert!(error.to_string().contains("another process makes segments in this directory"), "{error}");
        assert_eq!(env.read_raw(&foreign).expect("there"), b"acknowledged elsewhere");
    }
}

#[test]
fn a_log_stays_in_its_directory_when_that_is_moved() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let (csn, _) = commit(&log, &[1; 1500]).expect("nothing fails");
    let moved = std::path::Path::new("/moved");
    env.move_dir_raw(dir(), moved).expect("moved");
    create(&env);
    let made = log.segments().len();
    let mut last = csn;
    for n in 0..60 {
        (last, _) = commit(&log, &[n; 1500]).expect("nothing fails");
        log.maintain().expect("nothing fails");
    }
    assert!(log.segments().len() > made + 2);
    log.close().expect("nothing fails");
    let image = env.crash(CrashKind::PowerCut, 7);
    image.move_dir_raw(dir(), std::path::Path::new("/other")).expect("moved");
    image.move_dir_raw(moved, dir()).expect("moved back");
    let (_, report, _) = open(&image, &ReplayFrom::beginning()).expect("nothing is missing");
    assert_eq!(report.last_csn, last);
}

/// Ready segments are for commits; the checkpoint that a full disk needs may have the space of all but one. It gets a
/// newer number, because the segments of the bulk stream have rising ones.
#[test]
fn on_a_full_disk_a_ready_segment_gives_its_space_to_the_bulk_stream() {
    let env = SimEnv::new(1);
    let more = LogOptions { ready_segments: 3, reserve_segments: 2, ..options() };
    let log = fulgurite_log::Log::create(env.clone(), dir(), ID, more).expect("nothing fails");
    while log.maintain().expect("nothing fails") {}
    let mut numbers = vec![log.append_bulk(BulkKind::Chunk, &[&[1; 3000]]).expect("there is room").segment()];
    assert_eq!(log.stats().ready_segments, 3, "it takes none while there is space");
    fill_disk(&env);
    let refused = loop {
        match log.append_bulk(BulkKind::Chunk, &[&[1; 3000]]) {
            Ok(lsn) => numbers.push(lsn.segment()),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, LogError::NoSpace { .. }), "{refused}");
    numbers.dedup();
    assert!(numbers.is_sorted() && numbers.len() >= 3, "{numbers:?}");
    assert_eq!((log.stats().ready_segments, reserve(&log)), (1, 2));
    log.sync_bulk().expect("nothing fails");
    for _ in 0..6 {
        commit(&log, &[0; 1500]).expect("the commit stream kept enough");
    }
}

/// Small disks get small segments: ready ones, and the part of the last one that is not used, take little from a
/// checkpoint.
#[test]
fn a_segment_takes_a_small_share_of_the_free_space() {
    for mib in [64, 320] {
        let env = SimEnv::new(1);
        env.faults().space_bytes(Some(mib << 20));
        let options = LogOptions { background: false, ..LogOptions::default() };
        let min = options.segment_bytes_min;
        let log = fulgurite_log::Log::create(env.clone(), dir(), ID, options).expect("nothing fails");
        let mut largest = 0;
        for n in 0.. {
            let before = log.segments();
            let free = (mib << 20) - env.used_bytes();
            let appended = match n % 3 {
                0 => commit(&log, &[0; 100_000]).map(|_| ()),
                1 => log.append_bulk(BulkKind::LeafNode, &[&[0; 100_000]]).map(|_| ()),
                _ => log.maintain().map(|_| ()),
            };
            for made in log.segments().iter().skip(before.len()) {
                assert!(made.bytes == min || u64::from(made.bytes) <= free / 64, "{made:?} of {free}");
                largest = largest.max(made.bytes);
            }
            if let Err(error) = appended {
                assert!(matches!(error, LogError::NoSpace { .. }), "{error}");
                assert!(free < 6 * u64::from(min), "{free} bytes are free");
                break;
            }
        }
        assert_eq!(largest, if mib == 64 { 1 << 20 } else { 4 << 20 }, "{mib} MiB");
    }
}

fn fill_disk(env: &SimEnv) {
    let used = env.list_raw().iter().map(|(_, bytes)| bytes).sum();
    env.faults().space_bytes(Some(used));
}

fn reserve(log: &fulgurite_log::Log) -> u64 {
    log.reserve_bytes() / u64::from(options().segment_bytes_min)
}

/// An opening with a commit takes a file of the reserve. So does a checkpoint, except the files that openings need.
#[test]
fn a_full_disk_takes_a_new_epoch_from_the_reserve() {
    let env = SimEnv::new(1);
    let log = create(&env);
    commit(&log, b"before").expect("nothing fails");
    while log.maintain().expect("nothing fails") {}
    assert_eq!(reserve(&log), 4);
    drop(log);
    for life in 0..3 {
        fill_disk(&env);
        let (log, report, _) = open(&env, &ReplayFrom::beginning()).expect("there is a file for it");
        fill_disk(&env);
        assert_eq!((report.epochs, reserve(&log)), (life + 1, 3 - u64::from(life)));
        assert_eq!(log.must_stay_empty(), life == 2, "a commit takes a file of the next openings");
        if life < 2 {
            commit(&log, b"on a full disk").expect("there is room in it");
        }
        let bulk = log.append_bulk(BulkKind::LeafNode, &[b"node"]);
        assert_eq!(bulk.is_ok(), life == 0, "a checkpoint may take all but two: {bulk:?}");
        assert_eq!(reserve(&log), if life < 2 { 2 } else { 1 });
    }
    for _ in 0..30 {
        fill_disk(&env);
        let (_, report, found) = open(&env, &ReplayFrom::beginning()).expect("there is a file for it");
        assert_eq!((report.epochs, found.0.len()), (4, 3), "epochs without a commit are passed over");
    }
}

#[test]
fn what_is_written_ahead_or_evicted_takes_nothing_of_the_reserve() {
    let chunk = [7; 2000];
    takes_nothing_of_the_reserve(|log, ordinal| {
        log.append_chunk(log.new_spill(), ordinal, &chunk, None, |_| ()).map(|_| ())
    });
    takes_nothing_of_the_reserve(|log, _| {
        log.append_bulk_beside_reserve(BulkKind::LeafNode, &[&chunk]).map(|_| ())
    });
}

fn takes_nothing_of_the_reserve(append: impl Fn(&Log, u32) -> Result<(), LogError>) {
    let env = SimEnv::new(1);
    let log = create(&env);
    while log.maintain().expect("nothing fails") {}
    fill_disk(&env);
    let chunk = [7; 2000];
    let mut ordinal = 0;
    let mut append = || {
        ordinal += 1;
        append(&log, ordinal)
    };
    while append().is_ok() {}
    assert_eq!(reserve(&log), 4);
    while reserve(&log) == 4 {
        log.append_bulk(BulkKind::LeafNode, &[&chunk]).expect("it is for checkpoints");
    }
    let refused = append();
    assert!(matches!(refused, Err(LogError::NoSpace { .. })), "checkpoints need its room: {refused:?}");
    log.append_bulk(BulkKind::LeafNode, &[&chunk]).expect("it is for checkpoints");
}

/// A segment whose header is not its own.
fn misnamed(env: &SimEnv) -> Option<PathBuf> {
    let segments = env.list_raw().into_iter().map(|(path, _)| path);
    let mut segments = segments.filter(|path| path.extension().is_some_and(|suffix| suffix == "seg"));
    segments.find(|path| {
        let header = SegmentHeader::decode(&env.read_raw(path).expect("there")).expect("valid");
        *path != segment_path(header.number)
    })
}

/// INV-LOG-18, INV-LOG-20: openings, each cut off at another operation, on a disk that other programs keep full.
#[test]
fn openings_that_are_cut_off_anywhere_never_use_up_the_reserve() {
    use CrashKind::{Kill, OsCrash, PowerCut};
    for (seed, kinds) in
        [&[Kill][..], &[PowerCut], &[Kill, OsCrash, PowerCut]].iter().cycle().take(30).enumerate()
    {
        let (mut rng, mut ops) = (Rng::new(seed as u64), Rng::new(1000 + seed as u64));
        let mut env = SimEnv::new(1);
        let log = create(&env);
        commit(&log, b"before").expect("nothing fails");
        while log.maintain().expect("nothing fails") {}
        fill_disk(&env);
        for _ in 0..2 {
            log.append_bulk(BulkKind::LeafNode, &[&[7; 3000]]).expect("a checkpoint takes some of it");
        }
        log.wait_durable(log.reserved_csn()).expect("nothing fails");
        drop(log);
        let mut crash = |env: &SimEnv| env.crash(kinds[rng.below(kinds.len() as u64) as usize], rng.next());
        env = crash(&env);
        for life in 0..200u64 {
            let faults = env.faults();
            // Other programs also take at once what an opening frees.
            faults.space_bytes(Some(0));
            faults.crash_at(faults.op_count() + 1 + if seed < 2 { life * 7 % 40 } else { ops.below(24) });
            match open(&env, &ReplayFrom::beginning()) {
                Err(LogError::NoSpace { .. }) => panic!("seed {seed}: life {life} found no file"),
                Ok((_, _, found)) => assert_eq!(found.0.len(), 1),
                Err(_) => {}
            }
            env = crash(&env);
            assert_eq!(misnamed(&env), None, "seed {seed}, life {life}: no sync failed");
        }
        fill_disk(&env);
        let (_, _, found) = open(&env, &ReplayFrom::beginning()).expect("there is a file for it");
        assert_eq!(found.0.len(), 1);
    }
}

/// Once its file has the new name a segment is gone: retries would fail for ever.
#[test]
fn a_segment_whose_file_cannot_be_kept_for_a_full_disk_is_free_all_the_same() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let mut newest = Csn::ZERO;
    for _ in 0..60 {
        newest = commit(&log, &[0; 1500]).expect("nothing fails").0;
    }
    log.close().expect("nothing fails");
    log.drop_before(newest);
    let keep = log.replay_point(newest).segment();
    let dead = |info: &&SegmentInfo| !info.open && info.number < keep;
    let numbers: Vec<u32> = log.segments().iter().filter(dead).map(|info| info.number).collect();
    assert!(numbers.len() > 1);
    for number in numbers {
        let reserve = log.reserve_bytes();
        env.faults().fail_sync(env.faults().sync_count() + 1, Loss::All);
        log.free_segment(number).expect("it is free");
        env.faults().fail_nothing();
        assert_eq!(log.reserve_bytes(), reserve, "what could not be kept does not count");
        assert!(matches!(log.free_segment(number), Err(LogError::Usage(_))));
    }
}
