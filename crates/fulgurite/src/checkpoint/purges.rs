//! The range tombstones that checkpoints have purged: which versions are gone, and when a tombstone may be dropped.
//!
//! A checkpoint purges for a second, or a quarter of what the one before took, and the next one goes on: while it purges, the log
//! grows, and what a checkpoint has purged it frees when it ends. A purge that goes on makes the next checkpoint due. It needs nothing on disk: leaves that were purged
//! are gone, so that one that begins anew after an opening comes by them soon.
//!
//! Where a leaf cannot be read, the purge goes on behind it; the tombstone stays, checkpoints do without its purge, and it is tried
//! again later.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_env::Env;
use fulgurite_index::PruneRules;
use fulgurite_index::range_delete::RangeDelete;
use fulgurite_types::{Csn, KeySpan, TableId};

use super::{Checkpointer, Shared};
use crate::catalog::TableState;
use crate::merger::{Horizon, Merger};
use crate::purging::PAUSE;
use crate::{Error, Result};

/// How long one checkpoint purges at least, in nanoseconds, if there is so much to purge, ...
const PURGE_NS: u64 = 1_000_000_000;
/// ... and this part of the time that the one before took.
const PURGE_SHARE: u64 = 4;

/// A purge that found damage is tried again after so long, in nanoseconds, ...
const AGAIN_NS: u64 = 600_000_000_000;
/// ... and one that failed otherwise, because the next one may succeed.
const SOON_NS: u64 = 30_000_000_000;

/// The purges of range tombstones by earlier checkpoints, of the tables that have any: it is asked in each round.
#[derive(Default)]
pub(super) struct Purges(BTreeMap<TableId, OfTable>);

#[derive(Default)]
struct OfTable {
    /// Ascending.
    ended: Vec<Purge>,
    running: Option<Running>,
    /// The last one failed, and none begins before this time of the monotonic clock.
    put_off_until_ns: u64,
}

/// The checkpoint that covers `covered` has purged every version that range tombstones at or below `up_to` hide.
struct Purge {
    up_to: Csn,
    covered: Csn,
}

/// A purge of the versions that range tombstones at or below `up_to` hide. All of them were merged when it began.
struct Running {
    up_to: Csn,
    /// The keys that are left, the first last.
    rest: Vec<KeySpan>,
    /// The first error of a node that cannot be read.
    damage: Option<Error>,
}

/// The time that a checkpoint has for purges.
pub(super) struct PurgeTime<'e> {
    env: &'e dyn Env,
    left_ns: Cell<u64>,
}

impl<'e> PurgeTime<'e> {
    /// For a checkpoint after one that took so long.
    pub fn after(env: &'e dyn Env, last_ns: u64) -> PurgeTime<'e> {
        PurgeTime { env, left_ns: Cell::new(PURGE_NS.max(last_ns / PURGE_SHARE)) }
    }

    /// Spends time on a purge, which asks after each step whether it goes on.
    pub fn spend<T>(&self, merger: &Merger, purge: impl FnOnce(&dyn Fn() -> bool) -> T) -> T {
        let now_ns = || self.env.clock().monotonic_ns();
        let start_ns = now_ns();
        let spent_ns = || now_ns().saturating_sub(start_ns);
        let outcome = purge(&|| !merger.gives_up() && spent_ns() < self.left_ns.get());
        self.left_ns.set(self.left_ns.get().saturating_sub(spent_ns()));
        outcome
    }
}

impl Purges {
    fn purged_up_to(&self, table: &TableState) -> Csn {
        let last = self.0.get(&table.id).and_then(|purges| purges.ended.last());
        last.map_or(Csn::ZERO, |purge| purge.up_to)
    }

    /// Whether no tombstone waits to be purged further, or to be dropped.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(|table| table.ended.is_empty() && table.running.is_none())
    }

    /// Whether a purge has to go on.
    pub fn goes_on(&self) -> bool {
        self.0.values().any(|table| table.running.is_some())
    }

