//! Ranges of sorted sets: by rank, by score, and by name among members of one score.

use fulgurite::Value;
use fulgurite_resp::{parse_f64, parse_i64};

use super::zsets::{Scores, of_row, reply_members};
use crate::args::Args;
use crate::context::Context;
use crate::model::{Collection, Edge, Kind, LongRows, Order, Shown, Span, View, Write, split_score_key};
use crate::stop::{ErrorReply, Result};

/// What a range is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Name,
}

/// An end of a range by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameEnd<'a> {
    /// `-`
    Least,
    /// `+`
    Greatest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

impl<'a> NameEnd<'a> {
    fn parse(argument: &'a [u8]) -> Option<NameEnd<'a>> {
        match argument {
            b"-" => Some(NameEnd::Least),
            b"+" => Some(NameEnd::Greatest),
            [b'[', name @ ..] => Some(NameEnd::Included(name)),
            [b'(', name @ ..] => Some(NameEnd::Excluded(name)),
            _ => None,
        }
    }

    /// Whether a range that begins here may have this name.
    fn allows_after(self, name: &[u8]) -> bool {
        match self {
            NameEnd::Least => true,
            NameEnd::Greatest => false,
            NameEnd::Included(min) => name >= min,
            NameEnd::Excluded(min) => name > min,
        }
    }

    /// Whether a range that ends here may have this name.
    fn allows_before(self, name: &[u8]) -> bool {
        match self {
            NameEnd::Least => false,
            NameEnd::Greatest => true,
            NameEnd::Included(max) => name <= max,
            NameEnd::Excluded(max) => name < max,
        }
    }

    fn edge(self, score: f64, is_min: bool) -> Edge<'a> {
        match (self, is_min) {
            (NameEnd::Least, _) => Edge::BeforeScore(score),
            (NameEnd::Greatest, _) => Edge::AfterScore(score),
            (NameEnd::Included(name), true) | (NameEnd::Excluded(name), false) => Edge::Before(score, name),
            (NameEnd::Included(name), false) | (NameEnd::Excluded(name), true) => Edge::After(score, name),
        }
    }
}

/// Which members are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Range<'a> {
    Ranks { start: i64, end: i64 },
    Scores { from: Edge<'static>, to: Edge<'static> },
    Names { min: NameEnd<'a>, max: NameEnd<'a> },
}

/// A score of a range, as `strtod` reads it: blanks before it are passed, an empty text is 0, one too large infinite.
fn parse_range_score(argument: &[u8]) -> Option<f64> {
    let end = argument.iter().position(|&byte| byte == 0).unwrap_or(argument.len());
    let text = &argument[..end];
    if text.is_empty() {
        return Some(0.0);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|byte| is_blank(byte)).count()..];
    let of_any_size = || std::str::from_utf8(text).ok()?.parse::<f64>().ok().filter(|score| !score.is_nan());
    parse_f64(text).or_else(of_any_size)
}

/// A score and whether it is excluded.
fn parse_score_end(argument: &[u8]) -> Option<(f64, bool)> {
    match argument {
        [b'(', score @ ..] => Some((parse_range_score(score)?, true)),
        score => Some((parse_range_score(score)?, false)),
    }
}

impl<'a> Range<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Range<'a>> {
        let not_a_float = ErrorReply::new("ERR", "min or max is not a float");
        let not_a_name = ErrorReply::new("ERR", "min or max not valid string range item");
        Ok(match by {
            By::Rank => Range::Ranks {
                start: parse_i64(min).ok_or(ErrorReply::NOT_AN_INTEGER)?,
                end: parse_i64(max).ok_or(ErrorReply::NOT_AN_INTEGER)?,
            },
            By::Score => {
                let ends = parse_score_end(min).zip(parse_score_end(max));
                let ((min, excludes_min), (max, excludes_max)) = ends.ok_or(not_a_float)?;
                Range::Scores {
                    from: if excludes_min { Edge::AfterScore(min) } else { Edge::BeforeScore(min) },
                    to: if excludes_max { Edge::BeforeScore(max) } else { Edge::AfterScore(max) },
                }
            }
            By::Name => {
                let (min, max) = NameEnd::parse(min).zip(NameEnd::parse(max)).ok_or(not_a_name)?;
                Range::Names { min, max }
            }
        })
    }

    /// The span of a set that it is, seen from one of its ends.
    fn span(self, view: &View<'_>, zset: &Collection, order: Order) -> Result<Option<Span>> {
        match self {
            Range::Scores { from, to } => Ok(Some(Span::new(zset, from, to))),
            Range::Names { min, max } => span_of_names(view, zset, (min, max), order),
            Range::Ranks { start, end } => {
                let Some((start, len)) = positions(start, end, zset.count) else { return Ok(None) };
                if len == zset.count {
                    return Ok(Some(Span::all(zset)));
                }
                let first = view.ranked_rows(zset, Order::Forward, start, 1)?;
                let last = view.ranked_rows(zset, Order::Backward, zset.count - (start + len), 1)?;
                Ok(first.first().zip(last.first()).map(|(first, last)| between(zset, first, last)))
            }
        }
    }
}

