//! Purges what no write touches: rows that have expired in leaves that nothing changes, and versions that only ended snapshots saw.
//! (RocksDB's periodic compactions do that for its sorted runs.)
//!
//! A write purges the leaf that it changes. For the others the index knows from when on a quarter of a leaf can be gone
//! ([`fulgurite_index::btree::BTree::purge_due`]). While a purge is due in some table, the thread of the checkpoints looks for such leaves,
//! a few in each of its rounds, and merges an empty batch into them. When it has been through all tables it asks for a checkpoint,
//! which writes the leaves and frees their former records. Then it sleeps until the next purge is due, and a minute at least: rows
//! that expire one after the other are purged together.
//!
//! Leaves that were due and could not be purged, because a snapshot sees it or a transaction has to find its conflict by it, are
//! tried again after ten minutes. **A commit that waits for room, or was refused, does not wait for that**: what a snapshot held when
//! the last checkpoint wrote it is looked for as soon as a snapshot has ended. That may have been the one of
//! a commit which waited for room, and held what others deleted meanwhile. Nothing of this is on disk but the times in inner nodes: after an opening each table whose root was not read
//! yet is due, so that its root is read once, a minute after the opening or later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fulgurite_index::LoadFor;
use fulgurite_index::btree::{DueLeaves, DueStep, Purged};
use fulgurite_types::{Csn, KeySpan, TableId};
use parking_lot::Mutex;

use crate::catalog::TableState;
use crate::checkpoint::note_damage;
use crate::engine::Engine;
use crate::error::OrError;
use crate::merger::Horizon as _;
use crate::{Error, Result};

/// How long no table is looked at after an opening, and after all were.
pub(crate) const PAUSE: Duration = Duration::from_secs(60);

/// When a leaf that could not be purged is tried again, in seconds.
const AGAIN_S: u32 = 600;

/// So many rounds of the thread, which come 10 ms after each other while there is something to wait for, come between two looks for room:
/// transactions end all the time, ...
const ROUNDS_BETWEEN_LOOKS: u32 = 10;

/// ... and so many after one for which there was no room itself.
const ROUNDS_WITHOUT_ROOM: u32 = 100;

/// How many ranges of leaves a round purges, ...
const RANGES_MAX: usize = 8;

/// ... and how long it goes on to another one: each may have to wait until the merge of a memtable into the table ends. Then other work
/// of the thread has its turn.
const ROUND_MAX: Duration = Duration::from_millis(20);

/// A look at a table in which fewer than this part of the leaves that were due changed was of no use: a snapshot holds them. The next one is
/// as late as that for such leaves.
const USEFUL_SHARE: u64 = 8;

/// Where the room is scarce, a round purges one range, if this many times its leaves can be written beside all that is needed
/// (INV-SPACE-3): they, and those above.
const RANGE_TIMES: u64 = 2;

/// The look for leaves that are due.
#[derive(Default)]
pub(crate) struct Purging {
    state: Mutex<State>,
    /// Whether leaves were purged that no checkpoint has been asked to write.
    wants_checkpoint: AtomicBool,
    leaves: AtomicU64,
}

#[derive(Default)]
struct State {
    /// When tables are looked at next, by the monotonic clock; `None`: there was no round yet.
    look_at_ns: Option<u64>,
    /// The tables that are looked at, the last first.
    tables: Vec<Arc<TableState>>,
    /// The key of the last one from which to go on.
    from: Vec<u8>,
    /// How many leaves were due in the last one, and how many of them changed.
    found: u64,
    changed: u64,
    /// Whether a leaf changed since the look began.
    has_purged: bool,
    /// The tables in which a look was of no use, and when the next is, in seconds since 1970.
    useless: BTreeMap<TableId, u32>,
    /// Whether commits need the room: also leaves that a snapshot may hold are looked at.
    is_for_room: bool,
    /// What held leaves when they were last looked at for that: until some of it has ended, another look is of no use.
    held: Option<Held>,
    /// So many rounds come before another look for that.
    rounds_before_look: u32,
}

/// What may hold versions that newer ones replaced.
struct Held {
    /// The snapshots that are open, in order.
    snapshots: Vec<Csn>,
    /// The last checkpoint's boundary: a leaf that commits after it made dirty is not looked at.
    covered: u64,
}

impl Held {
    /// Whether one of these snapshots has ended.
    fn has_ended(&self, now: &Held) -> bool {
        self.snapshots.iter().any(|csn| now.snapshots.binary_search(csn).is_err())
    }
}

impl Purging {
    /// How many leaves were purged since the opening.
    pub fn leaves(&self) -> u64 {
        self.leaves.load(Relaxed)
    }

