//! `BITFIELD`: integers of any width at any bit of a string.

use std::ops::Range;

use fulgurite_resp::parse_i64;

use crate::args::Args;
use crate::context::Context;
use crate::model::{Old, View};
use crate::stop::{ErrorReply, Result};

const BAD_TYPE: ErrorReply = ErrorReply::new(
    "ERR",
    "Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
);
const BAD_OFFSET: ErrorReply = ErrorReply::new("ERR", "bit offset is not an integer or out of range");
const BAD_OVERFLOW: ErrorReply = ErrorReply::new("ERR", "Invalid OVERFLOW type specified");
const READ_ONLY: ErrorReply = ErrorReply::new("ERR", "BITFIELD_RO only supports the GET subcommand");

/// What is done with a number that its field does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// Its lowest bits are written.
    Wrap,
    /// The nearest number is written that the field holds.
    Saturate,
    /// Nothing is written.
    Fail,
}

/// Where an integer is in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    is_signed: bool,
    /// 1 to 64, and to 63 without a sign.
    bits: u32,
    /// Its highest bit; bit 0 is the highest one of the first byte.
    offset: u64,
}

impl Field {
    /// From two arguments: `u8` or `i64`, and an offset in bits, or after a `#` in fields of this width.
    fn parse(kind: &[u8], offset: &[u8], bytes_max: u64) -> Result<Field> {
        let is_signed = kind.first() == Some(&b'i');
        let digits = kind.strip_prefix(if is_signed { b"i" } else { b"u" }).ok_or(BAD_TYPE)?;
        let bits = parse_i64(digits).and_then(|bits| u32::try_from(bits).ok());
        let bits = bits.filter(|bits| (1..=63 + u32::from(is_signed)).contains(bits)).ok_or(BAD_TYPE)?;
        let (unit, number) = match offset.strip_prefix(b"#") {
            Some(number) => (u64::from(bits), number),
            None => (1, offset),
        };
        let number = parse_i64(number).and_then(|number| u64::try_from(number).ok());
        let offset = number.and_then(|number| number.checked_mul(unit));
        let offset = offset.filter(|offset| offset / 8 < bytes_max).ok_or(BAD_OFFSET)?;
        Ok(Field { is_signed, bits, offset })
    }

    /// The bytes of a string in which it is.
    fn bytes(self) -> Range<usize> {
        let end = (self.offset + u64::from(self.bits)).div_ceil(8);
        (self.offset / 8) as usize..end as usize
    }

