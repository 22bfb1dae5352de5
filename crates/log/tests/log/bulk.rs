//! The bulk stream.

use crate::support::*;
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_log::{
    Apart, BULK_HEADER_BYTES, BulkKind, Log, LogError, ReplayFrom, ScanItem, Stream, ValueOwner, scan_segment,
};
use fulgurite_types::{Csn, Lsn, TableId};
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[test]
fn records_are_read_from_the_buffer_and_from_the_file() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let mut records = Vec::new();
    for n in 0..60u32 {
        let body = vec![n as u8; (n * 137 % 9000) as usize];
        let (left, right) = body.split_at(body.len() / 3);
        let lsn = log.append_bulk(BulkKind::LeafNode, &[left, right]).expect("there is room");
        assert!(lsn.offset().is_multiple_of(8));
        records.push((lsn, body));
        if n % 7 == 0 {
            log.sync_bulk().expect("nothing fails");
        }
        for (lsn, body) in &records {
            let record = log.read_bulk(*lsn).expect("it is there");
            assert_eq!((record.kind, &record.body), (BulkKind::LeafNode, body));
            let bytes =
                log.read_bytes(lsn.advance(BULK_HEADER_BYTES), body.len() as u32).expect("it is there");
            assert_eq!(&bytes, body);
        }
    }
    assert!(log.read_bulk(records[3].0.advance(8)).is_err());
}

#[test]
fn what_was_synced_survives_and_the_next_opening_continues_elsewhere() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let kept = log.append_bulk(BulkKind::Chunk, &[b"kept"]).expect("there is room");
    log.sync_bulk().expect("nothing fails");
    let lost = log.append_bulk(BulkKind::Chunk, &[b"lost"]).expect("there is room");
    drop(log);
    let env = env.crash(CrashKind::PowerCut, 1);
    let (log, _, _) = open(&env, &ReplayFrom::beginning()).expect("clean");
    assert_eq!(log.read_bulk(kept).expect("it was synced").body, b"kept");
    assert!(matches!(log.read_bulk(lost), Err(LogError::Damaged(_))));
    let next = log.append_bulk(BulkKind::Chunk, &[b"next"]).expect("there is room");
    assert!(next.segment() > kept.segment());
    let info = log.segments().into_iter().find(|info| info.number == kept.segment()).expect("listed");
    assert_eq!((info.stream, info.open), (Some(Stream::Bulk), false));
}

/// Values that were moved live longer than what is new, so that their segments stay full.
#[test]
fn moved_values_are_in_segments_of_their_own_and_synced_with_the_others() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let owner = ValueOwner { table: TableId(1), key: b"key" };
    let node = log.append_bulk(BulkKind::LeafNode, &[b"node"]).expect("there is room");
    let apart = log.append_moved(owner, Csn(3), b"apart", Some(Apart::MovedValues)).expect("there is room");
    let beside = log.append_moved(owner, Csn(3), b"beside", None).expect("there is room");
    assert_eq!((node.segment() == apart.segment(), node.segment()), (false, beside.segment()));
    assert_eq!(log.read_bytes(apart, 5).expect("it is in the buffer"), b"apart");
    let boundary = log.bulk_boundary();
    assert!([node, apart].iter().all(|lsn| !boundary.is_after(lsn.segment())), "both may grow");
    log.sync_bulk().expect("nothing fails");
    drop(log);
    let env = env.crash(CrashKind::PowerCut, 1);
    let (log, _, _) = open(&env, &ReplayFrom::beginning()).expect("clean");
    assert_eq!(log.read_bytes(apart, 5).expect("it was synced"), b"apart");
    assert_eq!(log.read_bulk(node).expect("it was synced").body, b"node");
    let boundary = log.bulk_boundary();
    assert!([node, apart].iter().all(|lsn| boundary.is_after(lsn.segment())), "neither grows any more");
    let next = log.append_moved(owner, Csn(3), b"next", Some(Apart::MovedValues)).expect("there is room");
    assert!(!boundary.is_after(next.segment()), "it was made after the boundary");
}

