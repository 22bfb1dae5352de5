//! Random merges, prunes, purges, evictions, write-outs and reopens, against a map of all versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use fulgurite_index::btree::{BTree, BTreeOptions, DeltaRule};
use fulgurite_index::{
    AccountChange, Base, BaseCursor, EvictionStep, IndexError, Io, MovedNodes, WriteOut, WriteOutReport,
};
use fulgurite_types::{Csn, KeySpan, Lsn, key_after};
use proptest::prelude::*;

use crate::support::*;

#[derive(Clone, Debug)]
enum Step {
    Merge {
        seed: u64,
        keys: u64,
        span: u64,
        deletes: u64,
    },
    Snapshot,
    Release,
    Purge {
        from: u64,
        to: u64,
    },
    Evict {
        bytes_max: usize,
    },
    /// A step of eviction that may write, and that other work may interrupt.
    EvictSome {
        step: EvictionStep,
        after: u64,
        meanwhile: Meanwhile,
    },
    /// Records of segments that a number chooses are moved; other work may interrupt that.
    Move {
        chosen: u64,
        after: u64,
        meanwhile: Meanwhile,
    },
    WriteOut,
    FailedWriteOut,
    /// A step of a pass that other work may interrupt; the first begins it.
    WriteSome {
        bytes_max: usize,
        after: u64,
        meanwhile: Meanwhile,
    },
    /// Ends that pass.
    Finish {
        after: u64,
        meanwhile: Meanwhile,
    },
    /// Opens the last root that was reported, as a crash would leave it, and merges again what it may lack.
    Reopen,
    FailedMerge {
        seed: u64,
    },
    /// The look-ups of some keys begin where it found them, from then on.
    Prefetch {
        seed: u64,
    },
}

/// What happens while a step, or the end, writes one of its records.
#[derive(Clone, Debug)]
enum Meanwhile {
    Nothing,
    /// The write fails.
    Fails,
    /// A batch of so many of the first `span` keys is merged.
    Merge {
        seed: u64,
        keys: u64,
        span: u64,
    },
    /// Another pass writes everything; while a pass ends, what another may write before it ends.
    WriteOut,
    /// Leaves are written and evicted.
    Evict(EvictionStep),
    /// Records are moved.
    Move(u64),
    /// All that can be is evicted, and some of it read again.
    Reload(u64),
}

fn eviction() -> impl Strategy<Value = EvictionStep> {
    let some = prop_oneof![Just(usize::MAX), 1usize..4000];
    let slots = prop_oneof![Just(usize::MAX), 1usize..200];
    (some.clone(), slots, prop_oneof![Just(0), some], any::<[bool; 3]>()).prop_map(
        |(bytes, slots, write_bytes, [unread_only, scarce_room, for_checkpoint])| EvictionStep {
            bytes,
            slots,
            write_bytes,
            unread_only,
            scarce_room,
            for_checkpoint,
        },
    )
}

fn meanwhile() -> impl Strategy<Value = Meanwhile> {
    prop_oneof![
        3 => Just(Meanwhile::Nothing),
        1 => Just(Meanwhile::Fails),
        4 => (any::<u64>(), 1u64..200, prop_oneof![Just(30u64), Just(400), Just(5000)])
            .prop_map(|(seed, keys, span)| Meanwhile::Merge { seed, keys, span }),
        1 => Just(Meanwhile::WriteOut),
        3 => eviction().prop_map(Meanwhile::Evict),
        2 => any::<u64>().prop_map(Meanwhile::Move),
        2 => any::<u64>().prop_map(Meanwhile::Reload),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u64>(), 1u64..60, prop_oneof![Just(30u64), Just(400), Just(5000)], 0u64..10)
            .prop_map(|(seed, keys, span, deletes)| Step::Merge { seed, keys, span, deletes }),
        1 => (any::<u64>(), 400u64..800).prop_map(|(seed, keys)| Step::Merge { seed, keys, span: 2000, deletes: 0 }),
        1 => any::<u64>().prop_map(|seed| Step::Merge { seed, keys: 900, span: 1000, deletes: 10 }),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Release),
        1 => (0u64..5000, 0u64..5000).prop_map(|(from, to)| Step::Purge { from, to }),
        2 => (0usize..20_000).prop_map(|bytes_max| Step::Evict { bytes_max }),
        6 => (eviction(), 0u64..5, meanwhile())
            .prop_map(|(step, after, meanwhile)| Step::EvictSome { step, after, meanwhile }),
        6 => (any::<u64>(), 0u64..5, meanwhile())
            .prop_map(|(chosen, after, meanwhile)| Step::Move { chosen, after, meanwhile }),
        3 => Just(Step::WriteOut),
        1 => Just(Step::FailedWriteOut),
        4 => (0usize..6000, 0u64..5, meanwhile()).prop_map(|(bytes_max, after, meanwhile)| {
            Step::WriteSome { bytes_max, after, meanwhile }
        }),
        3 => (0u64..20, meanwhile()).prop_map(|(after, meanwhile)| Step::Finish { after, meanwhile }),
        1 => Just(Step::Reopen),
        1 => any::<u64>().prop_map(|seed| Step::FailedMerge { seed }),
        6 => any::<u64>().prop_map(|seed| Step::Prefetch { seed }),
    ]
}

