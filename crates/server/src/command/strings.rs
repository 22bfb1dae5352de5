//! Strings.

use std::ops::Range;

use fulgurite_resp::{format_human_double, format_i64, parse_f64, parse_i64};

use super::keys::{Deadline, deadline_at, deadline_of};
use crate::args::{Args, Value};
use crate::context::Context;
use crate::model::{Head, Old, Outgoing, Text, View, Write};
use crate::stop::{ErrorReply, Result, Stop};

pub(super) fn get(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read(&args[1])?;
    match found.as_ref().map(Old::whole_text).transpose()? {
        Some(Some(value)) => context.reply().bulk(value),
        Some(None) => {
            let in_pieces = context.takes_pieces();
            let text = context.view(|view| {
                let found = view.live(&args[1])?;
                found.map(|old| whole_text(view, &old, in_pieces)).transpose()
            })?;
            return reply_text(context, text);
        }
        None => context.reply().null(),
    }
    Ok(())
}

/// A whole string, to be sent.
fn whole_text(view: &View<'_>, old: &Old, in_pieces: bool) -> Result<Outgoing> {
    view.text_to_send(old, 0..usize::MAX, in_pieces)
}

fn reply_text(context: &mut Context<'_>, found: Option<Outgoing>) -> Result<()> {
    match found {
        Some(Outgoing::Whole(text)) => context.reply().bulk(&text),
        Some(Outgoing::InPieces(text)) => return context.reply_long_text(text),
        None => context.reply().null(),
    }
    Ok(())
}

/// When a value expires that a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    /// As before.
    Expiry,
    /// At this time in milliseconds; 0 is never.
    Until(u64),
}

/// The options of `SET`.
#[derive(Debug)]
struct SetOptions {
    expiry: Keeps,
    /// Write only if the key exists, or only if it does not.
    only_if: Option<bool>,
    returns_old: bool,
}

impl SetOptions {
    /// Options may come twice; those that contradict each other may not. Their numbers are looked at when all are known.
    fn parse(context: &Context<'_>, args: &Args<'_>) -> Result<SetOptions> {
        let mut options = SetOptions { expiry: Keeps::Until(0), only_if: None, returns_old: false };
        let (mut deadline, mut index) = (None, 3);
        while index < args.len() {
            let has_deadline = deadline.is_some();
            if args.is(index, "nx") && options.only_if != Some(true) {
                options.only_if = Some(false);
            } else if args.is(index, "xx") && options.only_if != Some(false) {
                options.only_if = Some(true);
            } else if args.is(index, "get") {
                options.returns_old = true;
            } else if args.is(index, "keepttl") && !has_deadline {
                options.expiry = Keeps::Expiry;
            } else if let Some(found) = Deadline::of_option(args, index)
                && options.expiry != Keeps::Expiry
                && deadline.is_none_or(|(before, _)| before == found)
            {
                index += 1;
                deadline = Some((found, args.get(index).ok_or(ErrorReply::SYNTAX)?));
            } else {
                return Err(ErrorReply::SYNTAX.into());
            }
            index += 1;
        }
        if let Some((deadline, number)) = deadline {
            options.expiry = Keeps::Until(deadline_of(context, "set", number, deadline)?);
        }
        Ok(options)
    }
}

pub(super) fn set(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let options = SetOptions::parse(context, args)?;
    let (key, in_pieces) = (&args[1], context.takes_pieces());
    let (written, old) = context.write(|write| {
        let old = write.stored(key)?;
        let is_live = write.is_live(&old);
        let returned = old.as_ref().filter(|_| options.returns_old && is_live);
        let returned = returned.map(|old| whole_text(&write.view(), old, in_pieces)).transpose()?;
        let writes = options.only_if.is_none_or(|exists| exists == is_live);
        if writes {
            put(write, key, old.as_ref(), args.value(2)?, options.expiry)?;
        }
        Ok((writes, returned))
    })?;
    if options.returns_old {
        return reply_text(context, old);
    }
    if written {
        context.ok()
    } else {
        context.reply().null();
        Ok(())
    }
}

