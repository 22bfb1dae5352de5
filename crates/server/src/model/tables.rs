//! The tables, and the keys of their records.

use fulgurite::{Database, Error, Table, Transaction, Value};
use smallvec::SmallVec;

use super::block_starts::BlockStarts;
use super::content::member_key;
use super::head::{Collection, Head};
use super::ids::Ids;
use super::keyspaces::{KeyspaceMap, Keyspaces};
use crate::StartError;
use crate::runner::Runner;
use crate::session::DATABASES;
use crate::stop::{ErrorReply, Result as CommandResult, Stop};

/// The version of the data model that this program writes. Format 1 had strings only; rows of blocks of format 2 do not say where these end.
const FORMAT: u8 = 3;

const HASH_SEED: &str = "hash_seed";
const NEXT_KEYSPACE: &str = "next_keyspace";

/// The tables of the data model.
pub(crate) struct Tables {
    /// By keyspace and key: the head records.
    pub heads: Table,
    /// By the id of a collection: its fields, elements or members.
    pub content: Table,
    /// By keyspace and stripe: how many keys were created, less those that were deleted.
    pub counts: Table,
    /// By time, keyspace and key: the keys that expire.
    pub expiry: Table,
    /// What no key refers to any more.
    pub garbage: Table,
    /// The format, and the keyspace of each database.
    pub meta: Table,
}

/// The data model over a database.
pub(crate) struct Model {
    pub db: Database,
    pub tables: Tables,
    pub keyspaces: Keyspaces,
    pub ids: Ids,
    /// For the hashes of fields and members.
    pub hash_seed: u64,
    pub block_starts: BlockStarts,
}

/// A key of a table; most need no allocation.
pub(crate) type TableKey = SmallVec<[u8; 64]>;

/// What a command will look up: a head record, or a field or member of the collection that it names.
pub(crate) struct LookUp {
    pub row: TableKey,
    pub name: Option<TableKey>,
}

impl LookUp {
    pub fn key_bytes(&self) -> usize {
        self.row.len() + self.name.as_ref().map_or(0, |name| name.len())
    }
}

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

/// The keyspace and the key of a head record.
pub(crate) fn split_head_key(row: &[u8]) -> Option<(u32, &[u8])> {
    let (keyspace, key) = row.split_first_chunk()?;
    Some((u32::from_be_bytes(*keyspace), key))
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

const CHANGE_FAILED: ErrorReply = ErrorReply::new(
    "MISCONF",
    "The log failed while databases were flushed or swapped, and writes are refused: start the server anew",
);

/// What the rows of the table of garbage name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbage {
    /// The content of a collection.
    Content(u64),
    /// The keys of a keyspace.
    Keyspace(u32),
}

const GARBAGE_CONTENT: u8 = 1;
const GARBAGE_KEYSPACE: u8 = 2;

pub(crate) fn garbage_key(garbage: Garbage) -> TableKey {
    let mut key = TableKey::new();
    match garbage {
        Garbage::Content(id) => {
            key.push(GARBAGE_CONTENT);
            key.extend_from_slice(&id.to_be_bytes());
        }
        Garbage::Keyspace(keyspace) => {
            key.push(GARBAGE_KEYSPACE);
            key.extend_from_slice(&keyspace.to_be_bytes());
        }
    }
    key
}

impl Garbage {
    /// What a row names; `None` if it is damaged.
    pub fn of_key(key: &[u8]) -> Option<Garbage> {
        let (&tag, number) = key.split_first()?;
        match tag {
            GARBAGE_CONTENT => Some(Garbage::Content(u64::from_be_bytes(number.try_into().ok()?))),
            GARBAGE_KEYSPACE => Some(Garbage::Keyspace(u32::from_be_bytes(number.try_into().ok()?))),
            _ => None,
        }
    }
}

/// The id of the collection whose head record it is.
fn collection_id(record: &[u8]) -> Option<u64> {
    let (_, body) = Head::decode(record)?;
    Collection::decode(&record[body..]).map(|collection| collection.id)
}

