//! Which bytes of which segment are live, and which segments may be freed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fulgurite_index::{AccountChange, DATA_ACCOUNT};
use fulgurite_log::{BulkBoundary, SegmentInfo, Stream};
use fulgurite_types::{Lsn, TableId};

use crate::checkpoint::record::{CheckpointRecord, TableRecord};
use crate::memory_charge::MemoryCharge;
use crate::space::pins::SpillPins;

/// The live bytes of each segment, by the table that holds them.
pub(crate) type TableAccounts = BTreeMap<TableId, BTreeMap<u32, i64>>;

/// About what a table takes in the maps of tables: its entries of `now`, `now_sizes` and `written`, and two of its data.
const TABLE_BYTES: usize = 2
    * (size_of::<(TableId, BTreeMap<u32, i64>)>() + size_of::<(TableId, Written)>() + 12)
    + 4 * size_of::<(TableId, i64)>();

/// What a node of a map by segment takes, ...
const MAP_NODE_BYTES: usize = 11 * (size_of::<u32>() + size_of::<i64>()) + 12;

/// ... which holds so many entries, if they came in their order.
const MAP_NODE_ENTRIES: usize = 6;

/// About what the entries of a map by segment take.
fn map_bytes(entries: usize) -> usize {
    // The inner nodes: a sixth, which are larger by two thirds.
    let leaves = if entries <= 11 { entries.min(1) } else { entries / MAP_NODE_ENTRIES };
    (leaves + leaves / 4) * MAP_NODE_BYTES
}

/// The accounts: live bytes are a function of the trees that a checkpoint refers to (INV-SPACE-1). A record that is
/// written adds the bytes that it references, and the record that it replaces no longer counts; changes in memory count
/// only when they are written.
///
/// Three states of the trees are kept apart, because records are written at any time, and any of the three may be read
/// again: the newest records of the nodes in memory (`now`), the trees as they were written out last (`written`), and
/// those that the two copies of the superblock refer to.
pub(crate) struct Accounts {
    now: TableAccounts,
    /// Its sums over all tables, by segment.
    now_totals: Totals,
    /// Its sums over all segments, by table.
    now_sizes: BTreeMap<TableId, i64>,
    written: BTreeMap<TableId, Written>,
    written_totals: Totals,
    data: DataBytes,
    /// Totals by segment as of the current and the previous checkpoint: recovery may need either.
    current: Checkpoint,
    previous: Checkpoint,
    /// About the bytes of the maps in `now` and `written`.
    map_bytes: usize,
    memory: Option<Arc<MemoryCharge>>,
}

/// A table's tree as it was written out last.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Its root record; null if it is empty.
    pub root: Lsn,
    /// Its live bytes by segment.
    pub live: BTreeMap<u32, i64>,
    /// The bytes of its keys and their newest values; unknown of a tree from before these were counted.
    pub data_bytes: Option<u64>,
}

impl Default for Written {
    fn default() -> Written {
        Written { root: Lsn::NULL, live: BTreeMap::new(), data_bytes: Some(0) }
    }
}

/// Live bytes by segment, of all tables. No entry is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Totals(BTreeMap<u32, i64>);

impl Totals {
    fn add(&mut self, segment: u32, bytes: i64) {
        let live = self.0.entry(segment).or_default();
        *live += bytes;
        if *live == 0 {
            self.0.remove(&segment);
        }
    }

    fn add_all(&mut self, account: &BTreeMap<u32, i64>) {
        account.iter().for_each(|(segment, bytes)| self.add(*segment, *bytes));
    }

    fn subtract_all(&mut self, account: &BTreeMap<u32, i64>) {
        account.iter().for_each(|(segment, bytes)| self.add(*segment, -bytes));
    }

    fn of(&self, segment: u32) -> i64 {
        self.0.get(&segment).copied().unwrap_or(0)
    }
}

