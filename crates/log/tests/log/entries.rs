//! The entries of replicated logs: several logs, each on a disk of its own, and no network between them.

use crate::support::*;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_env::{Env, MemoryMedium};
use fulgurite_log::{
    Agreed, ChunkRef, CommitLog, Durability, Entry, FrameChunks, GroupKind, Log, LogError, LogOptions,
    RecoveryReport, ReplayFrom, Role, ScanItem, frame_bytes,
};
use fulgurite_types::{Csn, EntryId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn replicated() -> LogOptions {
    LogOptions { segment_bytes_min: 128 << 10, segment_bytes_max: 256 << 10, replicated: true, ..options() }
}

fn entry(term: u64, index: u64) -> EntryId {
    EntryId { term, index }
}

fn agreed(index: u64, csn: u64) -> Agreed {
    Agreed { index, csn: Csn(csn) }
}

/// A log on its disk.
struct Node {
    env: Arc<SimEnv>,
    log: Arc<Log>,
    options: LogOptions,
}

impl Node {
    fn new(seed: u64) -> Node {
        Node::with(seed, |_| replicated())
    }

    fn with(seed: u64, options: impl FnOnce(&SimEnv) -> LogOptions) -> Node {
        let env = SimEnv::new(seed);
        let options = options(&env);
        let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options.clone()).unwrap();
        Node { env, log, options }
    }

    /// Copies what this log lacks from another, makes it durable, and tells how far that came.
    fn follow(&self, leader: &Node) -> EntryId {
        let after = self.log.entry_positions().unwrap().last.index;
        let mut entries = leader.log.entries(after).unwrap();
        while let Some(entry) = entries.next().unwrap() {
            self.log.append_entry(&entry).unwrap();
        }
        self.log.flush_entries().unwrap();
        self.log.entry_positions().unwrap().durable
    }

    /// The node after a crash.
    fn reopened(&self, kind: CrashKind, from: &ReplayFrom) -> (Node, RecoveryReport, Collect) {
        let env = self.env.crash(kind, 7);
        let (log, report, found) = open_with(&env, from, self.options.clone()).unwrap();
        (Node { env, log, options: self.options.clone() }, report, found)
    }

    fn after_a_power_cut(&self) -> (Node, RecoveryReport, Collect) {
        self.reopened(CrashKind::PowerCut, &ReplayFrom::beginning())
    }

    fn all_entries(&self) -> Vec<Entry> {
        let mut reader = self.log.entries(0).unwrap();
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    /// The commits that the feed delivers.
    fn fed(&self) -> Vec<u64> {
        let mut reader = self.log.reader(Csn::ZERO).unwrap();
        std::iter::from_fn(|| reader.next().unwrap()).map(|frame| frame.header.csn.0).collect()
    }
}

/// Commits up to here, without waiting for agreement.
fn commit_here(node: &Node, commits: u64) -> Csn {
    let mut last = Csn::ZERO;
    for n in 0..commits {
        (last, _) = append(&node.log, &[n as u8; 100], &[]).unwrap();
    }
    node.log.flush_entries().unwrap();
    last
}

fn collected(found: &Collect) -> Vec<u64> {
    found.0.iter().map(|(csn, ..)| csn.0).collect()
}

#[test]
fn a_follower_has_the_same_frames_and_entries() {
    let [leader, follower] = [Node::new(1), Node::new(2)];
    assert!(matches!(leader.log.admit(frame_bytes(4), 0), Err(LogError::NotLeader)));
    leader.log.lead(1).unwrap();
    assert_eq!(leader.log.role(), Some(Role::Leader { term: 1 }));
    for n in 1..=300u64 {
        append(&leader.log, &vec![n as u8; (n * 37 % 2000) as usize], &[]).unwrap();
        if n % 7 == 0 {
            leader.log.flush_entries().unwrap();
        }
    }
    leader.log.propose_members(b"one, two").unwrap();
    let last = follower.follow(&leader);
    leader.log.flush_entries().unwrap();
    assert!(last.index > 40, "{last}: the segments are left several times");
    assert_eq!(follower.follow(&leader), leader.log.entry_positions().unwrap().last);
    let entries = leader.all_entries();
    assert_eq!(entries[0].kind, GroupKind::Blank);
    assert_eq!(entries.last().unwrap().payload, b"one, two");
    assert_eq!(entries, follower.all_entries());
    assert!(entries.iter().zip(1..).all(|(entry, index)| entry.id == EntryId { term: 1, index }));
    // A commit is durable once a quorum has it, and the feed delivers none before.
    assert_eq!((leader.log.durable_csn(), follower.fed()), (Csn::ZERO, vec![]));
    let last = entries.last().unwrap().id;
    assert!(leader.log.raise_agreed(last).unwrap() && follower.log.raise_agreed(last).unwrap());
    assert_eq!((leader.log.durable_csn(), follower.log.synced_csn()), (Csn(300), Csn(300)));
    assert_eq!(follower.fed(), (1..=300).collect::<Vec<_>>());
    leader.log.wait_durable(Csn(300)).unwrap();
    assert!(!leader.log.raise_agreed(last).unwrap(), "it is no news");
}

/// INV-REP-1: an entry that is read has a number, is the same after it was written, and is read before.
#[test]
fn entries_are_read_while_they_are_written() {
    let leader = Node::new(1);
    let seen = Arc::new(AtomicU64::new(0));
    let read = Arc::new(Mutex::new(Vec::new()));
    let (log, seen_too, read_too) = (Arc::downgrade(&leader.log), Arc::clone(&seen), Arc::clone(&read));
    leader
        .log
        .set_entry_observer(Box::new(move |at| {
            let log = log.upgrade().unwrap();
            let before = seen_too.swap(at.last.index, Ordering::SeqCst);
            if at.last.index > before {
                assert!(at.durable.index <= before, "{at:?}: it is heard before it is durable");
                let mut entries = log.entries(before).unwrap();
                read_too.lock().unwrap().extend(std::iter::from_fn(|| entries.next().unwrap()));
            }
        }))
        .unwrap();
    leader.log.lead(3).unwrap();
    for _ in 0..200 {
        append(&leader.log, &[9; 1500], &[]).unwrap();
        append(&leader.log, &[8; 700], &[]).unwrap();
        leader.log.flush_entries().unwrap();
    }
    assert_eq!(*read.lock().unwrap(), leader.all_entries());
    assert_eq!(read.lock().unwrap().len() as u64, seen.load(Ordering::SeqCst));
}

#[test]
fn entries_that_do_not_follow_are_refused() {
    let [leader, follower] = [Node::new(1), Node::new(2)];
    leader.log.lead(2).unwrap();
    commit_here(&leader, 5);
    let entries = leader.all_entries();
    let frames = entries[1].clone();
    let refused = |entry: &Entry, why: &str| {
        let error = follower.log.append_entry(entry).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&frames, "entry 2 of term 2 cannot follow entry 0 of term 0");
    follower.log.append_entry(&entries[0]).unwrap();
    refused(&entries[0], "entry 1 of term 2 cannot follow entry 1 of term 2");
    refused(&Entry { id: entry(1, 2), ..frames.clone() }, "entry 2 of term 1 cannot follow");
    refused(&Entry { first_csn: Csn(2), ..frames.clone() }, "commit 1 where 2 has to be");
    refused(&Entry { frames: 4, ..frames.clone() }, "promises commits up to 4");
    refused(&Entry { kind: GroupKind::Mark, ..frames.clone() }, "is of kind Mark");
    refused(&Entry { kind: GroupKind::Blank, frames: 0, ..frames.clone() }, "promises commits up to 0");
    for at in 0..frames.payload.len() {
        let mut damaged = frames.clone();
        damaged.payload[at] ^= 1;
        assert!(follower.log.append_entry(&damaged).is_err(), "byte {at} is checked");
    }
    let later = Entry { id: entry(2, 2), ..leader_of_two_commits() };
    refused(&later, "an entry begins with commit 3, and 1 has to follow");
    assert_eq!(follower.log.entry_positions().unwrap().last, entry(2, 1), "nothing was appended");
    follower.log.append_entry(&frames).unwrap();
    refused(&Entry { id: entry(2, 3), ..frames }, "an entry begins with commit 1, and 6 has to follow");
    assert!(leader.log.append_entry(&entries[1]).is_err(), "a leader takes none");
    // Chunks come first.
    let next = leader_of_chunks();
    let error = follower.log.append_entry(&Entry { id: entry(2, 3), first_csn: Csn(6), ..next.clone() });
    assert!(error.unwrap_err().to_string().contains("where 6 has to be"));
    let fresh = Node::new(3);
    let error = fresh.log.append_entry(&next).unwrap_err().to_string();
    assert!(error.contains("refers to 1 chunks, and 0 of them came"), "{error}");
    assert_eq!(fresh.log.entry_positions().unwrap().last, EntryId::default(), "nothing was appended");
}

/// An entry with one commit, which refers to a chunk.
fn leader_of_chunks() -> Entry {
    let leader = Node::new(7);
    leader.log.lead(1).unwrap();
    let spill = leader.log.new_spill();
    let (lsn, mark) = leader.log.append_chunk(spill, 0, b"chunk", None, |_| ()).unwrap();
    leader.log.require_bulk(mark);
    let chunk = ChunkRef { spill, ordinal: 0, lsn, len: 5 };
    append(&leader.log, b"body", &[chunk]).unwrap();
    leader.log.flush_entries().unwrap();
    let mut reader = leader.log.entries(1).unwrap();
    let found = reader.next().unwrap().unwrap();
    assert_eq!(found.chunks, [FrameChunks { csn: Csn(1), count: 1 }]);
    assert_eq!(reader.take_chunks(), [chunk]);
    Entry { id: entry(1, 1), ..found }
}

/// An entry that begins with commit 3.
fn leader_of_two_commits() -> Entry {
    let node = Node::new(9);
    node.log.lead(1).unwrap();
    commit_here(&node, 2);
    commit_here(&node, 1);
    node.all_entries().pop().unwrap()
}

/// Commits above `agreed` are kept and not replayed, until a header says that they are agreed.
#[test]
fn recovery_replays_agreed_entries() {
    [true, false].into_iter().for_each(recovers_agreed_entries);
}

fn recovers_agreed_entries(is_asked: bool) {
    let [leader, follower] = [Node::new(1), Node::new(2)];
    leader.log.lead(1).unwrap();
    commit_here(&leader, 5);
    let first = follower.follow(&leader);
    commit_here(&leader, 4);
    let all = follower.follow(&leader);
    follower.log.raise_agreed(first).unwrap();
    // Nothing says that on disk yet: it is forgotten, and heard again.
    let (lost, report, found) = follower.after_a_power_cut();
    assert_eq!((report.last_entry, report.agreed, report.last_csn), (all, agreed(0, 0), Csn(9)));
    assert_eq!(collected(&found), Vec::<u64>::new());
    assert_eq!(lost.log.reserved_csn(), Csn(9));
    assert_eq!(lost.all_entries(), leader.all_entries());
    assert!(lost.log.raise_agreed(first).unwrap());
    // A mark says it once the log is idle, or when asked for, and each opening again.
    if is_asked {
        lost.log.mark_agreed().unwrap();
    } else {
        idle(&lost.env, &lost.log);
    }
    let (node, report, found) = lost.after_a_power_cut();
    assert_eq!((report.agreed, collected(&found)), (agreed(first.index, 5), (1..=5).collect()));
    let (node, report, found) = node.after_a_power_cut();
    assert_eq!((report.agreed, collected(&found)), (agreed(first.index, 5), (1..=5).collect()));
    assert_eq!(node.fed(), (1..=5).collect::<Vec<_>>());
    assert!(node.log.raise_agreed(all).unwrap());
    assert_eq!(node.fed(), (1..=9).collect::<Vec<_>>());
    assert_eq!(node.log.entry_positions().unwrap().agreed, agreed(all.index, 9));
}

/// What a checkpoint covers is agreed, whether a header says it or not.
#[test]
fn a_checkpoint_covers_what_is_agreed() {
    let node = Node::new(1);
    node.log.lead(1).unwrap();
    (0..5).for_each(|_| _ = commit_here(&node, 2));
    node.log.raise_agreed(entry(1, 5)).unwrap();
    let floor = node.log.synced_csn();
    assert_eq!(floor, Csn(8));
    let from = ReplayFrom { lsn: node.log.replay_point(floor), csn: floor, ..ReplayFrom::beginning() };
    let (_, report, found) = node.reopened(CrashKind::PowerCut, &from);
    assert_eq!((report.agreed, collected(&found)), (agreed(5, 8), vec![]));
    assert_eq!((report.last_entry, report.last_csn), (entry(1, 6), Csn(10)));
    let cut = ReplayFrom { up_to_entry: Some(5), ..from };
    let (node, report, _) = node.reopened(CrashKind::PowerCut, &cut);
    assert_eq!((report.last_entry, report.last_csn), (entry(1, 5), Csn(8)));
    assert_eq!(node.log.reserved_csn(), Csn(8));
}

/// INV-REP-3: a leader counts an entry of an older term only under one of its own.
#[test]
fn an_older_terms_entry_is_agreed_under_one_of_the_leaders_own() {
    let [old, new] = [Node::new(1), Node::new(2)];
    old.log.lead(1).unwrap();
    commit_here(&old, 3);
    let third = new.follow(&old);
    old.log.fence().unwrap();
    assert!(new.log.lead(1).is_err(), "its last entry is of that term");
    new.log.lead(2).unwrap();
    assert!(!new.log.raise_agreed(third).unwrap(), "a quorum has it, and yet it may be replaced");
    assert!(!new.log.raise_agreed(entry(2, 9)).unwrap(), "it has no such entry");
    new.log.flush_entries().unwrap();
    let blank = new.log.entry_positions().unwrap().last;
    assert_eq!(blank, entry(2, third.index + 1));
    assert!(new.log.raise_agreed(blank).unwrap());
    assert_eq!(new.log.entry_positions().unwrap().agreed, agreed(blank.index, 3));
    // A follower learns it by the entry that it has, and by no other of that index.
    assert!(!old.log.raise_agreed(entry(2, 2)).unwrap());
    assert!(old.log.raise_agreed(entry(1, 2)).unwrap());
}

/// What has no number did not happen; what has one may.
#[test]
fn a_deposed_leader_numbers_no_more() {
    let node = Node::new(1);
    node.log.lead(4).unwrap();
    commit_here(&node, 2);
    let (csn, _) = append(&node.log, b"without a number", &[]).unwrap();
    assert_eq!(node.log.fence().unwrap(), entry(4, 2));
    assert_eq!(node.log.role(), Some(Role::Deposed));
    assert!(matches!(node.log.wait_durable(csn), Err(LogError::NotLeader)));
    assert!(matches!(append(&node.log, b"later", &[]), Err(LogError::NotLeader)));
    assert!(matches!(node.log.propose_members(b"x"), Err(LogError::NotLeader)));
    assert!(node.log.lead(5).is_err(), "it has to be opened again");
    assert!(node.log.raise_agreed(entry(4, 2)).unwrap());
    node.log.wait_durable(Csn(2)).unwrap();
    node.log.close().unwrap();
    let (node, report, found) = node.reopened(CrashKind::Kill, &ReplayFrom::beginning());
    assert_eq!((report.last_csn, report.last_entry), (Csn(2), entry(4, 2)));
    assert_eq!(found.0.len() as u64, report.agreed.csn.0);
    assert_eq!(node.log.role(), Some(Role::Follower));
    node.log.lead(5).unwrap();
}

/// Another leader has other entries where the old one had its last: the old one is cut, and follows.
#[test]
fn a_log_is_cut_after_an_entry_and_follows() {
    for staged in [false, true] {
        let start = |env: &SimEnv| match staged {
            true => LogOptions {
                staging: staging(env, MemoryMedium::Persistent, 1).staging.map(|mut staging| {
                    staging.buffer_bytes = 128 << 10;
                    staging
                }),
                ..replicated()
            },
            false => replicated(),
        };
        let [old, new] = [Node::with(1, start), Node::with(2, start)];
        old.log.lead(1).unwrap();
        commit_here(&old, 3);
        let common = new.follow(&old);
        old.log.raise_agreed(common).unwrap();
        (0..6).for_each(|_| _ = commit_here(&old, 2));
        old.log.propose_members(b"not agreed").unwrap();
        old.log.flush_entries().unwrap();
        let (deposed, report, found) = old.after_a_power_cut();
        assert_eq!((report.last_csn, collected(&found)), (Csn(15), vec![1, 2, 3]), "staged {staged}");

        new.log.lead(2).unwrap();
        commit_here(&new, 4);
        let up_to = |index| ReplayFrom { up_to_entry: Some(index), ..ReplayFrom::beginning() };
        let refused = |index| {
            let env = deposed.env.crash(CrashKind::PowerCut, 3);
            open_with(&env, &up_to(index), deposed.options.clone()).err().unwrap().to_string()
        };
        assert!(refused(1).contains("INV-REP-3"), "{}", refused(1));
        let (cut, report, found) = deposed.reopened(CrashKind::PowerCut, &up_to(common.index));
        assert_eq!((report.last_entry, report.last_csn, report.cut_frames), (common, Csn(3), 12));
        assert_eq!(collected(&found), [1, 2, 3]);
        assert_eq!(cut.follow(&new), new.log.entry_positions().unwrap().last);
        assert_eq!(cut.all_entries(), new.all_entries());
        cut.log.raise_agreed(new.log.entry_positions().unwrap().last).unwrap();
        assert_eq!(cut.fed(), (1..=7).collect::<Vec<_>>());
        idle(&cut.env, &cut.log);
        let (again, report, found) = cut.after_a_power_cut();
        assert_eq!((collected(&found), report.last_csn), ((1..=7).collect(), Csn(7)));
        assert_eq!(again.all_entries(), new.all_entries());
    }
}

/// Nothing of what a follower has is agreed: it keeps its history, and no entry.
#[test]
fn a_log_is_cut_before_its_first_entry() {
    let env = SimEnv::new(1);
    let alone = LogOptions { replicated: false, ..replicated() };
    let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, alone).unwrap();
    (0..3).for_each(|n| _ = commit(&log, &[n; 50]).unwrap());
    drop(log);
    let env = env.crash(CrashKind::PowerCut, 1);
    let (log, ..) = open_with(&env, &ReplayFrom::beginning(), replicated()).unwrap();
    log.lead(3).unwrap();
    let node = Node { env, log, options: replicated() };
    commit_here(&node, 5);
    let up_to = |index| ReplayFrom { up_to_entry: Some(index), ..ReplayFrom::beginning() };
    // To the last entry is no cut, and beyond it neither.
    for index in [2, 9] {
        let (_, report, _) = node.reopened(CrashKind::PowerCut, &up_to(index));
        assert_eq!((report.last_entry, report.last_csn, report.cut_frames), (entry(3, 2), Csn(8), 0));
    }
    let (node, report, found) = node.reopened(CrashKind::PowerCut, &up_to(0));
    assert_eq!((report.last_entry, report.last_csn, found.0.len()), (EntryId::default(), Csn(3), 3));
    node.log.lead(1).unwrap();
    assert_eq!(commit_here(&node, 2), Csn(5));
    let (node, report, found) = node.after_a_power_cut();
    assert_eq!((report.last_entry, report.last_csn, found.0.len()), (entry(1, 2), Csn(5), 3));
    assert_eq!(node.all_entries().len(), 2);
}

