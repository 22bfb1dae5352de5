//! `DELTA`: reads of the memtables alone, as the transaction node of NIOSIT (Xiao and others, 2017) makes them. The paper calls what they
//! hold the delta.

use fulgurite::InMemtables;

use super::{Subcommand, help as reply_help, run_subcommand};
use crate::args::Args;
use crate::context::Context;
use crate::model::{Old, head_key};
use crate::runner::Runner;
use crate::stop::{ErrorReply, Result, Stop};

/// The subcommands of `DELTA`.
pub(super) static SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "delta|get", arity: 3, handler: get },
    Subcommand { name: "delta|help", arity: 2, handler: help },
];

const IN_FRAGMENTS: ErrorReply =
    ErrorReply::new("ERR", "the string is longer than 64 KiB, and the memtables may not hold all of it");

pub(super) fn delta(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    run_subcommand(context, "delta", args)
}

/// Replies with nil if no memtable holds the key; else with an array of its value, which is nil if the key does not exist.
fn get(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let heads = &context.model().tables.heads;
    let (row, own) = (head_key(context.keyspace(), &args[2]), context.session.own);
    let read = match context.runner {
        Runner::LongWorker => heads.memtable_read_at(&row, own)?,
        _ => context.in_a_moment(|| heads.try_memtable_read_at(&row, own))?,
    };
    context.needs = context.needs.max(read.needs);
    let held = match read.found {
        InMemtables::RuledOut | InMemtables::Absent => None,
        InMemtables::Value(record) => Some(Some(Old::decode(record, context.runner)?)),
        _ => Some(None),
    };
    context.in_memtables = Some(held.is_some());
    let Some(old) = held else {
        context.reply().null();
        return Ok(());
    };
    let live = old.filter(|old| old.head.is_live(context.now_ms));
    let text = live.as_ref().map(|old| old.whole_text()?.ok_or(Stop::Reply(IN_FRAGMENTS))).transpose()?;
    context.reply().array(1);
    match text {
        Some(value) => context.reply().bulk(value),
        None => context.reply().null(),
    }
    Ok(())
}

fn help(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    reply_help(
        context,
        "DELTA",
        &["GET <key>", "    Returns what the memtables hold of a key: nil, or an array of its value."],
    )
}
