//! What goes through many keys: `SCAN`, `KEYS`, `RANDOMKEY`.

use std::ops::Bound;

use fulgurite::{Missing, Range, RangeLimits, Value};
use fulgurite_resp::parse_i64;

use crate::args::Args;
use crate::context::Context;
use crate::cursors::ScanState;
use crate::glob;
use crate::model::{Bounds, INLINE_ROWS_MAX, Kind, Old, head_key, keyspace_bounds, row_name, split_head_key};
use crate::stop::{ErrorReply, Result, Stop};

/// The options of `SCAN` and of its kin.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanOptions<'a> {
    pub pattern: Option<&'a [u8]>,
    /// About how many it returns.
    pub count: usize,
    /// Only keys of this type, if it is known; `SCAN` alone has it.
    pub kind: Option<Option<Kind>>,
}

/// How many a call of `SCAN` passes if it is not told.
const COUNT: usize = 10;

/// A call passes no more, however many it is told: it is cut into several.
const COUNT_MAX: usize = 10_000;

impl<'a> ScanOptions<'a> {
    /// Those from an argument on.
    pub fn parse(args: &Args<'a>, first: usize, takes_type: bool) -> Result<ScanOptions<'a>> {
        let mut options = ScanOptions { pattern: None, count: COUNT, kind: None };
        let mut index = first;
        while index < args.len() {
            let value = args.get(index + 1);
            match value {
                Some(pattern) if args.is(index, "match") => {
                    options.pattern = Some(pattern).filter(|pattern| *pattern != b"*");
                }
                Some(count) if args.is(index, "count") => {
                    let count = parse_i64(count).ok_or(ErrorReply::NOT_AN_INTEGER)?;
                    let count =
                        usize::try_from(count).ok().filter(|&count| count > 0).ok_or(ErrorReply::SYNTAX)?;
                    options.count = count.min(COUNT_MAX);
                }
                Some(kind) if takes_type && args.is(index, "type") => options.kind = Some(Kind::named(kind)),
                _ => return Err(ErrorReply::SYNTAX.into()),
            }
            index += 2;
        }
        Ok(options)
    }

    pub fn matches(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// An I/O thread compares names with no longer patterns: it may take as many steps as both lengths multiplied.
const INLINE_PATTERN_BYTES_MAX: usize = 32;

/// The cursor among the arguments of a command.
pub(super) fn parse_cursor(cursor: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(cursor).ok();
    let number = text.filter(|text| !text.starts_with('+')).and_then(|text| text.parse().ok());
    Ok(number.ok_or(ErrorReply::new("ERR", "invalid cursor"))?)
}

pub(super) fn scan(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let cursor = parse_cursor(&args[1])?;
    let options = ScanOptions::parse(args, 2, true)?;
    if !context.runner.may_take_long()
        && options.pattern.is_some_and(|pattern| pattern.len() > INLINE_PATTERN_BYTES_MAX)
    {
        return Err(Stop::Large);
    }
    let keyspace = context.keyspace();
    let after = match cursor {
        0 => None,
        cursor => {
            let state = context.shared.cursors.find(cursor);
            let state = state.ok_or(ErrorReply::new(
                "ERR",
                "invalid cursor: the server does not know it any more; begin again with 0",
            ))?;
            if state.keyspace != keyspace {
                // The database was flushed or swapped: no key is left that was there when the scan began.
                return reply_scan(context, 0, &[]);
            }
            Some(state.after)
        }
    };
    let (keys, last) = context.scan_keys(after.as_deref(), options.count, |key, old| {
        options.matches(key)
            && options.kind.is_none_or(|kind| kind.is_some_and(|kind| kind.name() == old.head.kind.name()))
    })?;
    let next = match last {
        Some(after) => context.shared.cursors.keep(ScanState { keyspace, after: after[..].into() }),
        None => 0,
    };
    reply_scan(context, next, &keys)
}

fn reply_scan(context: &mut Context<'_>, cursor: u64, keys: &[Vec<u8>]) -> Result<()> {
    let mut reply = context.reply();
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

/// `HSCAN` and its kin: names that match, each with what `value` makes of its row's value. The options count only if there is a key.
pub(super) fn scan_members(
    context: &mut Context<'_>,
    args: &Args<'_>,
    kind: Kind,
    value: impl Fn(&Value) -> Option<Vec<u8>>,
) -> Result<()> {
    let cursor = parse_cursor(&args[2])?;
    let scanned = context.read_collection(&args[1], kind, |view, collection| {
        let options = ScanOptions::parse(args, 3, false)?;
        if !view.runner.may_take_long()
            && options.pattern.is_some_and(|pattern| pattern.len() > INLINE_PATTERN_BYTES_MAX)
        {
            return Err(Stop::Large);
        }
        let mut scanned = view.scan_members(collection, cursor, options.count)?;
        scanned.members.retain(|(row, _)| options.matches(row_name(row)));
        Ok(scanned)
    })?;
    let (cursor, members) = scanned.map_or((0, Vec::new()), |scanned| (scanned.cursor, scanned.members));
    let mut items = Vec::new();
    for (row, record) in &members {
        items.push(row_name(row).to_vec());
        items.extend(value(record));
    }
    reply_scan(context, cursor, &items)
}

/// The longest reply of `KEYS` in a transaction, which is built in memory.
const KEYS_BYTES_MAX: usize = 512 << 20;

pub(super) fn keys(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if !context.runner.may_take_long() {
        return Err(Stop::Large);
    }
    let pattern = &args[1];
    if context.takes_pieces()
        && let Some(keys) = context.view(|view| view.keys_to_send(pattern))?
    {
        return context.reply_long_keys(keys);
    }
    let (mut bytes, mut too_many) = (0, false);
    let (found, _) = context.scan_keys(None, usize::MAX, |key, _| {
        if too_many || !glob::matches(pattern, key) {
            return false;
        }
        bytes += key.len() + size_of::<Vec<u8>>();
        too_many = bytes > KEYS_BYTES_MAX;
        true
    })?;
    if too_many {
        return Err(ErrorReply::new("ERR", "the keys are too many for one reply: use SCAN").into());
    }
    let mut reply = context.reply();
    reply.array(found.len());
    found.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

/// How many keys are looked at around a random place.
const RANDOM_KEYS: usize = 64;

/// A key from around a random place. About uniform among keys that are spread evenly between the first and the last one.
pub(super) fn randomkey(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    let env = context.shared.env.clone();
    let found = match context.end_of_keys(false)?.zip(context.end_of_keys(true)?) {
        Some((first, last)) => {
            let near = between(&first, &last, env.random_u64());
            let (mut keys, _) = context.scan_keys(Some(&near), RANDOM_KEYS, |_, _| true)?;
            if keys.len() < RANDOM_KEYS {
                keys = context.scan_keys(None, RANDOM_KEYS, |_, _| true)?.0;
            }
            let index = env.random_u64() as usize % keys.len().max(1);
            (!keys.is_empty()).then(|| keys.swap_remove(index))
        }
        None => None,
    };
    match found {
        Some(key) => context.reply().bulk(&key),
        None => context.reply().null(),
    }
    Ok(())
}

/// A key between two others, by a random number.
fn between(first: &[u8], last: &[u8], random: u64) -> Vec<u8> {
    let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let rest = key.get(shared..).unwrap_or_default();
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(bytes)
    };
    let (low, high) = (number(first), number(last));
    let number = low + ((u128::from(random) * u128::from(high.saturating_sub(low))) >> 64) as u64;
    [&first[..shared], &number.to_be_bytes()].concat()
}

impl Context<'_> {
    /// The keys after one, as far as `is_wanted` takes them, and the last one that was passed if there may be more. It passes `count`
    /// keys at most.
    fn scan_keys(
        &mut self,
        after: Option<&[u8]>,
        count: usize,
        mut is_wanted: impl FnMut(&[u8], &Old) -> bool,
    ) -> Result<(Vec<Key>, Option<Key>)> {
        let (keyspace, now_ms, runner) = (self.keyspace(), self.now_ms, self.runner);
        let from = match after {
            Some(key) => Bound::Excluded(head_key(keyspace, key)),
            None => Bound::Included(head_key(keyspace, b"")),
        };
        let end = keyspace_bounds(keyspace).1;
        let mut keys = Vec::new();
        let mut take = |row: &[u8], old: Old| {
            let Some((_, key)) = split_head_key(row) else { return };
            if old.head.is_live(now_ms) && is_wanted(key, &old) {
                keys.push(key.to_vec());
            }
        };
        if count > INLINE_ROWS_MAX && !runner.may_take_long() {
            return Err(Stop::Large);
        }
        if runner.may_wait() {
            let (mut passed, mut last) = (0, None);
            self.with_heads((from, end), |range| {
                for entry in range.take(count) {
                    let (row, record) = entry?;
                    take(&row, Old::decode(record, runner)?);
                    (passed, last) = (passed + 1, Some(row));
                }
                Ok(())
            })?;
            let last = last.filter(|_| passed == count);
            return Ok((keys, last.and_then(|row| Some(split_head_key(&row)?.1.to_vec()))));
        }
        if self.exec.is_some() {
            return Err(Stop::Blocked(Missing::Node));
        }
        let snapshot = self.snapshot()?;
        let limits = RangeLimits { entries: count, ..RangeLimits::default() };
        let read = snapshot.try_range(&self.shared.model.tables.heads, (from, end), limits)?;
        if let Some(missing) = read.missing {
            return Err(Stop::Blocked(missing));
        }
        let last = read.entries.last().filter(|_| read.rest.is_some()).map(|(row, _)| row.clone());
        for (row, record) in read.entries {
            take(&row, Old::decode(record, runner)?);
        }
        self.needs = self.needs.max(snapshot.needs());
        Ok((keys, last.and_then(|row| Some(split_head_key(&row)?.1.to_vec()))))
    }

    /// The first or the last key of the keyspace.
    fn end_of_keys(&mut self, is_last: bool) -> Result<Option<Vec<u8>>> {
        if !self.runner.may_wait() {
            return Err(Stop::Blocked(Missing::Node));
        }
        let keyspace = self.keyspace();
        self.with_heads(keyspace_bounds(keyspace), |mut range| {
            let entry = if is_last { range.next_back() } else { range.next() };
            Ok(entry.transpose()?.and_then(|(row, _)| Some(split_head_key(&row)?.1.to_vec())))
        })
    }

    /// Reads head records on a thread that may wait: in the transaction of `EXEC`, or else what is acknowledged and the connection's
    /// own commits.
    fn with_heads<T>(&mut self, bounds: Bounds, read: impl FnOnce(Range<'_>) -> Result<T>) -> Result<T> {
        let heads = &self.shared.model.tables.heads;
        if let Some(exec) = &mut self.exec {
            return read(exec.transaction().range(heads, bounds)?);
        }
        let snapshot = self.snapshot()?;
        let result = read(snapshot.range(heads, bounds)?);
        self.needs = self.needs.max(snapshot.needs());
        result
    }
}

/// A key, as the client gave it.
type Key = Vec<u8>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_keys_are_between_the_ends() {
        for (first, last) in
            [(&b"user:0001"[..], &b"user:9999"[..]), (b"a", b"b"), (b"a", b"a"), (b"", b"zz")]
        {
            for random in [0, u64::MAX / 3, u64::MAX] {
                let key = between(first, last, random);
                let mut padded = first.to_vec();
                padded.resize(first.len().max(key.len()), 0);
                assert!(key.as_slice() <= [last, &[0; 9]].concat().as_slice(), "{key:?}");
                assert!([&key[..], &[0; 9]].concat() >= first.to_vec(), "{key:?}");
            }
        }
    }
}