/// Blank entries and members survive openings, although they have no commit.
#[test]
fn entries_without_commits_are_kept() {
    let node = Node::new(1);
    node.log.lead(1).unwrap();
    commit_here(&node, 2);
    node.log.raise_agreed(entry(1, 2)).unwrap();
    let mut node = node;
    for life in 2..9u64 {
        let (next, report, _) = node.after_a_power_cut();
        let expected = if life == 2 { entry(1, 2) } else { entry(life - 1, 2 + 2 * (life - 2)) };
        assert_eq!((report.last_entry, report.last_csn), (expected, Csn(2)), "life {life}");
        next.log.lead(life).unwrap();
        next.log.propose_members(&[life as u8; 40]).unwrap();
        next.log.flush_entries().unwrap();
        node = next;
    }
    let entries = node.all_entries();
    assert_eq!(entries.len(), 16);
    assert!(entries.iter().zip(1..).all(|(entry, index)| entry.id.index == index));
}

/// A database with a history becomes the first member of a cluster.
#[test]
fn a_log_with_a_history_becomes_replicated() {
    let env = SimEnv::new(1);
    let alone = LogOptions { replicated: false, ..replicated() };
    let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, alone.clone()).unwrap();
    (0..20).for_each(|n| _ = commit(&log, &[n; 50]).unwrap());
    assert!(matches!(log.entries(0), Err(LogError::Usage(_))));
    assert!(log.entry_positions().is_none());
    drop(log);
    let env = env.crash(CrashKind::PowerCut, 1);
    let (log, report, found) = open_with(&env, &ReplayFrom::beginning(), replicated()).unwrap();
    assert_eq!((report.agreed, found.0.len()), (agreed(0, 20), 20));
    log.lead(1).unwrap();
    let node = Node { env, log, options: replicated() };
    assert_eq!(commit_here(&node, 1), Csn(21));
    let (node, report, found) = node.after_a_power_cut();
    assert_eq!((report.agreed, found.0.len(), report.last_csn), (agreed(0, 20), 20, Csn(21)));
    assert_eq!(node.all_entries().len(), 2);
    // One of a cluster does not open alone: it would number nothing, and undo what others have.
    let refused = open_with(&node.env.crash(CrashKind::Kill, 1), &ReplayFrom::beginning(), alone);
    assert!(refused.err().unwrap().to_string().contains("one of a cluster"));
    let read_only = LogOptions { read_only: true, replicated: false, ..replicated() };
    let opened = open_with(&node.env.crash(CrashKind::Kill, 1), &ReplayFrom::beginning(), read_only).unwrap();
    let (log, report, found) = (opened.0, opened.1, opened.2);
    assert_eq!((found.0.len(), report.last_entry), (20, entry(1, 2)));
    // It shows what is agreed, and no more.
    assert_eq!(log.durable_csn(), Csn(20));
    let mut reader = log.reader(Csn::ZERO).unwrap();
    assert_eq!(std::iter::from_fn(|| reader.next().unwrap()).count(), 20);
}

