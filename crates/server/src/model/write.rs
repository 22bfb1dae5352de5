//! A transaction of a command that writes.

use fulgurite::{Expiry, Missing, Transaction, Value};

use fulgurite::limits::VALUE_BYTES_MAX;
use smallvec::SmallVec;

use super::counts::{Counted, Counts};
use super::head::{Head, Kind};
use super::tables::{Tables, count_key, expiry_key, head_key};
use crate::stop::{ErrorReply, Result, Stop};

/// An I/O thread does not run commands with longer values.
const INLINE_VALUE_BYTES_MAX: usize = 256 << 10;

/// The longest head.
const HEAD_BYTES_MAX: usize = 9;

/// Keys that were created, by keyspace.
type Created = SmallVec<[(u32, i64); 1]>;

/// A head record that was read.
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

    /// The value, if it is a string.
    pub fn string(&self) -> Result<&[u8]> {
        match self.head.kind {
            Kind::String => Ok(self.body()),
        }
    }

    /// A head record that was found. One with a long value is left to threads that may wait, although it is in memory: what a command
    /// does with it takes as long as it is.
    pub fn decode(record: Value, may_wait: bool) -> Result<Old> {
        if !may_wait && record.len() > INLINE_VALUE_BYTES_MAX {
            return Err(Stop::Blocked(Missing::Value));
        }
        let (head, body) = Head::decode(&record).ok_or_else(|| {
            ErrorReply::new("ERR", "the record of the key is damaged: run `fulgurite check`")
        })?;
        Ok(Old { head, record, body })
    }
}

/// The transaction of a command that writes. What it reads it reads for an update, so that a conflict is found at the commit, and
/// a key that was read live has to be live then.
pub(crate) struct Write<'t> {
    pub txn: &'t mut Transaction,
    pub tables: &'t Tables,
    /// Whether reads may wait for the disk.
    pub may_wait: bool,
    pub now_ms: u64,
    pub keyspace: u32,
    /// How many keys it created in each keyspace, less those that it deleted.
    created: Created,
    /// Whether it wrote a key.
    has_put: bool,
}

impl<'t> Write<'t> {
    pub fn new(
        txn: &'t mut Transaction,
        tables: &'t Tables,
        may_wait: bool,
        now_ms: u64,
        keyspace: u32,
    ) -> Write<'t> {
        Write { txn, tables, may_wait, now_ms, keyspace, created: Created::new(), has_put: false }
    }

    /// The head record of a key, also of one that has expired and is not reclaimed yet.
    pub fn stored(&mut self, key: &[u8]) -> Result<Option<Old>> {
        let row = head_key(self.keyspace, key);
        let found = if self.may_wait {
            self.txn.get_for_update(&self.tables.heads, &row)?
        } else {
            self.txn.try_get_for_update(&self.tables.heads, &row)?
        };
        let Some(old) = found.map(|record| Old::decode(record, self.may_wait)).transpose()? else {
            return Ok(None);
        };
        if old.head.expires_at_ms != 0 && old.head.is_live(self.now_ms) {
            let expiry = Expiry::at_unix_ms(old.head.expires_at_ms);
            self.txn.commit_before(&self.tables.heads, &row, expiry)?;
        }
        Ok(Some(old))
    }

    /// Whether a record that was read is that of a key that exists.
    pub fn is_live(&self, old: &Option<Old>) -> bool {
        old.as_ref().is_some_and(|old| old.head.is_live(self.now_ms))
    }

    /// Writes a key whose record was `old`.
    pub fn put(&mut self, key: &[u8], old: Option<&Old>, head: Head, body: &[u8]) -> Result<()> {
        if body.len() + HEAD_BYTES_MAX > VALUE_BYTES_MAX {
            return Err(ErrorReply::TOO_LONG.into());
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
                self.txn.put(&self.tables.expiry, &entry, b"")?;
            }
        }
        self.add_created(self.keyspace, old.is_none().into());
        self.has_put = true;
        self.txn.put(&self.tables.heads, head_key(self.keyspace, key), record)?;
        Ok(())
    }

    /// Gives a key this string, without an expiry; deletes it if the string is empty.
    pub fn replace_string(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let old = self.stored(key)?;
        match old {
            Some(old) if value.is_empty() => self.delete(key, &old),
            None if value.is_empty() => Ok(()),
            old => self.put(key, old.as_ref(), Head { kind: Kind::String, expires_at_ms: 0 }, value),
        }
    }

    /// Deletes a key whose record was `old`.
    pub fn delete(&mut self, key: &[u8], old: &Old) -> Result<()> {
        self.drop_expiry(key, old.head.expires_at_ms)?;
        self.add_created(self.keyspace, -1);
        self.txn.delete(&self.tables.heads, head_key(self.keyspace, key))?;
        Ok(())
    }

    fn drop_expiry(&mut self, key: &[u8], expires_at_ms: u64) -> Result<()> {
        if expires_at_ms != 0 {
            self.txn.delete(&self.tables.expiry, expiry_key(expires_at_ms, self.keyspace, key))?;
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
        if !self.has_put && self.created.iter().all(|(_, keys)| *keys < 0) && !self.created.is_empty() {
            // Keys are deleted on a full disk, too, although their count is written.
            self.txn.set_makes_room();
        }
        let mut counted = SmallVec::new();
        for (keyspace, created) in
            std::mem::take(&mut self.created).into_iter().filter(|(_, keys)| *keys != 0)
        {
            let after = counts.after(keyspace, created);
            self.txn.put(
                &self.tables.counts,
                count_key(keyspace, counts.stripe),
                after.keys.to_le_bytes(),
            )?;
            counted.push(after);
        }
        Ok(counted)
    }
}
