//! Reclaiming of keys that have expired and that no command touches: by the index of expiries, so at a cost that does not grow
//! with the keys that do not expire.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fulgurite::{Durability, Error, Transaction};

use crate::model::{Counts, Write, expiry_key, split_expiry_key};
use crate::shared::Shared;
use crate::stop::Stop;

/// How often expired keys are looked for.
const INTERVAL: Duration = Duration::from_millis(100);

/// How many keys one transaction reclaims at most.
const KEYS_MAX: usize = 256;

/// How soon it is tried again after a conflict.
const AGAIN: Duration = Duration::from_millis(1);

/// Reclaims expired keys until the server stops.
pub(crate) fn run(shared: &Arc<Shared>, counts: Counts) {
    let mut reclaimer = Reclaimer { shared, counts, damaged: HashSet::new() };
    loop {
        let pause = match reclaimer.reclaim_some() {
            Ok(KEYS_MAX..) => Duration::ZERO,
            Ok(_) => INTERVAL,
            Err(Stop::Conflict) => AGAIN,
            Err(stop) => {
                tracing::debug!(?stop, "expired keys could not be reclaimed; it is tried again");
                INTERVAL
            }
        };
        if !shared.sleep(pause) {
            return;
        }
    }
}

struct Reclaimer<'s> {
    shared: &'s Shared,
    counts: Counts,
    /// Entries whose keys have damaged records, which stay.
    damaged: HashSet<Vec<u8>>,
}

impl Reclaimer<'_> {
    /// Reclaims the keys that expired first; returns how many entries of the index it took. What it removes no command sees any
    /// more, so it need not be durable when it returns: the index says it again after a crash.
    fn reclaim_some(&mut self) -> Result<usize, Stop> {
        let shared = self.shared;
        let tables = &shared.model.tables;
        let mut txn = shared.db.begin();
        txn.set_durability(Durability::None)?;
        let now_ms = shared.db.now_ms();
        let due = self.due(&txn, now_ms)?;
        let mut write = Write::new(&mut txn, tables, true, now_ms, 0);
        for entry in &due {
            let Some((expires_at_ms, keyspace, key)) = split_expiry_key(entry) else {
                tracing::warn!("an entry of the index of expiries is damaged, and left out");
                write.txn.delete(&tables.expiry, entry)?;
                continue;
            };
            write.keyspace = keyspace;
            match write.stored(key) {
                Ok(Some(old)) if old.head.expires_at_ms == expires_at_ms => write.delete(key, &old)?,
                Ok(_) => write.txn.delete(&tables.expiry, entry)?,
                Err(Stop::Reply(error)) => {
                    let key = key.escape_ascii();
                    tracing::warn!(%key, keyspace, why = %error.message, "a key that has expired cannot be read, and stays");
                    self.damaged.insert(entry.clone());
                }
                Err(stop) => return Err(stop),
            }
        }
        let counted = write.count_keys(&self.counts)?;
        match txn.commit_numbered() {
            Ok(_) => {
                counted.into_iter().for_each(|counted| self.counts.note(counted));
                Ok(due.len())
            }
            Err(Error::Conflict(_)) => Err(Stop::Conflict),
            Err(error) => Err(error.into()),
        }
    }

    /// The first entries that are due, of all keyspaces.
    fn due(&self, txn: &Transaction, now_ms: u64) -> Result<Vec<Vec<u8>>, Stop> {
        let mut due = Vec::new();
        for entry in txn.range(&self.shared.model.tables.expiry, ..expiry_key(now_ms + 1, 0, b""))? {
            let entry = entry?.0.to_vec();
            if !self.damaged.contains(&entry) {
                due.push(entry);
            }
            if due.len() == KEYS_MAX {
                break;
            }
        }
        Ok(due)
    }
}