/// Each header says its entry, and the last one before it where it has none.
#[test]
fn headers_tell_entries() {
    let node = Node::new(1);
    node.log.lead(1).unwrap();
    (0..150).for_each(|_| {
        append(&node.log, &[1; 4000], &[]).map(|_| node.log.flush_entries().unwrap()).unwrap();
    });
    node.log.raise_agreed(entry(1, 100)).unwrap();
    idle(&node.env, &node.log);
    let (mut last, mut kinds) = (EntryId::default(), Vec::new());
    for segment in node.log.segments().iter().filter(|segment| segment.stream.is_some()) {
        for item in node.log.scan_segment(segment.number).unwrap().items {
            let ScanItem::Group(header) = item else { continue };
            if header.kind.is_entry() {
                last = EntryId { term: 1, index: last.index + 1 };
            }
            assert_eq!(header.entry, last, "{header:?}");
            kinds.push((header.kind, header.agreed));
        }
    }
    assert_eq!(last, entry(1, 151));
    assert!(kinds.iter().any(|(kind, _)| *kind == GroupKind::SegmentEnd));
    assert_eq!(kinds.last(), Some(&(GroupKind::Mark, agreed(100, 99))));
}

#[test]
fn a_commit_waits_until_it_is_agreed() {
    let node = Node::new(1);
    node.log.lead(1).unwrap();
    let (csn, _) = append(&node.log, b"waits", &[]).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let heard_too = Arc::clone(&heard);
    node.log.set_observer(Box::new(move |csn| heard_too.lock().unwrap().push(csn)));
    node.log.flush_entries().unwrap();
    assert_eq!((node.log.watermarks().durable_csn, node.log.durable_csn()), (csn, Csn::ZERO));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| node.log.wait_durable(csn));
        assert!(heard.lock().unwrap().is_empty());
        assert!(node.log.raise_agreed(entry(1, 2)).unwrap());
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(*heard.lock().unwrap(), [csn]);
    // The close does not wait for others.
    let (csn, _) = append(&node.log, b"is not agreed", &[]).unwrap();
    node.log.close().unwrap();
    assert!(matches!(node.log.wait_durable(csn), Err(LogError::NotAgreed)));
}

