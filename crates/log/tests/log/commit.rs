//! The commit path: order, groups, sizes, watermarks, durable marks.

use crate::support::*;
use fulgurite_env::sim::SimEnv;
use fulgurite_log::{
    CommitLog, Durability, FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, LogError, frame_bytes, local_record_bytes,
};
use fulgurite_types::{Csn, Lsn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn one_commit_is_one_synchronous_write_and_no_thread_waits() {
    let env = SimEnv::new(1);
    let log = create(&env);
    commit(&log, b"warm").expect("nothing fails");
    let (before, ops) = (log.stats(), env.faults().op_count());
    commit(&log, b"measured").expect("nothing fails");
    let after = log.stats();
    assert_eq!(env.faults().op_count() - ops, 1, "one data-synchronous write");
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (1, 1));
    assert_eq!(after.flush_waits, before.flush_waits);
}

#[test]
fn frames_reserved_together_share_a_group() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let (_, first) = append(&log, b"one", &[]).expect("there is room");
    let (csn, second) = append(&log, b"second", &[]).expect("there is room");
    assert_eq!(second, first.advance(3 + FRAME_HEADER_BYTES));
    log.wait_durable(csn).expect("nothing fails");
    let stats = log.stats();
    assert_eq!((stats.commits, stats.groups, stats.syncs), (2, 1, 1));
    assert_eq!(log.read_bytes(first, 3).expect("there"), b"one");
    assert_eq!(log.read_bytes(second, 6).expect("there"), b"second");
}

/// INV-LOG-1
#[test]
fn watermarks_move_in_order() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let start = log.watermarks();
    assert_eq!(start.durable, start.reserved);
    let admission = log.admit(frame_bytes(5), 0).expect("there is room");
    let reservation = log.reserve(admission, Durability::Sync);
    assert_eq!(reservation.csn(), Csn(1));
    let expected = start.reserved.advance(GROUP_HEADER_BYTES + FRAME_HEADER_BYTES);
    assert_eq!(reservation.body_lsn(), expected);
    let reserved = log.watermarks();
    assert!(reserved.reserved > start.reserved);
    assert_eq!((reserved.filled, reserved.reserved_csn), (start.filled, Csn(1)));
    fill(&log, reservation, b"bytes", &[]);
    let filled = log.watermarks();
    assert_eq!((filled.filled, filled.durable), (reserved.reserved, start.durable));
    log.wait_durable(Csn(1)).expect("nothing fails");
    let durable = log.watermarks();
    assert_eq!((durable.durable, durable.durable_csn), (filled.reserved, Csn(1)));
    assert_eq!(durable.synced, durable.durable);
}

#[test]
fn sizes_are_checked_before_anything_is_logged() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let (frame, local) = (options().frame_bytes_max(), options().local_bytes_max());
    assert!(matches!(log.admit(frame + 1, 0), Err(LogError::TooLarge { .. })));
    assert!(matches!(log.admit(100, local + 1), Err(LogError::TooLarge { .. })));
    let body = vec![9; (frame - FRAME_HEADER_BYTES) as usize];
    for _ in 0..20 {
        let (_, lsn) = commit(&log, &body).expect("the longest frame fits");
        assert_eq!(log.read_bytes(lsn, body.len() as u32).expect("there"), body);
    }
}

/// INV-LOG-4: admitted commits reserve in any order, and never lack a segment or a buffer.
#[test]
fn admissions_keep_their_promise() {
    for seed in 0..30 {
        let env = SimEnv::new(seed);
        let log = create(&env);
        let mut rng = Rng::new(seed + 1);
        for _ in 0..20 {
            let mut held = Vec::new();
            while let Some(sized) = {
                let body = rng.below(4000) as u32;
                let chunks = rng.below(3) as u16;
                let admitted =
                    log.try_admit(frame_bytes(body), local_record_bytes(chunks)).expect("nothing fails");
                admitted.map(|admission| (admission, body, chunks))
            } {
                held.push(sized);
            }
            let mut last = Csn::ZERO;
            while !held.is_empty() {
                let (admission, body, count) = held.swap_remove(rng.below(held.len() as u64) as usize);
                if rng.below(5) == 0 {
                    continue;
                }
                let chunk =
                    fulgurite_log::ChunkRef { spill: log.new_spill(), ordinal: 0, lsn: Lsn::NULL, len: 1 };
                let reservation = log.reserve(admission, Durability::Sync);
                last = reservation.csn();
                fill(&log, reservation, &vec![1; body as usize], &vec![chunk; usize::from(count)]);
            }
            if last > Csn::ZERO {
                log.wait_durable(last).expect("nothing fails");
            }
            log.maintain().expect("nothing fails");
            log.admit(frame_bytes(1), 0).map(drop).expect("nothing fails");
        }
    }
}

#[test]
fn credit_is_waited_for_by_flushing() {
    let env = SimEnv::new(1);
    let log = create(&env);
    for n in 0..200u64 {
        append(&log, &[n as u8; 3000], &[]).expect("admission flushes");
    }
    let stats = log.stats();
    assert!(stats.credit_waits > 0);
    assert!(log.watermarks().durable_csn > Csn::ZERO);
}

#[test]
fn the_observer_hears_rising_numbers_before_the_wait_ends() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let heard = Arc::new(AtomicU64::new(0));
    let observed = Arc::clone(&heard);
    log.set_observer(Box::new(move |csn| {
        assert!(observed.swap(csn.0, Ordering::Relaxed) < csn.0);
    }));
    for n in 1..=50 {
        let (csn, _) = commit(&log, &[0; 1000]).expect("nothing fails");
        assert_eq!((csn.0, heard.load(Ordering::Relaxed)), (n, n));
    }
}

#[test]
fn requests_are_flushed_by_maintenance() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let (csn, _) = append(&log, b"ticket", &[]).expect("there is room");
    assert_eq!(log.watermarks().durable_csn, Csn::ZERO);
    log.request_durable(csn);
    assert!(log.maintain().expect("nothing fails"));
    assert_eq!(log.watermarks().durable_csn, csn);
}

#[test]
fn one_mark_group_follows_a_burst_and_none_follows_a_mark_group() {
    let env = SimEnv::new(1);
    let log = create(&env);
    idle(&env, &log);
    assert_eq!(log.stats().marks, 0, "nothing to testify to");
    for _ in 0..3 {
        commit(&log, b"burst").expect("nothing fails");
    }
    while log.maintain().expect("nothing fails") {}
    assert_eq!(log.stats().marks, 0, "not idle yet");
    idle(&env, &log);
    idle(&env, &log);
    assert_eq!(log.stats().marks, 1);
    append(&log, b"waiting", &[]).expect("there is room");
    idle(&env, &log);
    assert_eq!(log.stats().marks, 1, "it yields to groups that wait");
}

#[test]
fn a_commit_that_was_never_reserved_is_not_waited_for() {
    let env = SimEnv::new(1);
    let log = create(&env);
    assert!(matches!(log.wait_durable(Csn(1)), Err(LogError::Usage(_))));
    log.close().expect("nothing fails");
    assert!(matches!(log.admit(100, 0), Err(LogError::Closed)));
    log.close().expect("closing twice is fine");
}

#[test]
fn options_report_everything_at_once() {
    let wrong = fulgurite_log::LogOptions {
        segment_bytes_min: 1000,
        segment_bytes_max: 10,
        buffer_bytes: 0,
        ..options()
    };
    let error = wrong.validate().expect_err("all three are wrong").to_string();
    for option in ["segment_bytes_min", "segment_bytes_max", "buffer_bytes"] {
        assert!(error.contains(option), "{error}");
    }
}