/// Writes a string. An expiry is kept only of a key that is live.
fn put(write: &mut Write<'_>, key: &[u8], old: Option<&Old>, value: Value<'_>, expiry: Keeps) -> Result<()> {
    let expires_at_ms = match expiry {
        Keeps::Until(ms) => ms,
        Keeps::Expiry => old
            .map(|old| old.head)
            .filter(|head| head.is_live(write.now_ms))
            .map_or(0, |head| head.expires_at_ms),
    };
    if expires_at_ms != 0 && expires_at_ms <= write.now_ms {
        // It has expired already: the key is deleted.
        return old.map_or(Ok(()), |old| write.delete(key, old));
    }
    match value {
        Value::Bytes(bytes) => write.put_text(key, old, bytes, expires_at_ms),
        Value::Stored(stored) => write.put_stored_text(key, old, stored, expires_at_ms),
    }
}

pub(super) fn setnx(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let written = context.write(|write| {
        let old = write.stored(&args[1])?;
        if write.is_live(&old) {
            return Ok(false);
        }
        put(write, &args[1], old.as_ref(), args.value(2)?, Keeps::Until(0))?;
        Ok(true)
    })?;
    context.reply().integer(written.into());
    Ok(())
}

pub(super) fn setex(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    set_until(context, args, Deadline::AfterSeconds, "setex")
}

pub(super) fn psetex(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    set_until(context, args, Deadline::AfterMs, "psetex")
}

fn set_until(context: &mut Context<'_>, args: &Args<'_>, deadline: Deadline, name: &str) -> Result<()> {
    let until_ms = deadline_of(context, name, &args[2], deadline)?;
    context.write(|write| {
        let old = write.stored(&args[1])?;
        put(write, &args[1], old.as_ref(), args.value(3)?, Keeps::Until(until_ms))
    })?;
    context.ok()
}

pub(super) fn getset(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let in_pieces = context.takes_pieces();
    let old = context.write(|write| {
        let old = write.stored(&args[1])?;
        let live = old.as_ref().filter(|old| old.head.is_live(write.now_ms));
        let text = live.map(|old| whole_text(&write.view(), old, in_pieces)).transpose()?;
        put(write, &args[1], old.as_ref(), args.value(2)?, Keeps::Until(0))?;
        Ok(text)
    })?;
    reply_text(context, old)
}

pub(super) fn getdel(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let in_pieces = context.takes_pieces();
    let old = context.write(|write| {
        let stored = write.stored(&args[1])?;
        let Some(old) = stored.filter(|old| old.head.is_live(write.now_ms)) else { return Ok(None) };
        let text = whole_text(&write.view(), &old, in_pieces)?;
        write.delete(&args[1], &old)?;
        Ok(Some(text))
    })?;
    reply_text(context, old)
}

pub(super) fn getex(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let deadline = match args.len() {
        2 => return get(context, args),
        3 if args.is(2, "persist") => None,
        4 => Some(Deadline::of_option(args, 2).ok_or(ErrorReply::SYNTAX)?),
        _ => return Err(ErrorReply::SYNTAX.into()),
    };
    let (now_ms, in_pieces) = (context.now_ms, context.takes_pieces());
    let old = context.write(|write| {
        let stored = write.stored(&args[1])?;
        let Some(old) = stored.filter(|old| old.head.is_live(write.now_ms)) else { return Ok(None) };
        let text = whole_text(&write.view(), &old, in_pieces)?;
        // The number counts only if there is a key.
        let expiry = deadline.map_or(Ok(0), |deadline| deadline_at(now_ms, "getex", &args[3], deadline))?;
        if expiry != 0 && expiry <= write.now_ms {
            write.delete(&args[1], &old)?;
        } else if old.head.expires_at_ms != expiry {
            write.put(&args[1], Some(&old), Head { expires_at_ms: expiry, ..old.head }, old.body())?;
        }
        Ok(Some(text))
    })?;
    reply_text(context, old)
}