#[test]
fn options_that_cannot_be_replicated_are_refused() {
    let small = LogOptions { segment_bytes_min: 16 << 10, ..replicated() };
    assert!(small.validate().unwrap_err().to_string().contains("segment_bytes_min is 16384, too little"));
    let scheme = LogOptions { scheme: fulgurite_log::FlushScheme::Aggregated, ..replicated() };
    assert!(scheme.validate().unwrap_err().to_string().contains("needs the scheme"));
}

/// Lives of a leader and a follower with power cuts at any write: what the follower acknowledged it has, and its log is the leader's.
#[test]
fn crashes_keep_what_was_acknowledged() {
    for seed in 0..60 {
        let mut random = Rng::new(seed);
        let [mut leader, mut follower] = [Node::new(seed), Node::new(seed + 1000)];
        let (mut acknowledged, mut known) = (EntryId::default(), Agreed::default());
        for term in 1..6 {
            leader.log.lead(term).unwrap();
            for _ in 0..random.below(12) {
                let bytes = random.below(9000) as usize;
                append(&leader.log, &vec![term as u8; bytes], &[]).unwrap();
                if random.below(3) == 0 {
                    leader.log.flush_entries().unwrap();
                    acknowledged = follower.follow(&leader);
                    let all = leader.log.raise_agreed(acknowledged).unwrap();
                    if all && random.below(2) == 0 {
                        follower.log.raise_agreed(acknowledged).unwrap();
                        known = follower.log.entry_positions().unwrap().agreed;
                    }
                }
                if random.below(4) == 0 {
                    idle(&follower.env, &follower.log);
                }
            }
            let _ = append(&leader.log, b"perhaps", &[]).unwrap();
            let (next, report, found) = follower.after_a_power_cut();
            assert!(report.last_entry >= acknowledged, "seed {seed}: {report:?}, {acknowledged}");
            assert!(report.agreed <= known, "seed {seed}");
            assert_eq!(found.0.len() as u64, report.agreed.csn.0, "seed {seed}");
            follower = next;
            let last = report.last_entry.index;
            let entries = leader.all_entries();
            assert_eq!(follower.all_entries(), entries[..last as usize], "seed {seed}");
            // The follower leads now; the old leader is cut after what both have.
            let cut = ReplayFrom { up_to_entry: Some(last), ..ReplayFrom::beginning() };
            let (old, report, _) = leader.reopened(CrashKind::PowerCut, &cut);
            assert_eq!(report.last_entry.index, last, "seed {seed}");
            assert_eq!(old.all_entries(), follower.all_entries(), "seed {seed}");
            (leader, follower) = (follower, old);
            known = Agreed { index: u64::MAX, csn: Csn::MAX };
        }
    }
}