    /// Whether a checkpoint up to the newest commit would purge something of a table now, or drop range tombstones of it. `oldest`:
    /// the oldest snapshot, if it is older than that.
    pub fn has_work(&self, table: &TableState, oldest: Option<Csn>, newest: Csn, now_ns: u64) -> bool {
        let is_earlier = |purges: &OfTable| purges.ended.iter().any(|purge| purge.covered < newest);
        let can_drop = oldest.is_none() && self.0.get(&table.id).is_some_and(is_earlier);
        let oldest = oldest.unwrap_or(newest);
        let has_fresh = || !table.index.range_deletes().list(self.purged_up_to(table), oldest).is_empty();
        can_drop || (!self.is_put_off(table.id, now_ns) && has_fresh())
    }

    /// Whether the last purge of a table failed, not long ago.
    pub fn is_put_off(&self, table: TableId, now_ns: u64) -> bool {
        self.0.get(&table).is_some_and(|purges| now_ns < purges.put_off_until_ns)
    }

    /// A purge of a table failed: another one begins anew later.
    pub fn put_off(&mut self, table: TableId, error: &Error, now_ns: u64) {
        let purges = self.0.entry(table).or_default();
        purges.running = None;
        let after_ns = if matches!(error, Error::Damaged(_)) { AGAIN_NS } else { SOON_NS };
        purges.put_off_until_ns = now_ns + after_ns;
    }

    /// Whether the last purge of any table failed.
    pub fn are_failing(&self) -> bool {
        self.0.values().any(|purges| purges.put_off_until_ns != 0)
    }

    /// Purges the versions that range tombstones hide, for the checkpoint that covers `boundary`, while it `goes_on`. All versions at
    /// or below the boundary are merged.
    pub fn purge(
        &mut self,
        table: &TableState,
        rules: &PruneRules,
        boundary: Csn,
        goes_on: impl Fn() -> bool,
    ) -> Result<()> {
        let oldest = rules.snapshots.first().copied().unwrap_or(boundary).min(boundary);
        if self.0.get(&table.id).is_none_or(|purges| purges.running.is_none()) {
            let fresh = table.index.range_deletes().list(self.purged_up_to(table), oldest);
            if fresh.is_empty() {
                return Ok(());
            }
            let rest = unions(&fresh).into_iter().rev().map(|range| range.owned()).collect();
            self.0.entry(table.id).or_default().running = Some(Running { up_to: oldest, rest, damage: None });
        }
        let Some(purges) = self.0.get_mut(&table.id) else { return Ok(()) };
        let Some(running) = &mut purges.running else { return Ok(()) };
        // A snapshot that is just being opened may show an older commit than it will have: these rules keep what that hides.
        running.up_to = running.up_to.min(oldest);
        let mut skips = |error| note_damage(&mut running.damage, Error::of_index(error));
        while let Some(range) = running.rest.last_mut() {
            if let Some(next) = table.index.purge_while(range.borrowed(), rules, &mut skips, &goes_on)? {
                range.start = next.into();
                return Ok(());
            }
            running.rest.pop();
        }
        let Some(Running { up_to, damage, .. }) = purges.running.take() else { return Ok(()) };
        if let Some(damage) = damage {
            return Err(damage);
        }
        purges.ended.push(Purge { up_to, covered: boundary });
        purges.put_off_until_ns = 0;
        Ok(())
    }

    /// Drops a table's range tombstones that a checkpoint before `boundary` purged (INV-CKPT-3); whether there were any.
    pub fn drop_purged(&mut self, table: &TableState, boundary: Csn) -> bool {
        let Some(purges) = self.0.get_mut(&table.id) else { return false };
        let earlier = purges.ended.partition_point(|purge| purge.covered < boundary);
        let newest = purges.ended.drain(..earlier).next_back();
        if purges.ended.is_empty() && purges.running.is_none() && purges.put_off_until_ns == 0 {
            self.0.remove(&table.id);
        }
        newest.inspect(|newest| table.index.range_deletes().drop_up_to(newest.up_to)).is_some()
    }

    /// The table is gone.
    pub fn forget(&mut self, table: TableId) {
        self.0.remove(&table);
    }
}