    /// Whether tables are left to be looked at.
    pub fn goes_on(&self) -> bool {
        !self.state.lock().tables.is_empty()
    }

    /// Asks for a checkpoint, or again: the last has failed.
    pub fn want_checkpoint(&self) {
        self.wants_checkpoint.store(true, Relaxed);
    }

    /// Whether a checkpoint has to write the purged leaves. Asks once.
    pub fn take_wanted(&self) -> bool {
        self.wants_checkpoint.swap(false, Relaxed)
    }
}

impl State {
    /// Whether a look for room is of use, beside what holds leaves now.
    fn wants_look_for_room(&self, held: &Held) -> bool {
        self.held.as_ref().is_none_or(|before| before.has_ended(held) || before.covered != held.covered)
    }

    /// A look for room begins.
    fn begin_look_for_room(&mut self, held: Held) {
        if self.held.as_ref().is_some_and(|before| before.has_ended(&held)) {
            self.useless.clear();
        }
        (self.held, self.rounds_before_look) = (Some(held), ROUNDS_BETWEEN_LOOKS);
    }

    /// Leaves that are due up to this time, in seconds since 1970, are looked at.
    fn due_until(&self, now_s: u32) -> u32 {
        if self.is_for_room { now_s.saturating_add(AGAIN_S) } else { now_s }
    }

    /// The next table is looked at from its beginning.
    fn end_of_table(&mut self) {
        self.from.clear();
        (self.found, self.changed) = (0, 0);
    }
}

fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX)
}

impl Engine {
    /// A round of the work; returns whether there is more, a checkpoint has to write what it purged, or commits need the room that a
    /// snapshot holds.
    pub fn purge_round(&self) -> Result<bool> {
        let state = &mut *self.merger.purging.state.lock();
        let (now_ns, now_s) = (self.env.clock().monotonic_ns(), seconds(self.now_ms()));
        self.memory.index.set_now_s(now_s);
        let look_at_ns = *state.look_at_ns.get_or_insert(now_ns + PAUSE.as_nanos() as u64);
        if state.tables.is_empty() {
            let is_due = |until_s: u32| (1..=until_s).contains(&self.memory.index.purge_due());
            let held = self.held_for_room().filter(|_| is_due(now_s.saturating_add(AGAIN_S)));
            let wants_look = held.as_ref().is_some_and(|held| state.wants_look_for_room(held));
            state.is_for_room = wants_look && state.rounds_before_look == 0;
            if !state.is_for_room {
                state.rounds_before_look = state.rounds_before_look.saturating_sub(1);
            }
            if !state.is_for_room && (now_ns < look_at_ns || !is_due(now_s)) {
                return Ok(wants_look || held.is_some_and(|held| !held.snapshots.is_empty()));
            }
            state.useless.retain(|_, again_s| *again_s > now_s);
            if let Some(held) = held.filter(|_| state.is_for_room) {
                state.begin_look_for_room(held);
            }
            state.look_at_ns = Some(now_ns + PAUSE.as_nanos() as u64);
            state.tables = self.tables_with_dues(state.due_until(now_s), &state.useless);
        }
        let (ranges, mut outcome) = (if self.room.is_plenty() { RANGES_MAX } else { 1 }, Ok(()));
        let is_over = || self.env.clock().monotonic_ns() - now_ns > ROUND_MAX.as_nanos() as u64;
        for range in 0..ranges {
            let next = state.tables.last().cloned();
            let Some(table) = next.filter(|_| outcome.is_ok() && (range == 0 || !is_over())) else { break };
            if !self.has_room_to_purge() {
                // Once the next checkpoint has written the dirty nodes.
                let rest = std::mem::take(&mut state.tables);
                rest.iter().for_each(|table| {
                    table.index.base().look_again(now_s.saturating_add(PAUSE.as_secs() as u32))
                });
                state.end_of_table();
                (state.held, state.rounds_before_look) = (None, ROUNDS_WITHOUT_ROOM);
                break;
            }
            let (next, failed) = match self.purge_range(&table, state) {
                Ok(looked) => looked,
                Err(error) => (None, Some(error)),
            };
            if failed.is_some() {
                table.index.base().look_again(now_s.saturating_add(AGAIN_S));
            }
            outcome = failed.map_or(Ok(()), Err);
            match next {
                Some(next) => state.from = next,
                None => {
                    state.tables.pop();
                    let is_useless = state.changed * USEFUL_SHARE < state.found;
                    if outcome.is_err() || is_useless {
                        // The other tables go on.
                        state.useless.insert(table.id, now_s.saturating_add(AGAIN_S));
                        table.index.base().look_again(now_s.saturating_add(AGAIN_S));
                    }
                    state.end_of_table();
                }
            }
        }
        let is_over = state.tables.is_empty();
        let has_purged = is_over && std::mem::take(&mut state.has_purged);
        if has_purged {
            self.merger.purging.want_checkpoint();
        }
        outcome.map(|()| !is_over || has_purged || state.is_for_room)
    }

