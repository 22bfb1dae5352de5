//! `SORT` and `SORT_RO`. They hold what they sort in memory, up to [`SORT_BYTES_MAX`], and read a key for each element and each pattern.

use std::cmp::Ordering;
use std::ops::Range;

use fulgurite_resp::parse_f64;

use super::KEY_BYTES_MAX;
use super::list_rows::{End, bounds, positions, push};
use super::lists::integer;
use crate::args::Args;
use crate::context::Context;
use crate::model::{
    Collection, Kind, NAME_BYTES_MAX, Order, Section, View, Write, damaged_row, section_bounds,
    split_score_key,
};
use crate::stop::{ErrorReply, Result};

/// The elements of a command, their weights and what it returns are no longer together.
const SORT_BYTES_MAX: usize = 512 << 20;

const TOO_LARGE: ErrorReply = ErrorReply::new("ERR", "the elements are too many to be sorted in memory");

const NOT_A_SCORE: ErrorReply = ErrorReply::new("ERR", "One or more scores can't be converted into double");

/// The options of `SORT`.
#[derive(Debug, Default)]
struct SortOptions<'a> {
    is_descending: bool,
    is_alpha: bool,
    /// From which element on, and how many.
    limit: Option<(i64, i64)>,
    by: Option<&'a [u8]>,
    gets: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

impl<'a> SortOptions<'a> {
    fn parse(args: &Args<'a>, takes_store: bool) -> Result<SortOptions<'a>> {
        let mut options = SortOptions::default();
        let mut index = 2;
        while index < args.len() {
            let value = args.get(index + 1);
            match value {
                _ if args.is(index, "asc") => options.is_descending = false,
                _ if args.is(index, "desc") => options.is_descending = true,
                _ if args.is(index, "alpha") => options.is_alpha = true,
                Some(from) if args.is(index, "limit") => {
                    let count = args.get(index + 2).ok_or(ErrorReply::SYNTAX)?;
                    options.limit = Some((integer(from)?, integer(count)?));
                    index += 2;
                }
                Some(key) if takes_store && args.is(index, "store") => {
                    (options.store, index) = (Some(key), index + 1);
                }
                Some(pattern) if args.is(index, "by") => (options.by, index) = (Some(pattern), index + 1),
                Some(pattern) if args.is(index, "get") => {
                    options.gets.push(pattern);
                    index += 1;
                }
                _ => return Err(ErrorReply::SYNTAX.into()),
            }
            index += 1;
        }
        Ok(options)
    }

    /// Whether the elements are to be compared: a pattern without an asterisk leaves them in their order.
    fn compares(&self) -> bool {
        self.by.is_none_or(|pattern| pattern.contains(&b'*'))
    }

    /// Which of so many elements are wanted.
    fn range(&self, count: u64) -> Range<usize> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (from, wanted) = self.limit.unwrap_or((0, -1));
        let from = usize::try_from(from).unwrap_or(0).min(count);
        from..usize::try_from(wanted).map_or(count, |wanted| from.saturating_add(wanted).min(count))
    }
}

pub(super) fn sort(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let options = SortOptions::parse(args, true)?;
    let Some(destination) = options.store else { return reply_sorted(context, &args[1], &options) };
    if destination.len() > KEY_BYTES_MAX {
        let message =
            format!("the key has {} bytes, the longest allowed has {KEY_BYTES_MAX}", destination.len());
        return context.fail("ERR", message);
    }
    let count = context.write(|write| {
        let items = sorted_items(&write.view(), &args[1], &options)?;
        store(write, destination, &items)?;
        Ok(items.len())
    })?;
    context.reply().integer(count as i64);
    Ok(())
}

pub(super) fn sort_ro(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let options = SortOptions::parse(args, false)?;
    reply_sorted(context, &args[1], &options)
}

fn reply_sorted(context: &mut Context<'_>, key: &[u8], options: &SortOptions<'_>) -> Result<()> {
    let items = context.view(|view| sorted_items(view, key, options))?;
    let mut reply = context.reply();
    reply.array(items.len());
    for item in items {
        match item {
            Some(item) => reply.bulk(&item),
            None => reply.null(),
        }
    }
    Ok(())
}

/// Writes items as the list of a key; deletes the key if there are none.
fn store(write: &mut Write<'_>, key: &[u8], items: &[Option<Vec<u8>>]) -> Result<()> {
    write.view().check_rows(items.len() as u64)?;
    if items.is_empty() {
        return match write.stored(key)? {
            Some(old) => write.delete(key, &old),
            None => Ok(()),
        };
    }
    let mut change = write.replace(key, Kind::List)?;
    for item in items {
        push(write, &mut change.collection, End::Right, item.as_deref().unwrap_or_default())?;
    }
    write.finish(key, &change)
}

/// An element, and what it is compared by.
struct Weighed {
    element: Vec<u8>,
    number: f64,
    text: Option<Vec<u8>>,
}

