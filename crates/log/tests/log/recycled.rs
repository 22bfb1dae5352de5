//! Segments that are made of the files of others: they hold old bytes.

use crate::support::*;
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, Loss, SimEnv};
use fulgurite_log::{
    BULK_HEADER_BYTES, BulkHeader, BulkKind, CommitLog, Log, LogError, LogOptions, ReplayFrom, ScanItem,
    SegmentHeader, Stream, scan_segment,
};
use fulgurite_types::{Csn, Lsn};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

const SEGMENT_BYTES: u32 = 16 * 1024;

/// Segments of one size: only a file of the right size is recycled.
fn equal() -> LogOptions {
    LogOptions { segment_bytes_max: SEGMENT_BYTES, ..options() }
}

fn create_equal(env: &Arc<SimEnv>) -> Arc<Log> {
    Log::create(Arc::clone(env) as Arc<dyn Env>, dir(), ID, equal()).expect("an empty directory takes a log")
}

fn append(log: &Log, body: &[u8]) -> Lsn {
    log.append_bulk(BulkKind::LeafNode, &[body]).expect("there is room")
}

/// The offsets at which a segment's bytes have the header of one of its own records.
fn own_headers(bytes: &[u8], number: u32) -> Vec<Lsn> {
    let lsns = (4096..bytes.len() as u32).step_by(8).map(|offset| Lsn::new(number, offset));
    lsns.filter(|lsn| BulkHeader::decode(&bytes[lsn.offset() as usize..], *lsn).is_ok()).collect()
}

/// Fills a segment with records, frees it and appends one record: to a recycled file full of old ones. Returns the old
/// records and the new one.
fn recycle(log: &Log) -> (Vec<Lsn>, Lsn) {
    let mut old = vec![append(log, &[1; 1000])];
    while log.bulk_room() >= 1024 {
        old.push(append(log, &[1; 1000]));
    }
    append(log, &[2; 5000]);
    log.sync_bulk().expect("nothing fails");
    log.free_segment(old[0].segment()).expect("it is sealed");
    while log.bulk_room() >= 1024 {
        append(log, &[3; 1000]);
    }
    let recycled = log.stats().segments_recycled;
    let new = append(log, &[4; 1000]);
    log.sync_bulk().expect("nothing fails");
    assert_eq!(log.stats().segments_recycled, recycled + 1);
    (old, new)
}

#[test]
fn the_bulk_stream_takes_no_zeros_and_no_old_byte_passes_for_a_record() {
    let env = SimEnv::new(1);
    let log = create_equal(&env);
    let (old, new) = recycle(&log);
    assert_eq!(log.stats().zero_bytes, 0, "nothing but bulk segments was made");
    let (number, body) = (new.segment(), [4; 1000]);
    drop(log);
    let mut env = env;
    for life in 0..3 {
        let bytes = env.read_raw(&segment_path(number)).expect("there");
        assert!(bytes[8192..].iter().filter(|byte| **byte == 1).count() > 6000, "the old bytes are there");
        assert_eq!(own_headers(&bytes, number), [new]);
        let scan = scan_segment(env.disk(), &segment_path(number)).expect("readable");
        let records = scan.items.iter().filter(|item| matches!(item, ScanItem::Bulk { .. })).count();
        assert_eq!((scan.stream, records, scan.problems), (Some(Stream::Bulk), 1, Vec::new()));
        let (log, _, _) = open_with(&env, &ReplayFrom::beginning(), equal()).expect("nothing is damaged");
        assert_eq!(log.read_bulk(new).expect("it was synced").body, body);
        for offset in old.iter().map(|lsn| lsn.offset()).filter(|offset| *offset != new.offset()) {
            assert!(matches!(log.read_bulk(Lsn::new(number, offset)), Err(LogError::Damaged(_))));
        }
        drop(log);
        env = env.crash([CrashKind::Kill, CrashKind::PowerCut, CrashKind::OsCrash][life], 7);
    }
}