impl Checkpointer {
    /// Whether range tombstones have something left to purge, or can be dropped. Looks now and then, unless a purge goes on.
    pub(super) fn purges_are_due(&self) -> bool {
        if self.purges.goes_on() {
            return true;
        }
        let Shared { env, tables, reads, pipeline, .. } = &self.shared;
        let now_ns = env.clock().monotonic_ns();
        if tables.memory().tombstone_bytes() == 0 || now_ns < self.look_at_ranges_ns.get() {
            return false;
        }
        // Not at once: range deletes that come one after the other are purged together.
        let is_first = self.look_at_ranges_ns.replace(now_ns + PAUSE.as_nanos() as u64) == 0;
        // Nothing else ends old readers while nothing is committed.
        reads.end_old();
        let newest = pipeline.visible();
        let oldest = reads.snapshots.open().0.first().copied().filter(|oldest| *oldest < newest);
        !is_first
            && tables.active().all().iter().any(|table| self.purges.has_work(table, oldest, newest, now_ns))
    }

    /// Purges what range tombstones of a table hide. If a leaf cannot be read, the tombstone stays, and the checkpoint goes on: it was
    /// to free what is dead, and the log behind it. That is reported once the purge has been through all other leaves.
    pub(super) fn purge(
        &mut self,
        table: &TableState,
        boundary: Csn,
        time: &PurgeTime<'_>,
        merger: &Merger,
    ) -> Result<()> {
        let Shared { env, reads, progress, .. } = &self.shared;
        let now_ns = env.clock().monotonic_ns();
        if self.purges.is_put_off(table.id, now_ns) {
            return Ok(());
        }
        let rules = reads.prune_rules(table);
        let purges = &mut self.purges;
        let outcome = time.spend(merger, |goes_on| purges.purge(table, &rules, boundary, goes_on));
        if let Err(error) = outcome {
            if matches!(error, Error::Closed) {
                return Err(error);
            }
            purges.put_off(table.id, &error, now_ns);
            progress.purging.round_ended(Some(&error), || env.clock().wall_ms());
        }
        Ok(())
    }

    /// Drops the range tombstones that an earlier checkpoint purged, unless a snapshot is older than `boundary`
    /// (INV-CKPT-3).
    pub(super) fn drop_range_deletes(&mut self, tables: &[Arc<TableState>], boundary: Csn) {
        let (snapshots, _) = self.shared.reads.snapshots.open();
        if self.purges.is_empty() || snapshots.first().is_some_and(|&oldest| oldest < boundary) {
            return;
        }
        for table in tables.iter().filter(|table| !table.index.range_deletes().is_empty()) {
            if self.purges.drop_purged(table, boundary) {
                self.chain.note(table.id);
            }
        }
    }
}

/// Keeps the first error of a node that cannot be read, for a purge that goes on behind it; another error ends the purge.
pub(crate) fn note_damage(first: &mut Option<Error>, error: Error) -> Result<()> {
    if !matches!(error, Error::Damaged(_) | Error::Io { .. }) {
        return Err(error);
    }
    first.get_or_insert(error);
    Ok(())
}

