//! Unions, intersections and differences of sorted sets, and of sets, whose members have the score 1.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use fulgurite_resp::parse_f64;
use fulgurite_resp::parse_i64;

use super::zset_ranges::store;
use super::zsets::{Scores, parse_from, reply_members};
use crate::args::Args;
use crate::context::Context;
use crate::model::{Collection, Kind, View, damaged_row, decode_member};
use crate::stop::{ErrorReply, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// What becomes of the scores of a member of several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // Infinities of both signs are 0 together.
            Aggregate::Sum => not_nan(a + b),
            Aggregate::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Aggregate::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What a command does with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reply,
    Store,
    Count,
}

/// An input.
#[derive(Clone, Copy, Debug)]
struct Input {
    /// Nothing, if the key does not exist.
    collection: Option<Collection>,
    has_scores: bool,
    weight: f64,
}

impl Input {
    fn read(view: &View<'_>, key: &[u8]) -> Result<Input> {
        let absent = Input { collection: None, has_scores: false, weight: 1.0 };
        let Some(old) = view.live(key)? else { return Ok(absent) };
        if !matches!(old.head.kind, Kind::Set | Kind::SortedSet) {
            return Err(ErrorReply::WRONG_TYPE.into());
        }
        Ok(Input {
            collection: Some(old.collection(old.head.kind)?),
            has_scores: old.head.kind == Kind::SortedSet,
            ..absent
        })
    }

    fn count(&self) -> u64 {
        self.collection.map_or(0, |collection| collection.count)
    }

    /// The score in the record of a member, with the weight.
    fn score(&self, name: &[u8], record: &[u8]) -> Result<f64> {
        let score =
            if self.has_scores { decode_member(record).ok_or_else(|| damaged_row(name))? } else { 1.0 };
        Ok(self.weight * score)
    }

    fn each(&self, view: &View<'_>, mut member: impl FnMut(&[u8], f64) -> Result<bool>) -> Result<()> {
        let Some(collection) = &self.collection else { return Ok(()) };
        view.each_member(collection, |name, record| member(name, self.score(name, &record)?))
    }

    fn find(&self, view: &View<'_>, name: &[u8]) -> Result<Option<f64>> {
        let Some(collection) = &self.collection else { return Ok(None) };
        let record = view.member(collection, name)?;
        record.map(|record| self.score(name, &record)).transpose()
    }
}

/// The options after the keys.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    has_scores: bool,
    /// How many are counted at most; 0: all.
    limit: u64,
}

impl Options {
    fn parse(
        args: &Args<'_>,
        first: usize,
        keys: usize,
        operation: Operation,
        purpose: Use,
    ) -> Result<Options> {
        let mut options =
            Options { weights: vec![1.0; keys], aggregate: Aggregate::Sum, has_scores: false, limit: 0 };
        let is_weighted = operation != Operation::Difference && purpose != Use::Count;
        let mut index = first;
        while index < args.len() {
            let rest = args.from(index + 1);
            if is_weighted && rest.len() >= keys && args.is(index, "weights") {
                for (weight, text) in options.weights.iter_mut().zip(rest) {
                    *weight = parse_f64(text).ok_or(ErrorReply::new("ERR", "weight value is not a float"))?;
                }
                index += keys;
            } else if is_weighted && !rest.is_empty() && args.is(index, "aggregate") {
                options.aggregate = match () {
                    () if args.is(index + 1, "sum") => Aggregate::Sum,
                    () if args.is(index + 1, "min") => Aggregate::Min,
                    () if args.is(index + 1, "max") => Aggregate::Max,
                    () => return Err(ErrorReply::SYNTAX.into()),
                };
                index += 1;
            } else if purpose == Use::Reply && args.is(index, "withscores") {
                options.has_scores = true;
            } else if purpose == Use::Count && !rest.is_empty() && args.is(index, "limit") {
                options.limit = parse_from(rest[0], 0, "LIMIT can't be negative")?;
                index += 1;
            } else {
                return Err(ErrorReply::SYNTAX.into());
            }
            index += 1;
        }
        Ok(options)
    }
}

/// The members of a result with their scores.
type Members = Vec<(f64, Vec<u8>)>;

/// Members of the smallest input that all others have. Calls `member` with each until that returns false.
fn intersect(
    view: &View<'_>,
    inputs: &[Input],
    aggregate: Aggregate,
    mut member: impl FnMut(f64, &[u8]) -> bool,
) -> Result<()> {
    let [smallest, others @ ..] = inputs else { return Ok(()) };
    view.check_rows(smallest.count().saturating_mul(inputs.len() as u64))?;
    smallest.each(view, |name, score| {
        let mut score = not_nan(score);
        for other in others {
            let Some(found) = other.find(view, name)? else { return Ok(true) };
            score = aggregate.of(score, found);
        }
        Ok(member(score, name))
    })
}

