//! Reclaiming of what no command sees any more, in bounded steps: keys that have expired, by the index of expiries, so at a cost that
//! does not grow with the keys that do not expire; the content of collections that were deleted; and the keys of keyspaces that no
//! database has any more. The tables say what is left after a crash, so none of it need be durable when a step ends.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fulgurite::{Csn, Durability, Error, Transaction};

use crate::model::{
    Counted, Counts, DAMAGED, Garbage, Old, Write, content_bounds, expiry_key, garbage_key, split_expiry_key,
    split_head_key,
};
use crate::pace;
use crate::runner::Runner;
use crate::shared::Shared;
use crate::stop::{Result, Stop};

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// How many rows one transaction takes at most.
const ROWS_MAX: usize = 128;

/// And after one was refused: what it puts beside its deletes is little then, so that it is admitted on a full disk.
const FEW_ROWS: usize = 16;

/// How soon it is tried again after a conflict.
const AGAIN: Duration = Duration::from_millis(1);

/// What was reclaimed since the server started.
#[derive(Debug, Default)]
pub(crate) struct Reclaimed {
    pub expired_keys: AtomicU64,
    /// Rows of the content of collections.
    pub rows: AtomicU64,
    /// Keys of keyspaces that no database had any more.
    pub flushed_keys: AtomicU64,
}

/// Reclaims until the server stops.
pub(crate) fn run(shared: &Arc<Shared>, counts: Counts) {
    let mut reclaimer = Reclaimer { shared, counts, rows_max: ROWS_MAX, damaged: HashSet::new() };
    loop {
        pace::begin(&shared.env);
        let expired = reclaimer.reclaim_expired();
        let taken = expired.and_then(|expired| Ok(expired.max(reclaimer.reclaim_garbage()?)));
        let pause = match taken {
            Ok(taken) if taken >= reclaimer.rows_max => Duration::ZERO,
            Ok(_) => INTERVAL,
            Err(Stop::Conflict) => AGAIN,
            Err(stop) => {
                tracing::debug!(?stop, "something could not be reclaimed; it is tried again");
                reclaimer.rows_max = FEW_ROWS;
                if !shared.sleep(INTERVAL) {
                    return;
                }
                continue;
            }
        };
        reclaimer.rows_max = ROWS_MAX;
        if !shared.sleep(pause) {
            return;
        }
    }
}

struct Reclaimer<'s> {
    shared: &'s Shared,
    counts: Counts,
    rows_max: usize,
    /// Rows of the index of expiries and of the heads whose records are damaged, and which stay.
    damaged: HashSet<Vec<u8>>,
}