/// A damaged last record looks like the end of the data. Its LSN tells, or that it is valid but for the LSN.
#[test]
fn a_scan_tells_a_damaged_record_from_old_bytes() {
    let env = SimEnv::new(1);
    let log = create_equal(&env);
    let (_, new) = recycle(&log);
    drop(log);
    let path = segment_path(new.segment());
    for at in [0, 2, 4, 8, 11, 12, 16, 20, 24, 999] {
        let env = env.crash(CrashKind::Kill, 1);
        env.corrupt(&path, u64::from(new.offset() + at), |byte| *byte ^= 4).expect("there");
        let scan = scan_segment(env.disk(), &path).expect("readable");
        let offsets: Vec<u64> = scan.problems.iter().map(|problem| problem.offset).collect();
        assert_eq!(offsets, [u64::from(new.offset())], "byte {at}");
    }
}

/// The records of a run, and which of them have to be there after a crash.
#[derive(Default)]
struct Records {
    appended: BTreeMap<Lsn, u8>,
    synced: BTreeMap<Lsn, u8>,
    freed: BTreeSet<u32>,
}

impl Records {
    fn body(stamp: u8) -> Vec<u8> {
        vec![stamp; 900 + 40 * usize::from(stamp % 50)]
    }

    /// Appends, syncs, commits, and frees all sealed bulk segments but the newest, so that most are recycled.
    fn run(&mut self, log: &Log, rng: &mut Rng, steps: usize) -> Result<(), LogError> {
        for _ in 0..steps {
            match rng.below(8) {
                0 => _ = commit(log, &vec![5; 1 + rng.below(2500) as usize])?,
                1 | 2 => {
                    log.sync_bulk()?;
                    let kept = self.appended.iter().filter(|(lsn, _)| !self.freed.contains(&lsn.segment()));
                    self.synced = kept.map(|(lsn, stamp)| (*lsn, *stamp)).collect();
                }
                3 => while log.maintain()? {},
                4 => self.free(log)?,
                _ => {
                    let stamp = 1 + rng.below(250) as u8;
                    let lsn = log.append_bulk(BulkKind::LeafNode, &[&Records::body(stamp)])?;
                    self.appended.insert(lsn, stamp);
                }
            }
        }
        Ok(())
    }

    fn free(&mut self, log: &Log) -> Result<(), LogError> {
        let sealed =
            log.segments().into_iter().filter(|info| info.stream == Some(Stream::Bulk) && !info.open);
        let mut sealed: Vec<u32> = sealed.map(|info| info.number).collect();
        sealed.pop();
        for number in sealed {
            self.freed.insert(number);
            self.synced.retain(|lsn, _| lsn.segment() != number);
            log.free_segment(number)?;
        }
        Ok(())
    }

    /// Every synced record is there, and nothing passes for a record that was not appended as this one.
    fn check(&self, env: &SimEnv, log: &Log, what: &str) {
        for (lsn, stamp) in &self.synced {
            let record = log.read_bulk(*lsn).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(record.body == Records::body(*stamp), "{what}: {lsn}");
        }
        let paths = env.list_raw().into_iter().map(|(path, _)| path);
        for path in paths.filter(|path| path.extension().is_some_and(|suffix| suffix == "seg")) {
            self.check_segment(env, log, &path, what);
        }
    }

    fn check_segment(&self, env: &SimEnv, log: &Log, path: &PathBuf, what: &str) {
        let bytes = env.read_raw(path).expect("listed");
        let Ok(SegmentHeader { number, .. }) = SegmentHeader::decode(&bytes) else {
            panic!("{what}: {} has no header", path.display());
        };
        if *path != segment_path(number) {
            return;
        }
        for lsn in own_headers(&bytes, number) {
            if let Ok(record) = log.read_bulk(lsn) {
                let stamp = self.appended.get(&lsn).unwrap_or_else(|| panic!("{what}: {lsn} is no record"));
                assert!(record.body == Records::body(*stamp), "{what}: {lsn}");
            }
        }
        // INV-LOG-21. The first group of a commit segment may be torn.
        let infos = log.segments();
        let info = infos.iter().find(|info| info.number == number);
        let is_commit = info.is_some_and(|info| info.stream == Some(Stream::Commit));
        let scan = scan_segment(env.disk(), path).expect("readable");
        let is_zero = bytes[4096..8192].iter().all(|byte| *byte == 0);
        assert!(
            scan.stream.is_some() || is_zero || is_commit,
            "{what}: {} belongs to no stream",
            path.display()
        );
    }
}

