//! Damage to durable data is an error that names file and offset, never a shorter log.

use crate::support::*;
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_log::{BulkKind, ClosedLog, GroupKind, LogError, ReadBulk, ReplayFrom, ScanItem, scan_segment};
use fulgurite_types::{Csn, Epoch, Lsn};
use std::sync::Arc;

/// A closed log of `commits` frames over several segments, on a disk after a power cut.
fn closed(commits: u64) -> Arc<SimEnv> {
    let env = SimEnv::new(3);
    let log = create(&env);
    for n in 0..commits {
        commit(&log, &vec![n as u8; 1500]).expect("nothing fails");
    }
    log.close().expect("nothing fails");
    drop(log);
    env.crash(CrashKind::PowerCut, 1)
}

/// The header of every group of the commit stream.
fn groups(env: &SimEnv) -> Vec<fulgurite_log::GroupHeader> {
    let mut all = Vec::new();
    for (path, _) in env.list_raw() {
        let scan = scan_segment(env.disk(), &path).expect("readable");
        all.extend(scan.items.into_iter().filter_map(|item| match item {
            ScanItem::Group(header) => Some(header),
            _ => None,
        }));
    }
    all
}

fn damage(result: Result<Opened, LogError>) -> fulgurite_log::Damage {
    match result {
        Err(LogError::Damaged(damage)) => *damage,
        Err(other) => panic!("not damage: {other}"),
        Ok((_, report, _)) => panic!("opened silently: {report:?}"),
    }
}

#[test]
fn a_flipped_byte_in_any_group_is_reported_in_its_place() {
    let clean = closed(40);
    let groups = groups(&clean);
    let last_mark =
        groups.iter().rfind(|group| group.kind == GroupKind::Mark).expect("a close ends with a mark group");
    for group in groups.iter().filter(|group| group.end() <= group.offset + 4096) {
        for at in [0, 5, 30, 60, 66, 71 + group.payload_bytes.min(40)] {
            let env = clean.crash(CrashKind::PowerCut, 1);
            let at = u64::from(group.offset + at);
            env.corrupt(&segment_path(group.segment), at, |byte| *byte ^= 0x10).expect("the byte is there");
            let opened = open(&env, &ReplayFrom::beginning());
            if (group.segment, group.offset) == (last_mark.segment, last_mark.offset) {
                let (_, report, _) = opened.expect("the last mark group itself is a tail");
                assert_eq!(report.last_csn, Csn(40));
                continue;
            }
            let damage = damage(opened);
            if group.kind != GroupKind::EpochStart {
                assert_eq!(damage.path, segment_path(group.segment), "{group:?}: {damage}");
                assert_eq!(damage.offset, u64::from(group.offset), "{group:?}: {damage}");
            }
            if group.kind == GroupKind::Frames {
                assert_eq!(damage.csns, Some((group.first_csn, Csn(40))), "{damage}");
            }
        }
    }
}

/// Without a later durable mark, a damaged last group looks like a torn one: the log is shorter, nothing else.
#[test]
fn after_the_last_mark_the_log_is_shorter_at_most() {
    let env = SimEnv::new(3);
    let log = create(&env);
    for n in 0..5 {
        commit(&log, &[n; 100]).expect("nothing fails");
    }
    drop(log);
    let last = *groups(&env).last().expect("groups");
    let env = env.crash(CrashKind::PowerCut, 1);
    env.corrupt(&segment_path(last.segment), u64::from(last.offset) + 80, |byte| *byte ^= 1).expect("there");
    let (_, report, _) = open(&env, &ReplayFrom::beginning()).expect("a torn tail");
    assert_eq!(report.last_csn, Csn(4));
    // The checkpoint may testify to it.
    let from = ReplayFrom { durable_csn: Csn(5), ..ReplayFrom::beginning() };
    let env = SimEnv::new(3);
    let log = create(&env);
    for n in 0..5 {
        commit(&log, &[n; 100]).expect("nothing fails");
    }
    drop(log);
    env.corrupt(&segment_path(last.segment), u64::from(last.offset) + 80, |byte| *byte ^= 1).expect("there");
    let damage = damage(open(&env, &from));
    assert_eq!(damage.csns, Some((Csn(5), Csn(5))));
    assert!(damage.to_string().contains("commits 5 to 5 are lost"), "{damage}");
}

#[test]
fn a_missing_or_truncated_or_headless_segment_is_reported() {
    let clean = closed(60);
    let numbers: std::collections::BTreeSet<u32> = groups(&clean).iter().map(|group| group.segment).collect();
    assert!(numbers.len() > 3);
    for &number in &numbers {
        let path = segment_path(number);
        let missing = clean.crash(CrashKind::PowerCut, 1);
        missing.remove_raw(&path).expect("it is there");
        damage(open(&missing, &ReplayFrom::beginning()));
        let truncated = clean.crash(CrashKind::PowerCut, 1);
        truncated.truncate(&path, 8192).expect("it is there");
        assert_eq!(damage(open(&truncated, &ReplayFrom::beginning())).path, path);
        let headless = clean.crash(CrashKind::PowerCut, 1);
        headless.corrupt(&path, 33, |byte| *byte ^= 1).expect("it is there");
        assert_eq!(damage(open(&headless, &ReplayFrom::beginning())).path, path);
    }
}

