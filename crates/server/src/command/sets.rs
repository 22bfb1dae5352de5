//! Sets.

use fulgurite::Value;

use super::long_results::LongResults;
use super::random_members::{Choice, reply_one};
use super::scan::scan_members;
use super::set_operations::{Operation, Results, row_in};
use crate::args::Args;
use crate::context::Context;
use crate::model::{Collection, Kind, Order, Section, Shown, View, Write, row_name, section_bounds};
use crate::stop::{ErrorReply, Result};

/// Adds a member; false if the set has it.
fn add(write: &mut Write<'_>, set: &mut Collection, name: &[u8]) -> Result<bool> {
    let is_new = write.view().member(set, name)?.is_none();
    if is_new {
        write.put_member(set, name, b"")?;
        set.count += 1;
    }
    Ok(is_new)
}

/// Removes a member; false if the set does not have it.
fn remove(write: &mut Write<'_>, set: &mut Collection, name: &[u8]) -> Result<bool> {
    let is_member = write.view().member(set, name)?.is_some();
    if is_member {
        write.delete_member(set, name)?;
        set.count -= 1;
    }
    Ok(is_member)
}

pub(super) fn sadd(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let added = context.write(|write| {
        let mut change = write.change_or_create(&args[1], Kind::Set)?;
        let before = change.collection.count;
        for name in args.from(2) {
            add(write, &mut change.collection, name)?;
        }
        let added = change.collection.count - before;
        if added > 0 {
            write.finish(&args[1], &change)?;
        }
        Ok(added)
    })?;
    context.reply().integer(added as i64);
    Ok(())
}

pub(super) fn srem(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let removed = context.change(&args[1], Kind::Set, |write, set| {
        let before = set.count;
        for name in args.from(2) {
            remove(write, set, name)?;
        }
        Ok((set.count < before, before - set.count))
    })?;
    context.reply().integer(removed.unwrap_or(0) as i64);
    Ok(())
}

/// `SMOVE source destination member`
pub(super) fn smove(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let (from, to, name) = (&args[1], &args[2], &args[3]);
    let is_moved = context.write(|write| {
        let Some(mut source) = write.change(from, Kind::Set)? else { return Ok(false) };
        write.view().collection(to, Kind::Set)?;
        if from == to {
            return Ok(write.view().member(&source.collection, name)?.is_some());
        }
        if !remove(write, &mut source.collection, name)? {
            return Ok(false);
        }
        write.finish(from, &source)?;
        let mut destination = write.change_or_create(to, Kind::Set)?;
        if add(write, &mut destination.collection, name)? {
            write.finish(to, &destination)?;
        }
        Ok(true)
    })?;
    context.reply().integer(is_moved.into());
    Ok(())
}

pub(super) fn scard(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read(&args[1])?;
    let set = found.map(|old| old.collection(Kind::Set)).transpose()?;
    context.reply().integer(set.map_or(0, |set| set.count as i64));
    Ok(())
}

pub(super) fn sismember(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read_collection(&args[1], Kind::Set, |view, set| view.member(set, &args[2]))?;
    context.reply().integer(found.flatten().is_some().into());
    Ok(())
}

pub(super) fn smismember(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let names = args.from(2);
    let found = context.read_collection(&args[1], Kind::Set, |view, set| {
        names.iter().map(|name| Ok(view.member(set, name)?.is_some())).collect::<Result<Vec<_>>>()
    })?;
    let found = found.unwrap_or_else(|| vec![false; names.len()]);
    let mut reply = context.reply();
    reply.array(found.len());
    found.into_iter().for_each(|is_member| reply.integer(is_member.into()));
    Ok(())
}

/// All rows of a set.
fn all_members(view: &View<'_>, set: &Collection) -> Result<Vec<(Value, Value)>> {
    view.check_rows(set.count)?;
    view.rows(section_bounds(set.id, Section::Members), Order::Forward, usize::MAX)
}

/// A set of the names of rows.
fn reply_set(context: &mut Context<'_>, rows: &[(Value, Value)]) -> Result<()> {
    let mut reply = context.reply();
    reply.set(rows.len());
    rows.iter().for_each(|(row, _)| reply.bulk(row_name(row)));
    Ok(())
}

