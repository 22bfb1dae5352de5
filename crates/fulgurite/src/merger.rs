//! Merging: moves whole memtables into the bases of their tables, in the order of their CSNs.
//!
//! A merger takes the lock of one table at a time, and is given a table and a [`Horizon`]; it knows no engine. Several
//! threads may merge: the merger's, one that writes a checkpoint, and committers that must not wait for either; a
//! table's memtables are merged by one of them at a time, in steps between which the table is written out. A commit waits for merging in one
//! case: while a table that it writes has more than [`MEMTABLES_MAX`] memtables and their bytes. That bounds memory. A
//! checkpoint freezes memtables that are not full: a ninth one alone stops no commit.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_env::Env;
use fulgurite_index::PruneRules;
use fulgurite_types::{Csn, TableId};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::catalog::TableState;
use crate::commit::Pipeline;
use crate::error::OrError;
use crate::merged_values::MergedValues;
use crate::progress::Progress;
use crate::purging::Purging;
use crate::throttle::Pressure;
use crate::{Error, Result};

/// While a table has more memtables than this, the mutable one included, and the bytes of so many full ones, its committers
/// wait.
const MEMTABLES_MAX: usize = 8;

/// The same whatever their bytes: each read looks at all of them.
const MEMTABLES_MAX_OF_ANY_SIZE: usize = 2 * MEMTABLES_MAX;

/// While it has more than this, they are slowed.
pub(crate) const MEMTABLES_SLOW: usize = MEMTABLES_MAX / 2;

/// The longest that a commit is slowed for the merging of one table, in milliseconds, before it has to stop.
pub(crate) const MERGING_WAIT_MS_MAX: u64 = 100;

/// What is assumed until the first merge has ended. The first memtable after a crash may hold all that was replayed.
const SPEED_ASSUMED: u64 = 32 << 20;

/// Merging this many bytes tells how fast it is.
const SPEED_BYTES_MIN: u64 = 64 << 10;

/// How often that is looked at while a memtable is merged: leaves that are read from disk make it a hundred times slower, and a memtable may
/// take ten seconds.
const SPEED_LOOK_NS: u64 = 100_000_000;

/// A mutable memtable that no commit has changed for so long is merged, ...
const STILL_NS: u64 = 1_000_000_000;

/// ... if it takes so many bytes.
const STILL_BYTES_MIN: u64 = 1 << 20;

/// How long a waiting committer sleeps before it checks again whether the log has failed.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Which memtables may be merged, and what pruning keeps meanwhile.
pub(crate) trait Horizon {
    /// Nothing can undo the commits at or below it: they are applied and synced.
    fn csn(&self) -> Csn;

    /// Asks for the horizon to pass `csn`, which a memtable ends at.
    fn request(&self, csn: Csn) -> Result<()>;

    /// What may be pruned from a table now.
    fn prune_rules(&self, table: &TableState) -> PruneRules;
}

/// How far the merge of a memtable was when its speed was noted last.
#[derive(Clone, Copy)]
struct Seen {
    /// By the monotonic clock.
    at_ns: u64,
    left_bytes: u64,
}

/// Merges memtables, and lets committers wait for it.
pub(crate) struct Merger {
    /// Taken by a waiter between its look at the table and its sleep, and by a merger between its merge and its wake.
    waiting: Mutex<()>,
    /// Signalled when a memtable was merged.
    merged: Condvar,
    /// Whether the database is closed. A merge holds it for reading, the closer for writing.
    has_ended: RwLock<bool>,
    /// When merges give up, by the monotonic clock: a close has begun, and the log keeps the rest.
    gives_up_at_ns: AtomicU64,
    /// About how fast merging was of late, in bytes of memtables a second.
    bytes_per_second: AtomicU64,
    /// The look for leaves that no write touches and that can be purged.
    pub purging: Purging,
    values: MergedValues,
    progress: Arc<Progress>,
    env: Arc<dyn Env>,
}

impl Merger {
    pub fn new(progress: Arc<Progress>, env: Arc<dyn Env>) -> Merger {
        Merger {
            waiting: Mutex::new(()),
            merged: Condvar::new(),
            has_ended: RwLock::new(false),
            gives_up_at_ns: AtomicU64::new(u64::MAX),
            bytes_per_second: AtomicU64::new(SPEED_ASSUMED),
            purging: Purging::default(),
            values: MergedValues::default(),
            progress,
            env,
        }
    }