/// The span from a row to another one, both included.
fn between(zset: &Collection, first: &Value, last: &Value) -> Span {
    let ((low, least), (high, greatest)) = (of_row(first), of_row(last));
    Span::new(zset, Edge::Before(low, least), Edge::After(high, greatest))
}

/// The first position of a range of ranks, and how many it has; below 0 they count from the end.
fn positions(start: i64, end: i64, count: u64) -> Option<(u64, u64)> {
    let count = i64::try_from(count).ok()?;
    let from_end = |rank: i64| if rank < 0 { rank.saturating_add(count) } else { rank };
    let (start, end) = (from_end(start).max(0), from_end(end).min(count - 1));
    (start <= end).then(|| (start as u64, (end - start + 1) as u64))
}

/// A range by name. If the members have several scores, so that names are in no order, it is what Redis makes of a small set:
/// from the first member that the near end allows, if the far end does, too, to the last one that the far end allows.
fn span_of_names(
    view: &View<'_>,
    zset: &Collection,
    (min, max): (NameEnd<'_>, NameEnd<'_>),
    order: Order,
) -> Result<Option<Span>> {
    let all = Span::all(zset);
    let first = view.span_rows(&all, Order::Forward, 0, 1)?;
    let last = view.span_rows(&all, Order::Backward, 0, 1)?;
    let Some((first, last)) = first.first().zip(last.first()) else { return Ok(None) };
    let ((lowest, least), (highest, greatest)) = (of_row(first), of_row(last));
    if min == NameEnd::Greatest || max == NameEnd::Least {
        return Ok(None);
    }
    if lowest == highest {
        return Ok(Some(Span::new(zset, min.edge(lowest, true), max.edge(lowest, false))));
    }
    let is_empty = match (min, max) {
        (NameEnd::Included(min), NameEnd::Included(max)) => min > max,
        (
            NameEnd::Included(min) | NameEnd::Excluded(min),
            NameEnd::Included(max) | NameEnd::Excluded(max),
        ) => min >= max,
        _ => false,
    };
    if is_empty || !min.allows_after(greatest) || !max.allows_before(least) {
        return Ok(None);
    }
    let mut found: Option<(Value, Value)> = None;
    view.each_in_span(&all, order, |row| {
        let (_, name) = split_score_key(&row).unwrap_or_default();
        let (near, far) = match order {
            Order::Forward => (min.allows_after(name), max.allows_before(name)),
            Order::Backward => (max.allows_before(name), min.allows_after(name)),
        };
        if let Some((_, end)) = &mut found {
            if far {
                *end = row;
            }
        } else if near && far {
            found = Some((row.clone(), row));
        }
        Ok(if found.is_some() { far } else { !near })
    })?;
    Ok(found.map(|(start, end)| match order {
        Order::Forward => between(zset, &start, &end),
        Order::Backward => between(zset, &end, &start),
    }))
}

/// What a command of a range was given.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wanted<'a> {
    range: Range<'a>,
    order: Order,
    offset: i64,
    /// Below 0: all.
    limit: i64,
    has_scores: bool,
}

