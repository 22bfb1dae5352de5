//! Commit times (INV-TIME-1): threads commit by one clock, and some of the commits have a deadline.

use crate::CommitLog;
use std::sync::{Arc, Mutex};

use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;

use super::explore;
use super::world::{World, below, options};
use crate::{Durability, LogOptions, TimeBounds, frame_bytes};

const LONG: usize = 4056;

/// Threads read a clock that advances by up to 0.6 s at each reading, and reserve; groups take commits for a second.
/// There are buffers for several groups, so that threads hold admissions while a group is open.
fn commits_in_time() {
    let world = World::new(LogOptions { buffer_bytes: 256 * 1024, ..options() });
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let numbered = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (world, clock, numbered) = (Arc::clone(&world), Arc::clone(&clock), Arc::clone(&numbered));
            thread::spawn(move || {
                for _ in 0..3 {
                    let bytes = if below(6) == 0 { LONG } else { 1 + below(100) };
                    let admission = world.log.admit(frame_bytes(bytes as u32), 0).expect("nothing fails");
                    let step = [0, 1, below(600) as u64][below(3)];
                    let from_ms = clock.fetch_add(step, SeqCst) + step;
                    let before_ms = if below(2) == 0 { from_ms + 1 + below(400) as u64 } else { u64::MAX };
                    let time = TimeBounds { from_ms, before_ms };
                    match world.put_at(admission, bytes, Durability::None, time) {
                        Some((csn, time_ms)) => {
                            assert!((from_ms..before_ms).contains(&time_ms), "{time_ms} is not in {time:?}");
                            numbered.lock().expect("no panic").push((csn, time_ms));
                        }
                        None => assert!(before_ms <= clock.load(SeqCst), "it would have been in time"),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let mut numbered = std::mem::take(&mut *numbered.lock().expect("no panic"));
    numbered.sort_unstable();
    assert!(numbered.is_sorted_by_key(|(_, time_ms)| *time_ms), "INV-TIME-1: times rise: {numbered:?}");
    world.finish();
}

#[test]
fn commit_times_rise_with_csns_and_no_commit_is_too_late() {
    explore(4_000, commits_in_time);
}