pub(super) fn smembers(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    context.reply_rows(
        &args[1],
        Kind::Set,
        Shown::Name,
        |reply, len| reply.set(len),
        |set| (section_bounds(set.id, Section::Members), set.count),
    )
}

/// `SPOP key [count]`
pub(super) fn spop(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let count = match args.len() {
        2 => None,
        3 => Some(parse_not_negative(&args[2], "value is out of range, must be positive")?),
        _ => return Err(ErrorReply::SYNTAX.into()),
    };
    let mut random = context.random();
    let popped = context.write(|write| pop(write, &args[1], count.unwrap_or(1), &mut random))?;
    match count {
        None => reply_one(context, popped.as_deref()),
        Some(_) => reply_set(context, &popped.unwrap_or_default()),
    }
}

/// Removes so many members, chosen at random; `None` if the key does not exist.
fn pop(
    write: &mut Write<'_>,
    key: &[u8],
    count: u64,
    random: &mut crate::random::Random,
) -> Result<Option<Vec<(Value, Value)>>> {
    let Some(old) = write.view().live(key)? else { return Ok(None) };
    let set = old.collection(Kind::Set)?;
    if count >= set.count {
        let rows = all_members(&write.view(), &set)?;
        write.delete(key, &old)?;
        return Ok(Some(rows));
    }
    if count == 0 {
        return Ok(Some(Vec::new()));
    }
    let rows = write.view().random_members(&set, count, random)?;
    let Some(mut change) = write.change(key, Kind::Set)? else { return Ok(None) };
    for (row, _) in &rows {
        write.delete_row(row)?;
    }
    change.collection.count -= rows.len() as u64;
    write.finish(key, &change)?;
    Ok(Some(rows))
}

/// `SRANDMEMBER key [count]`
pub(super) fn srandmember(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let choice = Choice::parse(args, None)?;
    let found = choice.choose(context, &args[1], Kind::Set)?;
    let Choice::Many { .. } = choice else { return reply_one(context, found.as_deref()) };
    let rows = found.unwrap_or_default();
    let mut reply = context.reply();
    reply.array(rows.len());
    rows.iter().for_each(|(row, _)| reply.bulk(row_name(row)));
    Ok(())
}

/// An integer of 0 or more. Whatever is none gets the same error.
fn parse_not_negative(argument: &[u8], error: &'static str) -> Result<u64> {
    let number = fulgurite_resp::parse_i64(argument).and_then(|number| u64::try_from(number).ok());
    Ok(number.ok_or(ErrorReply::new("ERR", error))?)
}

pub(super) fn sscan(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    scan_members(context, args, Kind::Set, |_| None)
}

/// The sets of keys. A key of another type is an error, although another key does not exist.
fn sets_of(view: &View<'_>, keys: &[&[u8]]) -> Result<Vec<Option<Collection>>> {
    keys.iter().map(|key| view.collection(key, Kind::Set)).collect()
}

pub(super) fn sinter(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_results(context, args, Operation::Intersection)
}

pub(super) fn sunion(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_results(context, args, Operation::Union)
}

pub(super) fn sdiff(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_results(context, args, Operation::Difference)
}

fn reply_results(context: &mut Context<'_>, args: &Args<'_>, operation: Operation) -> Result<()> {
    let in_pieces = context.takes_pieces();
    let (long, rows) = context.view(|view| {
        let sets = sets_of(view, args.from(1))?;
        let mut rows = Vec::new();
        if in_pieces && let Some(long) = LongResults::of(view, operation, &sets)? {
            return Ok((Some(long), rows));
        }
        let mut results = Results::of(view, operation, &sets)?;
        while let Some(row) = results.next(view)? {
            rows.push(row);
        }
        Ok((None, rows))
    })?;
    if let Some(long) = long {
        return context.reply_long_results(long);
    }
    let mut reply = context.reply();
    reply.set(rows.len());
    rows.iter().for_each(|row| reply.bulk(row_name(row)));
    Ok(())
}

pub(super) fn sinterstore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    store_results(context, args, Operation::Intersection)
}

pub(super) fn sunionstore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    store_results(context, args, Operation::Union)
}