impl Reclaimer<'_> {
    /// Reclaims the keys that expired first; returns how many entries of the index it took.
    fn reclaim_expired(&mut self) -> Result<usize> {
        let shared = self.shared;
        let tables = &shared.model.tables;
        let mut txn = self.begin()?;
        let now_ms = shared.db.now_ms();
        let due = self.due(&txn, now_ms)?;
        let mut write = Write::new(&mut txn, &shared.model, Runner::LongWorker, now_ms, 0);
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
                    if error == DAMAGED {
                        self.damaged.insert(entry.clone());
                    }
                }
                Err(stop) => return Err(stop),
            }
        }
        let counted = write.count_keys(&self.counts)?;
        self.commit(txn, counted)?;
        shared.reclaimed.expired_keys.fetch_add(due.len() as u64, Relaxed);
        Ok(due.len())
    }

    fn begin(&self) -> Result<Transaction> {
        let mut txn = self.shared.db.begin();
        txn.set_durability(Durability::None)?;
        txn.set_makes_room();
        Ok(txn)
    }

    fn commit(&mut self, txn: Transaction, counted: impl IntoIterator<Item = Counted>) -> Result<()> {
        match txn.commit_numbered() {
            Ok(_) => {
                counted.into_iter().for_each(|counted| self.counts.note(counted));
                Ok(())
            }
            Err(Error::Conflict(_)) => Err(Stop::Conflict),
            Err(error) => Err(error.into()),
        }
    }

    /// The first entries that are due, of all keyspaces.
    fn due(&self, txn: &Transaction, now_ms: u64) -> Result<Vec<Vec<u8>>> {
        let mut due = Vec::new();
        for entry in txn.range(&self.shared.model.tables.expiry, ..expiry_key(now_ms + 1, 0, b""))? {
            let entry = entry?.0.to_vec();
            if !self.damaged.contains(&entry) {
                due.push(entry);
            }
            if due.len() == self.rows_max {
                break;
            }
        }
        Ok(due)
    }

    /// Reclaims some of the garbage that may be reclaimed; returns how many rows it took.
    fn reclaim_garbage(&mut self) -> Result<usize> {
        let (model, mut taken, mut failure) = (&self.shared.model, 0, None);
        let snapshot = self.shared.db.snapshot();
        for entry in snapshot.range(&model.tables.garbage, ..)?.take(self.rows_max) {
            let row = entry?.0;
            let reclaimed = match Garbage::of_key(&row) {
                Some(Garbage::Content(id)) => self.reclaim_content(id),
                Some(Garbage::Keyspace(keyspace)) if model.keyspaces.is_unused(keyspace) => {
                    self.reclaim_keyspace(keyspace)
                }
                Some(Garbage::Keyspace(_)) => Ok(0),
                None => {
                    tracing::warn!(row = %row.escape_ascii(), "a row of table `redis:garbage` is damaged, and left out");
                    Ok(0)
                }
            };
            match reclaimed {
                Ok(rows) => taken += rows,
                // What cannot be read does not keep the others from being reclaimed.
                Err(stop @ Stop::Reply(_)) => failure = Some(stop),
                Err(stop) => return Err(stop),
            }
            if taken >= self.rows_max {
                break;
            }
        }
        failure.map_or(Ok(taken), Err)
    }

    /// Deletes rows of a collection, and with the last ones that of the garbage. A value that arrived under its id may be taken by a command
    /// meanwhile (INV-SRV-4).
    fn reclaim_content(&mut self, id: u64) -> Result<usize> {
        let tables = &self.shared.model.tables;
        let mut txn = self.begin()?;
        let garbage = garbage_key(Garbage::Content(id));
        if self.shared.arrivals.contains(id) || txn.get_for_update(&tables.garbage, &garbage)?.is_none() {
            return Ok(0);
        }
        // Rows that were stored may not be acknowledged, nor visible, yet: this waits for all that has a number, and the record is of the
        // last ones, too.
        let snapshot = self.shared.db.snapshot_at(Csn(u64::MAX))?;
        let rows = snapshot.range(&tables.content, content_bounds(id))?;
        let rows = rows.take(self.rows_max).map(|entry| Ok(entry?.0)).collect::<Result<Vec<_>>>()?;
        for row in &rows {
            pace::step();
            txn.delete(&tables.content, row)?;
        }
        if rows.len() < self.rows_max {
            txn.delete(&tables.garbage, garbage)?;
        }
        self.commit(txn, [])?;
        self.shared.reclaimed.rows.fetch_add(rows.len() as u64, Relaxed);
        Ok(rows.len() + 1)
    }

    /// Deletes keys of a keyspace that no command uses, and with the last ones its counts and its row of the garbage.
    fn reclaim_keyspace(&mut self, keyspace: u32) -> Result<usize> {
        let model = &self.shared.model;
        let mut txn = self.begin()?;
        // Commands that have ended may have written what is not acknowledged, nor visible, yet: this waits for all that has a number.
        let snapshot = self.shared.db.snapshot_at(Csn(u64::MAX))?;
        let heads = snapshot.prefix(&model.tables.heads, keyspace.to_be_bytes())?;
        let mut taken = 0;
        for entry in heads {
            let (row, record) = entry?;
            if self.damaged.contains(&row[..]) {
                continue;
            }
            let Some((_, key)) = split_head_key(&row) else { continue };
            let mut write = Write::new(&mut txn, model, Runner::LongWorker, 0, keyspace);
            match Old::decode(record, Runner::LongWorker).and_then(|old| write.delete(key, &old)) {
                Ok(()) => taken += 1,
                Err(Stop::Reply(error)) if error == DAMAGED => {
                    let key = key.escape_ascii();
                    tracing::warn!(%key, keyspace, why = %error.message, "a key that was flushed cannot be read, and stays");
                    self.damaged.insert(row.to_vec());
                }
                Err(stop) => return Err(stop),
            }
            if taken == self.rows_max {
                break;
            }
        }
        if taken < self.rows_max {
            for entry in snapshot.prefix(&model.tables.counts, keyspace.to_be_bytes())? {
                txn.delete(&model.tables.counts, entry?.0)?;
            }
            txn.delete(&model.tables.garbage, garbage_key(Garbage::Keyspace(keyspace)))?;
        }
        self.commit(txn, [])?;
        if taken < self.rows_max {
            model.keyspaces.forget(keyspace);
        }
        self.shared.reclaimed.flushed_keys.fetch_add(taken as u64, Relaxed);
        Ok(taken + 1)
    }
}

