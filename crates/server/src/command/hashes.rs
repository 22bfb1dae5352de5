//! Hashes.

use fulgurite_resp::{Encoder, Protocol, format_i64, parse_f64, parse_i64};

use super::random_members::{Choice, reply_one};
use super::scan::scan_members;
use super::strings::add_floats;
use crate::args::Args;
use crate::context::Context;
use crate::model::{Collection, Kind, Section, Shown, ValuesToSend, row_name, section_bounds};
use crate::stop::{ErrorReply, Result};

pub(super) fn hset(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let created = set_fields(context, args, "hset")?;
    context.reply().integer(created);
    Ok(())
}

pub(super) fn hmset(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    set_fields(context, args, "hmset")?;
    context.ok()
}

/// Writes pairs of fields and values; returns how many fields are new.
fn set_fields(context: &mut Context<'_>, args: &Args<'_>, name: &str) -> Result<i64> {
    if !args.len().is_multiple_of(2) {
        return context.fail("ERR", format!("wrong number of arguments for '{name}' command"));
    }
    context.change_or_create(&args[1], Kind::Hash, |write, hash| {
        let before = hash.count;
        for pair in args.from(2).chunks_exact(2) {
            hash.count += u64::from(write.view().member(hash, pair[0])?.is_none());
            write.put_member(hash, pair[0], pair[1])?;
        }
        Ok((hash.count - before) as i64)
    })
}

pub(super) fn hsetnx(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let written = context.write(|write| {
        let mut change = write.change_or_create(&args[1], Kind::Hash)?;
        if write.view().member(&change.collection, &args[2])?.is_some() {
            return Ok(false);
        }
        write.put_member(&change.collection, &args[2], &args[3])?;
        change.collection.count += 1;
        write.finish(&args[1], &change)?;
        Ok(true)
    })?;
    context.reply().integer(written.into());
    Ok(())
}

pub(super) fn hget(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read_collection(&args[1], Kind::Hash, |view, hash| view.member(hash, &args[2]))?;
    match found.flatten() {
        Some(value) => context.reply().bulk(&value),
        None => context.reply().null(),
    }
    Ok(())
}

pub(super) fn hmget(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let names = args.from(2);
    let found = context.read_collection(&args[1], Kind::Hash, |view, hash| {
        view.values_to_send(Some(hash), names, |name| view.member(hash, name))
    })?;
    context.reply_values(found.unwrap_or_else(|| ValuesToSend::All(vec![None; names.len()])))
}

pub(super) fn hdel(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let deleted = context.change(&args[1], Kind::Hash, |write, hash| {
        let before = hash.count;
        for name in args.from(2) {
            if write.view().member(hash, name)?.is_some() {
                write.delete_member(hash, name)?;
                hash.count -= 1;
            }
        }
        Ok((hash.count < before, before - hash.count))
    })?;
    context.reply().integer(deleted.unwrap_or(0) as i64);
    Ok(())
}

pub(super) fn hlen(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read(&args[1])?;
    let hash = found.map(|old| old.collection(Kind::Hash)).transpose()?;
    context.reply().integer(hash.map_or(0, |hash| hash.count as i64));
    Ok(())
}

pub(super) fn hstrlen(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read_collection(&args[1], Kind::Hash, |view, hash| view.member(hash, &args[2]))?;
    context.reply().integer(found.flatten().map_or(0, |value| value.len() as i64));
    Ok(())
}

pub(super) fn hexists(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read_collection(&args[1], Kind::Hash, |view, hash| view.member(hash, &args[2]))?;
    context.reply().integer(found.flatten().is_some().into());
    Ok(())
}

/// Replies with all fields of a hash.
fn reply_fields(
    context: &mut Context<'_>,
    key: &[u8],
    shown: Shown,
    header: fn(&mut Encoder<'_>, usize),
) -> Result<()> {
    let all = |hash: &Collection| (section_bounds(hash.id, Section::Members), hash.count);
    context.reply_rows(key, Kind::Hash, shown, header, all)
}

pub(super) fn hgetall(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_fields(context, &args[1], Shown::NameAndValue, |reply, len| reply.map(len))
}

pub(super) fn hkeys(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_fields(context, &args[1], Shown::Name, |reply, len| reply.array(len))
}

pub(super) fn hvals(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_fields(context, &args[1], Shown::Value, |reply, len| reply.array(len))
}

pub(super) fn hincrby(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let by = parse_i64(&args[3]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    let sum = context.change_or_create(&args[1], Kind::Hash, |write, hash| {
        let old = write.view().member(hash, &args[2])?;
        let number = old.as_deref().map_or(Some(0), parse_i64);
        let number = number.ok_or(ErrorReply::new("ERR", "hash value is not an integer"))?;
        let sum = number.checked_add(by).ok_or(ErrorReply::OVERFLOW)?;
        let mut text = Vec::new();
        format_i64(sum, &mut text);
        hash.count += u64::from(old.is_none());
        write.put_member(hash, &args[2], &text)?;
        Ok(sum)
    })?;
    context.reply().integer(sum);
    Ok(())
}

pub(super) fn hincrbyfloat(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let by = parse_f64(&args[3]).ok_or(ErrorReply::NOT_A_FLOAT)?;
    if !by.is_finite() {
        return Err(ErrorReply::new("ERR", "value is NaN or Infinity").into());
    }
    let text = context.change_or_create(&args[1], Kind::Hash, |write, hash| {
        let old = write.view().member(hash, &args[2])?;
        let not_a_float = ErrorReply::new("ERR", "hash value is not a float");
        let text = add_floats(old.as_deref(), (&args[3], by), not_a_float)?;
        hash.count += u64::from(old.is_none());
        write.put_member(hash, &args[2], &text)?;
        Ok(text)
    })?;
    context.reply().bulk(&text);
    Ok(())
}

/// `HRANDFIELD key [count [WITHVALUES]]`
pub(super) fn hrandfield(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let choice = Choice::parse(args, Some("withvalues"))?;
    let found = choice.choose(context, &args[1], Kind::Hash)?;
    let Choice::Many { has_values, .. } = choice else { return reply_one(context, found.as_deref()) };
    let found = found.unwrap_or_default();
    let mut reply = context.reply();
    let are_pairs = has_values && reply.protocol() == Protocol::Resp3;
    reply.array(if has_values && !are_pairs { 2 * found.len() } else { found.len() });
    for (row, value) in &found {
        if are_pairs {
            reply.array(2);
        }
        reply.bulk(row_name(row));
        if has_values {
            reply.bulk(value);
        }
    }
    Ok(())
}

pub(super) fn hscan(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    scan_members(context, args, Kind::Hash, |value| Some(value.to_vec()))
}