    /// The same, which keeps values in memory.
    pub fn keeping(self, values: MergedValues) -> Merger {
        Merger { values, ..self }
    }

    /// Ends merging: waits for the merges that run. Later ones return [`Error::Closed`].
    pub fn end(&self) {
        *self.has_ended.write() = true;
    }

    /// Has merges and purges return [`Error::Closed`] from the end of `limit` on, those that run too; from now on if it would
    /// take them twice as long to merge `unmerged_bytes` of memtables.
    pub fn give_up_after(&self, limit: Duration, unmerged_bytes: u64) {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let left_ns = self.ns_to_merge(unmerged_bytes);
        let limit_ns = if left_ns / 2 > limit_ns { 0 } else { limit_ns };
        let at_ns = self.env.clock().monotonic_ns().saturating_add(limit_ns);
        self.gives_up_at_ns.store(at_ns, Ordering::Relaxed);
    }

    /// Whether that time has come.
    pub fn gives_up(&self) -> bool {
        let at_ns = self.gives_up_at_ns.load(Ordering::Relaxed);
        at_ns != u64::MAX && self.env.clock().monotonic_ns() >= at_ns
    }

    /// About how long it takes to merge so many bytes of memtables.
    fn ns_to_merge(&self, bytes: u64) -> u64 {
        let speed = self.bytes_per_second.load(Ordering::Relaxed).max(1);
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(speed)).unwrap_or(u64::MAX)
    }

    /// Merges the immutable memtables of a table that end at or below `up_to` and the horizon; true if there was one.
    /// Asks for the horizon to pass the first one above it. `up_to` bounds the work while committers freeze memtables as
    /// fast as they are merged.
    pub fn merge(&self, table: &TableState, horizon: &impl Horizon, up_to: Csn) -> Result<bool> {
        let mut merged = false;
        while self.merge_next(table, horizon, up_to, || false)? {
            merged = true;
        }
        Ok(merged)
    }

    /// The same for one memtable, which stays as it is if it `pauses` before it is merged.
    pub fn merge_next(
        &self,
        table: &TableState,
        horizon: &impl Horizon,
        up_to: Csn,
        pauses: impl Fn() -> bool,
    ) -> Result<bool> {
        let outcome = self.try_merge_next(table, horizon, up_to, pauses);
        let has_failed = outcome.as_ref().is_err_and(|error| !matches!(error, Error::Closed));
        table.merging_failed.store(has_failed, Ordering::Release);
        outcome
    }

    fn try_merge_next(
        &self,
        table: &TableState,
        horizon: &impl Horizon,
        up_to: Csn,
        pauses: impl Fn() -> bool,
    ) -> Result<bool> {
        let Some(memtable) = table.index.memtables().oldest_immutable() else { return Ok(false) };
        let (boundary, bytes) = (memtable.boundary(), memtable.bytes());
        drop(memtable);
        if boundary > up_to {
            return Ok(false);
        }
        if boundary > horizon.csn() {
            horizon.request(boundary)?;
            return Ok(false);
        }
        let has_ended = self.has_ended.read();
        if *has_ended || self.gives_up() {
            return Err(Error::Closed);
        }
        let start_ns = self.env.clock().monotonic_ns();
        let rules = horizon.prune_rules(table);
        let seen = Cell::new(Seen { at_ns: start_ns, left_bytes: bytes });
        let goes_on = || {
            seen.set(self.look(seen.get(), table.index.unmerged_bytes_of_oldest(), SPEED_LOOK_NS));
            // Commits go on meanwhile.
            table.index.memtables().link_much();
            !self.gives_up() && !pauses()
        };
        let values = self.values.begin();
        if table.index.merge_oldest_reporting(&rules, &values, goes_on).or_error()? {
            let ns = self.env.clock().monotonic_ns().saturating_sub(start_ns);
            self.progress.merges.done(ns);
            self.progress.merged_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.look(seen.get(), 0, 0);
        } else if self.gives_up() {
            return Err(Error::Closed);
        } else if table.index.merging_has_ended() || pauses() {
            return Ok(false);
        }
        drop(has_ended);
        drop(self.waiting.lock());
        self.merged.notify_all();
        Ok(true)
    }

    /// So many bytes of a memtable are left: notes how fast it was, if it took so long since it was `seen` last. Few bytes say little
    /// about the speed.
    fn look(&self, seen: Seen, left_bytes: u64, ns_min: u64) -> Seen {
        let at_ns = self.env.clock().monotonic_ns();
        let (bytes, ns) = (seen.left_bytes.saturating_sub(left_bytes), at_ns.saturating_sub(seen.at_ns));
        if bytes < SPEED_BYTES_MIN || ns < ns_min {
            return seen;
        }
        let speed =
            u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))).unwrap_or(u64::MAX);
        let known = self.bytes_per_second.load(Ordering::Relaxed);
        self.bytes_per_second.store(known / 2 + speed / 2, Ordering::Relaxed);
        Seen { at_ns, left_bytes }
    }

    /// What slows the committers of a table whose merging is behind: the rest of the memtables that it may have, in the
    /// time until the oldest of them is merged.
    pub fn pressure(&self, table: &TableState, memtable_bytes_max: usize) -> Pressure {
        let memtables = table.index.memtables();
        let count = memtables.count();
        let bytes_max = memtable_bytes_max as u64;
        let room = if count > MEMTABLES_MAX {
            (MEMTABLES_MAX as u64 * bytes_max).saturating_sub(memtables.bytes())
        } else {
            let whole = (MEMTABLES_MAX - count) as u64 * bytes_max;
            whole + bytes_max.saturating_sub(memtables.newest_bytes())
        };
        // The last memtable is for merges that take longer than expected, and for one that a checkpoint freezes early.
        let room_bytes = room.saturating_sub(bytes_max).max(room.min(bytes_max) / 8);
        Pressure { room_bytes, left_ns: self.ns_to_merge(table.index.unmerged_bytes_of_oldest()) }
    }

    /// Sleeps until a memtable was merged, a short time at most, if it `has_to_wait`.
    pub fn wait_if(&self, has_to_wait: impl FnOnce() -> bool) {
        let mut waiting = self.waiting.lock();
        if has_to_wait() {
            self.merged.wait_for(&mut waiting, WAIT_MAX);
        }
    }
}