impl Model {
    /// Has the processor load what look-ups of fields or members of collections, each with its key, will read.
    pub fn prefetch_members(&self, members: &[(TableKey, TableKey)]) {
        let id_of = |row: &[u8]| collection_id(&self.tables.heads.try_get(row).ok()??);
        let mut rows = Vec::with_capacity(members.len());
        let mut last: Option<(&[u8], Option<u64>)> = None;
        for (row, name) in members {
            let id = match last {
                Some((last, id)) if last == &row[..] => id,
                _ => id_of(row),
            };
            last = Some((row, id));
            rows.extend(id.map(|id| member_key(id, self.hash_seed, name)));
        }
        self.tables.content.prefetch(rows);
    }

    /// Whether a look-up needs a read from disk.
    pub fn is_on_disk(&self, look_up: &LookUp) -> bool {
        matches!(self.look_up(look_up, |table, key| table.try_get(key)), Err(Error::WouldBlock(_)))
    }

    /// Reads what is looked up into memory. An error is left to the command that needs it.
    pub fn read(&self, look_up: &LookUp) {
        if let Err(error) = self.look_up(look_up, |table, key| table.get(key)) {
            tracing::debug!(%error, "a row cannot be read ahead");
        }
    }

    fn look_up(
        &self,
        LookUp { row, name }: &LookUp,
        get: impl Fn(&Table, &[u8]) -> fulgurite::Result<Option<Value>>,
    ) -> fulgurite::Result<()> {
        let record = get(&self.tables.heads, row)?;
        let id = record.and_then(|record| collection_id(&record));
        if let (Some(id), Some(name)) = (id, name) {
            get(&self.tables.content, &member_key(id, self.hash_seed, name))?;
        }
        Ok(())
    }

    /// Opens the data model for so many threads, and creates it in an empty database.
    pub fn open(db: &Database, threads: usize, random: u64) -> Result<Model, StartError> {
        let tables = Tables {
            heads: db.table("redis:heads")?,
            content: db.table("redis:content")?,
            counts: db.table("redis:counts")?,
            expiry: db.table("redis:expiry")?,
            garbage: db.table("redis:garbage")?,
            meta: db.table("redis:meta")?,
        };
        match tables.meta.get("format")? {
            None => {
                db.transact(|txn| {
                    txn.put(&tables.meta, "format", [FORMAT])?;
                    txn.put(&tables.meta, HASH_SEED, random.to_le_bytes())?;
                    (0..DATABASES).try_for_each(|database| {
                        let keyspace = database as u32;
                        txn.put(&tables.meta, keyspace_key(database), keyspace.to_le_bytes())
                    })
                })?;
            }
            Some(found) if *found == [1] => {
                db.transact(|txn| {
                    txn.set_makes_room();
                    txn.put(&tables.meta, "format", [FORMAT])?;
                    txn.put(&tables.meta, HASH_SEED, random.to_le_bytes())
                })?;
            }
            Some(found) if *found == [2] => {
                // Also on a full disk, where nothing could be deleted without a server.
                db.transact(|txn| {
                    txn.set_makes_room();
                    txn.put(&tables.meta, "format", [FORMAT])
                })?;
            }
            Some(found) if *found == [FORMAT] => {}
            Some(found) => {
                let found = found.first().copied().unwrap_or_default();
                return Err(StartError::NewerModel { found, supported: FORMAT });
            }
        }
        let mut map = KeyspaceMap::default();
        for (database, keyspace) in map.iter_mut().enumerate() {
            let what = || format!("the record of database {database}");
            *keyspace = u32::from_le_bytes(meta_number(&tables, keyspace_key(database), what)?);
        }
        let hash_seed = u64::from_le_bytes(meta_number(&tables, HASH_SEED, || HASH_SEED.into())?);
        Ok(Model {
            db: db.clone(),
            tables,
            keyspaces: Keyspaces::new(map, threads),
            ids: Ids::new(),
            hash_seed,
            block_starts: BlockStarts::default(),
        })
    }