#[test]
fn a_flipped_byte_is_found_by_reading_and_by_scanning() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let lsn = log.append_bulk(BulkKind::Checkpoint, &[b"tables"]).expect("there is room");
    log.append_bulk(BulkKind::MemtableRun, &[b"image"]).expect("there is room");
    log.sync_bulk().expect("nothing fails");
    let path = segment_path(lsn.segment());
    let scan = scan_segment(env.disk(), &path).expect("readable");
    let bodies = scan.items.iter().filter(|item| matches!(item, ScanItem::Bulk { .. })).count();
    assert_eq!((scan.stream, bodies, scan.problems.len()), (Some(Stream::Bulk), 2, 0));
    for at in [0, 4, 8, 16, 24, 29] {
        let env = env.crash(CrashKind::Kill, 1);
        env.corrupt(&path, u64::from(lsn.offset() + at), |byte| *byte ^= 2).expect("there");
        let (log, _, _) = open(&env, &ReplayFrom::beginning()).expect("the bulk stream is not scanned");
        assert!(matches!(log.read_bulk(lsn), Err(LogError::Damaged(_))), "byte {at}");
        let scan = scan_segment(env.disk(), &path).expect("readable");
        assert_eq!(scan.problems.len(), 1);
        assert_eq!(scan.problems[0].offset, u64::from(lsn.offset()));
    }
}

#[test]
fn spill_ids_are_never_given_twice() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let first = log.new_spill();
    assert_ne!(first, log.new_spill());
    drop(log);
    let (log, _, _) = open(&env, &ReplayFrom::beginning()).expect("clean");
    assert_ne!(log.new_spill(), first);
}

#[test]
fn a_segment_that_is_left_right_after_a_sync_is_sealed() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let body = vec![7; 7000];
    let mut last = 0;
    for _ in 0..20 {
        last = log.append_bulk(BulkKind::Chunk, &[&body]).expect("there is room").segment();
        log.sync_bulk().expect("nothing fails");
    }
    let bulk = log.segments().into_iter().filter(|info| info.stream == Some(Stream::Bulk));
    let open: Vec<u32> = bulk.filter(|info| info.open).map(|info| info.number).collect();
    assert_eq!(open, [last]);
}

#[test]
fn a_record_may_be_as_long_as_the_largest_segment() {
    let env = SimEnv::new(1);
    let log = create(&env);
    log.append_bulk(BulkKind::LeafNode, &[b"small"]).expect("there is room");
    let headers = 4096 + 72 + BULK_HEADER_BYTES;
    let max = log.options().segment_bytes_max - headers;
    let bodies =
        [max, log.options().segment_bytes_min, max, max + 1].map(|bytes| vec![bytes as u8; bytes as usize]);
    let append = |body| log.append_bulk(BulkKind::LeafNode, &[body]).expect("there is room");
    let records: Vec<_> = bodies.iter().map(|body| append(body)).collect();
    log.sync_bulk().expect("nothing fails");
    for (lsn, body) in records.iter().zip(&bodies) {
        assert_eq!(&log.read_bulk(*lsn).expect("it is there").body, body);
    }
}

#[test]
fn a_record_longer_than_a_gibibyte_is_refused() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let piece = vec![0; 1 << 20];
    let pieces = vec![&piece[..]; 1 << 10];
    let appended = log.append_bulk(BulkKind::LeafNode, &pieces);
    assert!(matches!(appended, Err(LogError::TooLarge { bytes, max, .. }) if max < bytes), "{appended:?}");
    log.append_bulk(BulkKind::LeafNode, &[b"small"]).expect("there is room");
}

/// Two records that no segment of the options holds, and short ones before, between and after them.
fn append_long_records(log: &Log) -> Vec<(Lsn, Vec<u8>)> {
    let bodies = [100, 33 * 1024, 7, 3_000_001, 40].map(|bytes: usize| vec![bytes as u8; bytes]);
    let append = |body: Vec<u8>| {
        let (left, right) = body.split_at(body.len() / 3);
        (log.append_bulk(BulkKind::LeafNode, &[left, right]).expect("there is room"), body)
    };
    bodies.map(append).into_iter().collect()
}

