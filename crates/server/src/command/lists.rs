//! Lists: pushes and pops at both ends, and reads by index. Each costs as many rows as it pushes, pops or returns.

use fulgurite::Value;
use fulgurite_resp::parse_i64;

use super::list_rows::{self, End, bounds, element, keep, len, pop, position_at, push, span};
use crate::args::{Args, parse_within};
use crate::context::Context;
use crate::model::{Kind, Shown, Write, element_key};
use crate::stop::{ErrorReply, Result};

/// The integer that an argument is.
pub(super) fn integer(argument: &[u8]) -> Result<i64> {
    Ok(parse_i64(argument).ok_or(ErrorReply::NOT_AN_INTEGER)?)
}

/// The integer that an argument is, of at least `min`; else this error, whatever it is.
pub(super) fn at_least(min: i64, argument: &[u8], message: &'static str) -> Result<u64> {
    let number = parse_i64(argument).filter(|number| *number >= min);
    Ok(number.ok_or(ErrorReply::new("ERR", message))? as u64)
}

pub(super) fn lpush(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    push_all(context, args, End::Left)
}

pub(super) fn rpush(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    push_all(context, args, End::Right)
}

fn push_all(context: &mut Context<'_>, args: &Args<'_>, end: End) -> Result<()> {
    let count = context.change_or_create(&args[1], Kind::List, |write, list| {
        args.from(2).iter().try_for_each(|value| push(write, list, end, value))?;
        Ok(list.count)
    })?;
    context.reply().integer(count as i64);
    Ok(())
}

pub(super) fn lpushx(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    push_if_there(context, args, End::Left)
}

pub(super) fn rpushx(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    push_if_there(context, args, End::Right)
}

fn push_if_there(context: &mut Context<'_>, args: &Args<'_>, end: End) -> Result<()> {
    let count = context.change(&args[1], Kind::List, |write, list| {
        args.from(2).iter().try_for_each(|value| push(write, list, end, value))?;
        Ok((true, list.count))
    })?;
    context.reply().integer(count.unwrap_or(0) as i64);
    Ok(())
}

pub(super) fn lpop(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    pop_some(context, args, End::Left, "lpop")
}

pub(super) fn rpop(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    pop_some(context, args, End::Right, "rpop")
}

fn pop_some(context: &mut Context<'_>, args: &Args<'_>, end: End, name: &str) -> Result<()> {
    if args.len() > 3 {
        return context.fail("ERR", format!("wrong number of arguments for '{name}' command"));
    }
    let count = args.get(2).map(|count| at_least(0, count, "value is out of range, must be positive"));
    let count = count.transpose()?;
    let popped = context.change(&args[1], Kind::List, |write, list| {
        let popped = pop(write, list, end, count.unwrap_or(1))?;
        Ok((!popped.is_empty(), popped))
    })?;
    match (popped, count) {
        (Some(values), Some(_)) => reply_values(context, &values),
        (Some(values), None) => values.iter().for_each(|value| context.reply().bulk(value)),
        (None, Some(_)) => context.reply().null_array(),
        (None, None) => context.reply().null(),
    }
    Ok(())
}

fn reply_values(context: &mut Context<'_>, values: &[Value]) {
    let mut reply = context.reply();
    reply.array(values.len());
    values.iter().for_each(|value| reply.bulk(value));
}

/// `LMPOP numkeys key [key ...] LEFT|RIGHT [COUNT count]`
pub(super) fn lmpop(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let keys = at_least(1, &args[1], "numkeys should be greater than 0")?;
    let after_keys = usize::try_from(keys).ok().and_then(|keys| keys.checked_add(2));
    let after_keys = after_keys.filter(|&index| index < args.len()).ok_or(ErrorReply::SYNTAX)?;
    let end = End::parse(&args[after_keys])?;
    let count = match args.from(after_keys + 1) {
        [] => 1,
        [word, count, rest @ ..] if word.eq_ignore_ascii_case(b"count") => {
            let count = at_least(1, count, "count should be greater than 0")?;
            if !rest.is_empty() {
                return Err(ErrorReply::SYNTAX.into());
            }
            count
        }
        _ => return Err(ErrorReply::SYNTAX.into()),
    };
    let keys = &args.from(2)[..after_keys - 2];
    let popped = context.write(|write| {
        for &key in keys {
            let Some(mut change) = write.change(key, Kind::List)? else { continue };
            let values = pop(write, &mut change.collection, end, count)?;
            write.finish(key, &change)?;
            return Ok(Some((key, values)));
        }
        Ok(None)
    })?;
    match popped {
        Some((key, values)) => {
            let mut reply = context.reply();
            reply.array(2);
            reply.bulk(key);
            reply_values(context, &values);
        }
        None => context.reply().null_array(),
    }
    Ok(())
}

pub(super) fn llen(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read(&args[1])?;
    let list = found.map(|old| old.collection(Kind::List)).transpose()?;
    context.reply().integer(list.map_or(0, |list| list.count as i64));
    Ok(())
}

/// The index is looked at only if there is a list.
pub(super) fn lindex(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read_collection(&args[1], Kind::List, |view, list| {
        let position = position_at(list, integer(&args[2])?);
        position.map(|position| element(view, list, position)).transpose()
    })?;
    match found.flatten() {
        Some(value) => context.reply().bulk(&value),
        None => context.reply().null(),
    }
    Ok(())
}

