//! The bulk stream.

use crate::support::*;
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_log::{BULK_HEADER_BYTES, BulkKind, LogError, ReplayFrom, ScanItem, Stream, scan_segment};

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
    let max = log.options().bulk_bytes_max();
    let bodies = [max, log.options().segment_bytes_min, max].map(|bytes| vec![bytes as u8; bytes as usize]);
    let append = |body| log.append_bulk(BulkKind::LeafNode, &[body]).expect("there is room");
    let records: Vec<_> = bodies.iter().map(|body| append(body)).collect();
    log.sync_bulk().expect("nothing fails");
    for (lsn, body) in records.iter().zip(&bodies) {
        assert_eq!(&log.read_bulk(*lsn).expect("it is there").body, body);
    }
    let over = vec![0; max as usize + 1];
    assert!(matches!(log.append_bulk(BulkKind::LeafNode, &[&over]), Err(LogError::TooLarge { .. })));
}