/// Crashes at every operation of a run whose bulk segments are recycled, then of what each crash left; INV-LOG-21.
#[test]
fn crashes_at_every_operation_leave_every_synced_record_and_no_other() {
    let mut recycled = 0;
    for seed in 1..=8u64 {
        for op in 1.. {
            let env = SimEnv::new(seed);
            env.faults().fua(seed % 2 == 0);
            env.faults().crash_at(op);
            let mut records = Records::default();
            let mut rng = Rng::new(seed);
            let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, equal());
            let Ok(log) = log else { continue };
            let done = records.run(&log, &mut rng, 130);
            recycled += log.stats().segments_recycled;
            drop(log);
            for kind in [CrashKind::Kill, CrashKind::OsCrash, CrashKind::PowerCut] {
                let what = format!("seed {seed}, operation {op}, {kind:?}");
                let mut env = env.crash(kind, op);
                for life in 0..2 {
                    let opened = open_with(&env, &ReplayFrom::beginning(), equal());
                    let (log, _, _) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                    records.check(&env, &log, &what);
                    let mut after = Records::default();
                    after.run(&log, &mut rng, 6).unwrap_or_else(|error| panic!("{what}: {error}"));
                    records.appended.append(&mut after.appended);
                    records
                        .synced
                        .retain(|lsn, _| log.segments().iter().any(|info| info.number == lsn.segment()));
                    drop(log);
                    env = env.crash(kind, op + life);
                }
            }
            if done.is_ok() {
                assert!(op > 100, "the run has operations to crash in");
                break;
            }
        }
    }
    assert!(recycled > 1_000, "{recycled} segments were recycled");
}

/// Whatever write or sync fails while a file is recycled: the old records are not needed, the new segment is not there
/// or is whole, and the log is as before.
#[test]
fn a_failure_while_recycling_leaves_the_log_as_it_was() {
    for (fault, loss) in
        (1..6).flat_map(|fault| [(fault, None), (fault, Some(Loss::All)), (fault, Some(Loss::Some))])
    {
        let env = SimEnv::new(fault);
        let log = create_equal(&env);
        let (_, new) = recycle(&log);
        let mut freed =
            log.segments().into_iter().filter(|info| info.stream == Some(Stream::Bulk) && !info.open);
        log.free_segment(freed.next().expect("one is sealed").number).expect("it is sealed");
        while log.bulk_room() >= 1024 {
            append(&log, &[4; 1000]);
        }
        log.sync_bulk().expect("nothing fails yet");
        let faults = env.faults();
        match loss {
            None => faults.fail_write(faults.write_count() + fault),
            Some(loss) => faults.fail_sync(faults.sync_count() + fault, loss),
        }
        let first = log.append_bulk(BulkKind::LeafNode, &[&[5; 1000]]);
        faults.fail_nothing();
        if let Err(error) = &first {
            assert!(matches!(error, LogError::Io { .. }), "fault {fault}: {error}");
            append(&log, &[5; 1000]);
        }
        commit(&log, b"it goes on").expect("nothing fails");
        log.sync_bulk().expect("nothing fails");
        drop(log);
        for kind in [CrashKind::Kill, CrashKind::PowerCut] {
            let env = env.crash(kind, fault);
            let (log, report, _) =
                open_with(&env, &ReplayFrom::beginning(), equal()).expect("nothing is lost");
            assert_eq!(report.last_csn, Csn(1));
            assert_eq!(log.read_bulk(new).expect("it was synced").body, [4; 1000]);
        }
    }
}

/// A write that finds no space would poison the log.
#[test]
fn a_bulk_segment_has_its_space_when_it_is_made() {
    for taken in [true, false] {
        let env = SimEnv::new(1);
        env.faults().allocation(taken);
        let log = create_equal(&env);
        append(&log, &[1; 1000]);
        assert_eq!(log.stats().zero_bytes, if taken { 0 } else { u64::from(SEGMENT_BYTES - 4096) });
        env.faults().space_bytes(Some(env.used_bytes()));
        while log.bulk_room() >= 1024 {
            append(&log, &[1; 1000]);
        }
        log.sync_bulk().expect("its space was there");
        let refused = log.append_bulk(BulkKind::LeafNode, &[&[1; 5000]]);
        assert!(matches!(refused, Err(LogError::NoSpace { .. })), "{refused:?}");
        assert!(log.poisoned().is_none());
    }
}