impl<'a> Wanted<'a> {
    /// The arguments from that of the lower end on. A command that has neither `by` nor `order` takes options for them.
    fn parse(
        args: &Args<'a>,
        first: usize,
        by: Option<By>,
        order: Option<Order>,
        stores: bool,
    ) -> Result<Wanted<'a>> {
        let (mut chosen_by, mut chosen_order) = (by, order);
        let (mut offset, mut limit, mut has_scores) = (0, -1, false);
        let mut index = first + 2;
        while index < args.len() {
            match (args.get(index + 1), args.get(index + 2)) {
                _ if !stores && args.is(index, "withscores") => has_scores = true,
                (Some(skip), Some(take)) if args.is(index, "limit") => {
                    offset = parse_i64(skip).ok_or(ErrorReply::NOT_AN_INTEGER)?;
                    limit = parse_i64(take).ok_or(ErrorReply::NOT_AN_INTEGER)?;
                    index += 2;
                }
                _ if chosen_order.is_none() && args.is(index, "rev") => chosen_order = Some(Order::Backward),
                _ if chosen_by.is_none() && args.is(index, "bylex") => chosen_by = Some(By::Name),
                _ if chosen_by.is_none() && args.is(index, "byscore") => chosen_by = Some(By::Score),
                _ => return Err(ErrorReply::SYNTAX.into()),
            }
            index += 1;
        }
        let (by, order) = (chosen_by.unwrap_or(By::Rank), chosen_order.unwrap_or(Order::Forward));
        if limit != -1 && by == By::Rank {
            let message = "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(ErrorReply::new("ERR", message).into());
        }
        if has_scores && by == By::Name {
            let message = "syntax error, WITHSCORES not supported in combination with BYLEX";
            return Err(ErrorReply::new("ERR", message).into());
        }
        let (low, high) = (args.get(first).unwrap_or_default(), args.get(first + 1).unwrap_or_default());
        let range = match (order, by) {
            (Order::Backward, By::Score | By::Name) => Range::parse(by, high, low)?,
            _ => Range::parse(by, low, high)?,
        };
        Ok(Wanted { range, order, offset, limit, has_scores })
    }

    /// The rows of the section of scores.
    fn rows(&self, view: &View<'_>, zset: &Collection) -> Result<Vec<Value>> {
        if let Range::Ranks { start, end } = self.range {
            return match positions(start, end, zset.count) {
                Some((start, len)) => view.ranked_rows(zset, self.order, start, len),
                None => Ok(Vec::new()),
            };
        }
        let Some((skip, take)) = self.limits() else { return Ok(Vec::new()) };
        match self.range.span(view, zset, self.order)? {
            Some(span) => view.span_rows(&span, self.order, skip, take),
            None => Ok(Vec::new()),
        }
    }

    /// How many rows are passed, and how many are taken then; `None`: none is.
    fn limits(&self) -> Option<(u64, u64)> {
        let skip = u64::try_from(self.offset).ok()?;
        Some((skip, u64::try_from(self.limit).unwrap_or(u64::MAX)))
    }

    /// The same rows for a reply that leaves in pieces, if it does.
    fn long_rows(&self, view: &View<'_>, zset: &Collection) -> Result<Option<LongRows>> {
        if !view.runner.may_take_long() {
            return Ok(None);
        }
        let (span, limits) = match self.range {
            Range::Ranks { start, end } => (Some(Span::all(zset)), positions(start, end, zset.count)),
            _ => (self.range.span(view, zset, self.order)?, self.limits()),
        };
        let Some((span, limits)) = span.zip(limits) else { return Ok(None) };
        let (bounds, count) = view.span_bounds(zset, &span, self.order, limits)?;
        let shown = if self.has_scores { Shown::MemberAndScore } else { Shown::Member };
        Ok(if count == 0 { None } else { view.long_rows(bounds, self.order, count, shown) })
    }
}

/// `ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`
pub(super) fn zrange(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    range(context, args, None, None)
}

pub(super) fn zrevrange(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    range(context, args, Some(By::Rank), Some(Order::Backward))
}

pub(super) fn zrangebyscore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    range(context, args, Some(By::Score), Some(Order::Forward))
}

pub(super) fn zrevrangebyscore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    range(context, args, Some(By::Score), Some(Order::Backward))
}

pub(super) fn zrangebylex(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    range(context, args, Some(By::Name), Some(Order::Forward))
}

pub(super) fn zrevrangebylex(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    range(context, args, Some(By::Name), Some(Order::Backward))
}

fn range(context: &mut Context<'_>, args: &Args<'_>, by: Option<By>, order: Option<Order>) -> Result<()> {
    let wanted = Wanted::parse(args, 2, by, order, false)?;
    let scores = Scores::of(context, wanted.has_scores);
    let in_pieces = context.takes_pieces();
    let found = context.read_ranks(&args[1], |view, zset| {
        let long = if in_pieces { wanted.long_rows(view, zset)? } else { None };
        let rows = if long.is_none() { wanted.rows(view, zset)? } else { Vec::new() };
        Ok((rows, long))
    })?;
    match found.unwrap_or_default() {
        (_, Some(rows)) => context.reply_long_rows(rows, |reply, len| {
            reply.array(if scores == Scores::Flat { 2 * len } else { len });
        }),
        (rows, None) => {
            reply_members(context, rows.iter().map(of_row), scores);
            Ok(())
        }
    }
}