/// The elements in their order, or what the patterns of `GET` find for them.
fn sorted_items(view: &View<'_>, key: &[u8], options: &SortOptions<'_>) -> Result<Vec<Option<Vec<u8>>>> {
    let Some(old) = view.live(key)? else { return Ok(Vec::new()) };
    let kind = old.head.kind;
    if !matches!(kind, Kind::List | Kind::Set | Kind::SortedSet) {
        return Err(ErrorReply::WRONG_TYPE.into());
    }
    let collection = old.collection(kind)?;
    let range = options.range(collection.count);
    let (compares, by, is_alpha) = match options.compares() {
        // A stored list has a definite order.
        false if kind == Kind::Set && options.store.is_some() => (true, None, true),
        compares => (compares, options.by, options.is_alpha),
    };
    let weights = if compares && by.is_some() { collection.count } else { 0 };
    let gets = options.gets.len().saturating_mul(range.len()) as u64;
    view.check_rows(weights.saturating_add(gets))?;

    let mut memory = Memory::default();
    let chosen = if compares {
        let all = load(view, kind, &collection, &mut memory)?;
        let mut weighed = weigh(view, all, by, is_alpha, &mut memory)?;
        weighed.sort_by(|a, b| {
            view.runner.step();
            let order = compare(a, b, by.is_some(), is_alpha);
            if options.is_descending { order.reverse() } else { order }
        });
        weighed.drain(range).map(|weighed| weighed.element).collect()
    } else {
        load_range(view, kind, &collection, range, options.is_descending, &mut memory)?
    };
    if options.gets.is_empty() {
        return Ok(chosen.into_iter().map(Some).collect());
    }
    let mut items = Vec::new();
    for element in &chosen {
        for pattern in &options.gets {
            let item = find(view, pattern, element)?;
            memory.take(item.as_ref().map_or(0, Vec::len))?;
            items.push(item);
        }
    }
    Ok(items)
}

/// How much memory a command has taken.
#[derive(Default)]
struct Memory(usize);

impl Memory {
    fn take(&mut self, bytes: usize) -> Result<()> {
        self.0 += bytes + size_of::<Weighed>();
        if self.0 > SORT_BYTES_MAX { Err(TOO_LARGE.into()) } else { Ok(()) }
    }
}

/// All elements or members.
fn load(view: &View<'_>, kind: Kind, collection: &Collection, memory: &mut Memory) -> Result<Vec<Vec<u8>>> {
    if kind == Kind::List {
        return load_range(view, kind, collection, 0..collection.count as usize, false, memory);
    }
    let mut all = Vec::new();
    view.each_member(collection, |name, _| {
        memory.take(name.len())?;
        all.push(name.to_vec());
        Ok(true)
    })?;
    Ok(all)
}

/// Some elements in the order of a list or a sorted set, or backwards. A set has none: `DESC` changes nothing there.
fn load_range(
    view: &View<'_>,
    kind: Kind,
    collection: &Collection,
    range: Range<usize>,
    is_descending: bool,
    memory: &mut Memory,
) -> Result<Vec<Vec<u8>>> {
    let order = if is_descending { Order::Backward } else { Order::Forward };
    let mut found = Vec::new();
    let mut take = |bytes: &[u8]| {
        memory.take(bytes.len())?;
        found.push(bytes.to_vec());
        Ok(true)
    };
    if kind == Kind::List {
        let Range { start, end } = positions(collection);
        let (from, to) = (range.start as i64, range.end as i64);
        let wanted = if is_descending { end - to..end - from } else { start + from..start + to };
        view.check_rows(range.len() as u64)?;
        view.each_row(bounds(collection.id, wanted), order, range.len(), |_, value| take(&value))?;
        return Ok(found);
    }
    let mut index = 0;
    let mut take_one = |name: &[u8]| {
        let is_wanted = range.contains(&index);
        index += 1;
        Ok((!is_wanted || take(name)?) && index < range.end)
    };
    if kind == Kind::Set {
        view.each_member(collection, |name, _| take_one(name))?;
        return Ok(found);
    }
    view.check_rows(range.end as u64)?;
    let scores = section_bounds(collection.id, Section::Scores);
    view.each_row(scores, order, range.end, |row, _| match split_score_key(&row) {
        Some((_, name)) => take_one(name),
        None => Err(damaged_row(&row)),
    })?;
    Ok(found)
}

/// Elements with what they are compared by.
fn weigh(
    view: &View<'_>,
    elements: Vec<Vec<u8>>,
    by: Option<&[u8]>,
    is_alpha: bool,
    memory: &mut Memory,
) -> Result<Vec<Weighed>> {
    let mut all_are_numbers = true;
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements {
        let weight = by.map(|pattern| find(view, pattern, &element)).transpose()?;
        let (mut number, mut text) = (0.0, None);
        match weight {
            // Redis takes the weight of a key that does not exist for 0, or as less than all texts.
            Some(None) => {}
            Some(Some(weight)) if is_alpha => {
                memory.take(weight.len())?;
                text = Some(weight);
            }
            None if is_alpha => {}
            weight => match parse_weight(weight.flatten().as_deref().unwrap_or(&element)) {
                Some(parsed) => number = parsed,
                None => all_are_numbers = false,
            },
        }
        weighed.push(Weighed { element, number, text });
    }
    if all_are_numbers { Ok(weighed) } else { Err(NOT_A_SCORE.into()) }
}