/// A follower hears that entries are agreed before it has them on disk: no header says more than what comes before it in the log.
#[test]
fn what_is_agreed_and_lost_is_not_taken_for_other_entries() {
    for seed in 0..20 {
        let [leader, follower] = [Node::new(1), Node::new(seed)];
        leader.log.lead(1).unwrap();
        (0..6).for_each(|_| _ = commit_here(&leader, 1 + seed % 3));
        let entries = leader.all_entries();
        (entries[..2].iter()).for_each(|entry| follower.log.append_entry(entry).unwrap());
        follower.log.flush_entries().unwrap();
        (entries[2..].iter()).for_each(|entry| follower.log.append_entry(entry).unwrap());
        assert!(follower.log.raise_agreed(entries[5].id).unwrap());
        follower.env.faults().crash_at(follower.env.faults().op_count() + 1);
        assert!(follower.log.flush_entries().is_err());
        let (again, report, found) = follower.after_a_power_cut();
        assert!(report.agreed.index <= 2 && report.last_entry.index >= 2, "seed {seed}: {report:?}");
        assert_eq!(found.0.len() as u64, report.agreed.csn.0);
        let last = report.last_entry.index as usize;
        (entries[last..].iter()).for_each(|entry| again.log.append_entry(entry).unwrap());
        again.log.flush_entries().unwrap();
        assert!(again.log.raise_agreed(entries[6].id).unwrap(), "seed {seed}");
        assert_eq!(again.log.durable_csn(), entries[6].last_csn());
    }
}

