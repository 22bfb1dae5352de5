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
//! tried again after ten minutes. Nothing of this is on disk but the times in inner nodes: after an opening each table whose root was not read
//! yet is due, so that its root is read once, a minute after the opening or later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fulgurite_index::LoadFor;
use fulgurite_types::{KeySpan, TableId};
use parking_lot::Mutex;

use crate::catalog::TableState;
use crate::engine::Engine;
use crate::error::OrError;
use crate::merger::Horizon as _;
use crate::{Error, Result};

/// How long no table is looked at after an opening, and after all were.
const PAUSE: Duration = Duration::from_secs(60);

/// When a leaf that could not be purged is tried again, in seconds.
const AGAIN_S: u32 = 600;

/// How many ranges of leaves a round purges, ...
const RANGES_MAX: usize = 8;

/// ... and how long it goes on to another one: each may have to wait until the merge of a memtable into the table ends. Then other work
/// of the thread has its turn.
const ROUND_MAX: Duration = Duration::from_millis(20);

/// Where the room is scarce, a range is purged only if so many bytes more can be written beside all that is needed (INV-SPACE-3): its leaves,
/// and those above.
const RANGE_BYTES: u64 = 1 << 20;

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
    /// Whether a leaf changed since the look began.
    has_purged: bool,
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

    /// Whether a checkpoint has to write the purged leaves. Asks once.
    pub fn take_wanted(&self) -> bool {
        self.wants_checkpoint.swap(false, Relaxed)
    }
}

fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX)
}

impl Engine {
    /// A round of the work; returns whether there is more.
    pub fn purge_round(&self) -> Result<bool> {
        let state = &mut *self.merger.purging.state.lock();
        let now_ns = self.env.clock().monotonic_ns();
        let look_at_ns = *state.look_at_ns.get_or_insert(now_ns + PAUSE.as_nanos() as u64);
        if state.tables.is_empty() {
            let now_s = seconds(self.now_ms());
            if now_ns < look_at_ns || !(1..=now_s).contains(&self.memory.index.purge_due()) {
                return Ok(false);
            }
            state.look_at_ns = Some(now_ns + PAUSE.as_nanos() as u64);
            state.tables = self.tables_with_dues(now_s);
        }
        let is_over = || self.env.clock().monotonic_ns() - now_ns > ROUND_MAX.as_nanos() as u64;
        for range in 0..RANGES_MAX {
            let Some(table) = state.tables.last().cloned().filter(|_| range == 0 || !is_over()) else {
                break;
            };
            let again_s = |after_s: u64| seconds(self.now_ms()).saturating_add(after_s as u32);
            if !self.has_room_to_purge() {
                // Once the next checkpoint has written the dirty nodes.
                state.from.clear();
                let rest = state.tables.drain(..);
                rest.for_each(|table| table.index.base().look_again(again_s(PAUSE.as_secs())));
                break;
            }
            match self.purge_range(&table, state) {
                Ok(Some(next)) => state.from = next,
                outcome => {
                    state.tables.pop();
                    state.from.clear();
                    if outcome.is_err() {
                        // The other tables go on.
                        table.index.base().look_again(again_s(AGAIN_S.into()));
                        outcome?;
                    }
                }
            }
        }
        if state.tables.is_empty() && std::mem::take(&mut state.has_purged) {
            self.merger.purging.wants_checkpoint.store(true, Relaxed);
        }
        Ok(!state.tables.is_empty())
    }

    /// How long the thread may rest: until a purge may be due; `None`: none ever will be, unless something is committed.
    pub fn rest_before_purge(&self) -> Option<Duration> {
        let due_s = Some(self.memory.index.purge_due()).filter(|due| *due != 0)?;
        let until_due =
            Duration::from_secs(due_s.into()).saturating_sub(Duration::from_millis(self.now_ms()));
        let look_at_ns = self.merger.purging.state.lock().look_at_ns.unwrap_or(0);
        let until_look = look_at_ns.saturating_sub(self.env.clock().monotonic_ns());
        Some(until_due.max(Duration::from_nanos(until_look)).max(Duration::from_millis(1)))
    }

    /// The tables in which a purge is due. Of the others it is learned anew when one is. Only checkpoints change the catalog's tree.
    fn tables_with_dues(&self, now_s: u32) -> Vec<Arc<TableState>> {
        let memory = &self.memory.index;
        memory.forget_purge_due();
        let mut tables = self.tables.all();
        tables.retain(|table| {
            let due = table.index.base().purge_due();
            let is_due = (1..=now_s).contains(&due);
            if !is_due {
                memory.learn_purge_due(due);
            }
            is_due && table.id != TableId::CATALOG && table.dropped().is_none()
        });
        tables
    }

    fn has_room_to_purge(&self) -> bool {
        self.room.is_plenty() || (!self.room.must_stay_empty() && self.room.for_cleaning().0 >= RANGE_BYTES)
    }

    /// Purges the next range of a table that is due; returns the key from which to go on, `None` at the end.
    fn purge_range(&self, table: &TableState, state: &mut State) -> Result<Option<Vec<u8>>> {
        if self.files.check_open().is_err() || self.merger.gives_up() {
            return Err(Error::Closed);
        }
        let rules = self.reads.prune_rules(table);
        let tree = table.index.base();
        // What has expired for each reader, not by the clock.
        let now_s = seconds(rules.expired_until_ms).max(1);
        let (due, next) = tree.due_leaves(&state.from, now_s).or_error()?;
        if let Some(due) = due {
            let range = KeySpan::new(due.start.as_slice(), due.end.as_deref());
            if !table.index.purge_while(range, &rules, || !self.merger.gives_up()).or_error()? {
                return Err(Error::Closed);
            }
            let changed = due.purged(now_s.saturating_add(AGAIN_S));
            self.merger.purging.leaves.fetch_add(changed, Relaxed);
            state.has_purged |= changed > 0;
            tree.memory().wait_for_room(LoadFor::Maintenance);
        }
        Ok(next)
    }
}
