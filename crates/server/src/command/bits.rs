//! Bit operations on strings: bit 0 is the highest one of the first byte.

use fulgurite_resp::parse_i64;

use crate::args::Args;
use crate::context::Context;
use crate::model::{Old, View};
use crate::stop::{ErrorReply, Result};

const OFFSET: ErrorReply = ErrorReply::new("ERR", "bit offset is not an integer or out of range");
const BIT: ErrorReply = ErrorReply::new("ERR", "bit is not an integer or out of range");

/// A bit's offset: within the longest string.
fn offset_of(context: &Context<'_>, text: &[u8]) -> Result<u64> {
    let bits = context.shared.settings.argument_bytes_max() as u64 * 8;
    let offset = parse_i64(text).and_then(|offset| u64::try_from(offset).ok());
    Ok(offset.filter(|&offset| offset < bits).ok_or(OFFSET)?)
}

fn bit_at(value: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|index| value.get(index));
    byte.is_some_and(|&byte| bit_of(byte, offset))
}

pub(super) fn getbit(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let offset = offset_of(context, &args[2])?;
    let found = context.view(|view| byte_at(view, view.live(&args[1])?.as_ref(), offset))?;
    context.reply().integer(bit_of(found, offset).into());
    Ok(())
}

pub(super) fn setbit(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let offset = offset_of(context, &args[2])?;
    let is_set = match parse_i64(&args[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(BIT.into()),
    };
    let before = context.write(|write| {
        let old = write.stored(&args[1])?;
        let live = old.as_ref().filter(|old| old.head.is_live(write.now_ms));
        let byte = byte_at(&write.view(), live, offset)?;
        let mask = 1 << (7 - offset % 8);
        let new = if is_set { byte | mask } else { byte & !mask };
        write.write_text(&args[1], old.as_ref(), (offset / 8) as usize, &[new])?;
        Ok(bit_of(byte, offset))
    })?;
    context.reply().integer(before.into());
    Ok(())
}

/// The byte of a string in which a bit is; 0 behind its end.
fn byte_at(view: &View<'_>, old: Option<&Old>, offset: u64) -> Result<u8> {
    let at = (offset / 8) as usize;
    let bytes = old.map(|old| view.text_range(old, at..at + 1)).transpose()?;
    Ok(bytes.and_then(|bytes| bytes.first().copied()).unwrap_or_default())
}

fn bit_of(byte: u8, offset: u64) -> bool {
    byte >> (7 - offset % 8) & 1 == 1
}

/// A range of bits of a value of `len` bytes, its end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitRange {
    start: u64,
    end: u64,
}

impl BitRange {
    /// From two numbers, both included, counted from the end if they are below 0; of bytes, or of bits.
    fn parse(start: i64, end: i64, of_bits: bool, len: usize) -> BitRange {
        let unit = if of_bits { 1 } else { 8 };
        let count = (len as i64) * 8 / unit;
        let from_end = |number: i64| if number < 0 { count.saturating_add(number).max(0) } else { number };
        let (start, end) = (from_end(start), from_end(end).min(count - 1));
        if start > end {
            return BitRange { start: 0, end: 0 };
        }
        BitRange { start: (start * unit) as u64, end: ((end + 1) * unit) as u64 }
    }

    /// The range of a command's arguments from `index` on: none, a start, a start and an end, and these with a unit.
    fn of_args(args: &Args<'_>, index: usize, len: usize) -> Result<BitRange> {
        let number = |at: usize| parse_i64(&args[at]).ok_or(ErrorReply::NOT_AN_INTEGER);
        let end = || if args.len() > index + 1 { number(index + 1) } else { Ok(-1) };
        let unit = || match args.get(index + 2) {
            None => Ok(false),
            Some(_) if args.is(index + 2, "bit") => Ok(true),
            Some(_) if args.is(index + 2, "byte") => Ok(false),
            Some(_) => Err(ErrorReply::SYNTAX),
        };
        let start = if args.len() > index { number(index)? } else { 0 };
        // In the order in which Redis looks at them, which decides the error.
        let (end, of_bits) = if args.is(0, "bitpos") {
            let of_bits = unit()?;
            (end()?, of_bits)
        } else {
            (end()?, unit()?)
        };
        Ok(BitRange::parse(start, end, of_bits, len))
    }
}

/// The first bit of a range that is set, or is not.
fn find_bit(value: &[u8], range: BitRange, wanted: bool) -> Option<u64> {
    let BitRange { start, end } = range;
    let is_wanted = |offset: &u64| bit_at(value, *offset) == wanted;
    let (first, last) = (start.next_multiple_of(8).min(end), end / 8 * 8);
    if let Some(found) = (start..first).find(is_wanted) {
        return Some(found);
    }
    // Whole bytes without such a bit are passed as bytes.
    let without = if wanted { 0x00 } else { 0xFF };
    let bytes = value.get((first / 8) as usize..(last.max(first) / 8) as usize).unwrap_or_default();
    let passed = bytes.iter().position(|&byte| byte != without).unwrap_or(bytes.len());
    (first + passed as u64 * 8..end).find(is_wanted)
}

/// How many bits of a range are set.
fn count(value: &[u8], range: BitRange) -> u64 {
    let BitRange { start, end } = range;
    if start >= end {
        return 0;
    }
    let (first, last) = ((start / 8) as usize, ((end - 1) / 8) as usize);
    let whole: u64 = value[first..=last].iter().map(|byte| u64::from(byte.count_ones())).sum();
    let before = (value[first] >> (7 - start % 8) >> 1).count_ones();
    let after = (u32::from(value[last]) & ((1 << (7 - (end - 1) % 8)) - 1)).count_ones();
    whole - u64::from(before) - u64::from(after)
}

