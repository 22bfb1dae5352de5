//! Several threads admit, reserve and fill: order, reserved ranges, groups, promises.

use crate::CommitLog;
use std::sync::Arc;

use shuttle::thread;

use super::explore;
use super::world::{World, below, options};
use crate::{Durability, LogOptions, frame_bytes};

/// The longest body that segments of 16 KiB take.
const LONG: usize = 4056;

/// Threads append frames, long and short, faster than any thread flushes them.
fn appends() {
    let world = World::new(options());
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..3 {
                    let bytes = if below(2) == 0 { LONG - below(64) } else { 1 + below(100) };
                    world.append(bytes, Durability::None).expect("admission flushes");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    world.finish();
}

#[test]
fn csns_and_ranges_are_dense_and_in_one_order() {
    explore(4_000, appends);
}

/// INV-LOG-4: threads hold several admissions, in tiny segments and with buffers for two groups, and use them in any
/// order or give them back. Another thread makes segments and flushes meanwhile.
fn promises() {
    let world = World::new(options());
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..2 {
                    let sizes = [LONG, 1 + below(LONG), 40];
                    let admit = |&bytes: &usize| {
                        let admitted = world.log.try_admit(frame_bytes(bytes as u32), 0);
                        admitted.expect("nothing fails").map(|admission| (admission, bytes))
                    };
                    let mut held: Vec<_> = sizes.iter().filter_map(admit).collect();
                    while !held.is_empty() {
                        let (admission, bytes) = held.swap_remove(below(held.len()));
                        if below(4) > 0 {
                            world.put(admission, bytes, Durability::None);
                        }
                    }
                    world.append(LONG, Durability::None).expect("the room that no admission holds is free");
                }
            })
        })
        .collect();
    world.log.maintain().expect("nothing fails");
    world.log.maintain().expect("nothing fails");
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    world.finish();
}

#[test]
fn admissions_keep_their_promise() {
    explore(3_000, promises);
}

/// Frames longer than the buffers that groups share have buffers of their own.
fn long_frames() {
    let mebi = 1024 * 1024;
    let sizes = LogOptions { segment_bytes_min: mebi, segment_bytes_max: mebi, ..options() };
    let world = World::new(LogOptions { buffer_bytes: mebi as usize, ..sizes });
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for bytes in [100, 64 * 1024 - 104 - below(16), 64 * 1024 + below(64 * 1024), 100] {
                    world.append(bytes, Durability::None).expect("admission flushes");
                }
            })
        })
        .collect();
    world.commit(50).expect("nothing fails");
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    world.finish();
}

#[test]
fn long_frames_have_groups_of_their_own() {
    explore(60, long_frames);
}

/// More long frames than the buffers hold, among short ones: frames that wait in line for group slots block no other.
fn long_frames_in_line() {
    let mebi = 1024 * 1024;
    let sizes = LogOptions { segment_bytes_min: mebi, segment_bytes_max: mebi, ..options() };
    let world = World::new(LogOptions { buffer_bytes: mebi as usize, ..sizes });
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for bytes in [250 * 1024, 100, 250 * 1024] {
                    world.append(bytes - below(16), Durability::None).expect("admission flushes");
                }
            })
        })
        .collect();
    world.commit(50).expect("nothing fails");
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    world.finish();
}

#[test]
fn long_frames_wait_in_line_and_all_are_admitted() {
    explore(40, long_frames_in_line);
}
