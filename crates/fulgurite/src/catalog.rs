//! The catalog: table 0, whose rows name the other tables, and the states of all tables in memory.
//!
//! ```text
//! key   := name (UTF-8, 1 to 255 bytes, no control characters) | "\0next" (the next table id)
//! value := version u8 = 1 | id u32 | kind u8 | flags u8      | next id u32
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use fulgurite_index::btree::{BTree, BTreeOptions};
use fulgurite_index::memtables::{Block, RecoveredBatch};
use fulgurite_index::range_delete::Readers;
use fulgurite_index::table::{Table as IndexTable, TableOptions};
use fulgurite_index::{IndexMemory, NodeStore, TableCharge};
use fulgurite_types::{Csn, KeySpan, Lsn, Reader, TableId, Writer, limits};
use parking_lot::{Mutex, RwLock};

use crate::active::{Active, Activity, note};
use crate::claims::Claims;
use crate::merger::{MERGING_WAIT_MS_MAX, Stillness};
use crate::throttle::Throttle;
use crate::{Error, Options, Result};

/// The key of the row that holds the next table id.
pub(crate) const NEXT_ID_KEY: &[u8] = b"\0next";
const ROW_VERSION: u8 = 1;
const KIND_BTREE: u8 = 1;

/// The catalog's own limit, whatever the options: opening reads the catalog's rows before anything else, so they stay
/// in the leaves.
const CATALOG_INLINE_MAX: usize = 1024;

/// Values of a table up to this many bytes are stored in its leaves.
pub(crate) fn inline_max_of(table: TableId, options_max: usize) -> usize {
    if table == TableId::CATALOG { CATALOG_INLINE_MAX } else { options_max }
}

/// A table in memory.
pub(crate) struct TableState {
    pub id: TableId,
    /// Shared by commits that write the table or validate a point read; exclusive for ranges, drop and rename.
    pub gate: RwLock<()>,
    pub index: Arc<IndexTable<BTree>>,
    name: RwLock<Arc<str>>,
    /// The CSN of the commit that dropped the table; 0 if it is not dropped.
    dropped: AtomicU64,
    /// Whether the last attempt to merge it failed: a record of its tree cannot be read.
    pub merging_failed: AtomicBool,
    /// The keys that open transactions have popped.
    pub claims: Claims,
    /// Where committers queue while merging falls behind.
    pub throttle: Throttle,
    /// Since when no commit has changed its mutable memtable.
    pub stillness: Stillness,
    /// Whether it is in the list of active tables.
    is_active: AtomicBool,
    active: Weak<Active<TableState>>,
    _charge: TableCharge,
}

/// About what a table takes here beside its name: its state, and an entry in each map, whose nodes are between half full and
/// full.
const TABLE_BYTES: usize = size_of::<TableState>()
    + 2 * size_of::<usize>()
    + 3 * size_of::<(TableId, Arc<TableState>)>() / 2
    + 3 * size_of::<(Arc<str>, Arc<TableState>)>() / 2;

impl Activity for TableState {
    fn flag(&self) -> &AtomicBool {
        &self.is_active
    }

    /// Whether nothing is left to merge or to purge, or nothing will be any more.
    fn is_quiet(&self) -> bool {
        let memtables = self.index.memtables();
        let is_merged = || memtables.count() == 1 && memtables.newest_is_empty();
        self.index.merging_has_ended() || (is_merged() && self.index.range_deletes().is_empty())
    }
}

impl TableState {
    /// Applies a commit's versions.
    pub fn apply(self: &Arc<Self>, block: Block, csn: Csn, body_lsn: Lsn) {
        self.index.apply(block, csn, body_lsn);
        note(&self.active, self);
    }

    /// Applies a range delete.
    pub fn apply_range_delete(self: &Arc<Self>, keys: KeySpan<&[u8]>, csn: Csn, readers: &Readers) {
        self.index.apply_range_delete(keys, csn, readers);
        note(&self.active, self);
    }

    /// Applies replayed operations.
    pub fn apply_recovered(self: &Arc<Self>, batch: RecoveredBatch) {
        self.index.apply_recovered(batch);
        note(&self.active, self);
    }

    /// Freezes the mutable memtable at `boundary`, unless the table is idle. Called while no commit can get a number.
    ///
    /// INV-CKPT-5: an idle table's mutable memtable holds no commit at or below the boundary, and never will. It is
    /// empty; and a commit that has a number at or below the boundary and is not applied yet holds the gate, which a
    /// committer takes before it gets its number and keeps until it is applied. (The gate's holders need not have
    /// numbers: then the table is frozen for nothing.)
    ///
    /// The catalog is never idle: its tree on disk has to be the catalog at the boundary.
    pub fn freeze_unless_idle(&self, boundary: Csn) {
        let is_idle = || self.index.memtables().newest_is_empty() && self.gate.try_write().is_some();
        if self.id == TableId::CATALOG || !is_idle() {
            self.index.freeze(boundary);
        }
    }

    pub fn name(&self) -> Arc<str> {
        self.name.read().clone()
    }