pub(super) fn sdiffstore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    store_results(context, args, Operation::Difference)
}

/// Gives the first key the result, whatever it had; deletes it if the result is empty.
fn store_results(context: &mut Context<'_>, args: &Args<'_>, operation: Operation) -> Result<()> {
    let key = &args[1];
    let count = context.write(|write| {
        let sets = sets_of(&write.view(), args.from(2))?;
        let mut results = Results::of(&write.view(), operation, &sets)?;
        let Some(first) = results.next(&write.view())? else {
            if let Some(old) = write.stored(key)? {
                write.delete(key, &old)?;
            }
            return Ok(0);
        };
        let mut change = write.replace(key, Kind::Set)?;
        let mut next = Some(first);
        while let Some(row) = next {
            write.put_row(&row_in(&change.collection, &row), b"")?;
            change.collection.count += 1;
            next = results.next(&write.view())?;
        }
        write.finish(key, &change)?;
        Ok(change.collection.count)
    })?;
    context.reply().integer(count as i64);
    Ok(())
}

/// `SINTERCARD numkeys key [key ...] [LIMIT limit]`
pub(super) fn sintercard(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let (keys, limit) = parse_card(args)?;
    let count = context.view(|view| {
        let mut results = Results::of(view, Operation::Intersection, &sets_of(view, keys)?)?;
        let mut count = 0;
        while count < limit && results.next(view)?.is_some() {
            count += 1;
        }
        Ok(count)
    })?;
    context.reply().integer(count as i64);
    Ok(())
}

/// The keys of `SINTERCARD`, and how many members are enough.
fn parse_card<'a, 'b>(args: &'b Args<'a>) -> Result<(&'b [&'a [u8]], u64)> {
    let number = parse_not_negative(&args[1], "numkeys should be greater than 0")?;
    if number == 0 {
        return Err(ErrorReply::new("ERR", "numkeys should be greater than 0").into());
    }
    let rest = args.from(2);
    let keys = usize::try_from(number).ok().and_then(|number| rest.get(..number));
    let keys = keys.ok_or(ErrorReply::new("ERR", "Number of keys can't be greater than number of args"))?;
    let (mut limit, mut index) = (0, 2 + keys.len());
    while index < args.len() {
        match args.get(index + 1) {
            Some(number) if args.is(index, "limit") => {
                limit = parse_not_negative(number, "LIMIT can't be negative")?;
            }
            _ => return Err(ErrorReply::SYNTAX.into()),
        }
        index += 2;
    }
    Ok((keys, if limit == 0 { u64::MAX } else { limit }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stop;

    #[test]
    fn the_options_of_sintercard() {
        let parse = |text: &str| {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            match parse_card(&Args::of_slices(&words)) {
                Ok((keys, limit)) => Ok((keys.len(), limit)),
                Err(Stop::Reply(error)) => Err(error.message.into_owned()),
                Err(stop) => panic!("{stop:?}"),
            }
        };
        assert_eq!(parse("SINTERCARD 2 a b"), Ok((2, u64::MAX)));
        assert_eq!(parse("SINTERCARD 2 a limit LIMIT 7"), Ok((2, 7)));
        assert_eq!(parse("SINTERCARD 1 a LIMIT 7 limit 0"), Ok((1, u64::MAX)));
        for (text, error) in [
            ("SINTERCARD 0 a", "numkeys should be greater than 0"),
            ("SINTERCARD -1 a", "numkeys should be greater than 0"),
            ("SINTERCARD x a", "numkeys should be greater than 0"),
            ("SINTERCARD 2 a", "Number of keys can't be greater than number of args"),
            ("SINTERCARD 9223372036854775807 a", "Number of keys can't be greater than number of args"),
            ("SINTERCARD 1 a b", "syntax error"),
            ("SINTERCARD 1 a LIMIT", "syntax error"),
            ("SINTERCARD 1 a LIMIT -1", "LIMIT can't be negative"),
            ("SINTERCARD 1 a LIMIT x y", "LIMIT can't be negative"),
        ] {
            assert_eq!(parse(text), Err(error.to_string()), "{text}");
        }
    }
}
