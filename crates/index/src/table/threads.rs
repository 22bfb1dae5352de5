//! A table under real threads: appliers, readers and a maintainer, each of which checks what it can know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_types::{Csn, Lsn, TableId, hash_key};
use parking_lot::Mutex;

use super::map_base::MapBase;
use super::*;
use crate::memtables::{BlockBuilder, BlockOp};
use crate::version::VersionFlags;

const TABLE: TableId = TableId(3);
const KEYS: u64 = 40;
const COMMITS: u64 = 6_000;
const COMMITTERS: u64 = 3;

/// The engine's state: CSNs, the applied prefix, and the readers' snapshots.
struct Engine {
    table: Arc<Table<MapBase>>,
    numbered: Mutex<u64>,
    applied: Mutex<Vec<bool>>,
    visible: AtomicU64,
    snapshots: Mutex<Vec<u64>>,
    done: AtomicBool,
}

/// Commit `csn` writes its number to every key `i` with `csn % (i % 3 + 1) == 0`, or deletes the key, so that a reader
/// at a CSN knows what it must find. Runs of keys are deleted and written again.
fn written_at(i: u64, at: u64) -> Option<u64> {
    let stride = i % 3 + 1;
    (at >= stride).then(|| at - at % stride).filter(|csn| !deletes(i, *csn))
}

fn deletes(i: u64, csn: u64) -> bool {
    i > 1 && (csn / 16 + i / 10).is_multiple_of(3)
}

impl Engine {
    fn new() -> Engine {
        Engine {
            table: Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 1 << 20 })),
            numbered: Mutex::new(0),
            applied: Mutex::new(vec![true]),
            visible: AtomicU64::new(0),
            snapshots: Mutex::new(Vec::new()),
            done: AtomicBool::new(false),
        }
    }

    fn commit(&self) -> bool {
        let csn = {
            let mut numbered = self.numbered.lock();
            if *numbered == COMMITS {
                return false;
            }
            *numbered += 1;
            *numbered
        };
        let mut builder = BlockBuilder::new(TABLE, KEYS as usize, 0);
        for i in (0..KEYS).filter(|i| csn.is_multiple_of(i % 3 + 1)) {
            // So long that a reader pins it.
            let (key, number) = (i.to_be_bytes(), csn.to_le_bytes().repeat(5));
            builder.push(BlockOp {
                key: &key,
                hash: hash_key(TABLE, &key),
                flags: VersionFlags(if deletes(i, csn) { VersionFlags::TOMBSTONE } else { 0 }),
                expires_at_ms: 0,
                payload: if deletes(i, csn) { &[] } else { &number },
                value_offset: None,
                checksum: 0,
            });
        }
        self.table.apply(builder.finish(), Csn(csn), Lsn::NULL);
        let mut applied = self.applied.lock();
        let len = applied.len().max(csn as usize + 1);
        applied.resize(len, false);
        applied[csn as usize] = true;
        let mut visible = self.visible.load(Ordering::Relaxed);
        while applied.get(visible as usize + 1) == Some(&true) {
            visible += 1;
        }
        self.visible.store(visible, Ordering::Release);
        true
    }

    fn with_snapshot(&self, read: impl FnOnce(ReadPoint)) {
        let csn = {
            let mut snapshots = self.snapshots.lock();
            snapshots.push(self.visible.load(Ordering::Acquire));
            *snapshots.last().unwrap()
        };
        read(ReadPoint { csn: Csn(csn), now_ms: 0 });
        let mut snapshots = self.snapshots.lock();
        let i = snapshots.iter().position(|&snapshot| snapshot == csn).unwrap();
        snapshots.swap_remove(i);
    }

    fn read(&self) {
        let number = |payload: &[u8]| {
            let (numbers, rest) = payload.as_chunks::<8>();
            assert!(
                numbers.len() == 5 && rest.is_empty() && numbers.iter().all(|number| *number == numbers[0])
            );
            u64::from_le_bytes(numbers[0])
        };
        self.with_snapshot(|at| {
            for i in 0..KEYS {
                let key = i.to_be_bytes();
                let found = self.table.get(&key, hash_key(TABLE, &key), at, Io::Allowed).unwrap();
                assert_eq!(found.map(|version| number(&version.payload)), written_at(i, at.csn.0));
            }
            let mut cursor = self.table.cursor(at);
            for forward in [true, false] {
                if forward { cursor.seek(&[]) } else { cursor.seek_back(None) }.unwrap();
                let mut keys: Vec<u64> = (0..KEYS).filter(|&i| written_at(i, at.csn.0).is_some()).collect();
                if !forward {
                    keys.reverse();
                }
                for i in keys {
                    assert_eq!(cursor.key(), Some(&i.to_be_bytes()[..]));
                    assert_eq!(Some(number(cursor.version().payload)), written_at(i, at.csn.0));
                    if forward { cursor.next() } else { cursor.prev() }.unwrap();
                }
                assert_eq!(cursor.key(), None);
            }
        });
        for i in 0..KEYS {
            let key = i.to_be_bytes();
            let before = self.visible.load(Ordering::Acquire);
            let found =
                self.table.get_newest(&key, hash_key(TABLE, &key), Csn(before), 0, Io::Allowed).unwrap();
            let after = self.visible.load(Ordering::Acquire);
            let found = found.map(|version| number(&version.payload));
            assert!((before..=after + COMMITTERS).any(|at| written_at(i, at) == found));
        }
    }

    fn maintain(&self) {
        let boundary = *self.numbered.lock();
        {
            let numbered = self.numbered.lock();
            let is_applied = self.visible.load(Ordering::Acquire) >= *numbered;
            if !is_applied || !self.table.memtables().newest_is_empty() {
                self.table.freeze(Csn(*numbered));
            }
        }
        while self.visible.load(Ordering::Acquire) < boundary {
            std::hint::spin_loop();
        }
        let horizon = Csn(self.visible.load(Ordering::Acquire));
        let mut snapshots: Vec<Csn> = self.snapshots.lock().iter().copied().map(Csn).collect();
        snapshots.sort_unstable();
        let range_deletes = self.table.range_deletes().clone();
        let rules = PruneRules { horizon, snapshots, expired_until_ms: 0, range_deletes };
        while self.table.merge_oldest(&rules).unwrap() {}
    }
}

#[test]
fn readers_see_exactly_their_snapshot_while_others_write_and_merge() {
    let engine = Engine::new();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !engine.done.load(Ordering::Relaxed) {
                        engine.read();
                    }
                    engine.read();
                })
            })
            .collect();
        let writers: Vec<_> = (0..COMMITTERS).map(|_| scope.spawn(|| while engine.commit() {})).collect();
        let maintainer = scope.spawn(|| {
            while !engine.done.load(Ordering::Relaxed) {
                engine.maintain();
                std::thread::yield_now();
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        engine.done.store(true, Ordering::Relaxed);
        maintainer.join().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    engine.maintain();
    engine.maintain();
    engine.read();
    // Threads of other tests may have pinned an epoch.
    let held = (0..20_000).map(|_| {
        std::thread::park_timeout(std::time::Duration::from_micros(200));
        engine.table.memtables().reclaim()
    });
    assert!(held.into_iter().any(|held| held == 0));
    assert_eq!(engine.table.memtables().entries(), 0);
}
