//! Sorted sets: their members, and the scores and ranks of these.

use fulgurite::Value;
use fulgurite_resp::{Protocol, format_double, parse_f64, parse_i64};

use super::random_members::{Choice, reply_one};
use super::scan::scan_members;
use crate::args::Args;
use crate::context::Context;
use crate::model::{Kind, Order, Write, decode_member, row_name, split_score_key};
use crate::stop::{ErrorReply, Result};

/// How scores are shown beside their members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scores {
    Hidden,
    /// After each member.
    Flat,
    /// An array of a member and its score.
    Pairs,
}

impl Scores {
    /// As the protocol has them.
    pub fn of(context: &mut Context<'_>, are_shown: bool) -> Scores {
        match context.reply().protocol() {
            _ if !are_shown => Scores::Hidden,
            Protocol::Resp2 => Scores::Flat,
            Protocol::Resp3 => Scores::Pairs,
        }
    }
}

/// Replies with members.
pub(super) fn reply_members<'m>(
    context: &mut Context<'_>,
    members: impl ExactSizeIterator<Item = (f64, &'m [u8])>,
    scores: Scores,
) {
    let mut reply = context.reply();
    reply.array(if scores == Scores::Flat { 2 * members.len() } else { members.len() });
    for (score, name) in members {
        if scores == Scores::Pairs {
            reply.array(2);
        }
        reply.bulk(name);
        if scores != Scores::Hidden {
            reply.double(score);
        }
    }
}

/// The score and the name in a row of the section of scores.
pub(super) fn of_row(row: &Value) -> (f64, &[u8]) {
    split_score_key(row).unwrap_or_default()
}

/// The options of `ZADD`.
#[derive(Clone, Copy, Debug, Default)]
struct AddOptions {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
    counts_changed: bool,
    adds: bool,
}

impl AddOptions {
    /// The options, and the index of the first score.
    fn parse(args: &Args<'_>, adds: bool) -> (AddOptions, usize) {
        let mut options = AddOptions { adds, ..AddOptions::default() };
        let mut index = 2;
        loop {
            let option = match () {
                () if args.is(index, "nx") => &mut options.only_new,
                () if args.is(index, "xx") => &mut options.only_old,
                () if args.is(index, "gt") => &mut options.only_greater,
                () if args.is(index, "lt") => &mut options.only_less,
                () if args.is(index, "ch") => &mut options.counts_changed,
                () if args.is(index, "incr") => &mut options.adds,
                () => return (options, index),
            };
            *option = true;
            index += 1;
        }
    }

    fn check(self, pairs: usize) -> Result<()> {
        let AddOptions { only_new, only_old, only_greater, only_less, adds, .. } = self;
        let message = if only_new && only_old {
            "XX and NX options at the same time are not compatible"
        } else if only_greater && (only_new || only_less) || only_less && only_new {
            "GT, LT, and/or NX options at the same time are not compatible"
        } else if adds && pairs > 1 {
            "INCR option supports a single increment-element pair"
        } else {
            return Ok(());
        };
        Err(ErrorReply::new("ERR", message).into())
    }

    /// The score that a member gets; `None` if an option forbids it.
    fn new_score(self, old: Option<f64>, score: f64) -> Result<Option<f64>> {
        let Some(old) = old else { return Ok((!self.only_old).then_some(score)) };
        if self.only_new {
            return Ok(None);
        }
        let new = if self.adds { old + score } else { score };
        if new.is_nan() {
            return Err(ErrorReply::new("ERR", "resulting score is not a number (NaN)").into());
        }
        let is_forbidden = self.only_less && new >= old || self.only_greater && new <= old;
        Ok((!is_forbidden).then_some(new))
    }
}

/// What `ZADD` did.
#[derive(Clone, Copy, Debug, Default)]
struct Added {
    new: i64,
    changed: i64,
    /// Of the last member that no option excluded.
    score: Option<f64>,
}

/// `ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]`
pub(super) fn zadd(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    add(context, args, false)
}

/// `ZINCRBY key increment member`
pub(super) fn zincrby(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    add(context, args, true)
}

