//! `LCS`: the longest common subsequence of two strings, by dynamic programming (Wagner and Fischer, 1974).
//!
//! The work is the product of both lengths, which is bounded as in Redis; above a little of it a worker runs the command. Redis keeps
//! all lengths of common subsequences, 4 bytes each. Here only one row of them is kept, and one bit for each pair of positions: which
//! way the trace goes there.

use fulgurite_resp::parse_i64;

use crate::args::Args;
use crate::context::Context;
use crate::pace;
use crate::stop::{ErrorReply, Result, Stop};

/// An I/O thread does not compare more pairs of bytes.
const INLINE_PAIRS_MAX: u64 = 16 << 10;

/// No command compares more pairs of bytes: those of Redis, whose table has at most `proto-max-bulk-len` bytes by default.
const PAIRS_MAX: u64 = (512 << 20) / 4;

const NOT_STRINGS: ErrorReply = ErrorReply::new("ERR", "The specified keys must contain string values");
const LEN_AND_IDX: ErrorReply =
    ErrorReply::new("ERR", "If you want both the length and indexes, please just use IDX.");
const TOO_LARGE: ErrorReply =
    ErrorReply::new("ERR", "Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");

#[derive(Debug, Default)]
struct LcsOptions {
    returns_len: bool,
    returns_matches: bool,
    with_match_len: bool,
    match_len_min: usize,
}