#[test]
fn what_the_checkpoint_names_must_exist() {
    let env = closed(3);
    let from = ReplayFrom { must_exist: [77].into(), ..ReplayFrom::beginning() };
    let damage = damage(open(&env, &from));
    assert_eq!(damage.path, segment_path(77));
}

/// A record of several blocks that lost the one with its header looks like a segment that was never used.
#[test]
fn what_the_checkpoint_names_is_not_taken_for_unused() {
    let env = SimEnv::new(3);
    let log = create(&env);
    commit(&log, b"before").expect("nothing fails");
    let body = vec![7; 9000];
    let lsn = log.append_bulk(BulkKind::Checkpoint, &[&body]).expect("there is room");
    log.sync_bulk().expect("nothing fails");
    log.close().expect("nothing fails");
    drop(log);
    let env = env.crash(CrashKind::PowerCut, 1);
    let dir = env.disk().open_dir(dir()).expect("it is there");
    let closed = ClosedLog::new(&*dir, ID);
    assert_eq!(closed.read_bulk(lsn).expect("it is there").body, body);
    let path = segment_path(lsn.segment());
    let mut bytes = env.read_raw(&path).expect("it is there");
    bytes[4096..8192].fill(0);
    env.write_raw(&path, &bytes).expect("it is there");
    let LogError::Damaged(found) = closed.read_bulk(lsn).expect_err("its header is gone") else { panic!() };
    assert_eq!((&found.path, found.offset), (&path, lsn.offset().into()));
    let named = ReplayFrom { must_exist: [lsn.segment()].into(), ..ReplayFrom::beginning() };
    for (from, stays) in [(named, true), (ReplayFrom::beginning(), false)] {
        let env = env.crash(CrashKind::PowerCut, 1);
        open(&env, &from).expect("the commit stream is whole");
        assert_eq!(env.read_raw(&path).is_ok_and(|now| now == bytes), stays);
    }
}

#[test]
fn an_epoch_that_the_checkpoint_knows_must_be_there() {
    let env = closed(3);
    let from = ReplayFrom { epoch: Epoch(2), ..ReplayFrom::beginning() };
    assert!(damage(open(&env, &from)).what.contains("epoch 2 had begun"));
}

#[test]
fn a_lost_start_of_the_newest_epoch_is_reported() {
    let env = closed(3);
    let (log, report, _) = open(&env, &ReplayFrom::beginning()).expect("clean");
    commit(&log, b"in the new epoch").expect("nothing fails");
    drop(log);
    let number = groups(&env).iter().map(|group| group.segment).max().expect("segments");
    assert_eq!(report.epoch, Epoch(2));
    env.corrupt(&segment_path(number), 4096 + 24, |byte| *byte ^= 1).expect("there");
    assert!(damage(open(&env, &ReplayFrom::beginning())).what.contains("whose start is lost"));
}

#[test]
fn damage_in_an_older_epoch_is_reported() {
    let env = closed(10);
    let (log, _, _) = open(&env, &ReplayFrom::beginning()).expect("clean");
    commit(&log, b"in the new epoch").expect("nothing fails");
    drop(log);
    let victim = groups(&env).into_iter().find(|group| group.first_csn == Csn(10)).expect("it is there");
    env.corrupt(&segment_path(victim.segment), u64::from(victim.offset) + 100, |byte| *byte ^= 1)
        .expect("there");
    let damage = damage(open(&env, &ReplayFrom::beginning()));
    assert_eq!((damage.path, damage.offset), (segment_path(victim.segment), u64::from(victim.offset)));
    assert_eq!(damage.csns, Some((Csn(10), Csn(10))));
}

/// INV-LOG-9: judging damage writes nothing, so recovery can judge it again, or an operator repair it.
#[test]
fn damage_changes_nothing_on_disk() {
    let env = closed(10);
    env.corrupt(&segment_path(1), 4300, |byte| *byte ^= 1).expect("there");
    let ops = env.faults().op_count();
    let first = damage(open(&env, &ReplayFrom::beginning()));
    assert_eq!(first, damage(open(&env, &ReplayFrom::beginning())));
    assert_eq!(env.faults().op_count(), ops);
}

#[test]
fn a_replay_point_after_the_end_is_reported() {
    let env = closed(3);
    let (log, _, _) = open(&env, &ReplayFrom::beginning()).expect("clean");
    drop(log);
    let from = ReplayFrom { lsn: Lsn::new(1, 16_000), csn: Csn(3), epoch: Epoch(1), ..ReplayFrom::default() };
    damage(open(&env, &from));
}

#[test]
fn a_segment_of_another_database_is_reported() {
    let env = closed(3);
    let mut sink = Collect::default();
    let other = fulgurite_types::DatabaseId(1);
    let from = ReplayFrom::beginning();
    let opened =
        fulgurite_log::Log::open(Arc::clone(&env) as Arc<dyn Env>, dir(), other, options(), &from, &mut sink);
    assert!(matches!(opened, Err(LogError::Damaged(_))));
}