struct World {
    store: Arc<MemStore>,
    options: BTreeOptions,
    tree: BTree,
    /// Every version that was ever merged.
    all: BTreeMap<Vec<u8>, BTreeMap<u64, Put>>,
    snapshots: Vec<u64>,
    /// The keys that were prefetched last.
    prefetched: Vec<Vec<u8>>,
    csn: u64,
    /// The pass that is open, and what had been merged when it began.
    pass: Option<(WriteOut, u64)>,
    root: Lsn,
    /// The written tree holds everything up to this.
    written_csn: u64,
    /// Whether it holds nothing else.
    is_exact: bool,
    /// What was booked.
    accounts: Accounts,
    /// What was booked when the root was reported.
    written_accounts: Accounts,
}

type Accounts = BTreeMap<u32, i64>;

fn key(number: u64) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        n if n % 97 == 0 => [format!("user:{n:06}").into_bytes(), vec![b'x'; 300]].concat(),
        n => format!("user:{n:06}").into_bytes(),
    }
}

/// Moves the records of about one in four segments.
fn move_some(tree: &BTree, store: &MemStore, chosen: u64) -> Result<MovedNodes, IndexError> {
    let is_chosen = |lsn: &Lsn| (u64::from(lsn.segment()) ^ chosen).is_multiple_of(4);
    let records = store.records.lock().unwrap().clone();
    let records = records.iter().filter(|(lsn, _)| is_chosen(lsn)).map(|(lsn, (_, body))| (*lsn, &body[..]));
    tree.move_records(&records.collect::<Vec<_>>(), chosen.is_multiple_of(3))
}

impl World {
    fn new(options: BTreeOptions) -> World {
        let store = MemStore::new();
        World {
            tree: BTree::empty(TABLE, store.clone(), options.clone()),
            store,
            options,
            all: BTreeMap::new(),
            snapshots: Vec::new(),
            prefetched: Vec::new(),
            csn: 0,
            pass: None,
            root: Lsn::NULL,
            written_csn: 0,
            is_exact: true,
            accounts: BTreeMap::new(),
            written_accounts: BTreeMap::new(),
        }
    }

    fn batch(&mut self, seed: u64, keys: u64, span: u64, deletes: u64) -> Batch {
        let mut rng = Rng(seed | 1);
        let mut batch = Batch::new();
        for _ in 0..keys {
            let key = key(rng.below(span));
            self.csn += 1;
            let put = if rng.below(10) < deletes {
                Put::tombstone(self.csn)
            } else {
                Put::value(self.csn, vec![self.csn as u8; rng.below(40) as usize])
            };
            batch.entry(key).or_default().insert(0, put);
        }
        batch
    }

    fn learn(&mut self, batch: &Batch) {
        for (key, puts) in batch {
            let versions = self.all.entry(key.clone()).or_default();
            versions.extend(puts.iter().map(|put| (put.csn, put.clone())));
        }
    }

    fn write_out(&mut self) {
        let dirty_bytes = self.tree.dirty_bytes();
        let report = self.tree.write_out().unwrap();
        let has_written = report.records_written != [0; 4];
        assert!(dirty_bytes > 0 || !has_written, "what was written was not counted as dirty");
        assert_eq!(self.tree.dirty_bytes(), 0);
        self.note(report, self.csn);
        let again = self.tree.write_out().unwrap();
        assert_eq!((again.root, again.accounts.len(), again.records_written), (self.root, 0, [0; 4]));
    }