pub(super) fn strlen(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read(&args[1])?;
    let len = found.as_ref().map_or(Ok(0), Old::text_len)?;
    context.reply().integer(len as i64);
    Ok(())
}

/// Changes the value of a key, an empty one if it does not exist; the expiry stays. `None` changes nothing.
pub(super) fn change<T>(
    context: &mut Context<'_>,
    key: &[u8],
    mut change: impl FnMut(Option<&[u8]>) -> Result<(Option<Vec<u8>>, T)>,
) -> Result<T> {
    context.write(|write| {
        let old = write.stored(key)?;
        let live = old.as_ref().filter(|old| old.head.is_live(write.now_ms));
        let text = live.map(|old| write.view().text(old)).transpose()?;
        let (new, result) = change(text.as_deref())?;
        if let Some(new) = new {
            put(write, key, old.as_ref(), Value::Bytes(&new), Keeps::Expiry)?;
        }
        Ok(result)
    })
}

fn check_len(max: usize, len: usize) -> Result<()> {
    if len > max { Err(ErrorReply::TOO_LONG.into()) } else { Ok(()) }
}

pub(super) fn append(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let max = context.shared.settings.argument_bytes_max();
    let len = context.write(|write| {
        let old = write.stored(&args[1])?;
        let live = old.as_ref().filter(|old| old.head.is_live(write.now_ms));
        let before = live.map_or(Ok(0), Old::text_len)?;
        check_len(max, before + args[2].len())?;
        write.write_text(&args[1], old.as_ref(), before, &args[2])
    })?;
    context.reply().integer(len as i64);
    Ok(())
}