/// The bytes of keys and their newest values, by table.
#[derive(Default)]
struct DataBytes {
    /// Of the nodes in memory.
    now: BTreeMap<TableId, i64>,
    /// Of the trees as they were written last, and their sum.
    written: BTreeMap<TableId, u64>,
    written_total: u64,
    /// Trees from before these were counted, until they are empty.
    unknown: BTreeSet<TableId>,
}

impl DataBytes {
    fn of(written: &BTreeMap<TableId, Written>) -> DataBytes {
        let mut data = DataBytes::default();
        for (table, written) in written {
            match written.data_bytes {
                Some(bytes) => {
                    data.now.insert(*table, bytes as i64);
                    data.note_written(*table, bytes);
                }
                None => _ = data.unknown.insert(*table),
            }
        }
        data
    }

    fn change(&mut self, table: TableId, bytes: i64) {
        if !self.unknown.contains(&table) {
            let now = self.now.entry(table).or_default();
            *now += bytes;
            assert!(*now >= 0, "INV-SPACE-1: table {table} would have {now} bytes of data");
        }
    }

    /// A table's tree was written out; returns the bytes in it.
    fn wrote(&mut self, table: TableId, root: Lsn) -> Option<u64> {
        if root.is_null() {
            self.unknown.remove(&table);
        }
        if self.unknown.contains(&table) {
            return None;
        }
        let bytes = self.now.get(&table).copied().unwrap_or(0) as u64;
        self.note_written(table, bytes);
        Some(bytes)
    }

    fn note_written(&mut self, table: TableId, bytes: u64) {
        if table != TableId::CATALOG {
            let former = self.written.insert(table, bytes).unwrap_or(0);
            self.written_total = self.written_total + bytes - former;
        }
    }

    fn drop_table(&mut self, table: TableId) {
        self.now.remove(&table);
        self.unknown.remove(&table);
        self.written_total -= self.written.remove(&table).unwrap_or(0);
    }

    fn total(&self) -> Option<u64> {
        self.unknown.iter().all(|table| *table == TableId::CATALOG).then_some(self.written_total)
    }
}

#[derive(Clone, Default)]
struct Checkpoint {
    live: Totals,
    /// The segments that hold the record itself.
    record: Vec<u32>,
}

impl Accounts {
    /// The accounts of the checkpoint that recovery found. Opening writes the superblock before anything is freed, so
    /// that both copies point to this checkpoint.
    pub fn recovered(checkpoint: &CheckpointRecord, record: Vec<u32>) -> Accounts {
        let written = |table: &TableRecord| Written {
            root: table.root,
            live: table.accounts.clone(),
            data_bytes: table.data_bytes.or(table.root.is_null().then_some(0)),
        };
        Accounts::new(checkpoint.tables.iter().map(|(id, table)| (*id, written(table))).collect(), record)
    }

    fn new(written: BTreeMap<TableId, Written>, record: Vec<u32>) -> Accounts {
        let now = written.iter().map(|(id, written)| (*id, written.live.clone())).collect();
        let now_sizes = written.iter().map(|(id, written)| (*id, written.live.values().sum())).collect();
        let mut totals = Totals::default();
        written.values().for_each(|written| totals.add_all(&written.live));
        let data = DataBytes::of(&written);
        let current = Checkpoint { live: totals.clone(), record };
        let (now_totals, written_totals) = (totals.clone(), totals);
        let map_bytes = 2 * written.values().map(|written| map_bytes(written.live.len())).sum::<usize>();
        let previous = current.clone();
        Accounts {
            now,
            now_totals,
            now_sizes,
            written,
            written_totals,
            data,
            current,
            previous,
            map_bytes,
            memory: None,
        }
    }

    /// Has its memory counted.
    pub fn count_in(&mut self, memory: Arc<MemoryCharge>) {
        self.memory = Some(memory);
        self.charge();
    }

    /// Counts what it takes now.
    fn charge(&self) {
        if let Some(memory) = &self.memory {
            memory.set(self.bytes());
        }
    }

    /// About the bytes of memory that it takes.
    fn bytes(&self) -> usize {
        let totals = [&self.now_totals, &self.written_totals, &self.current.live, &self.previous.live];
        let of_totals: usize = totals.into_iter().map(|totals| map_bytes(totals.0.len())).sum();
        self.map_bytes + of_totals + self.now.len() * TABLE_BYTES
    }