/// The disk fills up at each point of making a segment, whether or not it said before how much is free.
#[test]
fn a_disk_that_is_full_while_a_segment_is_made_refuses_and_leaves_nothing() {
    let points = (0..=SEGMENT_BYTES).step_by(2048).flat_map(|free| [true, false].map(|known| (free, known)));
    for (free, known) in points {
        for taken in [true, false] {
            let env = SimEnv::new(1);
            let options = LogOptions { reserve_segments: 0, ..equal() };
            let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options)
                .expect("an empty directory");
            let faults = env.faults();
            faults.allocation(taken);
            faults.space_unknown(!known);
            faults.space_bytes(Some(env.used_bytes() + u64::from(free)));
            let (files, ops) = (env.list_raw(), faults.op_count());
            let what = format!("{free} bytes free, known {known}, taken {taken}");
            let result = log.append_bulk(BulkKind::Chunk, &[&[1; 1000]]);
            if free == SEGMENT_BYTES {
                result.unwrap_or_else(|error| panic!("{what}: {error}"));
                continue;
            }
            assert!(matches!(result, Err(LogError::NoSpace { .. })), "{what}: {result:?}");
            assert_eq!(env.list_raw(), files, "{what}");
            assert!(!known || faults.op_count() == ops, "{what}: nothing was tried");
            faults.space_bytes(None);
            faults.space_unknown(false);
            // Where it did not say that there is space now, it is tried again after a while.
            env.clock().sleep(std::time::Duration::from_millis(if known { 0 } else { 200 }));
            let lsn = append(&log, &[1; 1000]);
            assert!(!known || lsn.segment() == 2, "{what}: no number was taken in vain");
        }
    }
}

/// A file system that reports free space and has none, and a caller that tries again at once.
#[test]
fn retries_on_a_disk_without_space_are_few() {
    let env = SimEnv::new(1);
    let log = create_equal(&env);
    env.faults().space_unknown(true);
    env.faults().space_bytes(Some(env.used_bytes()));
    let ops = env.faults().op_count();
    for _ in 0..100 {
        assert!(matches!(log.append_bulk(BulkKind::Chunk, &[&[1; 1000]]), Err(LogError::NoSpace { .. })));
        env.clock().sleep(std::time::Duration::from_millis(10));
    }
    let ops = env.faults().op_count() - ops;
    assert!(ops <= 6 * 4, "{ops} operations in a second");
}

/// INV-LOG-19: on a full disk a recycled segment gives back the space after its last record, and no record.
#[test]
fn a_recycled_segment_gives_back_what_follows_its_last_record() {
    let options = LogOptions {
        segment_bytes_min: 512 * 1024,
        segment_bytes_max: 512 * 1024,
        buffer_bytes: 1 << 20,
        ..options()
    };
    for (lives, damage) in [(0, None), (1, None), (1, Some(0)), (1, Some(8)), (1, Some(500))] {
        let env = SimEnv::new(1);
        let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options.clone())
            .expect("an empty directory");
        let body = |n: u8| vec![n; 60_000];
        let first = append(&log, &body(1));
        while log.bulk_room() >= 60_024 {
            append(&log, &body(1));
        }
        append(&log, &body(1));
        log.sync_bulk().expect("nothing fails");
        log.free_segment(first.segment()).expect("it is sealed");
        while log.bulk_room() >= 60_024 {
            append(&log, &body(2));
        }
        let kept = [append(&log, &body(3)), append(&log, &body(4))];
        assert_eq!(log.stats().segments_recycled, 1);
        log.sync_bulk().expect("nothing fails");
        if lives == 0 {
            // A record that does not fit ends the segment.
            append(&log, &vec![5; 450_000]);
            log.sync_bulk().expect("nothing fails");
        }
        let (mut env, mut log) = (env, log);
        for _ in 0..lives {
            drop(log);
            env = env.crash(CrashKind::Kill, 1);
            if let Some(at) = damage {
                let offset = u64::from(kept[1].offset() + at);
                env.corrupt(&segment_path(kept[1].segment()), offset, |byte| *byte ^= 1).expect("there");
            }
            log = open_with(&env, &ReplayFrom::beginning(), options.clone()).expect("nothing is lost").0;
        }
        let before = env.used_bytes();
        env.faults().space_bytes(Some(before));
        let reserve = log.reserve_bytes();
        _ = log.fill_reserve();
        let used = env.read_raw(&segment_path(kept[0].segment())).expect("there");
        let end = kept[1].offset() + BULK_HEADER_BYTES + 60_000;
        let is_given = used[end.next_multiple_of(4096) as usize..].iter().all(|byte| *byte == 0);
        assert_eq!(is_given, damage.is_none(), "lives {lives}, damage {damage:?}");
        assert!(damage.is_some() || env.used_bytes() < before || log.reserve_bytes() > reserve);
        for (lsn, stamp) in kept.iter().zip([3, 4]) {
            let bytes = log.read_bytes(lsn.advance(BULK_HEADER_BYTES), 60_000).expect("readable");
            let changed = bytes.iter().filter(|byte| **byte != stamp).count();
            assert!(changed <= usize::from(damage.is_some()), "lives {lives}, damage {damage:?}: {lsn}");
        }
    }
}