/// Whether the committers of a table wait for merging.
pub(crate) fn has_too_many_memtables(table: &TableState, memtable_bytes_max: usize) -> bool {
    let memtables = table.index.memtables();
    let count = memtables.count();
    count > MEMTABLES_MAX
        && (count > MEMTABLES_MAX_OF_ANY_SIZE
            || memtables.bytes() >= MEMTABLES_MAX as u64 * memtable_bytes_max as u64)
}

/// Freezes a table's mutable memtable if it has grown to `bytes_max`. Committers do it, too: the merger may be busy.
///
/// Only a checkpoint freezes the catalog's memtable, so that the catalog's tree on disk is the catalog at the boundary
/// and nothing later. Replay applies the later definitions to it by name, and names may have moved since.
pub(crate) fn freeze_if_grown(table: &TableState, pipeline: &Pipeline, bytes_max: usize) {
    if table.id == TableId::CATALOG {
        return;
    }
    let has_grown = || table.index.memtables().newest_bytes() >= bytes_max as u64;
    if has_grown() {
        pipeline.at_boundary(|csn| {
            if has_grown() {
                table.index.freeze(csn);
            }
        });
    }
}

/// How long something has not changed, of which a number changes with it: a table's mutable memtable by its bytes, which
/// each commit adds to.
#[derive(Default)]
pub(crate) struct Stillness {
    number: AtomicU64,
    /// When it was first seen with this number, by the monotonic clock.
    since_ns: AtomicU64,
}

impl Stillness {
    /// Whether it has had this `number` for a second. Called by one thread at a time.
    pub fn is_long(&self, number: u64, now_ns: u64) -> bool {
        if self.number.swap(number, Ordering::Relaxed) != number {
            self.since_ns.store(now_ns, Ordering::Relaxed);
        }
        now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed)) >= STILL_NS
    }
}