    /// The commit that dropped the table.
    pub fn dropped(&self) -> Option<Csn> {
        match self.dropped.load(Ordering::Acquire) {
            0 => None,
            csn => Some(Csn(csn)),
        }
    }

    /// Fails if a commit at or before `at` dropped the table.
    pub fn check_seen(&self, at: Csn) -> Result<()> {
        match self.dropped() {
            Some(csn) if csn <= at => Err(Error::TableDropped { name: self.name().to_string() }),
            _ => Ok(()),
        }
    }
}

/// A change of the catalog in a commit.
#[derive(Clone, Debug)]
pub(crate) enum CatalogOp {
    Put { key: Vec<u8>, row: Vec<u8> },
    Delete { key: Vec<u8> },
}

/// All tables.
pub(crate) struct Catalog {
    store: Arc<dyn NodeStore>,
    btree: BTreeOptions,
    table: TableOptions,
    /// The catalog's own table.
    pub root: Arc<TableState>,
    next_id: AtomicU32,
    /// Held during a definition, from look-up to commit: the number of the newest.
    pub definitions: Mutex<Csn>,
    maps: RwLock<Maps>,
    active: Arc<Active<TableState>>,
}

#[derive(Default)]
struct Maps {
    by_id: BTreeMap<TableId, Arc<TableState>>,
    by_name: BTreeMap<Arc<str>, Arc<TableState>>,
    /// Dropped, but not purged by a checkpoint yet.
    dropped: Vec<Arc<TableState>>,
}

impl Catalog {
    /// A catalog whose own table has its root at `root` ([`Lsn::NULL`]: a new database).
    pub fn new(store: Arc<dyn NodeStore>, options: &Options, root: Lsn) -> Catalog {
        let btree = BTreeOptions { leaf_bytes: options.leaf_bytes, ..BTreeOptions::default() };
        let table = TableOptions { inline_max: options.inline_bytes_max };
        let own = TableOptions { inline_max: inline_max_of(TableId::CATALOG, table.inline_max) };
        let active = Arc::new(Active::default());
        let root = new_state(
            TableId::CATALOG,
            "",
            &store,
            &BTreeOptions::default(),
            &own,
            root,
            Arc::downgrade(&active),
        );
        Catalog {
            store,
            btree,
            table,
            root,
            next_id: AtomicU32::new(1),
            definitions: Mutex::new(Csn::ZERO),
            maps: RwLock::default(),
            active,
        }
    }

    /// The tables that have something to merge.
    pub fn active(&self) -> &Active<TableState> {
        &self.active
    }

    /// The memory of the trees and memtables of all tables.
    pub fn memory(&self) -> Arc<IndexMemory> {
        self.root.index.base().memory().clone()
    }

    /// At most the bytes of nodes that are to be written, of all tables.
    pub fn dirty_bytes(&self) -> u64 {
        self.memory().dirty_bytes() as u64
    }

    /// How many tables there are that are not dropped.
    pub fn count(&self) -> usize {
        self.maps.read().by_name.len()
    }

    /// A table that is not in the maps yet.
    pub fn prepare(&self, id: TableId, name: &str, root: Lsn) -> Arc<TableState> {
        new_state(id, name, &self.store, &self.btree, &self.table, root, Arc::downgrade(&self.active))
    }

    /// The id that the next table gets.
    pub fn next_id(&self) -> TableId {
        TableId(self.next_id.load(Ordering::Acquire))
    }

    pub fn by_name(&self, name: &str) -> Option<Arc<TableState>> {
        self.maps.read().by_name.get(name).cloned()
    }

    pub fn by_id(&self, id: TableId) -> Option<Arc<TableState>> {
        if id == TableId::CATALOG {
            return Some(self.root.clone());
        }
        self.maps.read().by_id.get(&id).cloned()
    }

    /// The same, also of a dropped table that no checkpoint has purged yet.
    pub fn by_id_or_dropped(&self, id: TableId) -> Option<Arc<TableState>> {
        let dropped = || self.maps.read().dropped.iter().find(|state| state.id == id).cloned();
        self.by_id(id).or_else(dropped)
    }

    /// Every table that is not dropped, by name.
    pub fn list(&self) -> Vec<Arc<TableState>> {
        self.maps.read().by_name.values().cloned().collect()
    }

    /// Every table that has memory or disk space, the catalog's own first, dropped ones last.
    pub fn all(&self) -> Vec<Arc<TableState>> {
        let maps = self.maps.read();
        let mut all = vec![self.root.clone()];
        all.extend(maps.by_id.values().cloned());
        all.extend(maps.dropped.iter().cloned());
        all
    }

    /// The dropped tables that have disk space, with the commits that dropped them.
    pub fn dropped(&self) -> Vec<(TableId, Csn)> {
        let maps = self.maps.read();
        maps.dropped.iter().filter_map(|state| Some((state.id, state.dropped()?))).collect()
    }