/// A checkpoint at the last commit has its replay point before the entries that follow it without one.
#[test]
fn entries_without_commits_are_replayed_from_a_checkpoint() {
    for is_closed in [false, true] {
        let mut node = Node::new(1);
        for term in 1..4 {
            node.log.lead(term).unwrap();
            node.log.propose_members(b"one").unwrap();
            node.log.flush_entries().unwrap();
            assert!(node.log.raise_agreed(entry(term, 2 * term)).unwrap(), "term {term}");
            idle(&node.env, &node.log);
            let covered = node.log.synced_csn();
            assert_eq!(covered, Csn::ZERO);
            node.log.drop_before(covered);
            let mut from =
                ReplayFrom { lsn: node.log.replay_point(covered), csn: covered, ..ReplayFrom::beginning() };
            if is_closed {
                node.log.close().unwrap();
                from.epoch = node.log.epoch();
                from.closed_at = Some(node.log.watermarks().written);
            }
            let (next, report, _) = node.reopened(CrashKind::PowerCut, &from);
            assert_eq!((report.last_entry, report.agreed), (entry(term, 2 * term), agreed(2 * term, 0)));
            assert!(next.log.lead(term).is_err(), "its last entry is of that term");
            assert_eq!(next.all_entries().len() as u64, 2 * term);
            node = next;
        }
    }
}

