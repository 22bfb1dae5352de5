//! Real threads on a real disk.

use crate::support::{Collect, ID};
use fulgurite_env::{Env, RealEnv};
use fulgurite_log::{BulkKind, CommitLog, Durability, FlushScheme, Log, LogOptions, ReplayFrom, frame_bytes};
use fulgurite_types::{Csn, Lsn, crc32c};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const THREADS: u64 = 8;
const COMMITS: u64 = 150;

fn body(thread: u64, n: u64) -> Vec<u8> {
    let mut body = format!("{thread}:{n}:").into_bytes();
    body.resize(20 + (thread * 37 + n * 11) as usize % 900, thread as u8);
    body
}

fn options() -> LogOptions {
    LogOptions { segment_bytes_min: 64 * 1024, segment_bytes_max: 256 * 1024, ..LogOptions::default() }
}

/// One thread's commits; every other one is a ticket that the log thread flushes.
fn committer(log: &Log, thread: u64, order: &Mutex<Vec<(Csn, Lsn)>>) {
    for n in 0..COMMITS {
        let body = body(thread, n);
        let admission = log.admit(frame_bytes(body.len() as u32), 0).expect("there is room");
        let reservation = log.reserve(admission, Durability::Sync);
        let (csn, lsn) = (reservation.csn(), reservation.body_lsn());
        order.lock().expect("no panic").push((csn, lsn));
        let header = reservation.header(1, crc32c(&body));
        log.fill(reservation, &header, &body, &[]);
        assert_eq!(log.read_bytes(lsn, body.len() as u32).expect("it is in memory"), body);
        if n % 2 == 0 {
            log.request_durable(csn);
        } else {
            log.wait_durable(csn).expect("nothing fails");
            assert!(log.watermarks().durable_csn >= csn);
        }
    }
}

#[test]
fn many_threads_share_syncs_and_keep_one_order() {
    FlushScheme::ALL.into_iter().for_each(share_syncs);
}

fn share_syncs(scheme: FlushScheme) {
    let options = || LogOptions { scheme, ..options() };
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("log");
    let env: Arc<dyn Env> = RealEnv::new();
    let log = Log::create(Arc::clone(&env), &dir, ID, options()).expect("an empty directory");
    let order = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::new(Mutex::new(Csn::ZERO));
    let observed = Arc::clone(&heard);
    log.set_observer(Box::new(move |csn| {
        let mut last = observed.lock().expect("no panic");
        assert!(*last < csn);
        *last = csn;
    }));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (log, order) = (Arc::clone(&log), Arc::clone(&order));
            env.spawn("committer", Box::new(move || committer(&log, thread, &order))).expect("a thread")
        })
        .collect();
    for thread in threads {
        assert!(thread.join(), "no thread panicked");
    }
    let total = THREADS * COMMITS;
    log.wait_durable(Csn(total)).expect("nothing fails");
    let mut order = order.lock().expect("no panic").clone();
    order.sort_by_key(|(csn, _)| *csn);
    assert!(order.iter().zip(1..).all(|(&(csn, _), n)| csn.0 == n), "numbers are dense");
    assert!(order.is_sorted_by_key(|&(_, lsn)| lsn), "CSNs and LSNs rise together");
    let stats = log.stats();
    assert_eq!(stats.commits, total);
    assert!(stats.syncs < total, "{} syncs for {total} commits", stats.syncs);
    assert_eq!(*heard.lock().expect("no panic"), Csn(total));
    drop(log);
    let mut sink = Collect::default();
    let (_, report) =
        Log::open(env, &dir, ID, options(), &ReplayFrom::beginning(), &mut sink).expect("clean");
    assert_eq!(report.last_csn, Csn(total));
    for thread in 0..THREADS {
        let mine = sink.0.iter().filter(|(_, body, ..)| body.starts_with(format!("{thread}:").as_bytes()));
        let expected: Vec<_> = (0..COMMITS).map(|n| body(thread, n)).collect();
        assert_eq!(mine.map(|(_, body, ..)| body.clone()).collect::<Vec<_>>(), expected);
    }
}

/// The log thread writes the mark group by itself, and ends with the log.
#[test]
fn the_log_thread_writes_the_mark_group() {
    let temp = tempfile::tempdir().expect("a directory");
    let env: Arc<dyn Env> = RealEnv::new();
    let log =
        Log::create(Arc::clone(&env), &temp.path().join("log"), ID, options()).expect("an empty directory");
    crate::support::commit(&log, b"burst").expect("nothing fails");
    for _ in 0..500 {
        if log.stats().marks > 0 && log.stats().ready_segments > 0 {
            break;
        }
        env.clock().sleep(Duration::from_millis(10));
    }
    assert_eq!(log.stats().marks, 1);
    assert!(log.stats().ready_segments > 0);
    log.close().expect("nothing fails");
}

/// Several threads commit long frames faster than the disk takes them, so that one always waits for buffers.
#[test]
fn short_frames_do_not_starve_among_long_ones() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = LogOptions { buffer_bytes: 1 << 20, segment_bytes_min: 1 << 20, ..LogOptions::default() };
    let log = Log::create(RealEnv::new(), &dir.path().join("log"), ID, options).expect("an empty directory");
    let commit = |bytes: usize, level| {
        let body = vec![7; bytes];
        let admission = log.admit(frame_bytes(bytes as u32), 0).expect("there is room");
        let reservation = log.reserve(admission, level);
        let header = reservation.header(1, crc32c(&body));
        log.fill(reservation, &header, &body, &[]);
    };
    let (is_over, long_frames) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Bounded, so that a failure is reported.
                while !is_over.load(Ordering::Relaxed) && long_frames.fetch_add(1, Ordering::Relaxed) < 2_000
                {
                    commit(150 << 10, Durability::Sync);
                }
            });
        }
        while long_frames.load(Ordering::Relaxed) < 20 {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            commit(100, Durability::Sync);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let long_frames = long_frames.load(Ordering::Relaxed);
    assert!(long_frames < 1_500, "20 short frames waited for {long_frames} long ones");
}

/// A process was killed in the middle of a rename, where that is two steps: the file has both names. A write under one
/// name would be damage under the other.
#[test]
fn a_segment_that_has_two_names_is_not_made_into_another_one() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let path = temporary.path().join("log");
    let options = LogOptions { background: false, ..options() };
    let log = Log::create(RealEnv::new(), &path, ID, options.clone()).expect("an empty directory");
    let lsn = log.append_bulk(BulkKind::LeafNode, &[b"bulk"]).expect("there is room");
    log.sync_bulk().expect("nothing fails");
    log.close().expect("nothing fails");
    drop(log);
    let segment = path.join(format!("{:010}.seg", lsn.segment()));
    std::fs::hard_link(segment, path.join("0000000099.new")).expect("a file system with links");
    for _ in 0..3 {
        let opened = Log::open(
            RealEnv::new(),
            &path,
            ID,
            options.clone(),
            &ReplayFrom::beginning(),
            &mut Collect::default(),
        );
        let (log, _) = opened.expect("nothing is damaged");
        assert_eq!(log.read_bulk(lsn).expect("it is there").body, b"bulk");
    }
}
