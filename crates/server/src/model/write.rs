//! A transaction of a command that writes.

use std::ops::Bound;

use fulgurite::limits::VALUE_BYTES_MAX;
use fulgurite::{Transaction, Value};
use smallvec::SmallVec;

use super::content::{NAME_BYTES_MAX, content_bounds, member_key};
use super::counts::{Counted, Counts};
use super::head::{Collection, Head, Kind};
use super::keyspaces::KeyspaceMap;
use super::staging::Staging;
use super::tables::{Garbage, Model, TableKey, count_key, expiry_key, garbage_key, head_key};
use super::text::{Fragmented, INLINE_VALUE_BYTES_MAX};
use super::view::{Order, Source, View, damaged_row};
use crate::runner::Runner;
use crate::stop::{ErrorReply, Result, Stop};

/// How many rows are read at a time to be copied.
const COPIED_ROWS: usize = 256;

/// The longest head.
const HEAD_BYTES_MAX: usize = 9;

/// Keys that were created, by keyspace.
type Created = SmallVec<[(u32, i64); 1]>;

/// A head record that was read.
#[derive(Clone)]
pub(crate) struct Old {
    pub head: Head,
    record: Value,
    body: usize,
}

impl Old {
    /// The bytes after the head: the value of a string.
    pub fn body(&self) -> &[u8] {
        &self.record[self.body..]
    }

    /// The collection, if it is of this kind.
    pub fn collection(&self, kind: Kind) -> Result<Collection> {
        if self.head.kind != kind {
            return Err(ErrorReply::WRONG_TYPE.into());
        }
        Collection::decode(self.body()).ok_or_else(|| DAMAGED.into())
    }

    /// The id under which its content is; `None` if all is in the record.
    fn content_id(&self) -> Result<Option<u64>> {
        content_id(self.head.kind, self.body())
    }

    /// A head record that was found. One with a long value is left to long workers, although it is in memory: what a command does with it
    /// takes as long as it is.
    pub fn decode(record: Value, runner: Runner) -> Result<Old> {
        if !runner.may_take_long() && record.len() > INLINE_VALUE_BYTES_MAX {
            return Err(Stop::Large);
        }
        let (head, body) = Head::decode(&record).ok_or(DAMAGED)?;
        Ok(Old { head, record, body })
    }
}

/// The id under which the content of a record with this body is.
fn content_id(kind: Kind, body: &[u8]) -> Result<Option<u64>> {
    let id = match kind {
        Kind::String => return Ok(None),
        Kind::FragmentedString => Fragmented::decode(body).map(|fragmented| fragmented.id),
        _ => Collection::decode(body).map(|collection| collection.id),
    };
    id.map(Some).ok_or_else(|| DAMAGED.into())
}

/// A head record that is none.
pub(crate) const DAMAGED: ErrorReply =
    ErrorReply::new("ERR", "the record of the key is damaged: run `fulgurite check`");

/// The transaction of a command that writes. What it reads it reads for an update, so that a conflict is found at the commit, and
/// a key that was read live has to be live then.
pub(crate) struct Write<'t> {
    pub txn: &'t mut Transaction,
    pub model: &'t Model,
    /// Where the command runs.
    pub runner: Runner,
    pub now_ms: u64,
    pub keyspace: u32,
    /// How many keys it created in each keyspace, less those that it deleted.
    created: Created,
    /// The keyspace of each database.
    pub keyspaces: KeyspaceMap,
    pub adds: Adds,
    /// Where large contents of a new id are stored; `None` in a transaction of several commands.
    pub staging: Option<Staging>,
}

/// Whether what is written adds data, and how long the records and rows are. What only deletes, and writes a count and a head record beside
/// that, is taken on a full disk, too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Adds {
    has_put: bool,
    has_deleted: bool,
    pub bytes: usize,
}

impl Adds {
    /// More was written.
    pub fn note(&mut self, more: Adds) {
        self.has_put |= more.has_put;
        self.has_deleted |= more.has_deleted;
        self.bytes += more.bytes;
    }

    fn only_deletes(self) -> bool {
        self.has_deleted && !self.has_put
    }
}

/// A collection that a command changes.
pub(crate) struct Change {
    /// The record of the key before.
    old: Option<Old>,
    head: Head,
    pub collection: Collection,
}