impl LcsOptions {
    fn parse(args: &Args<'_>) -> Result<LcsOptions> {
        let mut options = LcsOptions::default();
        let mut index = 3;
        while index < args.len() {
            match () {
                () if args.is(index, "idx") => options.returns_matches = true,
                () if args.is(index, "len") => options.returns_len = true,
                () if args.is(index, "withmatchlen") => options.with_match_len = true,
                () if args.is(index, "minmatchlen") && index + 1 < args.len() => {
                    index += 1;
                    let min = parse_i64(&args[index]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
                    options.match_len_min = usize::try_from(min).unwrap_or(0);
                }
                () => return Err(ErrorReply::SYNTAX.into()),
            }
            index += 1;
        }
        if options.returns_len && options.returns_matches { Err(LEN_AND_IDX.into()) } else { Ok(options) }
    }
}

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]`
pub(super) fn lcs(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.view(|view| {
        let text = |key: &[u8]| match view.text_of(key) {
            Err(Stop::Reply(ErrorReply { code: "WRONGTYPE", .. })) => Err(NOT_STRINGS.into()),
            found => found,
        };
        Ok([text(&args[1])?, text(&args[2])?])
    })?;
    let options = LcsOptions::parse(args)?;
    let [a, b] = found.each_ref().map(|text| text.as_deref().unwrap_or_default());
    let pairs = (a.len() as u64 + 1) * (b.len() as u64 + 1);
    if pairs > PAIRS_MAX.min(context.shared.settings.argument_bytes_max() as u64 / 4) {
        return Err(TOO_LARGE.into());
    }
    if !context.runner.may_take_long() && pairs > INLINE_PAIRS_MAX {
        return Err(Stop::Large);
    }
    if options.returns_len {
        let len = common_len(a, b, None);
        context.reply().integer(len as i64);
        return Ok(());
    }
    let common = Common::find(a, b);
    if !options.returns_matches {
        context.reply().bulk(&common.bytes);
        return Ok(());
    }
    let matches = common.matches.iter().filter(|found| found.len >= options.match_len_min);
    let mut reply = context.reply();
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(matches.clone().count());
    for &Match { a, b, len } in matches {
        reply.array(2 + usize::from(options.with_match_len));
        for start in [a, b] {
            reply.array(2);
            reply.integer(start as i64);
            reply.integer((start + len - 1) as i64);
        }
        if options.with_match_len {
            reply.integer(len as i64);
        }
    }
    reply.bulk(b"len");
    reply.integer(common.bytes.len() as i64);
    Ok(())
}

/// For each pair of positions whose bytes differ: whether the trace drops the byte of `a` there, or that of `b`.
struct Drops {
    bits: Vec<u64>,
    b_len: usize,
}

impl Drops {
    fn new(a: &[u8], b: &[u8]) -> Drops {
        Drops { bits: vec![0; (a.len() * b.len()).div_ceil(64)], b_len: b.len() }
    }

    fn set_a(&mut self, i: usize, j: usize) {
        let bit = i * self.b_len + j;
        self.bits[bit / 64] |= 1 << (bit % 64);
    }

    fn is_a(&self, i: usize, j: usize) -> bool {
        let bit = i * self.b_len + j;
        self.bits[bit / 64] >> (bit % 64) & 1 == 1
    }
}

/// The length of the longest common subsequence. The row that it keeps is as long as the shorter string.
fn common_len(a: &[u8], b: &[u8], mut drops: Option<&mut Drops>) -> usize {
    let a_is_shorter = a.len() < b.len();
    let (long, short) = if a_is_shorter { (b, a) } else { (a, b) };
    // `row[s]` is the length for so much of the long string as was looked at, and the first `s` bytes of the short one.
    let mut row = vec![0_u32; short.len() + 1];
    for (l, long_byte) in long.iter().enumerate() {
        pace::step();
        let mut diagonal = 0;
        for (s, short_byte) in short.iter().enumerate() {
            let (without_long, without_short) = (row[s + 1], row[s]);
            if long_byte == short_byte {
                row[s + 1] = diagonal + 1;
            } else {
                row[s + 1] = without_long.max(without_short);
                if let Some(drops) = &mut drops {
                    if a_is_shorter && without_short > without_long {
                        drops.set_a(s, l);
                    } else if !a_is_shorter && without_long > without_short {
                        drops.set_a(l, s);
                    }
                }
            }
            diagonal = without_long;
        }
    }
    row[short.len()] as usize
}

/// Bytes that both strings have in a row: where they begin, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

/// The longest common subsequence that Redis finds of those that are equally long.
#[derive(Debug, PartialEq, Eq)]
struct Common {
    bytes: Vec<u8>,
    /// From the last to the first.
    matches: Vec<Match>,
}

impl Common {
    fn find(a: &[u8], b: &[u8]) -> Common {
        let mut drops = Drops::new(a, b);
        let len = common_len(a, b, Some(&mut drops));
        let mut common = Common { bytes: Vec::with_capacity(len), matches: Vec::new() };
        let (mut i, mut j) = (a.len(), b.len());
        let mut extends = false;
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                common.bytes.push(a[i]);
                match common.matches.last_mut().filter(|_| extends) {
                    Some(last) => *last = Match { a: i, b: j, len: last.len + 1 },
                    None => common.matches.push(Match { a: i, b: j, len: 1 }),
                }
                extends = true;
                continue;
            }
            extends = false;
            if drops.is_a(i - 1, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        common.bytes.reverse();
        common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Redis's documentation.
    #[test]
    fn the_documented_example() {
        let common = Common::find(b"ohmytext", b"mynewtext");
        assert_eq!(common.bytes, b"mytext");
        assert_eq!(common.matches, [Match { a: 4, b: 5, len: 4 }, Match { a: 2, b: 0, len: 2 }]);
        assert_eq!(common_len(b"ohmytext", b"mynewtext", None), 6);
    }

    /// Of all short strings over two letters: the result is a subsequence of both, and none is longer.
    #[test]
    fn results_are_the_longest_of_all() {
        let strings: Vec<Vec<u8>> = (0..7_u32)
            .flat_map(|len| {
                (0..1 << len).map(move |n| (0..len).map(|bit| b'a' + (n >> bit & 1) as u8).collect())
            })
            .collect();
        let is_in = |short: &[u8], whole: &[u8]| {
            let mut rest = whole.iter();
            short.iter().all(|byte| rest.any(|other| other == byte))
        };
        for a in strings.iter().step_by(3) {
            for b in &strings {
                let common = Common::find(a, b).bytes;
                assert!(is_in(&common, a) && is_in(&common, b), "{a:?} {b:?}");
                let longest = strings.iter().filter(|other| is_in(other, a) && is_in(other, b));
                assert_eq!(longest.map(Vec::len).max(), Some(common.len()), "{a:?} {b:?}");
                assert_eq!(common_len(a, b, None), common.len());
            }
        }
    }
}