/// Freezes a table's mutable memtable if it is long enough that each read pays for it, and no commit has changed it for a
/// second: after a load, reads find all rows in the tree. Returns whether it may have to be frozen later.
pub(crate) fn freeze_if_still(table: &TableState, pipeline: &Pipeline, now_ns: u64) -> bool {
    let bytes = table.index.memtables().newest_bytes();
    if table.id == TableId::CATALOG || bytes < STILL_BYTES_MIN {
        return false;
    }
    if !table.stillness.is_long(bytes, now_ns) {
        return true;
    }
    freeze(table, pipeline);
    false
}

/// Freezes a table's mutable memtable, whatever its size.
pub(crate) fn freeze(table: &TableState, pipeline: &Pipeline) {
    pipeline.at_boundary(|csn| table.index.freeze(csn));
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use fulgurite_env::sim::SimEnv;
    use fulgurite_index::memtables::{BlockBuilder, BlockOp};
    use fulgurite_index::table::ReadPoint;
    use fulgurite_index::{NodeKind, NodeStore, StoreError, VersionFlags};
    use fulgurite_types::{Lsn, hash_key};

    use super::*;
    use crate::Options;
    use crate::catalog::Catalog;

    /// A store that nothing is read from or written to.
    struct Unused;

    impl NodeStore for Unused {
        fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
            Err(format!("a read at {lsn}").into())
        }

        fn write_node(&self, _: NodeKind, _: &[u8]) -> Result<Lsn, StoreError> {
            Err("a write".into())
        }

        fn node_bytes(&self, body_len: usize) -> u32 {
            body_len as u32
        }
    }

    /// A horizon without a pipeline, as replay has one.
    struct Fixed {
        csn: Csn,
        requested: Mutex<Option<Csn>>,
    }

    impl Horizon for Fixed {
        fn csn(&self) -> Csn {
            self.csn
        }

        fn request(&self, csn: Csn) -> Result<()> {
            *self.requested.lock() = Some(csn);
            Ok(())
        }

        fn prune_rules(&self, table: &TableState) -> PruneRules {
            PruneRules {
                horizon: self.csn,
                snapshots: Vec::new(),
                expired_until_ms: 0,
                range_deletes: table.index.range_deletes().clone(),
            }
        }
    }

    fn apply(table: &TableState, csn: Csn, key: &[u8]) {
        let mut block = BlockBuilder::new(table.id, 1, key.len());
        block.push(BlockOp {
            key,
            hash: hash_key(table.id, key),
            flags: VersionFlags(0),
            expires_at_ms: 0,
            payload: b"value",
            value_offset: None,
            checksum: 0,
        });
        table.index.apply(block.finish(), csn, Lsn::NULL);
    }

    fn put(table: &TableState, csn: Csn, key: &[u8]) {
        apply(table, csn, key);
        table.index.freeze(csn);
    }

    #[test]
    fn memtables_at_or_below_the_horizon_are_merged_and_the_next_one_is_asked_for() {
        let tables = Catalog::new(Arc::new(Unused), &Options::default(), Lsn::NULL);
        let table = tables.prepare(TableId(1), "t", Lsn::NULL);
        let progress = Arc::new(Progress::default());
        let merger = Merger::new(progress.clone(), SimEnv::new(1));
        put(&table, Csn(3), b"a");
        put(&table, Csn(5), b"b");
        let count = || table.index.memtables().count();
        let before = count();
        for (horizon, requested, merges) in [(2, Some(Csn(3)), 0), (4, Some(Csn(5)), 1), (5, None, 2)] {
            let horizon = Fixed { csn: Csn(horizon), requested: Mutex::new(None) };
            merger.merge(&table, &horizon, Csn::MAX).unwrap();
            assert_eq!(*horizon.requested.lock(), requested);
            assert_eq!((progress.merges.count(), before - count()), (merges, merges as usize));
        }
        for key in [b"a", b"b"] {
            let at = ReadPoint { csn: Csn::MAX, now_ms: 0 };
            assert!(
                table
                    .index
                    .get(key, hash_key(table.id, key), at, fulgurite_index::Io::Allowed)
                    .unwrap()
                    .is_some()
            );
        }
    }

    #[test]
    fn committers_are_slowed_by_what_they_may_still_write_until_the_oldest_memtable_is_merged() {
        let tables = Catalog::new(Arc::new(Unused), &Options::default(), Lsn::NULL);
        let table = tables.prepare(TableId(1), "t", Lsn::NULL);
        let env = SimEnv::new(1);
        let merger = Merger::new(Arc::new(Progress::default()), env.clone());
        (1..=5).for_each(|csn| put(&table, Csn(csn), b"key"));
        // The newest holds a version, too: of a key that is longer than all links.
        apply(&table, Csn(6), &[b'k'; 200]);
        let oldest = table.index.unmerged_bytes_of_oldest();
        let newest = table.index.memtables().newest_bytes();
        assert!(newest > oldest && oldest > 0, "{oldest} {newest}");
        let pressure = merger.pressure(&table, 1 << 20);
        // Six of eight memtables are there, the mutable one included, and one is kept.
        assert_eq!(pressure.room_bytes, (2 << 20) - newest);
        assert_eq!(pressure.left_ns, oldest * 1_000_000_000 / SPEED_ASSUMED);
        let seen = |left_bytes| Seen { at_ns: merger.env.clock().monotonic_ns(), left_bytes };
        merger.look(seen(SPEED_BYTES_MIN - 1), 0, 0);
        let before = seen(SPEED_ASSUMED + 1);
        env.advance(Duration::from_millis(500));
        assert_eq!(merger.look(before, 1, 500_000_001).left_bytes, SPEED_ASSUMED + 1, "it is too early");
        assert_eq!(merger.look(before, 1, 500_000_000).left_bytes, 1);
        let faster = merger.pressure(&table, 1 << 20);
        assert_eq!(faster.left_ns, oldest * 1_000_000_000 / (SPEED_ASSUMED / 2 * 3));
        table.index.freeze(Csn(6));
        (7..=9).for_each(|csn| put(&table, Csn(csn), b"key"));
        assert!(has_too_many_memtables(&table, 0) && merger.pressure(&table, 0).room_bytes == 0);
        let memtables = table.index.memtables();
        let at_most = |room: u64| usize::try_from((memtables.bytes() + room).div_ceil(8)).unwrap();
        // A checkpoint froze some of them early.
        assert!(memtables.count() == 10 && !has_too_many_memtables(&table, at_most(8)));
        let room_bytes = merger.pressure(&table, at_most(8)).room_bytes;
        assert!((1..=2).contains(&room_bytes), "{room_bytes}");
        assert!(has_too_many_memtables(&table, at_most(0) - 1));
        (10..=16).for_each(|csn| put(&table, Csn(csn), b"key"));
        assert!(memtables.count() == 17 && has_too_many_memtables(&table, 1 << 20));
    }

    #[test]
    fn a_memtable_is_still_when_it_has_not_changed_for_a_second() {
        let stillness = Stillness::default();
        let steps = [(7, 5, false), (7, STILL_NS, false), (8, STILL_NS + 4, false), (8, STILL_NS + 5, false)];
        for (bytes, now_ns, is_long) in steps {
            assert_eq!(stillness.is_long(bytes, now_ns), is_long, "{now_ns}");
        }
        assert!(stillness.is_long(8, 2 * STILL_NS + 4));
    }

    #[test]
    fn a_merge_stops_at_its_bound_at_the_end_of_a_table_and_at_the_end() {
        let tables = Catalog::new(Arc::new(Unused), &Options::default(), Lsn::NULL);
        let table = tables.prepare(TableId(1), "t", Lsn::NULL);
        let progress = Arc::new(Progress::default());
        let merger = Merger::new(progress.clone(), SimEnv::new(1));
        let horizon = Fixed { csn: Csn::MAX, requested: Mutex::new(None) };
        (1..=4).for_each(|csn| put(&table, Csn(csn), b"key"));
        assert!(merger.merge(&table, &horizon, Csn(2)).unwrap());
        assert_eq!(progress.merges.count(), 2);
        assert!(!merger.merge(&table, &horizon, Csn(2)).unwrap());
        table.index.end_merging();
        assert!(!merger.merge(&table, &horizon, Csn::MAX).unwrap());
        merger.end();
        assert!(matches!(merger.merge(&table, &horizon, Csn::MAX), Err(Error::Closed)));
        assert_eq!(progress.merges.count(), 2);
    }
}
