//! Entries of a replicated log: committers of a leader, a shipper that copies what they commit to a follower and tells what both have, and
//! a thread that fences the leader. A commit that was acknowledged is on the follower; one that failed for want of a number is on
//! neither; no thread hangs.

use crate::CommitLog;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use fulgurite_types::{Csn, EntryId};
use shuttle::sync::atomic::AtomicU64;
use shuttle::thread;

use super::explore;
use super::world::{World, below, one_of, options};
use crate::{Durability, Entry, EntryMatch, FlushScheme, Log, LogError, LogOptions};

fn replicated() -> LogOptions {
    LogOptions {
        segment_bytes_min: 96 * 1024,
        segment_bytes_max: 96 * 1024,
        buffer_bytes: 96 * 1024,
        scheme: FlushScheme::Combined,
        replicated: true,
        ..options()
    }
}

fn all_entries(log: &Log) -> Vec<Entry> {
    let mut reader = log.entries(0).expect("all is there");
    std::iter::from_fn(|| reader.next().expect("nothing is damaged")).collect()
}

/// Copies entries until the leader is fenced and the follower has its last one.
fn ship(leader: &Log, follower: &Log, fenced: &AtomicU64) {
    let mut entries = leader.entries(0).expect("all is there");
    loop {
        let last = fenced.load(SeqCst);
        let mut has_appended = false;
        while let Some(entry) = entries.next().expect("nothing is damaged") {
            follower.append_entry(&entry).expect("it follows");
            has_appended = true;
            if below(3) == 0 {
                break;
            }
        }
        if has_appended {
            follower.flush_entries().expect("nothing fails");
            let durable = follower.entry_positions().expect("it is replicated").durable;
            leader.raise_agreed(durable).expect("it is replicated");
            follower.raise_agreed(durable).expect("it is replicated");
        }
        if last > 0 && entries.after() == last {
            return;
        }
        thread::yield_now();
    }
}

fn ship_and_fence() {
    let [leader, follower] = [World::new(replicated()), World::new(replicated())];
    leader.log.lead(1).expect("it is new");
    leader.log.flush_entries().expect("nothing fails");
    let fenced = Arc::new(AtomicU64::new(0));
    let committers: Vec<_> = (0..2)
        .map(|_| {
            let leader = Arc::clone(&leader);
            thread::spawn(move || {
                let mut ends = Vec::new();
                for _ in 0..3 {
                    let Ok(csn) = leader.append(one_of(&[20, 3000]), Durability::Sync) else { break };
                    ends.push((csn, leader.log.wait_durable(csn)));
                }
                ends
            })
        })
        .collect();
    let shipper = {
        let [leader, follower] = [Arc::clone(&leader), Arc::clone(&follower)];
        let fenced = Arc::clone(&fenced);
        thread::spawn(move || ship(&leader.log, &follower.log, &fenced))
    };
    (0..below(20)).for_each(|_| thread::yield_now());
    let last = leader.log.fence().expect("it is replicated");
    fenced.store(last.index, SeqCst);
    let ends: Vec<_> = committers.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    shipper.join().expect("no panic");
    let found = all_entries(&follower.log);
    assert_eq!(found, all_entries(&leader.log), "INV-REP-1: what is sent is what is written");
    assert_eq!(found.last().map(|entry| entry.id), Some(last), "a fenced leader numbers no more");
    let last_csn = found.last().map_or(Csn::ZERO, Entry::last_csn);
    for (csn, end) in ends {
        match end {
            Ok(()) => {
                assert!(csn <= last_csn, "commit {csn} was acknowledged, and the follower has {last_csn}")
            }
            Err(LogError::NotLeader) => assert!(csn > last_csn, "commit {csn} has a number"),
            Err(error) => panic!("{error}"),
        }
    }
    let agreed = leader.log.entry_positions().expect("it is replicated").agreed;
    assert_eq!((EntryId { term: 1, index: agreed.index }, agreed.csn), (last, last_csn));
    leader.log.watermarks().validate();
    follower.log.close().expect("nothing fails");
    leader.log.close().expect("nothing fails");
}

#[test]
fn acknowledged_commits_are_on_the_follower() {
    explore(1_200, ship_and_fence);
}

/// A commit that waits for agreement returns when it comes, or when the log closes.
fn agree_beside_a_close() {
    let world = World::new(replicated());
    world.log.lead(1).expect("it is new");
    let committer = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let csn = world.append(20, Durability::Sync)?;
            world.log.wait_durable(csn)
        })
    };
    let agrees = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            for _ in 0..below(6) {
                let durable = world.log.entry_positions().expect("it is replicated").durable;
                world.log.raise_agreed(durable).expect("it is replicated");
                thread::yield_now();
            }
        })
    };
    (0..below(8)).for_each(|_| thread::yield_now());
    world.log.close().expect("nothing fails");
    agrees.join().expect("no panic");
    match committer.join().expect("no panic") {
        Ok(()) => assert!(world.log.durable_csn() >= Csn(1)),
        Err(error) => assert!(matches!(error, LogError::NotAgreed | LogError::Closed), "{error}"),
    }
}

#[test]
fn a_close_does_not_wait_for_agreement() {
    explore(2_000, agree_beside_a_close);
}

/// A follower compares its entries with those of a leader that come again, while it hears that they are agreed.
fn compare_beside_agreement() {
    let world = World::new(replicated());
    world.log.lead(1).expect("it is new");
    for _ in 0..3 {
        world.append(20, Durability::Sync).expect("it leads");
        world.log.flush_entries().expect("nothing fails");
    }
    let ids: Vec<EntryId> = all_entries(&world.log).iter().map(|entry| entry.id).collect();
    let agrees = {
        let (world, ids) = (Arc::clone(&world), ids.clone());
        thread::spawn(move || {
            for id in ids {
                world.log.raise_agreed(id).expect("it is replicated");
            }
        })
    };
    for id in &ids {
        let found = world.log.match_entry(*id).expect("it is replicated");
        assert!(matches!(found, EntryMatch::Same | EntryMatch::Agreed), "{found:?} of entry {id}");
    }
    agrees.join().expect("no panic");
    assert_eq!(world.log.match_entry(ids[2]).expect("it is replicated"), EntryMatch::Agreed);
    let next = EntryId { term: 1, index: ids.len() as u64 + 1 };
    assert_eq!(world.log.match_entry(next).expect("it is replicated"), EntryMatch::Missing);
    world.log.close().expect("nothing fails");
}

#[test]
fn agreement_makes_no_entry_another_one() {
    explore(2_000, compare_beside_agreement);
}