    /// What may hold leaves, if commits need the room that these take.
    fn held_for_room(&self) -> Option<Held> {
        if !self.room.is_wanted_by_commits() {
            return None;
        }
        let covered = self.progress.covered.load(Relaxed);
        let (snapshots, _) = self.reads.snapshots.open();
        Some(Held { snapshots, covered })
    }

    /// How long the thread may rest: until a purge may be due; `None`: none ever will be, unless something is committed.
    pub fn rest_before_purge(&self) -> Option<Duration> {
        let of_leaves = self.rest_before_due_leaves();
        // A snapshot may keep range tombstones until it ends.
        let of_ranges = (self.memory.index.tombstone_bytes() > 0).then_some(PAUSE);
        of_leaves.into_iter().chain(of_ranges).min()
    }

    fn rest_before_due_leaves(&self) -> Option<Duration> {
        let due_s = Some(self.memory.index.purge_due()).filter(|due| *due != 0)?;
        let until_due =
            Duration::from_secs(due_s.into()).saturating_sub(Duration::from_millis(self.now_ms()));
        let look_at_ns = self.merger.purging.state.lock().look_at_ns.unwrap_or(0);
        let until_look = look_at_ns.saturating_sub(self.env.clock().monotonic_ns());
        Some(until_due.max(Duration::from_nanos(until_look)).max(Duration::from_millis(1)))
    }

    /// The tables in which a purge is due up to `until_s`. Of the others it is learned anew when one is. Only checkpoints change the catalog's tree.
    fn tables_with_dues(&self, until_s: u32, useless: &BTreeMap<TableId, u32>) -> Vec<Arc<TableState>> {
        let memory = &self.memory.index;
        memory.forget_purge_due();
        let mut tables = self.tables.all();
        tables.retain(|table| {
            let due = table.index.base().purge_due();
            let again_s = useless.get(&table.id).copied();
            let due = if due == 0 { 0 } else { due.max(again_s.unwrap_or(0)) };
            let is_due = again_s.is_none() && (1..=until_s).contains(&due);
            if !is_due {
                memory.learn_purge_due(due);
            }
            is_due && table.id != TableId::CATALOG && table.dropped().is_none()
        });
        tables
    }

    fn has_room_to_purge(&self) -> bool {
        let bytes = RANGE_TIMES * (DueLeaves::LEAVES_MAX * self.options.leaf_bytes) as u64;
        let has_room = || !self.room.must_stay_empty() && self.room.for_cleaning().0 >= bytes;
        !self.memory.index.needs_checkpoint() && (self.room.is_plenty() || has_room())
    }

    /// Purges the next range of a table that is due; returns the key from which to go on, `None` at the end, and the damage of a leaf
    /// that was left out.
    fn purge_range(&self, table: &TableState, state: &mut State) -> Result<(Option<Vec<u8>>, Option<Error>)> {
        if self.files.check_open().is_err() || self.merger.gives_up() {
            return Err(Error::Closed);
        }
        let rules = self.reads.prune_rules(table);
        let tree = table.index.base();
        // What has expired for each reader, not by the clock.
        let now_s = seconds(rules.expired_until_ms).max(1);
        let DueStep { due, next, failed } =
            tree.due_leaves(&state.from, state.due_until(now_s)).or_error()?;
        let mut damage = None;
        failed.map_or(Ok(()), |error| note_damage(&mut damage, Error::of_index(error)))?;
        if let Some(due) = due {
            let range = KeySpan::new(due.start.as_slice(), due.end.as_deref());
            let skips = |error| note_damage(&mut damage, Error::of_index(error));
            if table.index.purge_while(range, &rules, skips, || !self.merger.gives_up())?.is_some() {
                return Err(Error::Closed);
            }
            let Purged { changed, stayed } = due.purged(now_s, now_s.saturating_add(AGAIN_S));
            state.found += changed + stayed;
            state.changed += changed;
            self.merger.purging.leaves.fetch_add(changed, Relaxed);
            state.has_purged |= changed > 0;
            tree.memory().wait_for_room(LoadFor::Maintenance);
        }
        Ok((next, damage))
    }
}