/// The index is trimmed as far as a checkpoint allows, and the next one at the same commit still has a replay point; also where the log had a
/// history before it was replicated.
#[test]
fn a_checkpoint_at_the_same_commit_has_a_replay_point() {
    let env = SimEnv::new(1);
    let alone = LogOptions { replicated: false, ..replicated() };
    let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, alone).unwrap();
    (0..20).for_each(|n| _ = commit(&log, &[n; 50]).unwrap());
    let (lsn, csn) = (log.replay_point(Csn(20)), Csn(20));
    drop(log);
    let mut from = ReplayFrom { lsn, csn, ..ReplayFrom::beginning() };
    let mut node = Node { env, log: Node::new(9).log, options: replicated() };
    for term in 1..5 {
        let (next, report, found) = node.reopened(CrashKind::PowerCut, &from);
        assert_eq!((report.agreed.csn, found.0.len()), (from.csn, 0), "term {term}");
        for _ in 0..2 {
            next.log.drop_before(from.csn);
            assert!(next.log.replay_point(from.csn) >= from.lsn);
        }
        next.log.lead(term).unwrap();
        let last = commit_here(&next, 3);
        let id = next.log.entry_positions().unwrap().last;
        assert!(next.log.raise_agreed(id).unwrap());
        from = ReplayFrom { lsn: next.log.replay_point(last), csn: last, ..from };
        next.log.drop_before(last);
        assert_eq!(next.log.replay_point(last), from.lsn);
        node = next;
    }
}

