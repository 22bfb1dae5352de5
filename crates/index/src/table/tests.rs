//! A table against a model, under random interleavings of everything that one thread can do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fulgurite_types::{Csn, KeySpan, Lsn, TableId, hash_key, key_after};
use proptest::prelude::*;

use super::map_base::MapBase;
use super::*;
use crate::memtables::{BlockBuilder, BlockOp};
use crate::version::VersionFlags;

const TABLE: TableId = TableId(7);
const NOW_MS: u64 = 1000;
const KEYS: [&[u8]; 12] = [
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"abcdefgh",
    b"abcdefgh\0",
    b"abcdefghi",
    b"abcdefgi",
    b"b",
    b"\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
];

#[derive(Clone, Debug)]
struct Write {
    value: Option<Vec<u8>>,
    expires_at_ms: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Commit(BTreeMap<usize, Write>, bool),
    DeleteRange(usize, Option<usize>),
    ApplyLate(usize),
    Freeze(bool),
    Merge,
    Snapshot,
    Release(usize),
    RemoveRanges,
    /// The last two are keys between which it is asked for some.
    Open(usize, usize, bool, Option<(usize, usize)>),
    Walk(usize, Vec<bool>),
    /// The look-ups and commits that follow begin where it found the keys.
    Prefetch,
    Check(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..40)), 0u8..10).prop_map(
        |(value, expiry)| {
            let expires_at_ms = [NOW_MS, NOW_MS + 1].get(usize::from(expiry)).copied().unwrap_or(0);
            Write { value, expires_at_ms }
        },
    );
    let key = 0..KEYS.len();
    let step = prop_oneof![
        8 => (prop::collection::btree_map(key.clone(), write, 1..5), any::<bool>())
            .prop_map(|(writes, late)| Step::Commit(writes, late)),
        1 => (key.clone(), prop::option::of(key.clone())).prop_map(|(a, b)| Step::DeleteRange(a, b)),
        4 => any::<usize>().prop_map(Step::ApplyLate),
        3 => any::<bool>().prop_map(Step::Freeze),
        3 => Just(Step::Merge),
        3 => Just(Step::Snapshot),
        2 => any::<usize>().prop_map(Step::Release),
        1 => Just(Step::RemoveRanges),
        3 => (any::<usize>(), key.clone(), any::<bool>(), prop::option::of((key.clone(), key.clone())))
            .prop_map(|(s, k, f, limits)| Step::Open(s, k, f, limits)),
        5 => (any::<usize>(), prop::collection::vec(prop::bool::weighted(0.7), 1..5))
            .prop_map(|(c, moves)| Step::Walk(c, moves)),
        3 => Just(Step::Prefetch),
        3 => any::<usize>().prop_map(Step::Check),
    ];
    prop::collection::vec(step, 1..100)
}

struct OpenCursor {
    cursor: Cursor<MapBase>,
    at: ReadPoint,
    key: Option<Vec<u8>>,
    limits: Option<(usize, usize)>,
}

impl OpenCursor {
    /// Whether the model has no further key among those that the cursor was asked for, after a move in this direction. The cursor may be
    /// at any key beyond them.
    fn is_beyond_limits(&self, forward: bool) -> bool {
        let Some((start, end)) = self.limits else { return false };
        let is_beyond = |key: &[u8]| if forward { key >= KEYS[end] } else { key < KEYS[start] };
        let is_beyond_limits = self.key.as_deref().is_none_or(is_beyond);
        assert!(!is_beyond_limits || self.cursor.key().is_none_or(is_beyond));
        is_beyond_limits
    }
}

struct World {
    table: Arc<Table<MapBase>>,
    writes: BTreeMap<&'static [u8], Vec<(Csn, Write)>>,
    ranges: Vec<(Csn, usize, Option<usize>)>,
    late: Vec<(Csn, Block)>,
    last: Csn,
    snapshots: Vec<Csn>,
    cursors: Vec<OpenCursor>,
}