pub(super) fn setrange(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let offset = parse_i64(&args[2]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    let offset = usize::try_from(offset).map_err(|_| ErrorReply::OFFSET)?;
    let end = offset.saturating_add(args[3].len());
    let max = context.shared.settings.argument_bytes_max();
    let len = context.write(|write| {
        let old = write.stored(&args[1])?;
        let live = old.as_ref().filter(|old| old.head.is_live(write.now_ms));
        let before = live.map_or(Ok(0), Old::text_len)?;
        if args[3].is_empty() {
            return Ok(before);
        }
        check_len(max, end)?;
        write.write_text(&args[1], old.as_ref(), offset, &args[3])
    })?;
    context.reply().integer(len as i64);
    Ok(())
}

pub(super) fn getrange(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let start = parse_i64(&args[2]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    let end = parse_i64(&args[3]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    let in_pieces = context.takes_pieces();
    let found = context.view(|view| {
        let Some(old) = view.live(&args[1])? else { return Ok(Outgoing::Whole(Text::Assembled(Vec::new()))) };
        view.text_to_send(&old, range_of(old.text_len()?, start, end), in_pieces)
    })?;
    reply_text(context, Some(found))
}

/// The range from `start` to `end`, both counted from the end if they are below 0, and both included.
fn range_of(len: usize, start: i64, end: i64) -> Range<usize> {
    let len = len as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_end = |index: i64| if index < 0 { (len.saturating_add(index)).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if len == 0 || start > end { 0..0 } else { start as usize..end as usize + 1 }
}

pub(super) fn incr(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    add(context, &args[1], 1)
}

pub(super) fn decr(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    add(context, &args[1], -1)
}

pub(super) fn incrby(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let by = parse_i64(&args[2]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    add(context, &args[1], by)
}

pub(super) fn decrby(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let by = parse_i64(&args[2]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    let by = by.checked_neg().ok_or(ErrorReply::new("ERR", "decrement would overflow"))?;
    add(context, &args[1], by)
}

fn add(context: &mut Context<'_>, key: &[u8], by: i64) -> Result<()> {
    let sum = change(context, key, |old| {
        let number = old.map_or(Some(0), parse_i64).ok_or(ErrorReply::NOT_AN_INTEGER)?;
        let sum = number.checked_add(by).ok_or(ErrorReply::OVERFLOW)?;
        let mut text = Vec::new();
        format_i64(sum, &mut text);
        Ok((Some(text), sum))
    })?;
    context.reply().integer(sum);
    Ok(())
}

pub(super) fn incrbyfloat(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let by = parse_f64(&args[2]).ok_or(ErrorReply::NOT_A_FLOAT)?;
    let text = change(context, &args[1], |old| {
        let text = add_floats(old, (&args[2], by), ErrorReply::NOT_A_FLOAT)?;
        Ok((Some(text.clone()), text))
    })?;
    context.reply().bulk(&text);
    Ok(())
}

/// The sum of a number, 0 if there is none, and of one that is given as its text and its value.
pub(super) fn add_floats(
    old: Option<&[u8]>,
    (by_text, by): (&[u8], f64),
    not_a_float: ErrorReply,
) -> Result<Vec<u8>> {
    let number = old.map_or(Some(0.0), parse_f64).ok_or(not_a_float)?;
    if let Some(sum) = whole(old.unwrap_or(b"0")).zip(whole(by_text)).map(|(number, by)| number + by) {
        return Ok(sum.to_string().into_bytes());
    }
    let sum = number + by;
    if !sum.is_finite() {
        return Err(ErrorReply::NAN.into());
    }
    let mut text = Vec::new();
    format_human_double(sum, &mut text);
    Ok(text)
}

/// A whole number of at most 64 bits and a sign: the long doubles of Redis hold these exactly, and doubles do not.
fn whole(text: &[u8]) -> Option<i128> {
    let number: i128 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.unsigned_abs() <= u64::MAX.into()).then_some(number)
}

pub(super) fn mget(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.view(|view| {
        view.values_to_send(None, args.from(1), |key| match view.text_of(key) {
            Err(Stop::Reply(ErrorReply { code: "WRONGTYPE", .. })) => Ok(None),
            found => found,
        })
    })?;
    context.reply_values(found)
}

pub(super) fn mset(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    set_many(context, args, "mset", false)?;
    context.ok()
}

pub(super) fn msetnx(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let written = set_many(context, args, "msetnx", true)?;
    context.reply().integer(written.into());
    Ok(())
}

/// Writes pairs of keys and values, all or, if one of the keys exists and they have to be absent, none.
fn set_many(context: &mut Context<'_>, args: &Args<'_>, name: &str, only_absent: bool) -> Result<bool> {
    if args.len().is_multiple_of(2) {
        return context.fail("ERR", format!("wrong number of arguments for '{name}' command"));
    }
    context.write(|write| {
        if only_absent {
            for pair in args.from(1).chunks_exact(2) {
                let old = write.stored(pair[0])?;
                if write.is_live(&old) {
                    return Ok(false);
                }
            }
        }
        for pair in args.from(1).chunks_exact(2) {
            let old = write.stored(pair[0])?;
            put(write, pair[0], old.as_ref(), Value::Bytes(pair[1]), Keeps::Until(0))?;
        }
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of Redis's documentation, and its ends.
    #[test]
    fn ranges_count_from_either_end() {
        let value = b"This is a string";
        for (start, end, expected) in [
            (0, 3, &b"This"[..]),
            (-3, -1, b"ing"),
            (0, -1, value),
            (10, 100, b"string"),
            (5, 4, b""),
            (-1, -5, b""),
            (16, 20, b""),
            (-100, 0, b"T"),
            (i64::MIN, i64::MAX, value),
        ] {
            assert_eq!(value[range_of(value.len(), start, end)], *expected, "{start} {end}");
        }
        assert_eq!(range_of(0, 0, -1), 0..0);
    }
}