    fn book(&mut self, changes: Vec<AccountChange>) {
        for (segment, bytes) in changes {
            *self.accounts.entry(segment).or_default() += bytes;
        }
        self.accounts.retain(|_, bytes| *bytes != 0);
    }

    /// Books a report like a checkpoint: a record that was reported is not reported again. `began_at`: what had been
    /// merged when its pass began.
    fn note(&mut self, report: WriteOutReport, began_at: u64) {
        self.root = report.root;
        // A record is never replaced by an older one.
        self.written_csn = self.written_csn.max(began_at);
        self.is_exact = self.written_csn == self.csn;
        self.book(report.accounts);
        self.written_accounts = self.accounts.clone();
        let recount = self.tree.live_accounts().unwrap();
        assert_eq!(recount, self.accounts.clone().into_iter().collect::<Vec<_>>());
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Merge { seed, keys, span, deletes } => {
                let batch = self.batch(seed, keys, span, deletes);
                self.learn(&batch);
                merge(&self.tree, &batch, &rules(self.csn, &self.snapshots));
                merge(&self.tree, &batch, &rules(self.csn, &self.snapshots));
            }
            Step::FailedMerge { seed } => {
                let batch = self.batch(seed, 50, 5000, 3);
                self.learn(&batch);
                self.store.fail_reads.store(true, std::sync::atomic::Ordering::Relaxed);
                let _ = self.tree.merge(&mut Source::new(&batch), &rules(self.csn, &self.snapshots));
                self.store.fail_reads.store(false, std::sync::atomic::Ordering::Relaxed);
                merge(&self.tree, &batch, &rules(self.csn, &self.snapshots));
            }
            Step::Snapshot => self.snapshots.push(self.csn),
            Step::Release => drop(self.snapshots.pop()),
            Step::Purge { from, to } => {
                let (from, to) = (key(from.min(to)), key(from.max(to)));
                let range = KeySpan::new(from.as_slice(), Some(&to));
                let mut start = range.start.to_vec();
                let rules = rules(self.csn, &self.snapshots);
                while let Some(next) =
                    self.tree.purge_some(KeySpan::new(start.as_slice(), range.end), &rules, 1500).unwrap()
                {
                    assert!(next > start && range.ends_after(&next));
                    start = next;
                }
            }
            Step::Evict { bytes_max } => {
                let left = self.tree.evict(bytes_max);
                assert_eq!(left, self.tree.resident_bytes());
            }
            Step::EvictSome { step, after, meanwhile } => self.evict_some(step, after, meanwhile),
            Step::Move { chosen, after, meanwhile } => self.move_some(chosen, after, meanwhile),
            Step::WriteOut => self.write_out(),
            Step::FailedWriteOut => {
                self.store.fail_writes_after(0);
                let result = self.tree.write_out();
                self.store.fail_writes_after(u64::MAX);
                // A clean or empty tree has nothing to write: writing it out does not fail.
                if let Ok(report) = result {
                    assert_eq!(report.records_written, [0; 4]);
                    self.note(report, self.csn);
                }
            }
            Step::WriteSome { bytes_max, after, meanwhile } => self.write_some(bytes_max, after, meanwhile),
            Step::Finish { after, meanwhile } => self.finish(after, meanwhile),
            Step::Reopen => self.reopen(),
            Step::Prefetch { seed } => self.prefetch(seed),
        }
    }

    /// Has the store do work in the middle of a write, after so many others.
    fn meanwhile(
        &mut self,
        after: u64,
        meanwhile: Meanwhile,
        write_out: impl FnOnce(BTree) + Send + 'static,
    ) {
        let tree = self.tree.clone();
        let work: Option<Work> = match meanwhile {
            Meanwhile::Nothing => None,
            Meanwhile::Fails => {
                self.store.fail_writes_after(after);
                None
            }
            Meanwhile::Merge { seed, keys, span } => {
                let batch = self.batch(seed, keys, span, 3);
                self.learn(&batch);
                let rules = rules(self.csn, &self.snapshots);
                Some(Box::new(move || merge(&tree, &batch, &rules)))
            }
            Meanwhile::WriteOut => Some(Box::new(move || write_out(tree))),
            Meanwhile::Evict(step) => Some(Box::new(move || _ = tree.evict_some(&step).unwrap())),
            Meanwhile::Move(chosen) => {
                let store = self.store.clone();
                Some(Box::new(move || _ = move_some(&tree, &store, chosen).unwrap()))
            }
            Meanwhile::Reload(chosen) => Some(Box::new(move || {
                tree.evict_some(&EvictionStep { write_bytes: usize::MAX, ..EvictionStep::ALL_CLEAN })
                    .unwrap();
                (chosen % 3..5000)
                    .step_by(7 + chosen as usize % 100)
                    .for_each(|n| _ = get(&tree, &key(n), u64::MAX));
            })),
        };
        *self.store.meanwhile.lock().unwrap() = work.map(|work| (after, work));
    }

    /// What it writes is in no report but the next one's (INV-IDX-13).
    fn evict_some(&mut self, step: EvictionStep, after: u64, meanwhile: Meanwhile) {
        let before = self.tree.resident_bytes();
        let is_alone = matches!(meanwhile, Meanwhile::Nothing);
        let report = Arc::new(Mutex::new(None));
        let into = report.clone();
        self.meanwhile(after, meanwhile, move |tree| *into.lock().unwrap() = Some(tree.write_out().unwrap()));
        let evicted = self.tree.evict_some(&step);
        if is_alone {
            let evicted = evicted.unwrap();
            assert_eq!(before - self.tree.resident_bytes(), evicted.bytes);
            assert!(step.slots < usize::MAX || step.bytes < usize::MAX || evicted.is_round_over);
        }
        self.end_meanwhile();
        let report: Option<WriteOutReport> = report.lock().unwrap().take();
        if let Some(report) = report {
            self.note(report, self.csn);
        }
    }

    /// The next report has the moved records.
    fn move_some(&mut self, chosen: u64, after: u64, meanwhile: Meanwhile) {
        let fails = matches!(meanwhile, Meanwhile::Fails);
        let report = Arc::new(Mutex::new(None));
        let into = report.clone();
        self.meanwhile(after, meanwhile, move |tree| *into.lock().unwrap() = Some(tree.write_out().unwrap()));
        let moved = move_some(&self.tree, &self.store, chosen);
        assert!(fails || moved.is_ok());
        self.end_meanwhile();
        let report: Option<WriteOutReport> = report.lock().unwrap().take();
        if let Some(report) = report {
            self.note(report, self.csn);
        }
    }

    /// If there were fewer writes, the work happens now.
    fn end_meanwhile(&mut self) {
        self.store.fail_writes_after(u64::MAX);
        let left = self.store.meanwhile.lock().unwrap().take();
        if let Some((_, work)) = left {
            work();
        }
    }

    fn write_some(&mut self, bytes_max: usize, after: u64, meanwhile: Meanwhile) {
        let (mut pass, began_at) =
            self.pass.take().unwrap_or_else(|| (self.tree.begin_write_out(), self.csn));
        let segments: BTreeSet<u32> =
            (0..1000).filter(|segment| u64::from(segment % 8) < after % 8).collect();
        let mut from = Some(Vec::new());
        while let Some(key) = from.take_if(|_| after.is_multiple_of(2)) {
            from = self.tree.leave_some(&segments, &key, bytes_max);
        }
        pass.set_scarce_room(after.is_multiple_of(5));
        let report = Arc::new(Mutex::new(None));
        let into = report.clone();
        self.meanwhile(after, meanwhile, move |tree| *into.lock().unwrap() = Some(tree.write_out().unwrap()));
        let written = self.tree.write_some(&mut pass, bytes_max);
        // After an error the caller gives the pass up.
        if let Ok(changes) = written {
            self.book(changes);
            self.pass = Some((pass, began_at));
        }
        self.end_meanwhile();
        let report: Option<WriteOutReport> = report.lock().unwrap().take();
        if let Some(report) = report {
            self.note(report, self.csn);
        }
    }

    /// Ends the pass. Merges may go on meanwhile, and another pass may write what a pass writes before it ends: the
    /// report is about the tree that the root names.
    fn finish(&mut self, after: u64, meanwhile: Meanwhile) {
        let Some((pass, began_at)) = self.pass.take() else { return };
        let changes = Arc::new(Mutex::new(Vec::new()));
        let into = changes.clone();
        self.meanwhile(after, meanwhile, move |tree| {
            let mut pass = tree.begin_write_out();
            while !pass.is_done() {
                into.lock().unwrap().extend(tree.write_some(&mut pass, 2000).unwrap());
            }
        });
        let finished = self.tree.finish_write_out(pass);
        self.book(std::mem::take(&mut changes.lock().unwrap()));
        if let Ok(report) = finished {
            self.note(report, began_at);
        }
        self.end_meanwhile();
        self.book(std::mem::take(&mut changes.lock().unwrap()));
    }

    fn reopen(&mut self) {
        self.tree = BTree::open(TABLE, self.root, self.store.clone(), self.options.clone());
        self.pass = None;
        self.accounts = self.written_accounts.clone();
        let mut replayed = Batch::new();
        for (key, versions) in &self.all {
            let newer: Vec<Put> =
                versions.range(self.written_csn + 1..).rev().map(|(_, put)| put.clone()).collect();
            if !newer.is_empty() {
                replayed.insert(key.clone(), newer);
            }
        }
        if self.is_exact {
            // What was not written is lost, and everything else is there without it.
            self.all.values_mut().for_each(|versions| versions.retain(|csn, _| *csn <= self.written_csn));
            self.all.retain(|_, versions| !versions.is_empty());
            self.csn = self.written_csn;
            self.snapshots.retain(|snapshot| *snapshot <= self.csn);
        } else if !replayed.is_empty() {
            merge(&self.tree, &replayed, &rules(self.csn, &self.snapshots));
        }
    }

    fn prefetch(&mut self, seed: u64) {
        let mut rng = Rng(seed | 1);
        let known: Vec<_> = self.all.keys().collect();
        let mut choose = || match known.len() as u64 {
            0 => key(rng.below(5000)),
            len => known[rng.below(len) as usize].clone(),
        };
        self.prefetched = (0..16).map(|_| choose()).collect();
        self.tree.prefetch(&self.prefetched.iter().map(|key| (&key[..], 0)).collect::<Vec<_>>());
    }

    fn check(&self) {
        for at in self.snapshots.iter().copied().chain([self.csn, u64::MAX]) {
            let seen =
                |versions: &BTreeMap<u64, Put>| versions.range(..=at).next_back().map(|(_, put)| put.clone());
            let expected: Vec<_> = self
                .all
                .iter()
                .filter_map(|(key, versions)| Some((key.clone(), seen(versions)?)))
                .filter(|(_, put)| put.flags == 0)
                .map(|(key, put)| (key, put.csn, put.payload))
                .collect();
            let mut found = rows(&self.tree, at);
            found.retain(|(key, csn, _)| self.all[key][csn].flags == 0);
            assert_eq!(found, expected, "at {at}");
            let prefetched = self.prefetched.iter().filter_map(|key| self.all.get_key_value(key));
            for (key, versions) in prefetched.chain(self.all.iter().take(50)) {
                let alive = seen(versions).filter(|put| put.flags == 0).map(|put| (put.csn, put.payload));
                let found = get(&self.tree, key, at).filter(|(csn, _)| versions[csn].flags == 0);
                assert_eq!(found, alive);
                match self.tree.get(key, Csn(at), Io::MemoryOnly) {
                    Ok(version) => assert_eq!(version.is_some(), get(&self.tree, key, at).is_some()),
                    Err(IndexError::WouldBlock) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn check_seeks(&self, seed: u64) {
        let rows = rows(&self.tree, u64::MAX);
        let mut cursor = self.tree.cursor(Csn::MAX);
        let mut rng = Rng(seed | 1);
        for _ in 0..30 {
            let probe = key(rng.below(5000));
            let from = rows.partition_point(|(key, ..)| *key < probe);
            let after = rows.partition_point(|(key, ..)| *key <= probe);
            let expect =
                |index: Option<usize>| index.and_then(|index| rows.get(index)).map(|row| row.0.clone());
            cursor.seek(&probe).unwrap();
            assert_eq!(cursor.key().map(<[u8]>::to_vec), expect(Some(from)));
            cursor.prev().unwrap();
            if from < rows.len() {
                assert_eq!(cursor.key().map(<[u8]>::to_vec), expect(from.checked_sub(1)));
            }
            cursor.seek(&key_after(&probe)).unwrap();
            assert_eq!(cursor.key().map(<[u8]>::to_vec), expect(Some(after)));
            cursor.seek_back(Some(&key_after(&probe))).unwrap();
            assert_eq!(cursor.key().map(<[u8]>::to_vec), expect(after.checked_sub(1)));
            cursor.seek_back(Some(&probe)).unwrap();
            assert_eq!(cursor.key().map(<[u8]>::to_vec), expect(from.checked_sub(1)));
            cursor.next().unwrap();
            if from > 0 {
                assert_eq!(cursor.key().map(<[u8]>::to_vec), expect(Some(from)));
            }
            let keys = rows[from..].iter().take(rng.below(40) as usize).map(|row| row.0.clone());
            let keys = keys.collect::<Vec<_>>();
            self.check_limits(
                &probe,
                &rows[from + keys.len()..].first().map_or(key(9999), |row| row.0.clone()),
                keys,
            );
            let than = Csn(rng.below(self.csn + 2));
            let newer =
                self.tree.any_newer_in_range(KeySpan::from(&key_after(&probe)), than, Io::Allowed).unwrap();
            assert_eq!(newer, rows[after..].iter().any(|(_, csn, _)| *csn > than.0));
        }
    }
}

impl World {
    /// The keys from `start` on and before `end` are these. A cursor that is asked for them may be at the end then.
    fn check_limits(&self, start: &[u8], end: &[u8], keys: Vec<Vec<u8>>) {
        let limits = KeySpan::new(start, Some(end));
        let walked = |forward: bool| {
            let mut cursor = self.tree.cursor(Csn::MAX);
            cursor.set_limits(Arc::new(limits.owned()));
            if forward { cursor.seek(start) } else { cursor.seek_back(Some(end)) }.unwrap();
            std::iter::from_fn(|| {
                let key = cursor.key().filter(|key| limits.contains(key))?.to_vec();
                if forward { cursor.next() } else { cursor.prev() }.unwrap();
                Some(key)
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(walked(true), keys);
        assert_eq!(walked(false), keys.into_iter().rev().collect::<Vec<_>>());
    }
}

fn rule() -> impl Strategy<Value = DeltaRule> {
    prop_oneof![
        Just(DeltaRule::ByteShare { share: 4 }),
        Just(DeltaRule::ByteShare { share: 1 }),
        Just(DeltaRule::Never),
        Just(DeltaRule::FlashTkv { page_bytes: 4096, page_write_ns: 1000, page_read_ns: 10 }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn a_tree_is_a_map_of_versions(delta_rule in rule(), steps in proptest::collection::vec(step(), 1..40)) {
        let mut world = World::new(BTreeOptions { delta_rule, max_deltas: 3, ..small_nodes() });
        for step in steps {
            world.run(step);
            world.check();
        }
        world.check_seeks(world.csn);
        world.write_out();
        world.run(Step::Evict { bytes_max: 0 });
        assert!(world.root.is_null() || world.tree.resident_bytes() == 0);
        world.check();
        world.run(Step::Reopen);
        world.check();
        world.check_seeks(world.csn + 1);
    }
}

/// Writing out an emptied tree writes nothing, so it succeeds on a store that refuses writes, and its report is valid.
#[test]
fn a_tree_without_records_is_reported_when_writes_fail() {
    let mut world = World::new(small_nodes());
    world.run(Step::Merge { seed: 5, keys: 40, span: 30, deletes: 0 });
    world.write_out();
    assert!(!world.accounts.is_empty());
    world.run(Step::Merge { seed: 7, keys: 900, span: 30, deletes: 10 });
    world.run(Step::FailedWriteOut);
    assert!(world.accounts.is_empty());
    world.run(Step::Merge { seed: 9, keys: 1, span: 30, deletes: 0 });
    world.write_out();
}

#[test]
fn every_key_may_be_removed_and_written_again() {
    let mut world = World::new(small_nodes());
    for round in 0..3 {
        world.run(Step::Merge { seed: 5 + round, keys: 3000, span: 4000, deletes: 0 });
        world.write_out();
        world.check();
        let mut batch = Batch::new();
        for key in world.all.keys().cloned().collect::<Vec<_>>() {
            world.csn += 1;
            batch.insert(key, vec![Put::tombstone(world.csn)]);
        }
        world.learn(&batch);
        world.run(Step::Evict { bytes_max: 0 });
        merge(&world.tree, &batch, &rules(world.csn, &[]));
        assert!(rows(&world.tree, u64::MAX).is_empty());
        assert_eq!(world.tree.len_estimate(), 0);
        world.write_out();
        assert!(world.root.is_null());
        assert!(world.accounts.is_empty());
        assert!(world.tree.resident_bytes() < 1000, "{}", world.tree.resident_bytes());
    }
}