    /// An id for a new collection.
    pub fn new_id(&self, runner: Runner) -> CommandResult<u64> {
        self.ids.give(&self.db, &self.tables.meta, runner.may_take_long())
    }

    /// Writes that databases have other keyspaces: a new one where that is `None`, and what the database had becomes garbage then.
    /// Returns what they have. The caller has the lock of the keyspaces.
    ///
    /// # Errors
    /// [`Stop::Conflict`] if one of them does not have what `before` says any more. `MISCONF` if the tables say other than what is installed:
    /// the log failed under a change.
    pub fn write_keyspaces(
        &self,
        txn: &mut Transaction,
        before: &KeyspaceMap,
        changes: Vec<(usize, Option<u32>)>,
    ) -> CommandResult<Vec<(usize, u32)>> {
        let meta = &self.tables.meta;
        let mut changed = Vec::new();
        for (database, after) in changes {
            let key = keyspace_key(database);
            let found = txn.get_for_update(meta, key)?;
            if found.is_none_or(|found| found[..] != before[database].to_le_bytes()) {
                return Err(if self.keyspaces.current() == *before {
                    CHANGE_FAILED.into()
                } else {
                    Stop::Conflict
                });
            }
            let after = match after {
                Some(keyspace) => keyspace,
                None => {
                    let garbage = garbage_key(Garbage::Keyspace(before[database]));
                    txn.put(&self.tables.garbage, garbage, b"")?;
                    self.new_keyspace(txn)?
                }
            };
            txn.put(meta, key, after.to_le_bytes())?;
            changed.push((database, after));
        }
        Ok(changed)
    }

    fn new_keyspace(&self, txn: &mut Transaction) -> CommandResult<u32> {
        let found = txn.get_for_update(&self.tables.meta, NEXT_KEYSPACE)?;
        let next = found.and_then(|bytes| bytes[..].try_into().ok());
        let next = next.map_or(DATABASES as u32, u32::from_le_bytes);
        let later = next.checked_add(1).ok_or(ErrorReply::new("ERR", "no keyspace is left"))?;
        txn.put(&self.tables.meta, NEXT_KEYSPACE, later.to_le_bytes())?;
        Ok(next)
    }

    /// How many keys a keyspace has for a transaction, those that have expired and are not reclaimed yet included.
    pub fn count(&self, txn: &Transaction, keyspace: u32) -> Result<i64, Error> {
        let counts = txn.prefix(&self.tables.counts, keyspace.to_be_bytes())?;
        counts.map(|entry| entry.map(|(_, count)| decode_count(&count))).sum()
    }
}

/// The bytes of a number in the table of the format.
fn meta_number<const N: usize>(
    tables: &Tables,
    key: impl AsRef<[u8]>,
    what: impl FnOnce() -> String,
) -> Result<[u8; N], StartError> {
    let record = tables.meta.get(key)?;
    let bytes = record.as_deref().and_then(|record| record.try_into().ok());
    bytes.ok_or_else(|| StartError::Model {
        what: format!("{} in table `redis:meta` is missing or damaged", what()),
    })
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
        assert_eq!(garbage_key(Garbage::Content(7))[..], *b"\x01\0\0\0\0\0\0\0\x07");
        assert_eq!(garbage_key(Garbage::Keyspace(7))[..], *b"\x02\0\0\0\x07");
        for garbage in [Garbage::Content(7), Garbage::Keyspace(7)] {
            assert_eq!(Garbage::of_key(&garbage_key(garbage)), Some(garbage));
        }
        assert_eq!(split_head_key(&head_key(3, b"k")), Some((3, &b"k"[..])));
        assert_eq!(keyspace_key(15), *b"keyspace\x0F");
        assert!(head_key(1, b"b") < head_key(1, b"ba") && head_key(1, b"z") < head_key(2, b""));
        assert!(expiry_key(255, 9, b"z") < expiry_key(256, 0, b""));
    }
}