fn add(context: &mut Context<'_>, args: &Args<'_>, adds: bool) -> Result<()> {
    let (options, first) = AddOptions::parse(args, adds);
    let pairs = args.from(first);
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(ErrorReply::SYNTAX.into());
    }
    options.check(pairs.len() / 2)?;
    let parse = |pair: &[&[u8]]| Ok(parse_f64(pair[0]).ok_or(ErrorReply::NOT_A_FLOAT)?);
    let scores = pairs.chunks_exact(2).map(parse).collect::<Result<Vec<f64>>>()?;
    let added = context.write(|write| {
        let mut added = Added::default();
        let change = match options.only_old {
            true => write.change(&args[1], Kind::SortedSet)?,
            false => Some(write.change_or_create(&args[1], Kind::SortedSet)?),
        };
        let Some(mut change) = change else { return Ok(added) };
        for (pair, &score) in pairs.chunks_exact(2).zip(&scores) {
            let old = write.view().score(&change.collection, pair[1])?;
            let Some(score) = options.new_score(old, score)? else { continue };
            added.score = Some(score);
            match old {
                Some(old) if old == score => continue,
                Some(_) => added.changed += 1,
                None => added.new += 1,
            }
            write.put_score(&mut change.collection, pair[1], old, score)?;
        }
        if added.new + added.changed > 0 {
            write.finish(&args[1], &change)?;
        }
        Ok(added)
    })?;
    let mut reply = context.reply();
    match added.score {
        _ if !options.adds => {
            reply.integer(if options.counts_changed { added.new + added.changed } else { added.new })
        }
        Some(score) => reply.double(score),
        None => reply.null(),
    }
    Ok(())
}

pub(super) fn zrem(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let removed = context.change(&args[1], Kind::SortedSet, |write, zset| {
        let mut removed = 0;
        for name in args.from(2) {
            if let Some(score) = write.view().score(zset, name)? {
                write.remove_score(zset, name, score)?;
                removed += 1;
            }
        }
        Ok((removed > 0, removed))
    })?;
    context.reply().integer(removed.unwrap_or(0));
    Ok(())
}

pub(super) fn zcard(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read(&args[1])?;
    let zset = found.map(|old| old.collection(Kind::SortedSet)).transpose()?;
    context.reply().integer(zset.map_or(0, |zset| zset.count as i64));
    Ok(())
}

pub(super) fn zscore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found =
        context.read_collection(&args[1], Kind::SortedSet, |view, zset| view.score(zset, &args[2]))?;
    match found.flatten() {
        Some(score) => context.reply().double(score),
        None => context.reply().null(),
    }
    Ok(())
}

pub(super) fn zmscore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let names = args.from(2);
    let found = context.read_collection(&args[1], Kind::SortedSet, |view, zset| {
        names.iter().map(|name| view.score(zset, name)).collect::<Result<Vec<_>>>()
    })?;
    let mut reply = context.reply();
    reply.array(names.len());
    for score in found.unwrap_or_else(|| vec![None; names.len()]) {
        match score {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    }
    Ok(())
}

/// `ZRANK key member [WITHSCORE]`
pub(super) fn zrank(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    rank(context, args, "zrank", Order::Forward)
}

pub(super) fn zrevrank(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    rank(context, args, "zrevrank", Order::Backward)
}

fn rank(context: &mut Context<'_>, args: &Args<'_>, name: &str, order: Order) -> Result<()> {
    let has_score = match args.len() {
        3 => false,
        4 if args.is(3, "withscore") => true,
        4 => return Err(ErrorReply::SYNTAX.into()),
        _ => return context.fail("ERR", format!("wrong number of arguments for '{name}' command")),
    };
    let found = context.read_ranks(&args[1], |view, zset| {
        let Some(score) = view.score(zset, &args[2])? else { return Ok(None) };
        let before = view.rank(zset, score, &args[2])?;
        let rank = if order == Order::Forward { before } else { zset.count.saturating_sub(before + 1) };
        Ok(Some((rank as i64, score)))
    })?;
    let mut reply = context.reply();
    match found.flatten() {
        Some((rank, score)) if has_score => {
            reply.array(2);
            reply.integer(rank);
            reply.double(score);
        }
        Some((rank, _)) => reply.integer(rank),
        None if has_score => reply.null_array(),
        None => reply.null(),
    }
    Ok(())
}

/// Removes so many members from an end of a sorted set. `None` if the key does not exist.
fn pop(write: &mut Write<'_>, key: &[u8], order: Order, count: u64) -> Result<Option<Vec<Value>>> {
    let Some(mut change) = write.change(key, Kind::SortedSet)? else { return Ok(None) };
    let zset = &mut change.collection;
    let rows = write.view().ranked_rows(zset, order, 0, count)?;
    if rows.is_empty() {
        return Ok(Some(rows));
    }
    if rows.len() as u64 == zset.count {
        write.leave_all(zset);
    } else {
        write.remove_rows(zset, &rows)?;
    }
    write.finish(key, &change)?;
    Ok(Some(rows))
}

/// `ZPOPMIN key [count]`
pub(super) fn zpopmin(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    pop_of_one(context, args, Order::Forward)
}

