//! The rows of `docs/recovery.md` that `damage.rs`, `faults.rs` and `crash.rs` do not cover.

use crate::support::*;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_env::{Env, OpenOptions};
use fulgurite_log::{
    Agreed, CommitLog, FrameHeader, GroupFormat, GroupHeader, GroupKind, Log, LogError, RecoveredFrame,
    RecoverySink, ReplayFrom, SegmentHeader,
};
use fulgurite_types::{Csn, EntryId, Epoch, Lsn, crc32c};
use std::sync::Arc;

/// A disk with a log of `commits` frames that was not closed, and the log's end.
fn left(commits: u64) -> (Arc<SimEnv>, Lsn) {
    let env = SimEnv::new(3);
    let log = create(&env);
    for n in 0..commits {
        commit(&log, &[n as u8; 100]).expect("nothing fails");
    }
    let end = log.watermarks().durable;
    (env, end)
}

fn put(env: &SimEnv, lsn: Lsn, bytes: &[u8]) {
    let path = segment_path(lsn.segment());
    let mut file = env.read_raw(&path).expect("the segment is there");
    let start = lsn.offset() as usize;
    file[start..start + bytes.len()].copy_from_slice(bytes);
    env.write_raw(&path, &file).expect("the segment is there");
}

fn header(lsn: Lsn, kind: GroupKind, epoch: u32, first_csn: u64) -> GroupHeader {
    GroupHeader {
        format: GroupFormat::Replicable,
        kind,
        database: ID,
        epoch: Epoch(epoch),
        segment: lsn.segment(),
        offset: lsn.offset(),
        payload_bytes: 0,
        first_csn: Csn(first_csn),
        frames: 0,
        next_segment: 0,
        durable: Csn(0),
        entry: EntryId::default(),
        agreed: Agreed::default(),
    }
}

/// A group of one frame.
fn frame_group(lsn: Lsn, epoch: u32, csn: u64) -> Vec<u8> {
    let frame = FrameHeader {
        kind: 1,
        flags: 0,
        codec: 0,
        body_bytes: 4,
        csn: Csn(csn),
        term: 0,
        commit_time_ms: 0,
        body_crc: crc32c(b"made"),
    };
    let mut payload = frame.encode().to_vec();
    payload.extend_from_slice(b"made");
    let header = GroupHeader {
        payload_bytes: payload.len() as u32,
        frames: 1,
        ..header(lsn, GroupKind::Frames, epoch, csn)
    };
    let mut bytes = header.encode(&payload).to_vec();
    bytes.extend_from_slice(&payload);
    bytes
}

fn put_segment(env: &SimEnv, number: u32) {
    let mut bytes = SegmentHeader { bytes: 16 * 1024, database: ID, number }.encode();
    bytes.resize(16 * 1024, 0);
    env.write_raw(&segment_path(number), &bytes).expect("a file");
}

fn recover(env: &Arc<SimEnv>) -> Opened {
    open(env, &ReplayFrom::beginning()).expect("it opens")
}

#[test]
fn an_empty_directory_has_no_log() {
    let env = SimEnv::new(1);
    env.disk().create_dir_all(dir()).expect("a directory");
    assert!(matches!(open(&env, &ReplayFrom::beginning()), Err(LogError::Damaged(_))));
}

#[test]
fn a_group_after_the_end_without_a_mark_is_torn_off() {
    let (env, end) = left(5);
    put(&env, end.advance(800), &frame_group(end.advance(800), 1, 9));
    let (_, report, _) = recover(&env);
    assert_eq!((report.last_csn, report.end), (Csn(5), end));
}

#[test]
fn groups_after_the_end_of_an_older_epoch_are_dead() {
    let (env, end) = left(5);
    let (log, ..) = recover(&env);
    commit(&log, b"epoch 2").expect("nothing fails");
    drop(log);
    let mut dead = frame_group(end, 1, 6);
    dead[56] = 0;
    put(&env, end, &dead);
    let (log, report, found) = recover(&env);
    assert_eq!((report.last_csn, found.0.len()), (Csn(6), 6));
    assert_eq!(found.0[5].1, b"epoch 2");
    let mut reader = log.reader(Csn(4)).expect("all is there");
    let bodies: Vec<_> =
        std::iter::from_fn(|| reader.next().expect("not damaged")).map(|frame| frame.body).collect();
    assert_eq!(bodies, [vec![4; 100], b"epoch 2".to_vec()]);
}