#[cfg(test)]
mod tests {
    use fulgurite::env::SimEnv;
    use fulgurite::{Database, Options};

    use super::*;
    use crate::arrivals::Arrival;
    use crate::{Config, Server};

    /// A value that arrived, and that a command takes between two looks of the reclaimer.
    #[test]
    fn a_value_that_arrives_or_was_taken_is_not_reclaimed() {
        let db = Database::open_with(SimEnv::new(1), "/data", Options::default(), |_| {}).unwrap();
        let config = Config { bind: vec![([127, 0, 0, 1], 0).into()], ..Config::default() };
        let server = Server::start(db, config).unwrap();
        let shared = server.shared();
        let tables = &shared.model.tables;
        let counts = Counts::load(&shared.db, tables, 1).unwrap().remove(0);
        let mut reclaimer = Reclaimer { shared, counts, rows_max: 8, damaged: HashSet::new() };
        let mut arrival = Arrival::new(2, &shared.arrivals);
        arrival.store(shared, &[7; 100_000]);
        let stored = arrival.stored().unwrap();
        let fragments = || tables.content.range(content_bounds(stored.id)).unwrap().count();
        assert_eq!((reclaimer.reclaim_content(stored.id).unwrap(), fragments()), (0, 7), "it arrives");
        let mut txn = shared.db.begin();
        let mut write = Write::new(&mut txn, &shared.model, Runner::LongWorker, 0, 0);
        write.put_stored_text(b"k", None, stored, 0).unwrap();
        // Its record of garbage was seen before, and is gone now.
        let mut late = reclaimer.begin().unwrap();
        assert!(
            late.get_for_update(&tables.garbage, garbage_key(Garbage::Content(stored.id))).unwrap().is_some()
        );
        late.delete(&tables.content, b"row of it").unwrap();
        txn.commit().unwrap();
        drop(arrival);
        assert!(matches!(reclaimer.commit(late, []), Err(Stop::Conflict)));
        assert_eq!((reclaimer.reclaim_content(stored.id).unwrap(), fragments()), (0, 7), "it was taken");
        let mut left = Arrival::new(2, &shared.arrivals);
        left.store(shared, &[7; 100_000]);
        let id = left.stored().unwrap().id;
        drop(left);
        while tables.garbage.range(..).unwrap().count() > 0 {
            assert!(shared.sleep(AGAIN));
        }
        assert_eq!(tables.content.range(content_bounds(id)).unwrap().count(), 0, "it was left");
        assert_eq!(fragments(), 7);
    }
}