pub(super) fn zpopmax(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    pop_of_one(context, args, Order::Backward)
}

/// A number that is not below `min`; anything else gets one error.
pub(super) fn parse_from(argument: &[u8], min: i64, message: &'static str) -> Result<u64> {
    let number = parse_i64(argument).filter(|&number| number >= min);
    Ok(number.map(i64::unsigned_abs).ok_or(ErrorReply::new("ERR", message))?)
}

fn pop_of_one(context: &mut Context<'_>, args: &Args<'_>, order: Order) -> Result<()> {
    let count = match args.len() {
        2 => None,
        3 => Some(parse_from(&args[2], 0, "value is out of range, must be positive")?),
        _ => return Err(ErrorReply::SYNTAX.into()),
    };
    let popped = context.write(|write| pop(write, &args[1], order, count.unwrap_or(1)))?;
    let popped = popped.unwrap_or_default();
    let scores = if count.is_some() { Scores::of(context, true) } else { Scores::Flat };
    reply_members(context, popped.iter().map(of_row), scores);
    Ok(())
}

/// `ZMPOP numkeys key [key ...] MIN | MAX [COUNT count]`
pub(super) fn zmpop(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let keys = parse_from(&args[1], 1, "numkeys should be greater than 0")?;
    let end = usize::try_from(keys).ok().and_then(|keys| keys.checked_add(2)).unwrap_or(usize::MAX);
    let order = match () {
        () if args.is(end, "min") => Order::Forward,
        () if args.is(end, "max") => Order::Backward,
        () => return Err(ErrorReply::SYNTAX.into()),
    };
    let count = match args.from(end + 1) {
        [] => 1,
        [_, count, rest @ ..] if args.is(end + 1, "count") => {
            let count = parse_from(count, 1, "count should be greater than 0")?;
            if !rest.is_empty() {
                return Err(ErrorReply::SYNTAX.into());
            }
            count
        }
        _ => return Err(ErrorReply::SYNTAX.into()),
    };
    let popped = context.write(|write| {
        for index in 2..end {
            if let Some(rows) = pop(write, &args[index], order, count)? {
                return Ok(Some((index, rows)));
            }
        }
        Ok(None)
    })?;
    match popped {
        Some((index, rows)) => {
            context.reply().array(2);
            context.reply().bulk(&args[index]);
            reply_members(context, rows.iter().map(of_row), Scores::Pairs);
        }
        None => context.reply().null_array(),
    }
    Ok(())
}

/// `ZRANDMEMBER key [count [WITHSCORES]]`
pub(super) fn zrandmember(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let choice = Choice::parse(args, Some("withscores"))?;
    let found = choice.choose(context, &args[1], Kind::SortedSet)?;
    let Choice::Many { has_values, .. } = choice else { return reply_one(context, found.as_deref()) };
    let found = found.unwrap_or_default();
    let scores = Scores::of(context, has_values);
    let members =
        found.iter().map(|(row, record)| (decode_member(record).unwrap_or_default(), row_name(row)));
    reply_members(context, members, scores);
    Ok(())
}

pub(super) fn zscan(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    scan_members(context, args, Kind::SortedSet, |record| {
        let mut text = Vec::new();
        format_double(decode_member(record).unwrap_or_default(), &mut text);
        Some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_decide_which_scores_are_written() {
        let none = AddOptions::default();
        let new = |options: AddOptions, old, score| options.new_score(old, score).unwrap();
        assert_eq!(new(none, None, 2.0), Some(2.0));
        assert_eq!(new(none, Some(1.0), 2.0), Some(2.0));
        assert_eq!(new(AddOptions { adds: true, ..none }, Some(1.0), 2.0), Some(3.0));
        assert_eq!(new(AddOptions { only_new: true, ..none }, Some(1.0), 2.0), None);
        assert_eq!(new(AddOptions { only_old: true, ..none }, None, 2.0), None);
        let greater = AddOptions { only_greater: true, ..none };
        assert_eq!([0.0, 1.0, 2.0].map(|score| new(greater, Some(1.0), score)), [None, None, Some(2.0)]);
        let less = AddOptions { only_less: true, adds: true, ..none };
        assert_eq!([-1.0, 0.0, 1.0].map(|score| new(less, Some(1.0), score)), [Some(0.0), None, None]);
        assert_eq!(new(greater, None, -5.0), Some(-5.0));
        let adds = AddOptions { adds: true, ..none };
        assert!(adds.new_score(Some(f64::INFINITY), f64::NEG_INFINITY).is_err());
    }
}