impl World {
    fn new() -> World {
        let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 1 << 20 }));
        let (writes, ranges) = Default::default();
        let (late, snapshots, cursors) = Default::default();
        World { table, writes, ranges, late, last: Csn::ZERO, snapshots, cursors }
    }

    fn visible(&self) -> Csn {
        self.late.iter().map(|(csn, _)| csn.prev()).min().unwrap_or(self.last)
    }

    fn hidden_by(&self, key: &[u8], at: Csn) -> Option<Csn> {
        let covers = |&&(csn, start, end): &&(Csn, usize, Option<usize>)| {
            csn <= at && KEYS[start] <= key && end.is_none_or(|end| key < KEYS[end])
        };
        self.ranges.iter().filter(covers).map(|range| range.0).max()
    }

    fn value(&self, key: &[u8], at: Csn) -> Option<&[u8]> {
        self.value_at(key, ReadPoint { csn: at, now_ms: NOW_MS })
    }

    fn value_at(&self, key: &[u8], ReadPoint { csn: at, now_ms }: ReadPoint) -> Option<&[u8]> {
        let (csn, write) = self.writes.get(key)?.iter().rev().find(|(csn, _)| *csn <= at)?;
        let expired = write.expires_at_ms != 0 && write.expires_at_ms <= now_ms;
        let hidden = self.hidden_by(key, at).is_some_and(|range| range > *csn);
        write.value.as_deref().filter(|_| !expired && !hidden)
    }

    fn rules(&self) -> PruneRules {
        let snapshots: BTreeSet<Csn> =
            self.snapshots.iter().chain(self.cursors.iter().map(|c| &c.at.csn)).copied().collect();
        PruneRules {
            horizon: self.visible(),
            snapshots: snapshots.into_iter().collect(),
            expired_until_ms: 0,
            range_deletes: self.table.range_deletes().clone(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Commit(writes, late) => self.commit(writes, late),
            Step::DeleteRange(start, end) if end.is_none_or(|end| KEYS[start] < KEYS[end]) => {
                self.last = self.last.next();
                let PruneRules { horizon, snapshots, .. } = self.rules();
                let readers = Readers { from: horizon, snapshots };
                let keys = KeySpan::new(KEYS[start], end.map(|end| KEYS[end]));
                self.table.apply_range_delete(keys, self.last, &readers);
                self.ranges.push((self.last, start, end));
            }
            Step::DeleteRange(..) => {}
            Step::ApplyLate(i) if !self.late.is_empty() => {
                let (csn, block) = self.late.swap_remove(i % self.late.len());
                self.table.apply(block, csn, Lsn::new(1, 64));
            }
            Step::ApplyLate(_) => {}
            Step::Freeze(always) => {
                let before = self.table.memtables().count();
                let done = if always {
                    self.table.freeze(self.last)
                } else {
                    let is_idle = self.visible() >= self.last && self.table.memtables().newest_is_empty();
                    !is_idle && self.table.freeze(self.last)
                };
                assert_eq!(self.table.memtables().count() - before, usize::from(done));
            }
            Step::Merge => {
                let may =
                    self.table.memtables().oldest_immutable().is_some_and(|g| g.boundary() <= self.visible());
                assert_eq!(self.table.merge_oldest(&self.rules()).unwrap(), may);
            }
            Step::Snapshot => self.snapshots.push(self.visible()),
            Step::Release(i) if !self.snapshots.is_empty() => {
                self.snapshots.swap_remove(i % self.snapshots.len());
            }
            Step::Release(_) => {}
            Step::RemoveRanges => self.remove_ranges(),
            Step::Open(at, key, forward, limits) => self.open(at, KEYS[key], forward, limits),
            Step::Walk(i, moves) => self.walk(i, &moves),
            Step::Prefetch => self.table.prefetch(KEYS),
            Step::Check(i) => self.check(i),
        }
    }

    fn commit(&mut self, writes: BTreeMap<usize, Write>, late: bool) {
        self.last = self.last.next();
        let mut builder = BlockBuilder::new(TABLE, writes.len(), 0);
        for (key, write) in writes {
            let key = KEYS[key];
            let tombstone = if write.value.is_none() { VersionFlags::TOMBSTONE } else { 0 };
            builder.push(BlockOp {
                key,
                hash: hash_key(TABLE, key),
                flags: VersionFlags(tombstone),
                expires_at_ms: write.expires_at_ms,
                payload: write.value.as_deref().unwrap_or_default(),
                value_offset: None,
                checksum: 0,
            });
            self.writes.entry(key).or_default().push((self.last, write));
        }
        self.late.push((self.last, builder.finish()));
        if !late {
            let (csn, block) = self.late.pop().unwrap();
            self.table.apply(block, csn, Lsn::new(1, 64));
        }
    }

    /// Drops range tombstones like a checkpoint: only once nothing that they hide is left, and with no older snapshot.
    fn remove_ranges(&mut self) {
        let rules = self.rules();
        let oldest = rules.snapshots.first().copied().unwrap_or(Csn::MAX);
        let up_to = rules.horizon.min(oldest).min(self.table.memtables().merged());
        self.table.purge(KeySpan::ALL, &rules).unwrap();
        self.table.range_deletes().drop_up_to(up_to);
    }

    fn open(&mut self, snapshot: usize, key: &[u8], forward: bool, limits: Option<(usize, usize)>) {
        let at = self.snapshots.get(snapshot % (self.snapshots.len() + 1)).copied().unwrap_or(self.visible());
        let at = ReadPoint { csn: at, now_ms: NOW_MS + (snapshot % 2) as u64 };
        let mut cursor = self.table.cursor(at);
        if let Some((start, end)) = limits {
            cursor.set_limits(Arc::new(KeySpan::new(KEYS[start].into(), Some(KEYS[end].into()))));
        }
        let mut keys = KEYS.iter().copied().filter(|key| self.value_at(key, at).is_some());
        let expected = if forward {
            cursor.seek(&key_after(key)).unwrap();
            keys.find(|k| *k > key)
        } else {
            cursor.seek_back(Some(&key_after(key))).unwrap();
            keys.rfind(|k| *k <= key)
        };
        let open = OpenCursor { cursor, at, key: expected.map(<[u8]>::to_vec), limits };
        if open.is_beyond_limits(forward) {
            return;
        }
        self.check_position(&open);
        self.cursors.push(open);
        if self.cursors.len() > 4 {
            self.cursors.remove(0);
        }
    }

    fn walk(&mut self, i: usize, moves: &[bool]) {
        if self.cursors.is_empty() {
            return;
        }
        let i = i % self.cursors.len();
        let mut open = self.cursors.swap_remove(i);
        self.check_position(&open);
        for &forward in moves {
            let mut keys = KEYS.iter().copied().filter(|key| self.value_at(key, open.at).is_some());
            let last = open.key.clone();
            open.key = last.and_then(|last| {
                let found =
                    if forward { keys.find(|k| *k > &last[..]) } else { keys.rfind(|k| *k < &last[..]) };
                found.map(<[u8]>::to_vec)
            });
            if forward {
                open.cursor.next().unwrap()
            } else {
                open.cursor.prev().unwrap()
            }
            if open.is_beyond_limits(forward) {
                return;
            }
            self.check_position(&open);
        }
        self.cursors.push(open);
    }

    /// Called long after the last step, too: the current entry stays while other operations write and merge.
    fn check_position(&self, open: &OpenCursor) {
        assert_eq!(open.cursor.key(), open.key.as_deref());
        if let Some(key) = &open.key {
            assert_eq!(&open.cursor.pinned_key()[..], &key[..]);
            assert_eq!(open.cursor.version().payload, self.value_at(key, open.at).unwrap());
            assert_eq!(&open.cursor.pinned_payload()[..], self.value_at(key, open.at).unwrap());
        }
    }

    fn check(&self, i: usize) {
        let visible = self.visible();
        let at = self.snapshots.get(i % (self.snapshots.len() + 1)).copied().unwrap_or(visible);
        for key in KEYS {
            let hash = hash_key(TABLE, key);
            let payload = |version: Option<Version>| version.map(|version| version.payload.to_vec());
            let got = self.table.get(key, hash, ReadPoint { csn: at, now_ms: NOW_MS }, Io::Allowed).unwrap();
            assert_eq!(payload(got).as_deref(), self.value(key, at), "{key:?} at {at}");
            let got = self.table.get_newest(key, hash, visible, NOW_MS, Io::Allowed).unwrap();
            assert_eq!(payload(got).as_deref(), self.value(key, visible), "the newest of {key:?}");
            if self.late.is_empty() {
                self.check_newest(key, hash, at);
            }
        }
    }

    fn check_newest(&self, key: &[u8], hash: u64, than: Csn) {
        let written = self.writes.get(key).and_then(|writes| writes.last()).map(|(csn, _)| *csn);
        let newest = written.max(self.hidden_by(key, Csn::MAX)).filter(|&csn| csn > than);
        let got = self.table.newest_csn(key, hash, than, Io::Allowed).unwrap();
        let unchanged = self.value(key, than).is_none() && self.value(key, Csn::MAX).is_none();
        assert!(
            got == newest || (got <= newest && unchanged),
            "{key:?} than {than}: {got:?}, not {newest:?}"
        );
        assert_eq!(self.table.newest_csn(key, hash, than, Io::MemoryOnly).unwrap(), got);
        let after = key_after(key);
        let one = KeySpan::new(key, Some(&after));
        let newer = self.table.any_newer_in_range(one, than, Io::Allowed).unwrap();
        assert!(newer == got.is_some() || (!newer && unchanged), "{key:?} than {than}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_does_what_the_model_does(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        while !world.late.is_empty() {
            world.take(Step::ApplyLate(0));
        }
        for i in 0..=world.snapshots.len() {
            world.check(i);
        }
    }
}