    /// Books the changes that writing a table's records reported.
    pub fn change(&mut self, table: TableId, changes: &[AccountChange]) {
        let account = self.now.entry(table).or_default();
        let bytes_before = map_bytes(account.len());
        let size = self.now_sizes.entry(table).or_default();
        for &(segment, bytes) in changes {
            if segment == DATA_ACCOUNT {
                self.data.change(table, bytes);
                continue;
            }
            *size += bytes;
            let live = account.entry(segment).or_default();
            *live += bytes;
            assert!(
                *live >= 0,
                "INV-SPACE-1: table {table} would have {live} live bytes in segment {segment}"
            );
            if *live == 0 {
                account.remove(&segment);
            }
            self.now_totals.add(segment, bytes);
        }
        self.map_bytes = self.map_bytes + map_bytes(account.len()) - bytes_before;
        self.charge();
    }

    /// The live bytes of a table that the nodes in memory refer to, and in how many segments they are.
    pub fn size_now(&self, table: TableId) -> (u64, usize) {
        let bytes = self.now_sizes.get(&table).copied().unwrap_or(0).max(0) as u64;
        (bytes, self.now.get(&table).map_or(0, BTreeMap::len))
    }

    /// All bytes that the nodes in memory refer to.
    pub fn bytes_now(&self) -> u64 {
        self.now_totals.0.values().sum::<i64>().max(0) as u64
    }

    /// In how many segments they are.
    pub fn segments_now(&self) -> usize {
        self.now_totals.0.len()
    }

    /// The bytes of a segment that the nodes in memory refer to. With none it is dead once both copies of the superblock
    /// name a checkpoint that begins now.
    pub fn live_now(&self, segment: u32) -> u64 {
        self.now_totals.of(segment).max(0) as u64
    }

    /// A table's tree was written out, and all changes up to that were booked.
    pub fn wrote(&mut self, table: TableId, root: Lsn) {
        let live = self.now.get(&table).cloned().unwrap_or_default();
        self.written_totals.add_all(&live);
        self.map_bytes += map_bytes(live.len());
        let data_bytes = self.data.wrote(table, root);
        if let Some(former) = self.written.insert(table, Written { root, live, data_bytes }) {
            self.map_bytes -= map_bytes(former.live.len());
            self.written_totals.subtract_all(&former.live);
        }
        self.charge();
    }

    /// A table's tree as it was written out last.
    pub fn written(&self, table: TableId) -> Written {
        self.written.get(&table).cloned().unwrap_or_default()
    }

    /// Removes a dropped table that no snapshot sees: it keeps no bytes live.
    pub fn drop_table(&mut self, table: TableId) {
        if let Some(now) = self.now.remove(&table) {
            self.map_bytes -= map_bytes(now.len());
            self.now_totals.subtract_all(&now);
        }
        self.now_sizes.remove(&table);
        self.data.drop_table(table);
        if let Some(written) = self.written.remove(&table) {
            self.map_bytes -= map_bytes(written.live.len());
            self.written_totals.subtract_all(&written.live);
        }
        self.charge();
    }

    /// A checkpoint is durable; its record is in the segments `record`.
    pub fn install(&mut self, record: Vec<u32>) {
        let next = Checkpoint { live: self.written_totals.clone(), record };
        self.previous = std::mem::replace(&mut self.current, next);
        self.charge();
    }

    /// The superblock was written again for the current checkpoint: both copies point to it.
    pub fn install_again(&mut self) {
        self.previous = self.current.clone();
        self.charge();
    }

    /// All live bytes.
    pub fn live_bytes(&self) -> u64 {
        self.current.live.0.values().sum::<i64>().max(0) as u64
    }

    /// The bytes of all keys and their newest values in the trees as they were written last, those of the catalog left out;
    /// unknown if some were not counted.
    pub fn data_bytes(&self) -> Option<u64> {
        self.data.total()
    }