/// A cut over several epochs with staging, and a crash at each operation of the opening: the next one does the same.
#[test]
fn a_cut_is_repeated_after_crashes() {
    let staged = |env: &SimEnv| {
        let mut staging = staging(env, MemoryMedium::Persistent, 1).staging.unwrap();
        staging.buffer_bytes = 128 << 10;
        LogOptions { staging: Some(staging), ..replicated() }
    };
    let mut node = Node::with(1, staged);
    for term in 1..4 {
        node.log.lead(term).unwrap();
        commit_here(&node, 3);
        if term == 1 {
            node.log.raise_agreed(entry(1, 2)).unwrap();
        }
        if term < 3 {
            node = node.after_a_power_cut().0;
        }
    }
    let cut = ReplayFrom { up_to_entry: Some(3), ..ReplayFrom::beginning() };
    for nth in 1.. {
        let env = node.env.crash(CrashKind::PowerCut, nth);
        env.faults().crash_at(env.faults().op_count() + nth);
        let is_over = open_with(&env, &cut, node.options.clone()).is_ok();
        for kind in [CrashKind::PowerCut, CrashKind::Kill] {
            let env = env.crash(kind, nth);
            let (log, report, _) = open_with(&env, &cut, node.options.clone()).unwrap();
            assert_eq!((report.last_entry, report.last_csn), (entry(2, 3), Csn(3)), "operation {nth}");
            log.lead(9).unwrap();
            log.flush_entries().unwrap();
            let again = Node { env, log, options: node.options.clone() };
            let (again, report, _) = again.after_a_power_cut();
            assert_eq!((report.last_entry, report.last_csn), (entry(9, 4), Csn(3)), "operation {nth}");
            assert_eq!(again.all_entries().len(), 4);
        }
        if is_over {
            break;
        }
    }
}

/// What a follower may acknowledge survives a power cut, also if it is staged in memory that does not.
#[test]
fn flushed_entries_survive_in_volatile_staging() {
    let [leader, follower] = [
        Node::new(1),
        Node::with(2, |env| {
            let mut staging = staging(env, MemoryMedium::Volatile, 1).staging.unwrap();
            staging.buffer_bytes = 128 << 10;
            LogOptions { staging: Some(staging), ..replicated() }
        }),
    ];
    leader.log.lead(1).unwrap();
    commit_here(&leader, 3);
    leader.log.propose_members(b"no commit").unwrap();
    leader.log.flush_entries().unwrap();
    assert_eq!(follower.follow(&leader), entry(1, 3));
    let env = follower.env.crash(CrashKind::PowerCut, 1);
    env.remove_raw(std::path::Path::new(STAGING)).ok();
    let adopting = LogOptions { adopt_staging_loss: true, ..follower.options.clone() };
    let (_, report, _) = open_with(&env, &ReplayFrom::beginning(), adopting).unwrap();
    assert_eq!((report.last_entry, report.last_csn), (entry(1, 3), Csn(3)));
}

/// What has a number is synced, although other commits have none.
#[test]
fn a_deposed_leader_syncs_what_has_numbers() {
    let power_safe = |env: &SimEnv| {
        env.faults().power_safe_cache(true);
        LogOptions { power_safe_cache: true, ..replicated() }
    };
    let node = Node::with(1, power_safe);
    node.log.lead(1).unwrap();
    let append = |body: &[u8]| {
        let admission = node.log.admit(frame_bytes(body.len() as u32), 0).unwrap();
        let reservation = node.log.reserve(admission, Durability::NoBarrier);
        let csn = reservation.csn();
        fill(&node.log, reservation, body, &[]);
        csn
    };
    node.log.flush_entries().unwrap();
    let first = append(b"has a number");
    node.log.try_flush().unwrap();
    let second = append(b"has none");
    let last = node.log.fence().unwrap();
    assert!(node.log.raise_agreed(last).unwrap());
    assert!(node.log.synced_csn() < first, "it is in the device's cache");
    node.log.wait_synced(first).unwrap();
    assert!(matches!(node.log.wait_synced(second), Err(LogError::NotLeader)));
    assert_eq!(node.log.synced_csn(), first);
    node.log.request_durable(second);
    idle(&node.env, &node.log);
    node.log.close().unwrap();
}

/// A blank entry that is agreed and damaged is missed, although no commit is.
#[test]
fn damage_to_an_agreed_entry_without_commits_is_named() {
    let node = Node::new(1);
    node.log.lead(1).unwrap();
    commit_here(&node, 1);
    node.log.propose_members(&[7; 64]).unwrap();
    node.log.flush_entries().unwrap();
    let end = node.log.watermarks().durable;
    node.log.raise_agreed(entry(1, 3)).unwrap();
    idle(&node.env, &node.log);
    let env = node.env.crash(CrashKind::PowerCut, 1);
    env.corrupt(&segment_path(end.segment()), u64::from(end.offset()) - 20, |byte| *byte ^= 1).unwrap();
    match open_with(&env, &ReplayFrom::beginning(), node.options.clone()) {
        Err(LogError::Damaged(damage)) => assert!(damage.what.contains("entry 3 is agreed"), "{damage}"),
        opened => panic!("{:?}", opened.map(|(_, report, _)| report)),
    }
}