    /// Removes and returns the dropped tables for which `purge` returns true.
    pub fn purge(&self, purge: impl Fn(&TableState) -> bool) -> Vec<Arc<TableState>> {
        let mut maps = self.maps.write();
        let (gone, kept) = std::mem::take(&mut maps.dropped).into_iter().partition(|state| purge(state));
        maps.dropped = kept;
        gone
    }

    /// Applies a commit's changes of the catalog: the same for a live commit, which may have a `prepared` table, and
    /// for a replayed one. Rows that do not decode can occur in replay only.
    pub fn apply(&self, csn: Csn, ops: &[CatalogOp], prepared: Option<&Arc<TableState>>) -> Result<()> {
        let mut named = Vec::new();
        for op in ops {
            let CatalogOp::Put { key, row } = op else { continue };
            if key == NEXT_ID_KEY {
                self.next_id.fetch_max(decode_next_id(row)?, Ordering::AcqRel);
                continue;
            }
            let name = std::str::from_utf8(key).map_err(|_| Error::damaged("a table's name is not UTF-8"))?;
            named.push((decode_row(row)?, Arc::<str>::from(name)));
        }
        let mut maps = self.maps.write();
        for op in ops {
            let CatalogOp::Delete { key } = op else { continue };
            let Some(state) = std::str::from_utf8(key).ok().and_then(|name| maps.by_name.remove(name)) else {
                continue;
            };
            if named.iter().all(|(id, _)| *id != state.id) {
                maps.by_id.remove(&state.id);
                state.dropped.store(csn.0, Ordering::Release);
                maps.dropped.push(state);
            }
        }
        for (id, name) in named {
            let state = match (maps.by_id.get(&id), prepared) {
                (Some(state), _) => state.clone(),
                (None, Some(prepared)) if prepared.id == id => prepared.clone(),
                (None, _) => self.prepare(id, &name, Lsn::NULL),
            };
            *state.name.write() = name.clone();
            maps.by_id.insert(id, state.clone());
            maps.by_name.insert(name, state);
            self.next_id.fetch_max(id.0 + 1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Enters a table of the checkpoint.
    pub fn restore(&self, state: Arc<TableState>) {
        let mut maps = self.maps.write();
        self.next_id.fetch_max(state.id.0 + 1, Ordering::AcqRel);
        maps.by_name.insert(state.name(), state.clone());
        maps.by_id.insert(state.id, state);
    }

    /// Raises the next table id to that of a checkpoint.
    pub fn raise_next_id(&self, id: u32) {
        self.next_id.fetch_max(id, Ordering::AcqRel);
    }
}

fn new_state(
    id: TableId,
    name: &str,
    store: &Arc<dyn NodeStore>,
    btree: &BTreeOptions,
    table: &TableOptions,
    root: Lsn,
    active: Weak<Active<TableState>>,
) -> Arc<TableState> {
    let tree = BTree::open(id, root, store.clone(), btree.clone());
    let name_bytes = 2 * size_of::<usize>() + name.len();
    let charge = TableCharge::new(tree.memory(), TABLE_BYTES + name_bytes);
    Arc::new(TableState {
        id,
        gate: RwLock::new(()),
        index: Arc::new(IndexTable::new(id, tree, *table)),
        name: RwLock::new(name.into()),
        dropped: AtomicU64::new(0),
        stillness: Stillness::default(),
        merging_failed: AtomicBool::new(false),
        claims: Claims::default(),
        throttle: Throttle::new(MERGING_WAIT_MS_MAX),
        is_active: AtomicBool::new(false),
        active,
        _charge: charge,
    })
}

/// Whether a table may have this name.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > limits::TABLE_NAME_BYTES_MAX {
        "it is longer than 255 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(Error::BadTableName { name: name.to_string(), why })
}

/// The row of a table.
pub(crate) fn encode_row(id: TableId) -> Vec<u8> {
    let mut row = Vec::with_capacity(7);
    row.put_u8(ROW_VERSION);
    row.put_u32(id.0);
    row.put_u8(KIND_BTREE);
    row.put_u8(0);
    row
}

/// The id in a table's row.
pub(crate) fn decode_row(row: &[u8]) -> Result<TableId> {
    let bad = |_| Error::damaged("a row of the catalog does not decode");
    let mut reader = Reader::new(row);
    let version = reader.u8("version").map_err(bad)?;
    let id = TableId(reader.u32("id").map_err(bad)?);
    let kind = reader.u8("kind").map_err(bad)?;
    if version != ROW_VERSION || kind != KIND_BTREE || id == TableId::CATALOG {
        return Err(Error::damaged(format!(
            "a row of the catalog has version {version}, kind {kind}, id {id}"
        )));
    }
    Ok(id)
}

/// The row that keeps the next table id.
pub(crate) fn encode_next_id(id: u32) -> Vec<u8> {
    id.to_le_bytes().to_vec()
}

pub(crate) fn decode_next_id(row: &[u8]) -> Result<u32> {
    let bytes = row.try_into().map_err(|_| Error::damaged("the catalog's next table id does not decode"))?;
    Ok(u32::from_le_bytes(bytes))
}