/// INV-LOG-19: a segment that lost its beginning may be one of the commit stream, whose values are still read.
#[test]
fn a_segment_without_a_valid_start_gives_back_zeros_only() {
    let bytes = 512 * 1024;
    let options =
        LogOptions { segment_bytes_min: bytes, segment_bytes_max: bytes, buffer_bytes: 1 << 20, ..options() };
    let env = SimEnv::new(1);
    let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options.clone())
        .expect("an empty directory");
    let (mut csn, mut value) = commit(&log, &[9; 50_000]).expect("nothing fails");
    // The first segment holds the start of the epoch, and is needed.
    let first = value.segment();
    while value.segment() == first {
        (csn, value) = commit(&log, &[9; 50_000]).expect("nothing fails");
    }
    while log.replay_point(csn).segment() == value.segment() {
        csn = commit(&log, &[8; 50_000]).expect("nothing fails").0;
    }
    let from = ReplayFrom { lsn: log.replay_point(csn), csn, epoch: log.epoch(), ..ReplayFrom::beginning() };
    assert!(value.segment() < from.lsn.segment());
    drop(log);
    let env = env.crash(CrashKind::Kill, 1);
    env.corrupt(&segment_path(value.segment()), 4096, |byte| *byte ^= 1).expect("there");
    let (log, _, _) = open_with(&env, &from, options).expect("it is before the replay point");
    env.faults().space_bytes(Some(env.used_bytes()));
    _ = log.fill_reserve();
    assert_eq!(log.read_bytes(value, 50_000).expect("readable"), [9; 50_000]);
}

/// Commits until a segment of the commit stream was made of the file of another without zeros, and has some groups; returns
/// those of three commits in it, and the LSNs of their bodies, which have the byte 3.
fn recycle_commits(log: &Log, body_bytes: usize) -> [(Csn, Lsn); 3] {
    let fill = |byte: u8| commit(log, &vec![byte; body_bytes]).expect("nothing fails");
    let (mut zeros, mut recycled) = (0, 0);
    loop {
        let (csn, _) = fill(1);
        log.drop_before(csn);
        let needed = log.replay_point(csn).segment();
        for info in log.segments().into_iter().filter(|info| !info.open && info.number < needed) {
            log.free_segment(info.number).expect("it is sealed");
        }
        while log.maintain().expect("nothing fails") {}
        let stats = log.stats();
        if stats.segments_recycled > recycled && stats.zero_bytes == zeros {
            break;
        }
        (zeros, recycled) = (stats.zero_bytes, stats.segments_recycled);
    }
    let made = log.segments().iter().map(|info| info.number).max().expect("one");
    let mut segment = 0;
    while segment < made {
        segment = fill(2).1.segment();
    }
    [(); 3].map(|()| fill(3))
}

/// A damaged last group looks like the end of the log in the file. It says that it is there, or is valid but for its place.
#[test]
fn a_scan_tells_a_damaged_group_from_old_ones() {
    let env = SimEnv::new(1);
    let log = create_equal(&env);
    let [_, _, (_, last)] = recycle_commits(&log, 1000);
    drop(log);
    let path = segment_path(last.segment());
    let scan = scan_segment(env.disk(), &path).expect("readable");
    assert_eq!(scan.problems, Vec::new());
    let is_last = |item: &&ScanItem| matches!(item, ScanItem::Group(group) if group.offset < last.offset());
    let Some(ScanItem::Group(group)) = scan.items.iter().rev().find(is_last) else { panic!("{scan:?}") };
    let bytes = env.read_raw(&path).expect("there");
    assert!(bytes[group.end() as usize + 4096..].iter().any(|byte| *byte != 0), "old groups follow");
    for at in [0, 4, 5, 6, 8, 23, 24, 28, 32, 36, 40, 48, 52, 56, 64, 72, 80, 88, 96, 100, 104, 999] {
        let env = env.crash(CrashKind::Kill, 1);
        env.corrupt(&path, u64::from(group.offset + at), |byte| *byte ^= 4).expect("there");
        let scan = scan_segment(env.disk(), &path).expect("readable");
        let offsets: Vec<u64> = scan.problems.iter().map(|problem| problem.offset).collect();
        assert_eq!(offsets, [u64::from(group.offset)], "byte {at}");
    }
}

