//! A transaction and its model, side by side.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use fulgurite::{Error, Savepoint, Table, Transaction, Value};

use super::model::Entry;
use super::oracle::{Id, Key, Txn};
use super::session::{Action, ValueSpec};

pub type Outcome = Result<(), String>;

pub struct OpenTxn {
    pub real: Transaction,
    pub model: Txn,
    pub savepoints: Vec<Savepoint>,
}

pub fn said(what: &str) -> impl Fn(Error) -> String {
    let what = what.to_string();
    move |error| format!("{what}: {error}")
}

fn same(what: &str, found: Option<&[u8]>, expected: Option<&[u8]>) -> Outcome {
    if found == expected {
        return Ok(());
    }
    let show = |value: Option<&[u8]>| value.map(|bytes| format!("{} bytes", bytes.len()));
    Err(format!("{what} is {:?}, expected {:?}", show(found), show(expected)))
}

impl OpenTxn {
    pub fn savepoints(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Savepoint(_) => {
                self.savepoints.push(self.real.savepoint());
                self.model.savepoint();
            }
            Action::RollbackTo { nth, .. } if *nth < self.savepoints.len() => {
                self.real.rollback_to(self.savepoints[*nth]).map_err(said("rollback_to"))?;
                self.savepoints.truncate(nth + 1);
                self.model.rollback_to(*nth);
            }
            _ => {}
        }
        Ok(())
    }

    pub fn act(&mut self, action: &Action, id: Id, table: &Table, now_ms: u64) -> Outcome {
        // A table that was created after the transaction began: the transaction may write to it, and sees nothing.
        let real = &mut self.real;
        let model = &mut self.model;
        let value = |found: Option<Value>| found.map(|value| value.to_vec());
        match action {
            Action::Get { key, .. } => {
                let found = value(real.get(table, key).map_err(said("get"))?);
                let expected = model.get(id, key);
                same("get in a transaction", found.as_deref(), expected.as_ref().map(|entry| &*entry.value))
            }
            Action::GetForUpdate { key, .. } => {
                let found = value(real.get_for_update(table, key).map_err(said("get_for_update"))?);
                let expected = model.get_for_update(id, key);
                same("get_for_update", found.as_deref(), expected.as_ref().map(|entry| &*entry.value))
            }
            Action::Put { key, value, expires_in_s, .. } => {
                let bytes = value.bytes();
                let expires_at_ms = expires_in_s.map_or(0, |s| now_ms / 1000 * 1000 + s * 1000 + 500);
                let put = match expires_at_ms {
                    0 => real.put(table, key, &bytes),
                    at => real.put_expiring(table, key, &bytes, fulgurite::Expiry::at_unix_ms(at)),
                };
                put.map_err(said("put"))?;
                model.write(id, key, Some(Entry { value: bytes.into(), expires_at_ms }), false);
                Ok(())
            }
            Action::Delete { key, .. } => {
                real.delete(table, key).map_err(said("delete"))?;
                model.write(id, key, None, false);
                Ok(())
            }
            Action::Insert { key, value, .. } => {
                let bytes = value.bytes();
                let exists = model.get(id, key).is_some();
                match real.insert(table, key, &bytes) {
                    Ok(()) if !exists => {
                        model.write(id, key, Some(Entry { value: bytes.into(), expires_at_ms: 0 }), true);
                        Ok(())
                    }
                    Err(Error::KeyExists { .. }) if exists => Ok(()),
                    other => Err(format!("insert gave {other:?}, the key exists: {exists}")),
                }
            }
            Action::Swap { key, right, value, .. } => {
                let current = model.get_for_update(id, key).map(|entry| entry.value.to_vec());
                let guess = if *right { current.clone() } else { Some(b"no value is this".to_vec()) };
                let bytes = value.map(ValueSpec::bytes);
                let swapped = real
                    .compare_and_swap(table, key, guess.as_deref(), bytes.as_deref())
                    .map_err(said("compare_and_swap"))?;
                if swapped != (guess == current) {
                    return Err(format!("compare_and_swap gave {swapped}"));
                }
                if swapped {
                    let entry = bytes.map(|bytes| Entry { value: bytes.into(), expires_at_ms: 0 });
                    model.write(id, key, entry, true);
                }
                Ok(())
            }
            Action::DeleteRange { start, end, .. } => {
                let range = (
                    Bound::Included(start.as_slice()),
                    end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
                );
                real.delete_range(table, range).map_err(said("delete_range"))?;
                model.delete_range(id, (start.clone(), end.clone()));
                Ok(())
            }
            Action::Scan { start, end, turns, .. } => {
                let bounds = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
                model.read_range(id, start.clone(), end.clone());
                let inside = |key: &Key| (start.as_ref(), end.as_ref()).contains(&key);
                let expected = model.view(id).into_iter().filter(|(key, _)| inside(key)).collect();
                let found = real.range(table, bounds).map_err(said("range"))?;
                interleave(found, expected, *turns)
            }
            Action::Prefix { prefix, back, .. } => {
                let expected: Vec<(Key, Entry)> =
                    model.view(id).into_iter().filter(|(key, _)| key.starts_with(prefix)).collect();
                let mut end = prefix.clone();
                end.push(0xff);
                let found = real.prefix(table, prefix).map_err(said("prefix"))?;
                model.read_range(id, Bound::Included(prefix.clone()), Bound::Included(end));
                interleave(found, expected, if *back { u64::MAX } else { 0 })
            }
            other => unreachable!("{other:?} is not of a table"),
        }
    }
}

/// Takes entries from both ends, by the bits of `turns`, until they meet; some are borrowed, some owned.
fn interleave(mut found: fulgurite::Range<'_>, expected: Vec<(Key, Entry)>, turns: u64) -> Outcome {
    let mut expected = VecDeque::from(expected);
    for nth in 0.. {
        let back = turns >> (nth % 64) & 1 == 1;
        let lent = (turns ^ 0x9E37_79B9_7F4A_7C15) >> (nth * 5 % 64) & 1 == 1;
        let model = if back { expected.pop_back() } else { expected.pop_front() };
        let kept = match (lent, back) {
            (true, _) => None,
            (false, true) => found.next_back().transpose().map_err(said("a scan"))?,
            (false, false) => found.next().transpose().map_err(said("a scan"))?,
        };
        let entry = match (lent, back) {
            (false, _) => kept.as_ref().map(|(key, value)| (&**key, &**value)),
            (true, true) => found.next_entry_back().map_err(said("a scan"))?,
            (true, false) => found.next_entry().map_err(said("a scan"))?,
        };
        match (entry, model) {
            (None, None) => return Ok(()),
            (Some((key, value)), Some((model_key, model)))
                if *key == *model_key && *value == *model.value => {}
            (entry, model) => {
                let found = entry.map(|(key, value)| (key.escape_ascii().to_string(), value.len()));
                let model = model.map(|(key, entry)| (key.escape_ascii().to_string(), entry.value.len()));
                return Err(format!("entry {nth} of a scan (back: {back}) is {found:?}, expected {model:?}"));
            }
        }
    }
    Ok(())
}