    /// The least and the greatest number that it holds.
    fn range(self) -> (i128, i128) {
        if self.is_signed {
            let half = 1 << (self.bits - 1);
            (-half, half - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// The number there; bits after the end of the string are 0.
    fn get(self, value: &[u8]) -> i128 {
        let mut bits = 0;
        for offset in self.offset..self.offset + u64::from(self.bits) {
            let byte = value.get((offset / 8) as usize).copied().unwrap_or(0);
            bits = bits << 1 | u64::from(byte >> (7 - offset % 8) & 1);
        }
        self.of_bits(bits)
    }

    /// The number whose lowest bits these are.
    fn of_bits(self, bits: u64) -> i128 {
        let unused = 64 - self.bits;
        if self.is_signed {
            i128::from((bits << unused) as i64 >> unused)
        } else {
            i128::from(bits << unused >> unused)
        }
    }

    /// Writes a number that it holds into a string that has the field.
    fn set(self, value: &mut [u8], number: i128) {
        for (index, offset) in (self.offset..self.offset + u64::from(self.bits)).enumerate() {
            let bit = (number >> (self.bits as usize - 1 - index) & 1) as u8;
            let byte = &mut value[(offset / 8) as usize];
            let shift = 7 - offset % 8;
            *byte = *byte & !(1 << shift) | bit << shift;
        }
    }

    /// The number to write for one that the field may not hold; `None` if nothing is to be written.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i128> {
        let (min, max) = self.range();
        if (min..=max).contains(&number) {
            return Some(number);
        }
        match overflow {
            Overflow::Wrap => Some(self.of_bits(number as u64)),
            Overflow::Saturate => Some(number.clamp(min, max)),
            Overflow::Fail => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    IncrementBy(i64),
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    field: Field,
    action: Action,
    overflow: Overflow,
}

impl Operation {
    /// Runs it on the bytes of a string in which its field is. Returns these, and what it replies.
    fn run_on(self, view: &View<'_>, old: Option<&Old>) -> Result<(Vec<u8>, Option<i64>)> {
        let range = self.field.bytes();
        let mut bytes = old.map_or(Ok(Vec::new()), |old| view.text_range(old, range.clone()))?;
        bytes.resize(range.len(), 0);
        let field = Field { offset: self.field.offset % 8, ..self.field };
        let result = Operation { field, ..self }.run(&mut bytes);
        Ok((bytes, result))
    }

    /// Runs it on a string, which has the field if it writes. Returns what it replies.
    fn run(self, value: &mut [u8]) -> Option<i64> {
        let Operation { field, action, overflow } = self;
        let before = field.get(value);
        let (wanted, replies_before) = match action {
            Action::Get => return Some(before as i64),
            // A number below 0 is a large one for a field without a sign.
            Action::Set(number) if !field.is_signed => (i128::from(number as u64), true),
            // Redis's distance from here to the greatest number overflows, and it takes the number for one that is too large.
            Action::Set(number)
                if overflow == Overflow::Saturate
                    && field.range().1 - i128::from(number) > i64::MAX.into()
                    && field.bits < 64 =>
            {
                (field.range().1, true)
            }
            Action::Set(number) => (i128::from(number), true),
            Action::IncrementBy(by) => (before + i128::from(by), false),
        };
        let after = field.fit(wanted, overflow)?;
        field.set(value, after);
        Some(if replies_before { before } else { after } as i64)
    }
}

fn parse(args: &Args<'_>, bytes_max: u64) -> Result<Vec<Operation>> {
    let mut operations = Vec::new();
    let (mut overflow, mut index) = (Overflow::Wrap, 2);
    while index < args.len() {
        let left = args.len() - index - 1;
        if args.is(index, "overflow") && left >= 1 {
            overflow = match () {
                () if args.is(index + 1, "wrap") => Overflow::Wrap,
                () if args.is(index + 1, "sat") => Overflow::Saturate,
                () if args.is(index + 1, "fail") => Overflow::Fail,
                () => return Err(BAD_OVERFLOW.into()),
            };
            index += 2;
            continue;
        }
        let action: fn(i64) -> Action = match () {
            () if args.is(index, "get") && left >= 2 => |_| Action::Get,
            () if args.is(index, "set") && left >= 3 => Action::Set,
            () if args.is(index, "incrby") && left >= 3 => Action::IncrementBy,
            () => return Err(ErrorReply::SYNTAX.into()),
        };
        let field = Field::parse(&args[index + 1], &args[index + 2], bytes_max)?;
        let number = if action(0) == Action::Get {
            0
        } else {
            parse_i64(&args[index + 3]).ok_or(ErrorReply::NOT_AN_INTEGER)?
        };
        let action = action(number);
        operations.push(Operation { field, action, overflow });
        index += if action == Action::Get { 3 } else { 4 };
    }
    Ok(operations)
}

/// `BITFIELD key [GET type offset] [SET type offset value] [INCRBY type offset increment] [OVERFLOW WRAP | SAT | FAIL] ...`
pub(super) fn bitfield(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let operations = parse(args, context.shared.settings.argument_bytes_max() as u64)?;
    if operations.iter().all(|operation| operation.action == Action::Get) {
        let results = context.view(|view| {
            let old = view.live(&args[1])?;
            let get = |operation: &Operation| operation.run_on(view, old.as_ref()).map(|(_, result)| result);
            operations.iter().map(get).collect::<Result<Vec<_>>>()
        })?;
        reply(context, &results);
        return Ok(());
    }
    if args.is(0, "bitfield_ro") {
        return Err(READ_ONLY.into());
    }
    let results = context.write(|write| {
        let mut run = |operation: &Operation| {
            let old = write.stored(&args[1])?;
            let live = old.as_ref().filter(|old| old.head.is_live(write.now_ms));
            let (bytes, result) = operation.run_on(&write.view(), live)?;
            if operation.action != Action::Get {
                // Also if it does not fit and stays: the string is as long as the field needs then, as in Redis.
                write.write_text(&args[1], old.as_ref(), operation.field.bytes().start, &bytes)?;
            }
            Ok(result)
        };
        operations.iter().map(&mut run).collect::<Result<Vec<_>>>()
    })?;
    reply(context, &results);
    Ok(())
}

fn reply(context: &mut Context<'_>, results: &[Option<i64>]) {
    let mut reply = context.reply();
    reply.array(results.len());
    for result in results {
        match result {
            Some(number) => reply.integer(*number),
            None => reply.null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(kind: &str, offset: &str) -> Option<Field> {
        Field::parse(kind.as_bytes(), offset.as_bytes(), 512 << 20).ok()
    }

    #[test]
    fn fields_are_those_of_redis() {
        assert_eq!(field("i64", "7"), Some(Field { is_signed: true, bits: 64, offset: 7 }));
        assert_eq!(field("u5", "#3"), Some(Field { is_signed: false, bits: 5, offset: 15 }));
        for (kind, offset) in [
            ("u64", "0"),
            ("i65", "0"),
            ("i0", "0"),
            ("i08", "0"),
            ("I8", "0"),
            ("", "0"),
            ("u8", "-1"),
            ("u8", "#"),
            ("u8", "4294967296"),
            ("u8", "#9223372036854775807"),
        ] {
            assert_eq!(field(kind, offset), None, "{kind} {offset}");
        }
    }

    #[test]
    fn what_is_set_is_got_and_other_bits_stay() {
        for bits in 1..=64 {
            for offset in 0..20 {
                for is_signed in [false, true] {
                    let field = Field { is_signed, bits, offset };
                    if bits == 64 && !is_signed {
                        continue;
                    }
                    let (min, max) = field.range();
                    for number in [min, max, 0, max / 2, max / 3, min / 3] {
                        let mut value = [0xA5_u8; 12];
                        field.set(&mut value, number);
                        assert_eq!(field.get(&value), number, "{field:?}");
                        let before = Field { is_signed: false, bits: offset as u32, offset: 0 };
                        let last = offset + u64::from(bits);
                        let after =
                            Field { is_signed: false, bits: (96 - last).min(60) as u32, offset: last };
                        for other in [before, after].into_iter().filter(|field| field.bits > 0) {
                            assert_eq!(other.get(&value), other.get(&[0xA5; 12]), "{field:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_saturate_or_fail() {
        let [signed, unsigned] = [field("i8", "0").unwrap(), field("u8", "0").unwrap()];
        for (field, number, wrapped, nearest) in [
            (signed, 128, -128, 127),
            (signed, -129, 127, -128),
            (unsigned, 256, 0, 255),
            (unsigned, -1, 255, 0),
        ] {
            assert_eq!(field.fit(number, Overflow::Wrap), Some(wrapped));
            assert_eq!(field.fit(number, Overflow::Saturate), Some(nearest));
            assert_eq!(field.fit(number, Overflow::Fail), None);
        }
    }
}
