//! A model of tables, transactions and snapshots: the result of each read, and which commits conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::model::{Entry, TableMap};

/// A table's identity, which outlives its name.
pub type Id = u32;
pub type Key = Vec<u8>;

/// All tables after some commit.
#[derive(Clone, Default)]
pub struct World {
    pub names: BTreeMap<String, Id>,
    pub data: BTreeMap<Id, Arc<TableMap>>,
}

/// The range of keys of an operation; `None` is the end of the table.
pub type Span = (Key, Option<Key>);

pub fn covers(span: &Span, key: &[u8]) -> bool {
    *span.0 <= *key && span.1.as_deref().is_none_or(|end| key < end)
}

/// The keys between two bounds, as a range with a start and perhaps an end.
fn span_of(start: Bound<Key>, end: Bound<Key>) -> Span {
    let after = |mut key: Key| {
        key.push(0);
        key
    };
    let start = match start {
        Bound::Included(key) => key,
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Key::new(),
    };
    let end = match end {
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    };
    (start, end)
}

/// The intersection of two ranges.
fn common(one: &Span, other: &Span) -> Option<Span> {
    let start = one.0.clone().max(other.0.clone());
    let end = match (&one.1, &other.1) {
        (Some(one), Some(other)) => Some(one.min(other).clone()),
        (one, other) => one.clone().or_else(|| other.clone()),
    };
    end.as_ref().is_none_or(|end| start < *end).then_some((start, end))
}

/// The committed states, and the writes of each commit.
#[derive(Default)]
pub struct Oracle {
    /// By CSN.
    pub worlds: Vec<World>,
    pub acknowledged: u64,
    written: Vec<(u64, Id, WrittenBy)>,
    dropped: BTreeMap<Id, u64>,
    next_id: Id,
}

#[derive(Clone)]
enum WrittenBy {
    Key(Key),
    Range(Span),
}

impl Oracle {
    pub fn new() -> Oracle {
        Oracle { worlds: vec![World::default()], next_id: 1, ..Oracle::default() }
    }

    pub fn newest(&self) -> &World {
        self.worlds.last().expect("there is a state before the first commit")
    }

    pub fn csn(&self) -> u64 {
        self.worlds.len() as u64 - 1
    }

    fn commit(&mut self, change: impl FnOnce(&mut World)) -> u64 {
        let mut world = self.newest().clone();
        change(&mut world);
        self.worlds.push(world);
        self.csn()
    }

    pub fn create(&mut self, name: &str) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        self.commit(|world| {
            world.names.insert(name.to_string(), id);
            world.data.insert(id, Arc::default());
        });
        id
    }

    pub fn drop_table(&mut self, name: &str) {
        let id = self.newest().names[name];
        let csn = self.commit(|world| {
            world.names.remove(name);
            world.data.remove(&id);
        });
        self.dropped.insert(id, csn);
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        self.commit(|world| {
            let id = world.names.remove(from).expect("the table exists");
            world.names.insert(to.to_string(), id);
        });
    }

    pub fn is_dropped(&self, table: Id, at: u64) -> bool {
        self.dropped.get(&table).is_some_and(|csn| *csn <= at)
    }

    /// A recovery found everything up to `csn`.
    pub fn recovered(&mut self, csn: u64) {
        self.worlds.truncate(csn as usize + 1);
        self.written.retain(|(by, _, _)| *by <= csn);
        self.dropped.retain(|_, by| *by <= csn);
        self.acknowledged = csn;
    }

    fn newer(&self, table: Id, key: &[u8], than: u64) -> bool {
        self.written.iter().rev().take_while(|(csn, _, _)| *csn > than).any(|(_, own, what)| {
            *own == table
                && match what {
                    WrittenBy::Key(written) => written == key,
                    WrittenBy::Range(span) => covers(span, key),
                }
        })
    }

    fn newer_in(&self, table: Id, span: &Span, than: u64) -> bool {
        self.written.iter().rev().take_while(|(csn, _, _)| *csn > than).any(|(_, own, what)| {
            *own == table
                && match what {
                    WrittenBy::Key(written) => covers(span, written),
                    WrittenBy::Range(written) => common(span, written).is_some(),
                }
        })
    }

    /// The outcome of committing `txn` at this time.
    pub fn judge(&self, txn: &Txn, now_ms: u64) -> Expected {
        let writes: BTreeSet<Id> =
            txn.writes.iter().filter(|(_, w)| !w.is_empty()).map(|(id, _)| *id).collect();
        if writes.is_empty() {
            return Expected { dropped: false, conflict: false };
        }
        let written = txn.writes.iter().flat_map(|(id, writes)| {
            writes.ops.iter().filter(|(_, op)| op.read_before).map(|(key, _)| (*id, key.as_slice()))
        });
        let for_update = txn.for_update.iter().map(|(id, key)| (*id, key.as_slice()));
        Expected {
            dropped: writes
                .iter()
                .chain(txn.for_update.iter().map(|(id, _)| id))
                .chain(txn.read_and_deleted.iter().map(|(id, _)| id))
                .any(|id| self.dropped.contains_key(id)),
            conflict: written.chain(for_update).any(|(id, key)| self.newer(id, key, txn.csn))
                || txn.live_until_ms <= now_ms
                || txn.read_and_deleted.iter().any(|(id, span)| self.newer_in(*id, span, txn.csn)),
        }
    }

    /// Commits a transaction that has writes.
    pub fn apply(&mut self, txn: &Txn) -> u64 {
        let csn = self.commit(|world| {
            for (id, writes) in &txn.writes {
                writes.apply(Arc::make_mut(world.data.get_mut(id).expect("the table is not dropped")));
            }
        });
        for (id, writes) in &txn.writes {
            self.written.extend(writes.ops.keys().map(|key| (csn, *id, WrittenBy::Key(key.clone()))));
            self.written.extend(writes.ranges.iter().map(|span| (csn, *id, WrittenBy::Range(span.clone()))));
        }
        csn
    }
}