pub(super) fn lrange(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let (from, to) = (integer(&args[2])?, integer(&args[3])?);
    context.reply_rows(
        &args[1],
        Kind::List,
        Shown::Value,
        |reply, len| reply.array(len),
        |list| {
            let span = span(list, from, to);
            (bounds(list.id, span.clone()), len(&span))
        },
    )
}

/// The index is looked at only if there is a list.
pub(super) fn lset(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let written = context.change(&args[1], Kind::List, |write, list| {
        let position = position_at(list, integer(&args[2])?);
        let position = position.ok_or(ErrorReply::new("ERR", "index out of range"))?;
        write.put_row(&element_key(list.id, position), &args[3])?;
        Ok((true, ()))
    })?;
    written.ok_or(ErrorReply::new("ERR", "no such key"))?;
    context.ok()
}

pub(super) fn ltrim(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let (from, to) = (integer(&args[2])?, integer(&args[3])?);
    context.change(&args[1], Kind::List, |write, list| {
        keep(write, list, span(list, from, to))?;
        Ok((true, ()))
    })?;
    context.ok()
}

/// `LMOVE source destination LEFT|RIGHT LEFT|RIGHT`
pub(super) fn lmove(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let (from, to) = (End::parse(&args[3])?, End::parse(&args[4])?);
    move_element(context, args, from, to)
}

pub(super) fn rpoplpush(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    move_element(context, args, End::Right, End::Left)
}

fn move_element(context: &mut Context<'_>, args: &Args<'_>, from: End, to: End) -> Result<()> {
    let (source, destination) = (&args[1], &args[2]);
    let moved = context.write(|write| {
        if source == destination {
            return rotate(write, source, from, to);
        }
        let Some(mut taken) = write.change(source, Kind::List)? else { return Ok(None) };
        let mut given = write.change_or_create(destination, Kind::List)?;
        let value = pop(write, &mut taken.collection, from, 1)?.pop();
        if let Some(value) = &value {
            push(write, &mut given.collection, to, value)?;
        }
        write.finish(source, &taken)?;
        write.finish(destination, &given)?;
        Ok(value)
    })?;
    match moved {
        Some(value) => context.reply().bulk(&value),
        None => context.reply().null(),
    }
    Ok(())
}

/// Moves an element of a list to one of its ends.
fn rotate(write: &mut Write<'_>, key: &[u8], from: End, to: End) -> Result<Option<Value>> {
    let Some(mut change) = write.change(key, Kind::List)? else { return Ok(None) };
    let value = pop(write, &mut change.collection, from, 1)?.pop();
    if let Some(value) = &value {
        push(write, &mut change.collection, to, value)?;
    }
    write.finish(key, &change)?;
    Ok(value)
}

/// The options of `LPOS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PosOptions {
    /// From which end it looks.
    end: End,
    /// The first match that counts, from 1 on.
    rank: u64,
    /// How many matches it returns, 0 for all; `None`: one, and no array.
    count: Option<u64>,
    /// How many elements it looks at.
    rows_max: usize,
}

impl PosOptions {
    fn parse(args: &Args<'_>) -> Result<PosOptions> {
        let mut options = PosOptions { end: End::Left, rank: 1, count: None, rows_max: usize::MAX };
        let mut index = 3;
        while index < args.len() {
            let number = args.get(index + 1).ok_or(ErrorReply::SYNTAX)?;
            if args.is(index, "rank") {
                let rank = parse_within(number, -i64::MAX..=i64::MAX)?;
                if rank == 0 {
                    return Err(RANK_IS_ZERO.into());
                }
                options.end = if rank < 0 { End::Right } else { End::Left };
                options.rank = rank.unsigned_abs();
            } else if args.is(index, "count") {
                options.count = Some(at_least(0, number, "COUNT can't be negative")?);
            } else if args.is(index, "maxlen") {
                let rows = at_least(0, number, "MAXLEN can't be negative")?;
                options.rows_max = if rows == 0 { usize::MAX } else { rows as usize };
            } else {
                return Err(ErrorReply::SYNTAX.into());
            }
            index += 2;
        }
        Ok(options)
    }
}

const RANK_IS_ZERO: ErrorReply = ErrorReply::new(
    "ERR",
    "RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
);

/// `LPOS key element [RANK rank] [COUNT count] [MAXLEN len]`: reads from one end up to the last match that it returns.
pub(super) fn lpos(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let options = PosOptions::parse(args)?;
    let found = context.read_collection(&args[1], Kind::List, |view, list| {
        let wanted = match options.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
        };
        let (mut matches, mut found) = (0, Vec::new());
        let rows = list_rows::bounds(list.id, list_rows::positions(list));
        view.each_row(rows, options.end.order(), options.rows_max, |row, value| {
            if value == args[2] {
                matches += 1;
                if matches >= options.rank {
                    found.push(list_rows::position_of(&row)?.abs_diff(list.first) as i64);
                }
            }
            Ok(found.len() < wanted)
        })?;
        Ok(found)
    })?;
    let found = found.unwrap_or_default();
    let mut reply = context.reply();
    match (options.count, found.first()) {
        (Some(_), _) => {
            reply.array(found.len());
            found.iter().for_each(|&index| reply.integer(index));
        }
        (None, Some(&index)) => reply.integer(index),
        (None, None) => reply.null(),
    }
    Ok(())
}