impl<'t> Write<'t> {
    pub fn new(
        txn: &'t mut Transaction,
        model: &'t Model,
        runner: Runner,
        now_ms: u64,
        keyspace: u32,
    ) -> Write<'t> {
        let (keyspaces, adds) = (KeyspaceMap::default(), Adds::default());
        Write {
            txn,
            model,
            runner,
            now_ms,
            keyspace,
            created: Created::new(),
            keyspaces,
            adds,
            staging: None,
        }
    }

    /// What it reads.
    pub fn view(&self) -> View<'_> {
        let Write { txn, model, runner, now_ms, keyspace, .. } = self;
        View {
            source: Source::Transaction(txn),
            model,
            runner: *runner,
            now_ms: *now_ms,
            keyspace: *keyspace,
            has_walked: None,
        }
    }

    /// The head record of a key, also of one that has expired and is not reclaimed yet.
    pub fn stored(&mut self, key: &[u8]) -> Result<Option<Old>> {
        self.view().stored(key)
    }

    /// Whether a record that was read is that of a key that exists.
    pub fn is_live(&self, old: &Option<Old>) -> bool {
        old.as_ref().is_some_and(|old| old.head.is_live(self.now_ms))
    }

    /// The collection of a key, to be changed; `None` if the key does not exist.
    pub fn change(&mut self, key: &[u8], kind: Kind) -> Result<Option<Change>> {
        let old = self.stored(key)?;
        let Some(old) = old.filter(|old| old.head.is_live(self.now_ms)) else { return Ok(None) };
        let collection = old.collection(kind)?;
        Ok(Some(Change { head: old.head, old: Some(old), collection }))
    }

    /// The collection of a key, to be changed; a new one if the key does not exist.
    pub fn change_or_create(&mut self, key: &[u8], kind: Kind) -> Result<Change> {
        let old = self.stored(key)?;
        if let Some(live) = old.as_ref().filter(|old| old.head.is_live(self.now_ms)) {
            let (head, collection) = (live.head, live.collection(kind)?);
            return Ok(Change { old, head, collection });
        }
        self.create(old, kind)
    }

    /// A new collection in the place of whatever a key has: of what a command stores as a whole.
    pub fn replace(&mut self, key: &[u8], kind: Kind) -> Result<Change> {
        let old = self.stored(key)?;
        let change = self.create(old, kind)?;
        self.stage(change.collection.id);
        Ok(change)
    }

    /// Stores what is left of contents.
    pub fn finish_staging(&mut self) -> Result<()> {
        let Write { staging, model, txn, .. } = self;
        staging.as_mut().map_or(Ok(()), |staging| staging.finish(model, txn))
    }

    /// All content of this fresh id is written once from now on, and is not read.
    fn stage(&mut self, id: u64) {
        if let Some(staging) = &mut self.staging {
            staging.begin(id);
        }
    }

    fn create(&mut self, old: Option<Old>, kind: Kind) -> Result<Change> {
        let id = self.model.new_id(self.runner)?;
        let collection = Collection { id, count: 0, first: 0 };
        Ok(Change { old, head: Head { kind, expires_at_ms: 0 }, collection })
    }

    /// Writes the head record of a collection whose content was changed. The key is deleted if nothing is left in it.
    pub fn finish(&mut self, key: &[u8], change: &Change) -> Result<()> {
        let Change { old, head, collection } = change;
        if collection.count > 0 {
            let before = old.as_ref().and_then(|old| Collection::decode(old.body()));
            let shrinks =
                before.is_some_and(|before| before.id == collection.id && before.count > collection.count);
            let has_put = self.adds.has_put;
            self.put(key, old.as_ref(), *head, &collection.encode())?;
            self.adds.has_put = has_put || !shrinks;
            return Ok(());
        }
        let Some(old) = old else { return Ok(()) };
        if old.content_id()? == Some(collection.id) {
            return self.remove(key, old);
        }
        self.delete(key, old)
    }

    /// Writes a field or a member.
    pub fn put_member(&mut self, collection: &Collection, name: &[u8], value: &[u8]) -> Result<()> {
        if name.len() > NAME_BYTES_MAX {
            let message = format!(
                "the field or member has {} bytes, the longest allowed has {NAME_BYTES_MAX}",
                name.len()
            );
            return Err(ErrorReply { code: "ERR", message: message.into() }.into());
        }
        self.put_row(&member_key(collection.id, self.model.hash_seed, name), value)
    }

    pub fn delete_member(&mut self, collection: &Collection, name: &[u8]) -> Result<()> {
        self.delete_row(&member_key(collection.id, self.model.hash_seed, name))
    }

    /// Writes a row of the content of collections.
    pub fn put_row(&mut self, row: &[u8], value: &[u8]) -> Result<()> {
        self.runner.step();
        if value.len() > VALUE_BYTES_MAX {
            return Err(ErrorReply::TOO_LONG.into());
        }
        self.adds.bytes += value.len();
        if let Some(staging) = &mut self.staging
            && staging.takes(row, value)
        {
            return staging.put(self.model, row, value);
        }
        Ok(self.txn.put(&self.model.tables.content, row, value)?)
    }

    pub fn delete_row(&mut self, row: &[u8]) -> Result<()> {
        self.adds.has_deleted = true;
        Ok(self.txn.delete(&self.model.tables.content, row)?)
    }

    /// Copies what a record has: a body for another record, whose content has an id of its own.
    pub fn copy_body(&mut self, old: &Old) -> Result<Vec<u8>> {
        let mut body = old.body().to_vec();
        let Some(from) = old.content_id()? else { return Ok(body) };
        let id = self.model.new_id(self.runner)?;
        self.stage(id);
        let mut bounds = content_bounds(from);
        loop {
            let rows = self.view().rows(bounds.clone(), Order::Forward, COPIED_ROWS)?;
            for (row, value) in &rows {
                let content = row.get(8..).ok_or_else(|| damaged_row(row))?;
                let copy = [&id.to_be_bytes()[..], content].concat();
                self.put_row(&copy, value)?;
            }
            match rows.last() {
                Some(_) if !self.runner.may_take_long() && rows.len() == COPIED_ROWS => {
                    return Err(Stop::Large);
                }
                Some((last, _)) if rows.len() == COPIED_ROWS => {
                    bounds.0 = Bound::Excluded(TableKey::from_slice(last));
                }
                _ => break,
            }
        }
        // The id comes first in the body of each kind.
        body[..8].copy_from_slice(&id.to_le_bytes());
        Ok(body)
    }

    /// Notes that nothing refers to the content of a collection any more, if a record was one.
    fn leave_content(&mut self, old: &Old, except: Option<u64>) -> Result<()> {
        match old.content_id()? {
            Some(id) if Some(id) != except => {
                let row = garbage_key(Garbage::Content(id));
                Ok(self.txn.put(&self.model.tables.garbage, row, b"")?)
            }
            _ => Ok(()),
        }
    }

    /// Writes a key whose record was `old`.
    pub fn put(&mut self, key: &[u8], old: Option<&Old>, head: Head, body: &[u8]) -> Result<()> {
        if body.len() + HEAD_BYTES_MAX > VALUE_BYTES_MAX {
            return Err(ErrorReply::TOO_LONG.into());
        }
        if let Some(old) = old {
            self.leave_content(old, content_id(head.kind, body)?)?;
        }
        let mut record = Vec::with_capacity(HEAD_BYTES_MAX + body.len());
        head.encode(&mut record);
        record.extend_from_slice(body);
        self.put_record(key, old, head, &record)
    }

    fn put_record(&mut self, key: &[u8], old: Option<&Old>, head: Head, record: &[u8]) -> Result<()> {
        let expired_before = old.map_or(0, |old| old.head.expires_at_ms);
        if expired_before != head.expires_at_ms {
            self.drop_expiry(key, expired_before)?;
            if head.expires_at_ms != 0 {
                let entry = expiry_key(head.expires_at_ms, self.keyspace, key);
                self.txn.put(&self.model.tables.expiry, &entry, b"")?;
            }
        }
        self.txn.put(&self.model.tables.heads, head_key(self.keyspace, key), record)?;
        self.add_created(self.keyspace, old.is_none().into());
        self.adds.has_put = true;
        self.adds.bytes += record.len();
        Ok(())
    }

    /// Gives a key this string, without an expiry; deletes it if the string is empty.
    pub fn replace_string(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let old = self.stored(key)?;
        match old {
            Some(old) if value.is_empty() => self.delete(key, &old),
            None if value.is_empty() => Ok(()),
            old => self.put_text(key, old.as_ref(), value, 0),
        }
    }

    /// Deletes a key whose record was `old`.
    pub fn delete(&mut self, key: &[u8], old: &Old) -> Result<()> {
        self.leave_content(old, None)?;
        self.remove(key, old)
    }

    /// Deletes the record of a key, `old`, whose content is empty, or belongs to another key now.
    pub fn remove(&mut self, key: &[u8], old: &Old) -> Result<()> {
        self.adds.has_deleted = true;
        self.drop_expiry(key, old.head.expires_at_ms)?;
        self.add_created(self.keyspace, -1);
        self.txn.delete(&self.model.tables.heads, head_key(self.keyspace, key))?;
        Ok(())
    }

    fn drop_expiry(&mut self, key: &[u8], expires_at_ms: u64) -> Result<()> {
        if expires_at_ms != 0 {
            self.txn.delete(&self.model.tables.expiry, expiry_key(expires_at_ms, self.keyspace, key))?;
        }
        Ok(())
    }

    /// Runs a step in another keyspace.
    pub fn in_keyspace<T>(&mut self, keyspace: u32, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let own = std::mem::replace(&mut self.keyspace, keyspace);
        let outcome = step(self);
        self.keyspace = own;
        outcome
    }

    /// How many keys it created in each keyspace, less those that it deleted.
    pub fn created(&self) -> &[(u32, i64)] {
        &self.created
    }

    /// So many keys more are in a keyspace.
    pub fn add_created(&mut self, keyspace: u32, keys: i64) {
        match self.created.iter_mut().find(|(other, _)| *other == keyspace) {
            Some((_, sum)) => *sum += keys,
            None if keys != 0 => self.created.push((keyspace, keys)),
            None => {}
        }
    }

    /// Writes how many keys there are, where it created or deleted some; the thread notes that once the commit has happened.
    pub fn count_keys(&mut self, counts: &Counts) -> Result<SmallVec<[Counted; 1]>> {
        if self.adds.only_deletes() {
            self.txn.set_makes_room();
        }
        let mut counted = SmallVec::new();
        for (keyspace, created) in
            std::mem::take(&mut self.created).into_iter().filter(|(_, keys)| *keys != 0)
        {
            let after = counts.after(keyspace, created);
            self.txn.put(
                &self.model.tables.counts,
                count_key(keyspace, counts.stripe),
                after.keys.to_le_bytes(),
            )?;
            counted.push(after);
        }
        Ok(counted)
    }
}