#[test]
fn a_segment_end_may_name_an_empty_segment_but_no_missing_one() {
    let (env, end) = left(5);
    let next = GroupHeader { next_segment: 2, ..header(end, GroupKind::SegmentEnd, 1, 6) };
    put(&env, end, &next.encode(&[]));
    assert!(
        matches!(open(&env, &ReplayFrom::beginning()), Err(LogError::Damaged(damage)) if damage.what.contains("missing"))
    );
    put_segment(&env, 2);
    for life in 0..3 {
        let (_, report, found) = recover(&env);
        assert_eq!((report.last_csn, found.0.len()), (Csn(5), 5));
        assert!(env.read_raw(&segment_path(2)).is_ok(), "the chain leads through it");
        if life == 0 {
            assert_eq!(report.end, Lsn::new(2, 4096));
        }
    }
}

#[test]
fn unused_and_unfinished_segments_are_removed_and_their_numbers_left_alone() {
    let (env, _) = left(5);
    put_segment(&env, 7);
    env.write_raw(&dir().join("0000000009.new"), b"unfinished").expect("a file");
    env.write_raw(&dir().join("LOCK"), b"not ours").expect("a file");
    let (log, report, _) = recover(&env);
    assert_eq!(report.removed_segments, 1);
    let names: Vec<_> =
        env.disk().list(dir()).expect("a directory").into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["0000000001.seg", "0000000010.seg", "LOCK"]);
    assert_eq!(log.segments().len(), 2);
}

#[test]
fn a_torn_start_of_an_epoch_counts_as_unused() {
    let (env, _) = left(5);
    put_segment(&env, 2);
    put(&env, Lsn::new(2, 4096), &header(Lsn::new(2, 4096), GroupKind::EpochStart, 2, 6).encode(&[])[..40]);
    let (_, report, _) = recover(&env);
    assert_eq!((report.epoch, report.removed_segments), (Epoch(2), 1));
}

#[test]
fn epochs_without_commits_are_links_of_the_chain() {
    let (env, _) = left(5);
    for epoch in 2..6 {
        let (_, report, found) = recover(&env);
        assert_eq!((report.epoch, found.0.len()), (Epoch(epoch), 5));
    }
    let (log, ..) = recover(&env);
    assert_eq!(commit(&log, b"goes on").expect("nothing fails").0, Csn(6));
}

#[test]
fn a_freed_segment_that_comes_back_is_listed_and_left_alone() {
    let (env, _) = left(40);
    let old = env.read_raw(&segment_path(1)).expect("there");
    let (log, ..) = recover(&env);
    let from = ReplayFrom {
        lsn: log.replay_point(Csn(40)),
        csn: Csn(40),
        epoch: log.epoch(),
        durable_csn: Csn(40),
        ..ReplayFrom::default()
    };
    log.free_segment(1).expect("it is not needed");
    drop(log);
    env.write_raw(&segment_path(1), &old).expect("a file");
    let (log, report, found) = open(&env, &from).expect("it opens");
    assert_eq!((report.last_csn, found.0.len()), (Csn(40), 0));
    log.free_segment(1).expect("it can be freed again");
}

#[test]
fn a_broken_segment_before_the_replay_point_matters_only_if_it_is_named() {
    let (env, _) = left(5);
    let (log, ..) = recover(&env);
    let from = ReplayFrom {
        lsn: log.replay_point(Csn(5)),
        csn: Csn(5),
        epoch: log.epoch(),
        durable_csn: Csn(5),
        ..ReplayFrom::default()
    };
    drop(log);
    env.corrupt(&segment_path(1), 0, |byte| *byte ^= 1).expect("there");
    let named = ReplayFrom { must_exist: [1].into(), ..from.clone() };
    assert!(matches!(open(&env, &named), Err(LogError::Damaged(_))));
    let (_, report, _) = open(&env, &from).expect("it is not needed");
    assert_eq!(report.last_csn, Csn(5));
}

#[test]
fn replay_from_the_append_point_delivers_what_came_after() {
    let env = SimEnv::new(1);
    let log = create(&env);
    for before in 0..30u64 {
        let from = ReplayFrom {
            lsn: log.replay_point(Csn(before)),
            csn: Csn(before),
            epoch: Epoch(1),
            durable_csn: Csn(before),
            ..ReplayFrom::default()
        };
        let copy = env.crash(CrashKind::PowerCut, before);
        let (_, report, found) = open(&copy, &from).expect("it opens");
        assert_eq!((report.last_csn, found.0.len()), (Csn(before), 0));
        commit(&log, &[0; 1700]).expect("nothing fails");
        let copy = env.crash(CrashKind::PowerCut, before);
        let (_, report, found) = open(&copy, &from).expect("it opens");
        assert_eq!((report.last_csn, found.0.len()), (Csn(before + 1), 1));
    }
}