/// What an operation makes of its inputs, in the order of scores.
fn combine(
    view: &View<'_>,
    operation: Operation,
    mut inputs: Vec<Input>,
    aggregate: Aggregate,
) -> Result<Members> {
    let mut members = Members::new();
    if operation != Operation::Difference {
        inputs.sort_by_key(Input::count);
    }
    match operation {
        Operation::Intersection => intersect(view, &inputs, aggregate, |score, name| {
            members.push((score, name.to_vec()));
            true
        })?,
        Operation::Difference => {
            let [first, others @ ..] = &inputs[..] else { return Ok(members) };
            view.check_rows(first.count().saturating_mul(inputs.len() as u64))?;
            first.each(view, |name, score| {
                for other in others {
                    if other.find(view, name)?.is_some() {
                        return Ok(true);
                    }
                }
                members.push((score, name.to_vec()));
                Ok(true)
            })?;
        }
        Operation::Union => {
            view.check_rows(inputs.iter().map(Input::count).sum())?;
            let mut all: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
            for input in &inputs {
                input.each(view, |name, score| {
                    let score = not_nan(score);
                    match all.get_mut(name) {
                        Some(sum) => *sum = aggregate.of(*sum, score),
                        None => _ = all.insert(name.to_vec(), score),
                    }
                    Ok(true)
                })?;
            }
            members.extend(all.into_iter().map(|(name, score)| (score, name)));
        }
    }
    members.sort_unstable_by(|(a, name), (b, other)| {
        a.partial_cmp(b).unwrap_or(Ordering::Equal).then_with(|| name.cmp(other))
    });
    Ok(members)
}

/// The keys of a command whose argument `count_at` says how many they are.
fn keys_of<'a, 'k>(
    context: &Context<'_>,
    args: &'k Args<'a>,
    count_at: usize,
    name: &str,
) -> Result<&'k [&'a [u8]]> {
    let count = parse_i64(&args[count_at]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    if count < 1 {
        return context.fail("ERR", format!("at least 1 input key is needed for '{name}' command"));
    }
    let keys = usize::try_from(count).ok().and_then(|count| args.from(count_at + 1).get(..count));
    Ok(keys.ok_or(ErrorReply::SYNTAX)?)
}

fn reply_with(context: &mut Context<'_>, args: &Args<'_>, name: &str, operation: Operation) -> Result<()> {
    let keys = keys_of(context, args, 1, name)?;
    let (members, has_scores) = context.view(|view| {
        let (inputs, options) = read(view, args, 2, keys, operation, Use::Reply)?;
        Ok((combine(view, operation, inputs, options.aggregate)?, options.has_scores))
    })?;
    let scores = Scores::of(context, has_scores);
    reply_members(context, members.iter().map(|(score, name)| (*score, &name[..])), scores);
    Ok(())
}

fn store_result(context: &mut Context<'_>, args: &Args<'_>, name: &str, operation: Operation) -> Result<()> {
    let keys = keys_of(context, args, 2, name)?;
    let count = context.write(|write| {
        let view = write.view();
        let (inputs, options) = read(&view, args, 3, keys, operation, Use::Store)?;
        let members = combine(&view, operation, inputs, options.aggregate)?;
        store(write, &args[1], &members)
    })?;
    context.reply().integer(count);
    Ok(())
}

/// The inputs, then the options: so Redis finds errors.
fn read(
    view: &View<'_>,
    args: &Args<'_>,
    first_key: usize,
    keys: &[&[u8]],
    operation: Operation,
    purpose: Use,
) -> Result<(Vec<Input>, Options)> {
    let mut inputs = keys.iter().map(|key| Input::read(view, key)).collect::<Result<Vec<_>>>()?;
    let options = Options::parse(args, first_key + keys.len(), keys.len(), operation, purpose)?;
    inputs.iter_mut().zip(&options.weights).for_each(|(input, weight)| input.weight = *weight);
    Ok((inputs, options))
}

/// `ZUNION numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]`
pub(super) fn zunion(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_with(context, args, "zunion", Operation::Union)
}

pub(super) fn zinter(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_with(context, args, "zinter", Operation::Intersection)
}

pub(super) fn zdiff(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_with(context, args, "zdiff", Operation::Difference)
}

pub(super) fn zunionstore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    store_result(context, args, "zunionstore", Operation::Union)
}

pub(super) fn zinterstore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    store_result(context, args, "zinterstore", Operation::Intersection)
}

pub(super) fn zdiffstore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    store_result(context, args, "zdiffstore", Operation::Difference)
}

/// `ZINTERCARD numkeys key [key ...] [LIMIT limit]`
pub(super) fn zintercard(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let keys = keys_of(context, args, 1, "zintercard")?;
    let count = context.view(|view| {
        let (mut inputs, options) = read(view, args, 2, keys, Operation::Intersection, Use::Count)?;
        inputs.sort_by_key(Input::count);
        let mut count = 0;
        intersect(view, &inputs, options.aggregate, |_, _| {
            count += 1;
            count != options.limit
        })?;
        Ok(count)
    })?;
    context.reply().integer(count as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_put_together() {
        let infinity = f64::INFINITY;
        assert_eq!(Aggregate::Sum.of(1.5, 2.0), 3.5);
        assert_eq!(Aggregate::Sum.of(infinity, -infinity), 0.0);
        assert_eq!((Aggregate::Min.of(1.0, 2.0), Aggregate::Min.of(2.0, 1.0)), (1.0, 1.0));
        assert_eq!((Aggregate::Max.of(1.0, 2.0), Aggregate::Max.of(2.0, 1.0)), (2.0, 2.0));
    }
}