/// The order of two elements. Equal numbers are in the order of their elements' bytes; elements with equal texts of `BY` stay as they are.
fn compare(a: &Weighed, b: &Weighed, has_weights: bool, is_alpha: bool) -> Ordering {
    match (is_alpha, has_weights) {
        (true, true) => a.text.cmp(&b.text),
        (true, false) => a.element.cmp(&b.element),
        (false, _) => {
            a.number.partial_cmp(&b.number).unwrap_or(Ordering::Equal).then_with(|| a.element.cmp(&b.element))
        }
    }
}

/// A weight as `strtod` reads it: blanks may come before it, and a zero byte ends it. An empty one is 0.
fn parse_weight(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let blanks = text.iter().take_while(|byte| is_blank(byte)).count();
    parse_f64(&text[blanks..])
}

/// What a pattern of `BY` or `GET` finds for an element: the element itself for `#`, a string, or a field of a hash.
fn find(view: &View<'_>, pattern: &[u8], element: &[u8]) -> Result<Option<Vec<u8>>> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some((key, field)) = substitute(pattern, element) else { return Ok(None) };
    if key.len() > KEY_BYTES_MAX {
        return Ok(None);
    }
    let Some(old) = view.live(&key)? else { return Ok(None) };
    match field {
        None if old.check_text().is_ok() => Ok(Some(view.text(&old)?.to_vec())),
        Some(field) if old.head.kind == Kind::Hash && field.len() <= NAME_BYTES_MAX => {
            let value = view.member(&old.collection(Kind::Hash)?, field)?;
            Ok(value.map(|value| value.to_vec()))
        }
        _ => Ok(None),
    }
}

/// The key of a pattern, its first asterisk replaced by an element, and the field after `->`, if one is there. None without an asterisk.
fn substitute<'p>(pattern: &'p [u8], element: &[u8]) -> Option<(Vec<u8>, Option<&'p [u8]>)> {
    let asterisk = pattern.iter().position(|&byte| byte == b'*')?;
    let (before, after) = (&pattern[..asterisk], &pattern[asterisk + 1..]);
    let arrow = after.windows(2).position(|pair| pair == b"->").filter(|&at| at + 2 < after.len());
    let (after, field) = match arrow {
        Some(at) => (&after[..at], Some(&after[at + 2..])),
        None => (after, None),
    };
    Some(([before, element, after].concat(), field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_keys_and_fields() {
        let found = |pattern: &'static str| {
            substitute(pattern.as_bytes(), b"7").map(|(key, field)| {
                (String::from_utf8(key).unwrap(), field.map(|field| std::str::from_utf8(field).unwrap()))
            })
        };
        for (pattern, key, field) in [
            ("w_*", "w_7", None),
            ("*", "7", None),
            ("a*b*", "a7b*", None),
            ("w_*->f", "w_7", Some("f")),
            ("w_*x->f->g", "w_7x", Some("f->g")),
            ("w_*->", "w_7->", None),
            ("->*", "->7", None),
        ] {
            assert_eq!(found(pattern), Some((key.to_string(), field)), "{pattern}");
        }
        assert_eq!(found("nosort"), None);
    }

    #[test]
    fn weights_are_those_of_strtod() {
        for (text, weight) in [
            ("", Some(0.0)),
            ("1", Some(1.0)),
            (" \t\n-1.5", Some(-1.5)),
            ("+2", Some(2.0)),
            ("0x10", Some(16.0)),
            ("1e3", Some(1000.0)),
            ("inf", Some(f64::INFINITY)),
            ("1\0x", Some(1.0)),
            ("\0", Some(0.0)),
            (" ", None),
            ("1 ", None),
            ("nan", None),
            ("x", None),
            ("1e999", None),
        ] {
            assert_eq!(parse_weight(text.as_bytes()), weight, "{text:?}");
        }
    }

    #[test]
    fn limits_are_within_the_elements() {
        for (limit, range) in [
            (None, 0..5),
            (Some((0, 2)), 0..2),
            (Some((-3, 2)), 0..2),
            (Some((1, -1)), 1..5),
            (Some((4, 9)), 4..5),
            (Some((9, 9)), 5..5),
            (Some((i64::MAX, i64::MAX)), 5..5),
            (Some((2, i64::MAX)), 2..5),
            (Some((i64::MIN, i64::MIN)), 0..5),
            (Some((2, 0)), 2..2),
        ] {
            let options = SortOptions { limit, ..SortOptions::default() };
            assert_eq!(options.range(5), range, "{limit:?}");
        }
    }
}