/// `ZRANGESTORE destination source start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count]`
pub(super) fn zrangestore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let wanted = Wanted::parse(args, 3, None, None, true)?;
    let stored = context.write(|write| {
        let source = write.view().collection(&args[2], Kind::SortedSet)?;
        let mut rows = match source {
            Some(zset) => wanted.rows(&write.view(), &zset)?,
            None => Vec::new(),
        };
        if wanted.order == Order::Backward {
            rows.reverse();
        }
        let members: Vec<_> = rows.iter().map(of_row).collect();
        store(write, &args[1], &members)
    })?;
    context.reply().integer(stored);
    Ok(())
}

/// Gives a key a sorted set of these members, which are in the order of scores, in the stead of what it has; returns how many they are.
pub(super) fn store(write: &mut Write<'_>, key: &[u8], members: &[(f64, impl AsRef<[u8]>)]) -> Result<i64> {
    let mut change = write.replace(key, Kind::SortedSet)?;
    write.fill(&mut change.collection, members)?;
    write.finish(key, &change)?;
    Ok(members.len() as i64)
}

/// `ZCOUNT key min max`
pub(super) fn zcount(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    count(context, args, By::Score)
}

pub(super) fn zlexcount(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    count(context, args, By::Name)
}

fn count(context: &mut Context<'_>, args: &Args<'_>, by: By) -> Result<()> {
    let range = Range::parse(by, args.get(2).unwrap_or_default(), args.get(3).unwrap_or_default())?;
    let count = context.read_ranks(&args[1], |view, zset| {
        let span = range.span(view, zset, Order::Forward)?;
        span.map_or(Ok(0), |span| view.count_span(zset, &span))
    })?;
    context.reply().integer(count.unwrap_or(0) as i64);
    Ok(())
}

/// `ZREMRANGEBYRANK key start stop`
pub(super) fn zremrangebyrank(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    remove_range(context, args, By::Rank)
}

pub(super) fn zremrangebyscore(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    remove_range(context, args, By::Score)
}

pub(super) fn zremrangebylex(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    remove_range(context, args, By::Name)
}

fn remove_range(context: &mut Context<'_>, args: &Args<'_>, by: By) -> Result<()> {
    let range = Range::parse(by, args.get(2).unwrap_or_default(), args.get(3).unwrap_or_default())?;
    let removed = context.change(&args[1], Kind::SortedSet, |write, zset| {
        let span = range.span(&write.view(), zset, Order::Forward)?;
        let removed = span.map_or(Ok(0), |span| write.remove_span(zset, &span))?;
        Ok((removed > 0, removed))
    })?;
    context.reply().integer(removed.unwrap_or(0) as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_ranges_are_read_as_strtod_does() {
        for (text, expected) in [
            ("1.5", Some((1.5, false))),
            ("(1.5", Some((1.5, true))),
            ("-inf", Some((f64::NEG_INFINITY, false))),
            ("(+inf", Some((f64::INFINITY, true))),
            ("", Some((0.0, false))),
            ("(", Some((0.0, true))),
            (" 7", Some((7.0, false))),
            (" ", None),
            ("7 ", None),
            ("1e400", Some((f64::INFINITY, false))),
            ("1\0x", Some((1.0, false))),
            ("nan", None),
            ("((1", None),
            ("x", None),
        ] {
            assert_eq!(parse_score_end(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn ranks_are_cut_to_those_that_there_are() {
        assert_eq!(positions(0, -1, 5), Some((0, 5)));
        assert_eq!(positions(-2, -1, 5), Some((3, 2)));
        assert_eq!(positions(-100, 1, 5), Some((0, 2)));
        assert_eq!(positions(1, 100, 5), Some((1, 4)));
        for (start, end) in [(5, 9), (3, 2), (0, -6), (-1, -2), (i64::MAX, i64::MAX), (i64::MIN, i64::MIN)] {
            assert_eq!(positions(start, end, 5), None, "{start} {end}");
        }
        assert_eq!(positions(i64::MIN, i64::MAX, 5), Some((0, 5)));
    }

    #[test]
    fn ends_by_name_allow_what_they_include() {
        let end = |text: &'static str| NameEnd::parse(text.as_bytes());
        assert_eq!(end("b"), None);
        assert_eq!(end(""), None);
        assert_eq!(end("-x"), None);
        for (text, after, before) in [
            ("-", [true; 3], [false; 3]),
            ("+", [false; 3], [true; 3]),
            ("[b", [false, true, true], [true, true, false]),
            ("(b", [false, false, true], [true, false, false]),
        ] {
            let end = end(text).unwrap();
            assert_eq!(["a", "b", "c"].map(|name| end.allows_after(name.as_bytes())), after, "{text}");
            assert_eq!(["a", "b", "c"].map(|name| end.allows_before(name.as_bytes())), before, "{text}");
        }
    }
}