/// The union of the ranges, as disjoint ranges: keys that many range deletes share are purged once.
fn unions(ranges: &[RangeDelete]) -> Vec<KeySpan<&[u8]>> {
    let mut sorted: Vec<KeySpan<&[u8]>> = ranges.iter().map(|range| range.keys.borrowed()).collect();
    sorted.sort_unstable_by_key(|span| span.start);
    let mut apart: Vec<KeySpan<&[u8]>> = Vec::new();
    for span in sorted {
        match apart.last_mut() {
            Some(last) if last.touches(&span) => *last = last.union(span),
            _ => apart.push(span),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fulgurite_env::SimEnv;

    use super::*;
    use crate::{Database, Options, Table};

    fn rows(table: &Table) -> usize {
        table.range(..).unwrap().map(Result::unwrap).count()
    }

    /// A purge in steps, with commits and checkpoints between: the tombstone stays until a checkpoint after its end.
    #[test]
    fn a_purge_goes_on_where_it_stopped() {
        let env = SimEnv::new(1);
        let options = || Options { background: false, ..Options::default() };
        let open = || Database::open_with(env.clone(), "/data", options(), |_| {}).unwrap();
        let db = open();
        let (engine, table) = (db.engine(), db.table("t").unwrap());
        (0..20_000_u32).for_each(|n| _ = table.put(n.to_be_bytes(), [1; 100]).unwrap());
        db.checkpoint().unwrap();
        let live = || db.stats().space.live_bytes();
        let loaded = live();
        table.delete_range(1_000_u32.to_be_bytes()..19_000_u32.to_be_bytes()).unwrap();
        let deleted = db.stats().visible;
        let tombstones = || table.state.index.range_deletes().links();
        let mut checkpointer = engine.checkpointer.lock();
        assert!(
            checkpointer.purges.has_work(&table.state, None, deleted, 0) && !checkpointer.purges.goes_on()
        );
        let steps = Cell::new(0);
        let two_steps = || steps.replace(steps.get() + 1) % 3 != 2;
        let mut turns = 0;
        let mut purge = |covered| {
            turns += 1;
            let mut rules = engine.reads.prune_rules(&table.state);
            if turns == 3 {
                // The slot of a snapshot that is just being opened.
                rules.snapshots = vec![Csn(100)];
            }
            checkpointer.purges.purge(&table.state, &rules, covered, two_steps).unwrap();
            checkpointer.purges.goes_on()
        };
        assert!(purge(deleted), "the first steps are not all");
        // One where the purge has been, and one where it will be.
        [1_001_u32, 18_999].iter().for_each(|n| _ = table.put(n.to_be_bytes(), [2; 100]).unwrap());
        assert_eq!((rows(&table), tombstones()), (2_002, 1));
        while purge(db.stats().visible) {
            assert_eq!((rows(&table), tombstones()), (2_002, 1));
        }
        assert!(turns > 5, "{turns}");
        assert!(
            checkpointer.purges.has_work(&table.state, None, deleted, 0),
            "versions that this snapshot saw are left"
        );
        drop(checkpointer);
        // The checkpoint that wrote the last step of the purge is the first that covers it.
        db.checkpoint().unwrap();
        table.put(0_u32.to_be_bytes(), [3; 100]).unwrap();
        db.checkpoint().unwrap();
        table.put(0_u32.to_be_bytes(), [4; 100]).unwrap();
        db.checkpoint().unwrap();
        assert_eq!((rows(&table), tombstones()), (2_002, 0));
        assert!(live() < loaded / 5, "{} of {loaded} bytes", live());
        assert!(!engine.checkpointer.lock().purges.has_work(&table.state, None, db.stats().visible, 0));
        drop(table);
        db.close().unwrap();
        let db = open();
        assert_eq!(rows(&db.table("t").unwrap()), 2_002);
        assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
    }

    /// A device that refuses to read says so with another error than damage.
    #[test]
    fn a_purge_goes_on_behind_what_cannot_be_read_for_whatever_reason() {
        let refused =
            Error::Io { what: "could not read it".into(), source: Box::new(std::io::Error::other("EIO")) };
        let mut first = None;
        note_damage(&mut first, refused).unwrap();
        note_damage(&mut first, Error::damaged("of another leaf")).unwrap();
        assert!(matches!(first, Some(Error::Io { .. })), "the first one is reported: {first:?}");
        assert!(matches!(note_damage(&mut first, Error::Closed), Err(Error::Closed)));
    }

    #[test]
    fn unions_are_apart() {
        let range = |csn, start: &str, end: Option<&str>| RangeDelete {
            csn: Csn(csn),
            keys: KeySpan::new(start.as_bytes(), end.map(str::as_bytes)).owned(),
        };
        let ranges = [
            range(1, "f", Some("h")),
            range(2, "a", Some("c")),
            range(3, "b", Some("d")),
            range(4, "d", Some("e")),
            range(5, "b", Some("c")),
            range(6, "x", None),
            range(7, "y", Some("z")),
        ];
        let text: Vec<_> = unions(&ranges)
            .into_iter()
            .map(|span| {
                [span.start, span.end.unwrap_or(b"")].map(|key| String::from_utf8_lossy(key).into_owned())
            })
            .collect();
        assert_eq!(text, [["a", "e"], ["f", "h"], ["x", ""]]);
        assert!(unions(&[]).is_empty());
    }
}