#[test]
fn a_cut_from_outside_drops_later_frames_for_good() {
    for up_to in [12, 17, 20] {
        let env = SimEnv::new(1);
        let log = create(&env);
        for n in 0..20u8 {
            append(&log, &[n; 3000], &[]).expect("there is room");
            if n % 3 == 0 {
                log.wait_durable(Csn(u64::from(n) + 1)).expect("nothing fails");
            }
        }
        log.wait_durable(Csn(20)).expect("nothing fails");
        drop(log);
        let known = ReplayFrom { durable_csn: Csn(20), ..ReplayFrom::beginning() };
        let cut = ReplayFrom { up_to: Some(Csn(up_to)), ..known.clone() };
        let (log, report, found) = open(&env, &cut).expect("it opens");
        assert_eq!((report.last_csn, report.cut_frames), (Csn(up_to), 20 - up_to));
        assert_eq!(found.0.len() as u64, up_to);
        assert_eq!(commit(&log, b"instead").expect("nothing fails").0, Csn(up_to + 1));
        for after in 0..=up_to {
            let mut reader = log.reader(Csn(after)).expect("all is there");
            let frames = std::iter::from_fn(|| reader.next().expect("not damaged"));
            let found: Vec<_> = frames.map(|frame| (frame.header.csn.0, frame.body[0])).collect();
            let mut expected: Vec<_> = (after..up_to).map(|n| (n + 1, n as u8)).collect();
            expected.push((up_to + 1, b'i'));
            assert_eq!(found, expected);
        }
        drop(log);
        let (_, report, found) = open(&env, &known).expect("the cut was meant");
        assert_eq!((report.last_csn, found.0.len() as u64), (Csn(up_to + 1), up_to + 1));
    }
}

#[test]
fn a_cut_before_the_checkpoint_is_refused() {
    let (env, _) = left(5);
    let from = ReplayFrom { csn: Csn(5), up_to: Some(Csn(3)), ..ReplayFrom::beginning() };
    assert!(matches!(open(&env, &from), Err(LogError::Usage(_))));
}

#[test]
fn commits_that_are_not_dense_are_damage() {
    for csn in [5, 7] {
        let (env, end) = left(5);
        put(&env, end, &frame_group(end, 1, csn));
        let opened = open(&env, &ReplayFrom::beginning());
        assert!(matches!(opened, Err(LogError::Damaged(damage)) if damage.offset == u64::from(end.offset())));
    }
}

#[test]
fn leftovers_with_another_place_database_or_epoch_are_no_groups() {
    let (env, end) = left(5);
    let mut moved = frame_group(end.advance(8), 1, 6);
    put(&env, end, &moved);
    assert_eq!(recover(&env).1.last_csn, Csn(5));
    let (env, end) = left(5);
    moved = frame_group(end, 1, 6);
    moved[8] ^= 1;
    put(&env, end, &moved);
    assert_eq!(recover(&env).1.last_csn, Csn(5));
}

struct Refuse;

impl RecoverySink for Refuse {
    fn frame(&mut self, frame: &RecoveredFrame<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if frame.header.csn == Csn(3) { Err("no".into()) } else { Ok(()) }
    }
}

#[test]
fn a_sink_that_refuses_ends_recovery_before_anything_was_written() {
    let (env, _) = left(5);
    let ops = env.faults().op_count();
    let shared = Arc::clone(&env) as Arc<dyn Env>;
    let opened = Log::open(shared, dir(), ID, options(), &ReplayFrom::beginning(), &mut Refuse);
    assert!(matches!(opened, Err(LogError::Sink { csn: Csn(3), .. })));
    assert_eq!(env.faults().op_count(), ops, "INV-LOG-9");
}

/// A killed process leaves its writes in the cache; recovery makes them durable before it returns.
#[test]
fn what_was_only_in_the_cache_is_made_durable() {
    let (env, end) = left(5);
    let file = env.disk().open(&segment_path(1), OpenOptions::Write).expect("there");
    file.write_at(&frame_group(end, 1, 6), end.offset().into()).expect("nothing fails");
    let killed = env.crash(CrashKind::Kill, 1);
    let (log, report, _) = recover(&killed);
    assert_eq!(report.last_csn, Csn(6));
    assert!(report.rewritten_bytes > 0);
    drop(log);
    for seed in 0..10 {
        assert_eq!(recover(&killed.crash(CrashKind::PowerCut, seed)).1.last_csn, Csn(6));
    }
}

#[test]
fn the_table_names_tests_that_exist() {
    let table = include_str!("../../../../docs/recovery.md");
    let files = [
        ("recovery", include_str!("recovery.rs")),
        ("damage", include_str!("damage.rs")),
        ("faults", include_str!("faults.rs")),
        ("crash", include_str!("crash.rs")),
        ("segments", include_str!("segments.rs")),
        ("bulk", include_str!("bulk.rs")),
    ];
    let mut named = 0;
    for (file, source) in files {
        for reference in table.split(&format!("`{file}.rs:")).skip(1) {
            let test = reference.split('`').next().unwrap_or_default();
            assert!(source.contains(&format!("fn {test}()")), "{file}.rs has no test {test}");
            named += 1;
        }
    }
    assert!(named > 25, "{named} rows name a test");
}