pub(super) fn bitcount(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if args.len() == 3 || args.len() > 5 {
        return Err(ErrorReply::SYNTAX.into());
    }
    // The numbers are looked at first, also without a key.
    BitRange::of_args(args, 2, 0)?;
    let found = context.view(|view| view.text_of(&args[1]))?;
    let value = found.as_deref().unwrap_or_default();
    // Two numbers from the end in the wrong order are no range here, and one in BITPOS if both are before the beginning: as in Redis.
    let is_reversed = args.len() > 3
        && args[2][0] == b'-'
        && args[3][0] == b'-'
        && parse_i64(&args[2]) > parse_i64(&args[3]);
    let range = BitRange::of_args(args, 2, value.len())?;
    let set = if is_reversed { 0 } else { count(value, range) };
    context.reply().integer(set as i64);
    Ok(())
}

pub(super) fn bitpos(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let wanted = match parse_i64(&args[2]) {
        Some(0) => false,
        Some(1) => true,
        Some(_) => return Err(ErrorReply::new("ERR", "The bit argument must be 1 or 0.").into()),
        None => return Err(ErrorReply::NOT_AN_INTEGER.into()),
    };
    if args.len() > 6 {
        return Err(ErrorReply::SYNTAX.into());
    }
    BitRange::of_args(args, 3, 0)?;
    let found = context.view(|view| view.text_of(&args[1]))?;
    let Some(value) = found.as_deref() else {
        context.reply().integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let range = BitRange::of_args(args, 3, value.len())?;
    let position = find_bit(value, range, wanted);
    let has_end = args.len() > 4;
    context.reply().integer(match position {
        Some(position) => position as i64,
        // Behind a value that is all ones there are zeros without end, unless an end was given.
        None if !wanted && !has_end && range.start < range.end => range.end as i64,
        None => -1,
    });
    Ok(())
}

/// `BITOP AND | OR | XOR | NOT destination key [key ...]`
pub(super) fn bitop(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let combine: fn(u8, u8) -> u8 = match () {
        () if args.is(1, "and") => |a, b| a & b,
        () if args.is(1, "or") => |a, b| a | b,
        () if args.is(1, "xor") => |a, b| a ^ b,
        () if args.is(1, "not") => |a, _| !a,
        () => return Err(ErrorReply::SYNTAX.into()),
    };
    let is_not = args.is(1, "not");
    if is_not && args.len() != 4 {
        return Err(ErrorReply::new("ERR", "BITOP NOT must be called with a single source key.").into());
    }
    let len = context.write(|write| {
        let mut sources = Vec::with_capacity(args.len() - 3);
        for key in args.from(3) {
            sources.push(write.view().text_of(key)?);
        }
        let sources: Vec<&[u8]> =
            sources.iter().map(|source| source.as_deref().unwrap_or_default()).collect();
        let len = sources.iter().map(|source| source.len()).max().unwrap_or_default();
        let at = |source: &[u8], index: usize| source.get(index).copied().unwrap_or_default();
        let byte = |index: usize| {
            let (first, rest) = sources.split_first().expect("there is one source at least");
            let first = if is_not { combine(at(first, index), 0) } else { at(first, index) };
            let mut all = first;
            rest.iter().for_each(|source| all = combine(all, at(source, index)));
            all
        };
        let value: Vec<u8> = (0..len).map(byte).collect();
        write.replace_string(&args[2], &value)?;
        Ok(len)
    })?;
    context.reply().integer(len as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_single_bits() {
        let value: Vec<u8> = (0..40_u8).map(|n| n.wrapping_mul(73) ^ 0x5A).collect();
        for start in 0..320 {
            for end in [start, start + 1, start + 7, start + 8, start + 9, 320] {
                let range = BitRange { start, end: end.min(320) };
                let expected = (range.start..range.end).filter(|&offset| bit_at(&value, offset)).count();
                assert_eq!(count(&value, range), expected as u64, "{range:?}");
            }
        }
        assert_eq!(count(&[], BitRange { start: 0, end: 0 }), 0);
    }

    #[test]
    fn bits_are_found_where_single_ones_are() {
        for byte in [0x00_u8, 0xFF, 0x08, 0xF7] {
            let mut value = vec![if byte.count_ones() > 4 { 0xFF } else { 0x00 }; 9];
            for at in 0..9 {
                value[at] = byte;
                for (start, end) in [(0, 72), (3, 72), (8, 64), (9, 61), (70, 71), (5, 5)] {
                    for wanted in [false, true] {
                        let expected = (start..end).find(|&offset| bit_at(&value, offset) == wanted);
                        let found = find_bit(&value, BitRange { start, end }, wanted);
                        assert_eq!(found, expected, "{byte} {at} {start} {end}");
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_are_of_bytes_or_bits_and_from_either_end() {
        let range = |start, end| BitRange { start, end };
        assert_eq!(BitRange::parse(0, -1, false, 3), range(0, 24));
        assert_eq!(BitRange::parse(1, 1, false, 3), range(8, 16));
        assert_eq!(BitRange::parse(-2, -1, false, 3), range(8, 24));
        assert_eq!(BitRange::parse(5, 30, true, 3), range(5, 24));
        assert_eq!(BitRange::parse(-1, -1, true, 3), range(23, 24));
        for empty in [(3, 2), (-1, -2), (3, 9), (24, 24)] {
            assert_eq!(BitRange::parse(empty.0, empty.1, false, 3), range(0, 0), "{empty:?}");
        }
        assert_eq!(BitRange::parse(0, -1, false, 0), range(0, 0));
    }
}
