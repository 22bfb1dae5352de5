//! Whole databases: `FLUSHDB`, `FLUSHALL`, `SWAPDB`. None touches a key: databases get other keyspaces.

use crate::args::Args;
use crate::context::Context;
use crate::session::DATABASES;
use crate::stop::{ErrorReply, Result};

/// `ASYNC` and `SYNC` are the same: what was flushed is gone at once, and reclaimed in the background.
fn check_mode(args: &Args<'_>) -> Result<()> {
    let is_known = match args.len() {
        1 => true,
        2 => args.is(1, "async") || args.is(1, "sync"),
        _ => false,
    };
    if is_known { Ok(()) } else { Err(ErrorReply::SYNTAX.into()) }
}

pub(super) fn flushdb(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    check_mode(args)?;
    let database = context.session.database;
    context.change_keyspaces(|_| vec![(database, None)])?;
    context.ok()
}

pub(super) fn flushall(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    check_mode(args)?;
    context.change_keyspaces(|_| (0..DATABASES).map(|database| (database, None)).collect())?;
    context.ok()
}

pub(super) fn swapdb(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let number = |index: usize, message: &'static str| {
        let number = fulgurite_resp::parse_i64(&args[index]).and_then(|number| i32::try_from(number).ok());
        number.ok_or(ErrorReply::new("ERR", message))
    };
    let one = number(1, "invalid first DB index")?;
    let other = number(2, "invalid second DB index")?;
    let database = |number: i32| {
        let database = usize::try_from(number).ok().filter(|&database| database < DATABASES);
        database.ok_or(ErrorReply::new("ERR", "DB index is out of range"))
    };
    let (one, other) = (database(one)?, database(other)?);
    if one != other {
        context.change_keyspaces(|map| vec![(one, Some(map[other])), (other, Some(map[one]))])?;
    }
    context.ok()
}
