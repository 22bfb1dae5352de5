//! The tables, and the keyspace of each numbered database: a number, with which the keys of its records begin.

use std::sync::atomic::{AtomicU32, Ordering};

use fulgurite::{Database, Error, Transaction};
use smallvec::SmallVec;

use crate::StartError;
use crate::session::DATABASES;

/// The version of the data model that this program writes.
const FORMAT: u8 = 1;

/// The tables of the data model.
pub(crate) struct Tables {
    /// By keyspace and key: the head records.
    pub heads: fulgurite::Table,
    /// By keyspace and stripe: how many keys were created, less those that were deleted.
    pub counts: fulgurite::Table,
    /// By time, keyspace and key: the keys that expire.
    pub expiry: fulgurite::Table,
    /// The format, and the keyspace of each database.
    pub meta: fulgurite::Table,
}

/// The data model over a database.
pub(crate) struct Model {
    pub tables: Tables,
    keyspaces: [AtomicU32; DATABASES],
}

/// A key of a table; most need no allocation.
pub(crate) type TableKey = SmallVec<[u8; 64]>;

/// The key of a head record.
pub(crate) fn head_key(keyspace: u32, key: &[u8]) -> TableKey {
    let mut bytes = TableKey::from_slice(&keyspace.to_be_bytes());
    bytes.extend_from_slice(key);
    bytes
}

/// The key of a count.
pub(crate) fn count_key(keyspace: u32, stripe: u32) -> [u8; 8] {
    (u64::from(keyspace) << 32 | u64::from(stripe)).to_be_bytes()
}

/// The key of an entry of the expiry index.
pub(crate) fn expiry_key(expires_at_ms: u64, keyspace: u32, key: &[u8]) -> TableKey {
    let mut bytes = TableKey::from_slice(&expires_at_ms.to_be_bytes());
    bytes.extend_from_slice(&keyspace.to_be_bytes());
    bytes.extend_from_slice(key);
    bytes
}

/// The time, the keyspace and the key of an entry of the expiry index.
pub(crate) fn split_expiry_key(entry: &[u8]) -> Option<(u64, u32, &[u8])> {
    let (expires_at_ms, rest) = entry.split_first_chunk()?;
    let (keyspace, key) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*expires_at_ms), u32::from_be_bytes(*keyspace), key))
}

fn keyspace_key(database: usize) -> [u8; 9] {
    let mut key = *b"keyspace\0";
    key[8] = database as u8;
    key
}

impl Model {
    /// Opens the data model, and creates it in an empty database.
    pub fn open(db: &Database) -> Result<Model, StartError> {
        let tables = Tables {
            heads: db.table("redis:heads")?,
            counts: db.table("redis:counts")?,
            expiry: db.table("redis:expiry")?,
            meta: db.table("redis:meta")?,
        };
        match tables.meta.get("format")? {
            None => {
                db.transact(|txn| {
                    txn.put(&tables.meta, "format", [FORMAT])?;
                    (0..DATABASES).try_for_each(|database| {
                        let keyspace = database as u32;
                        txn.put(&tables.meta, keyspace_key(database), keyspace.to_le_bytes())
                    })
                })?;
            }
            Some(found) if *found == [FORMAT] => {}
            Some(found) => {
                let found = found.first().copied().unwrap_or_default();
                return Err(StartError::NewerModel { found, supported: FORMAT });
            }
        }
        let keyspaces = [const { AtomicU32::new(0) }; DATABASES];
        for (database, keyspace) in keyspaces.iter().enumerate() {
            let record = tables.meta.get(keyspace_key(database))?;
            let bytes = record.as_deref().and_then(|record| <[u8; 4]>::try_from(record).ok());
            let number = bytes.map(u32::from_le_bytes).ok_or_else(|| StartError::Model {
                what: format!(
                    "the record of database {database} in table `redis:meta` is missing or damaged"
                ),
            })?;
            keyspace.store(number, Ordering::Relaxed);
        }
        Ok(Model { tables, keyspaces })
    }

    /// The keyspace of a numbered database.
    pub fn keyspace(&self, database: usize) -> u32 {
        self.keyspaces[database].load(Ordering::Acquire)
    }

    /// How many keys a keyspace has for a transaction, those that have expired and are not reclaimed yet included.
    pub fn count(&self, txn: &Transaction, keyspace: u32) -> Result<i64, Error> {
        let counts = txn.prefix(&self.tables.counts, keyspace.to_be_bytes())?;
        counts.map(|entry| entry.map(|(_, count)| decode_count(&count))).sum()
    }
}

/// The number in a count's record.
pub(crate) fn decode_count(record: &[u8]) -> i64 {
    record.try_into().map(i64::from_le_bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of `docs/format/redis.md`.
    #[test]
    fn keys_have_the_bytes_of_the_specification_and_its_order() {
        assert_eq!(head_key(0x0102_0304, b"k")[..], *b"\x01\x02\x03\x04k");
        assert_eq!(count_key(1, 2), [0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(expiry_key(0x0102, 3, b"k")[..], *b"\0\0\0\0\0\0\x01\x02\0\0\0\x03k");
        assert_eq!(split_expiry_key(&expiry_key(0x0102, 3, b"k")), Some((0x0102, 3, &b"k"[..])));
        assert_eq!(split_expiry_key(&[0; 11]), None);
        assert_eq!(keyspace_key(15), *b"keyspace\x0F");
        assert!(head_key(1, b"b") < head_key(1, b"ba") && head_key(1, b"z") < head_key(2, b""));
        assert!(expiry_key(255, 9, b"z") < expiry_key(256, 0, b""));
    }
}