    /// The live bytes of a segment as of the current checkpoint.
    #[cfg(test)]
    pub fn live_in(&self, segment: u32) -> u64 {
        self.current.live.of(segment).max(0) as u64
    }

    /// The live bytes of a table that the nodes in memory refer to, by segment.
    pub fn live_now_of(&self, table: TableId) -> impl Iterator<Item = (u32, u64)> + '_ {
        let account = self.now.get(&table).into_iter().flatten();
        account.map(|(segment, bytes)| (*segment, (*bytes).max(0) as u64))
    }

    /// The tables of which nodes in memory refer to bytes in `segments`.
    pub fn tables_in(&self, segments: &BTreeSet<u32>) -> BTreeSet<TableId> {
        let is_in = |account: &BTreeMap<u32, i64>| account.keys().any(|segment| segments.contains(segment));
        self.now.iter().filter(|(_, account)| is_in(account)).map(|(table, _)| *table).collect()
    }

    /// Whether the current checkpoint has its record in a segment.
    pub fn has_record_in(&self, segment: u32) -> bool {
        self.current.record.contains(&segment)
    }

    /// Whether a checkpoint that a copy of the superblock names refers to a segment, or has its record there.
    pub fn is_in_a_copy(&self, segment: u32) -> bool {
        [&self.current, &self.previous]
            .into_iter()
            .any(|checkpoint| checkpoint.live.of(segment) != 0 || checkpoint.record.contains(&segment))
    }

    /// Whether nothing on disk and no open transaction needs a segment (INV-SPACE-2). `replay` is the smaller replay
    /// position of both copies of the superblock, `boundary` when the current checkpoint began: a segment may hold records that
    /// were written since.
    pub fn may_free(
        &self,
        segment: &SegmentInfo,
        replay: Lsn,
        boundary: &BulkBoundary,
        pins: &SpillPins,
    ) -> bool {
        let is_before = match segment.stream {
            Some(Stream::Commit) => segment.number < replay.segment(),
            Some(Stream::Bulk) => boundary.is_after(segment.number),
            None => false,
        };
        !segment.open
            && is_before
            && !self.is_in_a_copy(segment.number)
            && self.now_totals.of(segment.number) == 0
            && !pins.holds(segment.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_types::{Csn, Epoch};

    const TABLE: TableId = TableId(1);

    fn segment(number: u32, stream: Stream) -> SegmentInfo {
        SegmentInfo {
            number,
            bytes: 1 << 20,
            stream: Some(stream),
            epoch: Epoch(1),
            first_csn: Csn(1),
            used_bytes: 1 << 20,
            open: false,
            made_ns: 0,
        }
    }

    /// Two checkpoints, the first with `first` live in segment 5, the second with `second`.
    fn accounts(first: i64, second: i64) -> Accounts {
        let mut accounts = Accounts::new(BTreeMap::new(), vec![]);
        accounts.change(TABLE, &[(5, first)]);
        accounts.wrote(TABLE, Lsn::NULL);
        accounts.install(vec![7]);
        accounts.change(TABLE, &[(5, second - first)]);
        accounts.wrote(TABLE, Lsn::NULL);
        accounts.install(vec![8]);
        accounts
    }

    /// A checkpoint that began after all segments of these tests were full.
    fn old() -> BulkBoundary {
        BulkBoundary::new(100, vec![])
    }

    fn may_free(accounts: &Accounts, segment: &SegmentInfo) -> bool {
        accounts.may_free(segment, Lsn::new(100, 0), &old(), &SpillPins::default())
    }

    #[test]
    fn a_dead_closed_old_segment_may_be_freed() {
        assert!(may_free(&accounts(0, 0), &segment(5, Stream::Commit)));
        assert!(may_free(&accounts(0, 0), &segment(5, Stream::Bulk)));
    }

    #[test]
    fn a_segment_that_the_current_checkpoint_refers_to_stays() {
        assert!(!may_free(&accounts(0, 10), &segment(5, Stream::Bulk)));
    }

    #[test]
    fn a_segment_that_the_previous_checkpoint_refers_to_stays() {
        assert!(!may_free(&accounts(10, 0), &segment(5, Stream::Bulk)));
    }

    /// Records that are written between two write-outs are what the nodes in memory refer to; no checkpoint knows them.
    #[test]
    fn what_only_nodes_in_memory_refer_to_stays_and_is_in_no_checkpoint() {
        let mut accounts = accounts(0, 0);
        accounts.change(TABLE, &[(5, 10), (6, 10)]);
        assert!(!may_free(&accounts, &segment(5, Stream::Bulk)));
        accounts.install(vec![9]);
        accounts.install(vec![9]);
        assert_eq!((accounts.live_in(5), accounts.written(TABLE).live.len()), (0, 0));
        assert!(!may_free(&accounts, &segment(5, Stream::Bulk)));
        accounts.wrote(TABLE, Lsn::NULL);
        accounts.install(vec![10]);
        assert_eq!((accounts.live_in(5), accounts.live_bytes()), (10, 20));
        accounts.change(TABLE, &[(5, -10)]);
        assert!(!may_free(&accounts, &segment(5, Stream::Bulk)), "a checkpoint refers to it");
    }

    #[test]
    fn a_segment_that_only_a_write_out_refers_to_stays() {
        let mut accounts = accounts(0, 0);
        accounts.change(TABLE, &[(5, 10)]);
        assert!(!may_free(&accounts, &segment(5, Stream::Bulk)), "its checkpoint may have failed");
    }

    #[test]
    fn a_segment_with_a_checkpoint_record_stays() {
        assert!(!may_free(&accounts(0, 0), &segment(7, Stream::Bulk)));
        assert!(!may_free(&accounts(0, 0), &segment(8, Stream::Bulk)));
    }

    #[test]
    fn a_segment_of_the_checkpoint_that_was_opened_stays_until_two_newer_ones() {
        let written = Written { root: Lsn::NULL, live: BTreeMap::from([(5, 10)]), ..Written::default() };
        let mut accounts = Accounts::new(BTreeMap::from([(TABLE, written)]), vec![]);
        let bulk = segment(5, Stream::Bulk);
        accounts.change(TABLE, &[(5, -10)]);
        accounts.wrote(TABLE, Lsn::NULL);
        assert!(!may_free(&accounts, &bulk));
        accounts.install(vec![]);
        assert!(!may_free(&accounts, &bulk));
        accounts.install_again();
        assert!(may_free(&accounts, &bulk));
    }

    #[test]
    fn a_tree_whose_data_was_not_counted_is_unknown_until_it_is_empty() {
        let root = Lsn::new(5, 4096);
        let old = Written { root, live: BTreeMap::from([(5, 10)]), data_bytes: None };
        let mut accounts = Accounts::new(BTreeMap::from([(TABLE, old)]), vec![]);
        accounts.change(TABLE, &[(5, -5), (DATA_ACCOUNT, -100)]);
        accounts.wrote(TABLE, root);
        accounts.change(TableId(2), &[(5, 10), (DATA_ACCOUNT, 70)]);
        accounts.change(TableId::CATALOG, &[(5, 10), (DATA_ACCOUNT, 30)]);
        assert_eq!(accounts.data_bytes(), None);
        accounts.wrote(TABLE, Lsn::NULL);
        assert_eq!(accounts.data_bytes(), Some(0), "nothing else was written out");
        accounts.wrote(TableId(2), root);
        accounts.wrote(TableId::CATALOG, root);
        assert_eq!(accounts.data_bytes(), Some(70));
        assert_eq!(accounts.size_now(TableId(2)), (10, 1));
        accounts.drop_table(TableId(2));
        assert_eq!(accounts.data_bytes(), Some(0));
    }

    #[test]
    fn tables_are_found_by_the_segments_of_their_bytes() {
        let mut accounts = accounts(10, 10);
        accounts.change(TableId(2), &[(5, 10), (6, 10)]);
        accounts.change(TableId(3), &[(6, 10)]);
        accounts.change(TableId(2), &[(5, -10)]);
        let tables_in = |segments: &[u32]| accounts.tables_in(&segments.iter().copied().collect());
        assert_eq!(tables_in(&[5]), BTreeSet::from([TABLE]));
        assert_eq!(tables_in(&[6, 7]), BTreeSet::from([TableId(2), TableId(3)]));
        assert_eq!(tables_in(&[]), BTreeSet::new());
    }

    #[test]
    fn a_segment_that_replay_needs_stays() {
        let pins = SpillPins::default();
        let commit = segment(5, Stream::Commit);
        assert!(!accounts(0, 0).may_free(&commit, Lsn::new(5, 4096), &old(), &pins));
        assert!(accounts(0, 0).may_free(&commit, Lsn::new(6, 4096), &old(), &pins));
    }

    #[test]
    fn a_segment_that_is_being_written_stays() {
        let pins = SpillPins::default();
        let may_free_after = |boundary: &BulkBoundary| {
            accounts(0, 0).may_free(&segment(5, Stream::Bulk), Lsn::new(100, 0), boundary, &pins)
        };
        assert!(!may_free_after(&BulkBoundary::new(5, vec![])), "it was made since");
        assert!(!may_free_after(&BulkBoundary::new(100, vec![3, 5])), "it was appended to");
        assert!(may_free_after(&BulkBoundary::new(6, vec![3])));
        let open = SegmentInfo { open: true, ..segment(5, Stream::Bulk) };
        assert!(!may_free(&accounts(0, 0), &open));
    }

    #[test]
    fn chunks_of_uncovered_commits_stay() {
        let pins = SpillPins::default();
        pins.pin_recovered(Csn(9), 5);
        let bulk = segment(5, Stream::Bulk);
        assert!(!accounts(0, 0).may_free(&bulk, Lsn::new(100, 0), &old(), &pins));
        pins.release_up_to(Csn(9));
        assert!(accounts(0, 0).may_free(&bulk, Lsn::new(100, 0), &old(), &pins));
    }

    /// The sums are kept beside the accounts, so that freeing does not add up all tables for each segment.
    #[test]
    fn sums_are_those_of_the_tables() {
        let mut accounts = Accounts::new(BTreeMap::new(), vec![]);
        let memory = MemoryCharge::new(&Arc::default());
        accounts.count_in(memory.clone());
        let mut random = 7u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        for _ in 0..2_000 {
            let table = TableId(below(5) as u32);
            let segment = below(40) as u32;
            match below(8) {
                0 => accounts.drop_table(table),
                1 | 2 => accounts.wrote(table, Lsn::NULL),
                _ => {
                    let live =
                        accounts.now.get(&table).and_then(|own| own.get(&segment)).copied().unwrap_or(0);
                    accounts.change(table, &[(segment, below(10) as i64 - live.min(5))]);
                }
            }
            let sum = |all: &mut dyn Iterator<Item = &BTreeMap<u32, i64>>| {
                let mut totals = Totals::default();
                all.for_each(|account| totals.add_all(account));
                totals
            };
            assert_eq!(accounts.now_totals, sum(&mut accounts.now.values()));
            let written = accounts.written.values().map(|written| &written.live);
            let maps = accounts.now.values().chain(written);
            assert_eq!(accounts.map_bytes, maps.map(|map| map_bytes(map.len())).sum::<usize>());
            assert_eq!(memory.bytes(), accounts.bytes());
            assert_eq!(
                accounts.written_totals,
                sum(&mut accounts.written.values().map(|written| &written.live))
            );
        }
    }

    #[test]
    fn a_dropped_table_that_a_snapshot_sees_keeps_its_segments() {
        let mut accounts = accounts(10, 10);
        accounts.install(vec![9]);
        assert!(!may_free(&accounts, &segment(5, Stream::Bulk)));
        accounts.drop_table(TABLE);
        accounts.install(vec![10]);
        assert!(!may_free(&accounts, &segment(5, Stream::Bulk)));
        accounts.install(vec![11]);
        assert!(may_free(&accounts, &segment(5, Stream::Bulk)));
    }
}