/// INV-LOG-19: on a full disk a recycled commit segment gives back the space after its last group, and no group.
#[test]
fn a_recycled_commit_segment_gives_back_what_follows_its_last_group() {
    let bytes = 512 * 1024;
    let options =
        LogOptions { segment_bytes_min: bytes, segment_bytes_max: bytes, buffer_bytes: 1 << 20, ..options() };
    for damage in [None, Some(0), Some(50), Some(500)] {
        let env = SimEnv::new(1);
        let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options.clone())
            .expect("an empty directory");
        let [(_, first), (csn, second), (_, last)] = recycle_commits(&log, 20_000);
        let from =
            ReplayFrom { lsn: log.replay_point(csn), csn, epoch: log.epoch(), ..ReplayFrom::beginning() };
        let path = segment_path(last.segment());
        drop(log);
        let env = env.crash(CrashKind::Kill, 1);
        if let Some(at) = damage {
            env.corrupt(&path, u64::from(last.offset()) - 100 + at, |byte| *byte ^= 1).expect("there");
        }
        let opened = open_with(&env, &from, options.clone());
        let (log, _, _) = opened.unwrap_or_else(|error| panic!("damage {damage:?}: {error}"));
        env.faults().space_bytes(Some(env.used_bytes()));
        _ = log.fill_reserve();
        let raw = env.read_raw(&path).expect("there");
        let is_given = raw[last.offset() as usize + 40_000..].iter().all(|byte| *byte == 0);
        assert_eq!(is_given, damage.is_none(), "damage {damage:?}");
        for lsn in [first, second, last] {
            let body = log.read_bytes(lsn, 20_000).expect("readable");
            let changed = body.iter().filter(|byte| **byte != 3).count();
            assert!(changed <= usize::from(damage.is_some()), "damage {damage:?}: {lsn}");
        }
    }
}

/// A write to a hole takes space and records an extent: a file with one is filled before it is a commit segment again.
#[test]
fn a_file_with_a_hole_is_filled_before_it_is_recycled() {
    let bytes = 512 * 1024;
    let options =
        LogOptions { segment_bytes_min: bytes, segment_bytes_max: bytes, buffer_bytes: 1 << 20, ..options() };
    for is_full in [false, true] {
        let env = SimEnv::new(1);
        let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options.clone())
            .expect("an empty directory");
        let [_, (_, last), _] = recycle_commits(&log, 110_000);
        let number = last.segment();
        let mut csn = commit(&log, &[4; 10]).expect("nothing fails").0;
        while log.replay_point(csn).segment() == number {
            csn = commit(&log, &[4; 110_000]).expect("nothing fails").0;
        }
        if is_full {
            let before = env.used_bytes();
            env.faults().space_bytes(Some(before));
            // A tail is given back where the reserve lacks a file.
            let reserve = log.reserve_bytes();
            while log.reserve_bytes() == reserve {
                append(&log, &[5; 100_000]);
            }
            _ = log.fill_reserve();
            env.faults().space_bytes(None);
        }
        // The file of another freed segment may be there.
        let created = log.stats().segments_created;
        while log.stats().segments_created == created {
            csn = commit(&log, &[4; 110_000]).expect("nothing fails").0;
            while log.maintain().expect("nothing fails") {}
        }
        log.drop_before(csn);
        log.free_segment(number).expect("it is sealed");
        let before = log.stats();
        while log.stats().segments_recycled == before.segments_recycled {
            commit(&log, &[4; 110_000]).expect("nothing fails");
            while log.maintain().expect("nothing fails") {}
        }
        let zeros = log.stats().zero_bytes - before.zero_bytes;
        assert_eq!(zeros, if is_full { u64::from(bytes - 4096) } else { 0 });
    }
}
