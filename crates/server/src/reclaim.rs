//! Reclaiming of keys that have expired and that no command touches: by the index of expiries, so at a cost that does not grow
//! with the keys that do not expire.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite::{Durability, Error};

use crate::model::{Counts, Write, expiry_key, split_expiry_key};
use crate::shared::Shared;
use crate::stop::Stop;

/// How often expired keys are looked for.
const INTERVAL: Duration = Duration::from_millis(100);

/// How many keys one transaction reclaims at most.
const KEYS_MAX: usize = 256;

/// Reclaims expired keys until the server stops.
pub(crate) fn run(shared: &Arc<Shared>, mut counts: Counts) {
    let mut goes_on = true;
    while goes_on {
        let reclaimed = reclaim_some(shared, &mut counts);
        match reclaimed {
            Ok(KEYS_MAX..) | Err(Stop::Conflict) => {
                goes_on = !shared.is_stopping.load(Ordering::SeqCst);
                continue;
            }
            Ok(_) => {}
            Err(stop) => tracing::debug!(?stop, "expired keys could not be reclaimed; it is tried again"),
        }
        goes_on = shared.sleep(INTERVAL);
    }
}

/// Reclaims the keys that expired first; returns how many entries of the index it took. What it removes no command sees any more,
/// so it need not be durable when it returns: the index says it again after a crash.
fn reclaim_some(shared: &Shared, counts: &mut Counts) -> Result<usize, Stop> {
    let tables = &shared.model.tables;
    let mut txn = shared.db.begin();
    txn.set_durability(Durability::None)?;
    let now_ms = shared.db.now_ms();
    let mut due = Vec::new();
    // All times up to this one, of all keyspaces.
    for entry in txn.range(&tables.expiry, ..expiry_key(now_ms + 1, 0, b""))?.take(KEYS_MAX) {
        due.push(entry?.0.to_vec());
    }
    // Those of a keyspace together: each is counted once.
    due.sort_by_key(|entry: &Vec<u8>| keyspace_of(entry));
    let mut write = Write::new(&mut txn, tables, true, now_ms, 0);
    let mut counted = Vec::new();
    for entry in &due {
        let Some((expires_at_ms, keyspace, key)) = split_expiry_key(entry) else {
            tracing::warn!("an entry of the index of expiries is damaged, and left out");
            write.txn.delete(&tables.expiry, entry)?;
            continue;
        };
        if write.keyspace != keyspace {
            counted.extend(write.count_keys(counts)?);
            write.keyspace = keyspace;
        }
        match write.stored(key)?.filter(|old| old.head.expires_at_ms == expires_at_ms) {
            Some(old) => write.delete(key, &old)?,
            None => write.txn.delete(&tables.expiry, entry)?,
        }
    }
    counted.extend(write.count_keys(counts)?);
    match txn.commit_numbered() {
        Ok(_) => {
            counted.into_iter().for_each(|counted| counts.note(counted));
            Ok(due.len())
        }
        Err(Error::Conflict(_)) => Err(Stop::Conflict),
        Err(error) => Err(error.into()),
    }
}

fn keyspace_of(entry: &[u8]) -> Option<u32> {
    split_expiry_key(entry).map(|(_, keyspace, _)| keyspace)
}