/// Which errors a commit may give; none: it succeeds.
#[derive(Debug)]
pub struct Expected {
    pub dropped: bool,
    pub conflict: bool,
}

#[derive(Clone)]
struct Op {
    /// `None` deletes.
    entry: Option<Entry>,
    read_before: bool,
}

/// The writes to one table: ranges first, then keys.
#[derive(Clone, Default)]
pub struct Writes {
    ops: BTreeMap<Key, Op>,
    ranges: Vec<Span>,
}

impl Writes {
    fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.ranges.is_empty()
    }

    fn apply(&self, map: &mut TableMap) {
        map.retain(|key, _| !self.ranges.iter().any(|span| covers(span, key)));
        for (key, op) in &self.ops {
            match &op.entry {
                Some(entry) => _ = map.insert(key.clone(), entry.clone()),
                None => _ = map.remove(key),
            }
        }
    }

    fn own(&self, key: &[u8]) -> bool {
        self.ops.contains_key(key) || self.ranges.iter().any(|span| covers(span, key))
    }
}

/// A transaction.
pub struct Txn {
    pub csn: u64,
    pub now_ms: u64,
    base: World,
    writes: BTreeMap<Id, Writes>,
    reads: BTreeSet<(Id, Key)>,
    read_ranges: Vec<(Id, Span)>,
    for_update: BTreeSet<(Id, Key)>,
    /// The first time at which a key that it read for update expires.
    live_until_ms: u64,
    /// The keys that it read and then deleted with a range, also if it rolled that back.
    read_and_deleted: Vec<(Id, Span)>,
    savepoints: Vec<BTreeMap<Id, Writes>>,
}

impl Txn {
    pub fn begin(oracle: &Oracle, now_ms: u64) -> Txn {
        Txn {
            csn: oracle.csn(),
            now_ms,
            base: oracle.newest().clone(),
            writes: BTreeMap::new(),
            reads: BTreeSet::new(),
            read_ranges: Vec::new(),
            for_update: BTreeSet::new(),
            live_until_ms: u64::MAX,
            read_and_deleted: Vec::new(),
            savepoints: Vec::new(),
        }
    }

    pub fn has_writes(&self) -> bool {
        self.writes.values().any(|writes| !writes.is_empty())
    }

    /// The table as the transaction sees it.
    pub fn view(&self, table: Id) -> TableMap {
        let mut map = self.base.data.get(&table).map(|map| (**map).clone()).unwrap_or_default();
        if let Some(writes) = self.writes.get(&table) {
            writes.apply(&mut map);
        }
        map.retain(|_, entry| entry.is_live(self.now_ms));
        map
    }

    fn owns(&self, table: Id, key: &[u8]) -> bool {
        self.writes.get(&table).is_some_and(|writes| writes.own(key))
    }

    pub fn get(&mut self, table: Id, key: &[u8]) -> Option<Entry> {
        if !self.owns(table, key) {
            self.reads.insert((table, key.to_vec()));
        }
        self.view(table).remove(key)
    }

    pub fn get_for_update(&mut self, table: Id, key: &[u8]) -> Option<Entry> {
        self.reads.insert((table, key.to_vec()));
        self.for_update.insert((table, key.to_vec()));
        let found = self.view(table).remove(key);
        if let Some(entry) = found.as_ref().filter(|entry| entry.expires_at_ms != 0 && !self.owns(table, key))
        {
            self.live_until_ms = self.live_until_ms.min(entry.expires_at_ms);
        }
        found
    }

    /// A scan: every key of the range that is written afterwards counts as read before.
    pub fn read_range(&mut self, table: Id, start: Bound<Key>, end: Bound<Key>) {
        self.read_ranges.push((table, span_of(start, end)));
    }

    pub fn write(&mut self, table: Id, key: &[u8], entry: Option<Entry>, read_before: bool) {
        let in_range = |(id, span): &(Id, Span)| *id == table && covers(span, key);
        let read = self.reads.contains(&(table, key.to_vec())) || self.read_ranges.iter().any(in_range);
        let ops = &mut self.writes.entry(table).or_default().ops;
        let before = ops.get(key).is_some_and(|op| op.read_before);
        ops.insert(key.to_vec(), Op { entry, read_before: read_before || read || before });
    }

    pub fn delete_range(&mut self, table: Id, span: Span) {
        if span.1.as_ref().is_some_and(|end| *end <= span.0) {
            return;
        }
        let keys = self.reads.iter().filter(|(id, key)| *id == table && covers(&span, key));
        self.for_update.extend(keys.cloned());
        let read = self.read_ranges.iter().filter(|(id, _)| *id == table);
        self.read_and_deleted.extend(read.filter_map(|(id, read)| Some((*id, common(read, &span)?))));
        let writes = self.writes.entry(table).or_default();
        writes.ops.retain(|key, _| !covers(&span, key));
        writes.ranges.push(span);
    }

    pub fn savepoint(&mut self) {
        self.savepoints.push(self.writes.clone());
    }

    /// Back to the savepoint with this index.
    pub fn rollback_to(&mut self, index: usize) {
        self.savepoints.truncate(index + 1);
        self.writes = self.savepoints[index].clone();
    }
}
