//! The groups without a log: threads admit, reserve and fill, and one thread takes and releases what is filled.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use fulgurite_env::sim::SimEnv;
use fulgurite_types::{Csn, Epoch, Lsn};
use shuttle::sync::atomic::AtomicUsize;
use shuttle::thread;

use super::explore;
use super::world::{ID, below, options};
use crate::TimeBounds;
use crate::format::{GROUP_HEADER_BYTES, SEGMENT_DATA_START};
use crate::segments::{Segment, Stream};
use crate::shared::Shared;
use crate::stream::groups::{AppendPoint, Group, Groups, ReservedRange};

const THREADS: usize = 3;
const FRAMES: usize = 3;

/// A frame: each of its bytes is its CSN.
#[derive(Clone, Copy)]
struct Frame {
    lsn: Lsn,
    bytes: u32,
}

struct World {
    groups: Groups,
    /// By CSN.
    frames: Mutex<BTreeMap<u64, Frame>>,
    /// How many threads append.
    running: AtomicUsize,
}

impl World {
    fn new() -> Arc<World> {
        let segment = Arc::new(Segment::new(1, 16 * 1024, PathBuf::new(), None));
        segment.hand_out(Stream::Commit, Epoch(1), Csn(1));
        let shared = Arc::new(Shared::new(SimEnv::new(1), ID, Epoch(1), options()));
        let at = AppendPoint { epoch: Epoch(1), segment, offset: SEGMENT_DATA_START, next_csn: Csn(1) };
        Arc::new(World {
            groups: Groups::new(shared, at),
            frames: Mutex::default(),
            running: AtomicUsize::new(THREADS),
        })
    }

    fn append(&self, bytes: u32) {
        let mut admitted = loop {
            match self.groups.admit(bytes, None) {
                Ok(admitted) => break admitted,
                Err(_) => thread::yield_now(),
            }
        };
        if below(8) == 0 {
            return self.groups.give_back(&admitted);
        }
        let joined = self.groups.reserve(&mut admitted, bytes, true, TimeBounds::ANY).expect("any time");
        let frame = Frame { lsn: joined.lsn, bytes };
        let before = self.frames.lock().expect("no panic").insert(joined.csn.0, frame);
        assert!(before.is_none(), "a CSN was given twice: {}", joined.csn);
        // SAFETY: the range was just given to this thread.
        let mut range = unsafe { ReservedRange::new(joined.memory, joined.slot, bytes) };
        for _ in 0..bytes {
            range.put(&[joined.csn.0 as u8]);
        }
        self.groups.fill(&range);
    }

    /// Checks a group that was taken: it has its frames, in order, all of them filled.
    fn check(&self, group: &Group) {
        let mut at = GROUP_HEADER_BYTES;
        let frames = self.frames.lock().expect("no panic");
        for csn in group.first_csn.0..group.first_csn.0 + u64::from(group.frames) {
            let frame = frames[&csn];
            assert_eq!(frame.lsn, group.start().advance(at), "INV-LOG-3: ranges follow each other");
            // SAFETY: this thread took the group, so it is closed and filled.
            let bytes = unsafe { group.buffer.read(at as usize, frame.bytes as usize) };
            assert!(
                bytes.iter().all(|byte| u64::from(*byte) == csn),
                "INV-LOG-3: commit {csn} is not filled"
            );
            at += frame.bytes;
        }
        assert_eq!(at, group.len, "INV-LOG-13: a closed group keeps its size");
    }
}

fn appends() {
    let world = World::new();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                (0..FRAMES).for_each(|_| world.append(1 + below(20) as u32));
                world.running.fetch_sub(1, SeqCst);
            })
        })
        .collect();
    let mut next = Csn(1);
    while world.running.load(SeqCst) > 0 || !world.groups.is_idle() {
        for group in world.groups.take_filled().expect("nothing fails") {
            assert_eq!(group.first_csn, next, "groups are taken in log order");
            world.check(&group);
            next = group.last_csn().next();
        }
        world.groups.release();
        thread::yield_now();
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(next, world.groups.reserved_csn().next());
}

#[test]
fn groups_alone_are_filled_when_they_are_taken() {
    explore(6_000, appends);
}
