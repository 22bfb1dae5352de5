//! `HRANDFIELD`, `SRANDMEMBER`, `ZRANDMEMBER`: fields or members that are chosen at random.

use fulgurite::Value;

use crate::args::{Args, parse_within};
use crate::context::Context;
use crate::model::{Kind, row_name};
use crate::stop::{ErrorReply, Result};

/// So many may be chosen if one may come several times: a reply is bounded.
const AGAIN_MAX: u64 = 16 << 20;

/// What is to be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    One,
    /// So many different ones; below 0: so many, one of them perhaps several times.
    Many {
        count: i64,
        has_values: bool,
    },
}

impl Choice {
    /// From `key [count [WITHVALUES]]`; that word, if the command takes one.
    pub fn parse(args: &Args<'_>, with_values: Option<&str>) -> Result<Choice> {
        if args.len() == 2 {
            return Ok(Choice::One);
        }
        if args.len() > 3 && with_values.is_none() {
            return Err(ErrorReply::SYNTAX.into());
        }
        let count = parse_within(&args[2], -i64::MAX..=i64::MAX)?;
        let has_values = match (args.len(), with_values) {
            (3, _) => false,
            (4, Some(word)) if args.is(3, word) => true,
            _ => return Err(ErrorReply::SYNTAX.into()),
        };
        if has_values && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
            return Err(ErrorReply::new("ERR", "value is out of range").into());
        }
        Ok(Choice::Many { count, has_values })
    }

    /// The rows that are chosen; `None` if the key does not exist.
    pub fn choose(
        self,
        context: &mut Context<'_>,
        key: &[u8],
        kind: Kind,
    ) -> Result<Option<Vec<(Value, Value)>>> {
        let mut random = context.random();
        context.read_collection(key, kind, |view, collection| match self {
            Choice::One => view.random_members_again(collection, 1, &mut random),
            Choice::Many { count: count @ 0.., .. } => {
                view.random_members(collection, count as u64, &mut random)
            }
            Choice::Many { count, .. } if count.unsigned_abs() > AGAIN_MAX => {
                Err(ErrorReply::new("ERR", "value is out of range").into())
            }
            Choice::Many { count, .. } => {
                view.random_members_again(collection, count.unsigned_abs(), &mut random)
            }
        })
    }
}

/// The name of the one that was chosen.
pub(super) fn reply_one(context: &mut Context<'_>, rows: Option<&[(Value, Value)]>) -> Result<()> {
    match rows {
        Some([(row, _), ..]) => context.reply().bulk(row_name(row)),
        _ => context.reply().null(),
    }
    Ok(())
}