#[test]
fn a_long_record_has_a_segment_of_its_own() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let records = append_long_records(&log);
    let segments: Vec<u32> = records.iter().map(|(lsn, _)| lsn.segment()).collect();
    assert!(
        segments.is_sorted_by(|a, b| a < b),
        "segment numbers rise, and each long record has one: {segments:?}"
    );
    for (lsn, body) in &records {
        assert_eq!(&log.read_bulk(*lsn).expect("it is there").body, body);
    }
    log.sync_bulk().expect("nothing fails");
    let infos = log.segments();
    for (lsn, body) in [&records[1], &records[3]] {
        let info = infos.iter().find(|info| info.number == lsn.segment()).expect("listed");
        assert_eq!((info.stream, info.open), (Some(Stream::Bulk), false));
        assert_eq!(info.bytes, (info.used_bytes).next_multiple_of(4096));
        assert!(info.used_bytes as usize - body.len() < 4096 + 200);
        let scan = scan_segment(env.disk(), &segment_path(lsn.segment())).expect("readable");
        let bodies = scan.items.iter().filter(|item| matches!(item, ScanItem::Bulk { .. })).count();
        assert_eq!((scan.stream, bodies, scan.problems.len()), (Some(Stream::Bulk), 1, 0));
    }
}

#[test]
fn a_long_record_is_durable_when_its_append_returns() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let records = append_long_records(&log);
    drop(log);
    let env = env.crash(CrashKind::PowerCut, 1);
    let (log, _, _) = open(&env, &ReplayFrom::beginning()).expect("clean");
    for (lsn, body) in [&records[1], &records[3]] {
        assert_eq!(&log.read_bulk(*lsn).expect("it was synced").body, body);
    }
    append_long_records(&log);
}

/// INV-LOG-23: the stream is not locked while a long record has its segment, and what a commit may have to sync has nothing
/// of the record.
#[test]
#[expect(clippy::disallowed_methods, reason = "a thread that is left alone if it waits for ever")]
fn others_append_and_sync_while_a_long_record_is_written() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let long = vec![5; 100_000];
    let mut short = None;
    let on_segment = |_| {
        let ((done, wait), other) = (mpsc::channel(), log.clone());
        std::thread::spawn(move || {
            let lsn = other.append_bulk(BulkKind::LeafNode, &[b"short"]).expect("there is room");
            other.sync_bulk().expect("nothing fails");
            done.send(lsn)
        });
        short = Some(wait.recv_timeout(Duration::from_secs(20)).expect("it waits for the long record"));
    };
    let (lsn, mark) = log.append_chunk(log.new_spill(), 0, &long, None, on_segment).expect("there is room");
    assert_eq!(log.read_bytes(lsn, long.len() as u32).expect("it is there"), long);
    let syncs = env.faults().sync_count();
    log.sync_bulk_to(mark).expect("nothing fails");
    assert_eq!(env.faults().sync_count(), syncs, "it is durable already");
    assert_eq!(log.read_bulk(short.expect("it was appended")).expect("it is there").body, b"short");
}

/// A crash, or an error, at each write and sync of a long record: the log opens, and what was appended before is there.
#[test]
fn a_crash_anywhere_in_a_long_record_leaves_the_log_whole() {
    let appended = |env: &Arc<SimEnv>| {
        let log = create(env);
        let first = log.append_bulk(BulkKind::LeafNode, &[b"first"]).expect("there is room");
        log.sync_bulk().expect("nothing fails");
        (log, first)
    };
    let counting = SimEnv::new(1);
    let (log, _) = appended(&counting);
    let from = counting.faults().op_count();
    append_long_records(&log);
    let to = counting.faults().op_count();
    for at in from..to {
        for kind in [CrashKind::Kill, CrashKind::PowerCut] {
            let env = SimEnv::new(1);
            let (log, first) = appended(&env);
            env.faults().crash_at(at);
            let outcome =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| append_long_records(&log)));
            assert!(outcome.is_err(), "operation {at} does not exist");
            drop(log);
            let env = env.crash(kind, at);
            let (log, _, _) = open(&env, &ReplayFrom::beginning()).expect("clean");
            assert_eq!(log.read_bulk(first).expect("it was synced").body, b"first");
            append_long_records(&log);
        }
    }
}

#[test]
fn the_file_of_a_long_record_is_removed_when_its_segment_is_freed() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let records = append_long_records(&log);
    for (lsn, _) in [&records[1], &records[3]] {
        log.free_segment(lsn.segment()).expect("it is sealed");
        assert!(env.list_raw().iter().all(|(path, _)| *path != segment_path(lsn.segment())));
    }
    let longest = env.list_raw().into_iter().map(|(_, bytes)| bytes).max();
    assert_eq!(longest, Some(log.options().segment_bytes_max.into()));
}
