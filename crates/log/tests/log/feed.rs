//! Reading the log from a CSN on, while it is written, and across epochs.

use crate::support::*;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_log::{ChunkRef, CommitLog, Log, LogError, LogReader, ReplayFrom};
use fulgurite_types::{Csn, Lsn};

fn drain(reader: &mut LogReader) -> Vec<u64> {
    let mut csns = Vec::new();
    while let Some(frame) = reader.next().expect("nothing is damaged") {
        csns.push(frame.header.csn.0);
    }
    csns
}

fn fill(log: &Log, count: u64) {
    for n in 0..count {
        commit(log, &vec![n as u8; 1200]).expect("nothing fails");
    }
}

#[test]
fn only_durable_frames_are_delivered_and_all_of_them() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let mut reader = log.reader(Csn::ZERO).expect("from the start");
    assert_eq!(drain(&mut reader), []);
    let chunk = ChunkRef { spill: log.new_spill(), ordinal: 1, lsn: Lsn::new(7, 8), len: 9 };
    let (csn, lsn) = append(&log, b"first", &[chunk]).expect("there is room");
    assert_eq!(drain(&mut reader), [], "it is not durable");
    log.wait_durable(csn).expect("nothing fails");
    let frame = reader.next().expect("nothing is damaged").expect("it is durable");
    assert_eq!((frame.header.csn, &frame.body[..], frame.body_lsn), (csn, &b"first"[..], lsn));
    assert_eq!((frame.header.term, frame.header.flags, frame.local), (3, 2, vec![chunk]));
    for round in 0..10 {
        fill(&log, 7);
        idle(&env, &log);
        let first = 2 + round * 7;
        assert_eq!(drain(&mut reader), (first..first + 7).collect::<Vec<_>>());
    }
}

#[test]
fn it_starts_anywhere_and_follows_the_chain_of_epochs() {
    let mut env = SimEnv::new(1);
    let mut log = create(&env);
    for _ in 0..4 {
        fill(&log, 23);
        drop(log);
        env = env.crash(CrashKind::PowerCut, 5);
        log = open(&env, &ReplayFrom::beginning()).expect("clean").0;
    }
    fill(&log, 8);
    for after in 0..=100 {
        let mut reader = log.reader(Csn(after)).expect("all is there");
        assert_eq!(drain(&mut reader), (after + 1..=100).collect::<Vec<_>>());
        let start = log.replay_point(Csn(after));
        let mut reader = log.reader_at(start, Csn(after)).expect("it is in the log");
        assert_eq!(drain(&mut reader), (after + 1..=100).collect::<Vec<_>>(), "INV-LOG-10");
    }
}

#[test]
fn what_was_freed_is_too_old() {
    let env = SimEnv::new(1);
    let log = create(&env);
    fill(&log, 60);
    let mut slow = log.reader(Csn(20)).expect("all is there");
    log.drop_before(Csn(50));
    assert!(matches!(log.reader(Csn(3)), Err(LogError::TooOld { .. })));
    let keep = log.replay_point(Csn(50)).segment();
    for info in log.segments() {
        if !info.open && info.number < keep {
            log.free_segment(info.number).expect("it is not needed");
        }
    }
    assert!(matches!(slow.next(), Err(LogError::TooOld { .. })));
    assert_eq!(drain(&mut log.reader(Csn(50)).expect("kept")), (51..=60).collect::<Vec<_>>());
}
