//! How many keys there are: each thread counts those that its commits create and delete, in records that no other thread writes. So
//! it knows what they say without reading them: no two commits contend for a count, and none depends on the commits of others by it.

use std::collections::HashMap;

use fulgurite::{Database, Error};

use super::keyspaces::KeyspaceMap;
use super::tables::{Tables, decode_count};

/// The counts of one thread, as of its newest commit.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub stripe: u32,
    by_keyspace: HashMap<u32, i64>,
}

/// The count of a keyspace once a commit has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub keyspace: u32,
    pub keys: i64,
}

impl Counts {
    /// Those of `threads` threads, as the tables say. No commit may be on its way.
    pub fn load(db: &Database, tables: &Tables, threads: usize) -> Result<Vec<Counts>, Error> {
        let mut all: Vec<Counts> =
            (0..threads).map(|stripe| Counts { stripe: stripe as u32, ..Counts::default() }).collect();
        for entry in db.begin().range(&tables.counts, ..)? {
            let (row, count) = entry?;
            let Some((keyspace, stripe)) = row.split_first_chunk::<4>() else { continue };
            let stripe = stripe.try_into().map_or(usize::MAX, |stripe| u32::from_be_bytes(stripe) as usize);
            if let Some(counts) = all.get_mut(stripe) {
                counts.by_keyspace.insert(u32::from_be_bytes(*keyspace), decode_count(&count));
            }
        }
        Ok(all)
    }

    /// The count of a keyspace after so many more keys.
    pub fn after(&self, keyspace: u32, created: i64) -> Counted {
        let keys = self.by_keyspace.get(&keyspace).copied().unwrap_or_default();
        Counted { keyspace, keys: keys + created }
    }

    /// Forgets the keyspaces that no database has any more, if there are many. The thread runs a command that uses `map`, and none with
    /// former keyspaces.
    pub fn forget_gone(&mut self, map: &KeyspaceMap) {
        if self.by_keyspace.len() > 4 * map.len() {
            self.by_keyspace.retain(|keyspace, _| map.contains(keyspace));
        }
    }

    /// The commit happened.
    pub fn note(&mut self, counted: Counted) {
        self.by_keyspace.insert(counted.keyspace, counted.keys);
    }
}
