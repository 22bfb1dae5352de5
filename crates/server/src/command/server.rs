//! The server: its commands, its time.

use super::key_flags::{getkeys, getkeysandflags};
use super::{Command, Keys, commands, find};
use crate::args::Args;
use crate::context::Context;
use crate::stop::Result;

/// The version of Redis whose commands and replies these are.
pub(super) const REDIS_VERSION: &str = "7.2.0";

pub(super) fn time(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    let now_ms = context.now_ms;
    let seconds_and_us = [(now_ms / 1_000).to_string(), (now_ms % 1_000 * 1_000).to_string()];
    let mut reply = context.reply();
    reply.array(2);
    seconds_and_us.iter().for_each(|number| reply.bulk(number.as_bytes()));
    Ok(())
}

pub(super) fn command(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    match () {
        () if args.len() == 1 => {
            context.reply().array(commands().count());
            commands().for_each(|command| describe(context, command));
        }
        () if args.is(1, "count") && args.len() == 2 => context.reply().integer(commands().count() as i64),
        () if args.is(1, "list") && args.len() == 2 => {
            let mut reply = context.reply();
            reply.array(commands().count());
            commands().for_each(|command| reply.bulk(command.name.as_bytes()));
        }
        () if args.is(1, "info") => {
            let names = args.from(2);
            if names.is_empty() {
                context.reply().array(commands().count());
                commands().for_each(|command| describe(context, command));
                return Ok(());
            }
            context.reply().array(names.len());
            for name in names {
                match find(name) {
                    Some(command) => describe(context, command),
                    None => context.reply().null(),
                }
            }
        }
        () if args.is(1, "docs") => docs(context, args),
        () if args.is(1, "getkeys") && args.len() > 2 => return getkeys(context, args),
        () if args.is(1, "getkeysandflags") && args.len() > 2 => return getkeysandflags(context, args),
        () => {
            let known = ["count", "list", "getkeys", "getkeysandflags"];
            return Err(super::wrong_subcommand("command", args, &known));
        }
    }
    Ok(())
}

/// A command as `COMMAND` shows it.
fn describe(context: &mut Context<'_>, command: &Command) {
    let Keys { first, last, step, count_at } = command.keys;
    let movable = (count_at != 0).then_some("movablekeys");
    let flags = command.flags.iter().copied().chain(movable);
    let mut reply = context.reply();
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity.into());
    reply.set(flags.clone().count());
    flags.for_each(|flag| reply.simple(flag.as_bytes()));
    for number in [first, last, step] {
        reply.integer(number.into());
    }
    reply.set(command.categories.len());
    command.categories.iter().for_each(|category| reply.simple(format!("@{category}").as_bytes()));
    for _ in ["tips", "key specifications", "subcommands"] {
        reply.array(0);
    }
}

fn docs(context: &mut Context<'_>, args: &Args<'_>) {
    let named: Vec<_> = args.from(2).iter().filter_map(|name| find(name)).collect();
    let commands = if args.len() == 2 { commands().collect() } else { named };
    let mut reply = context.reply();
    reply.map(commands.len());
    for command in commands {
        reply.bulk(command.name.as_bytes());
        reply.map(3);
        for (key, value) in [("summary", command.summary), ("since", command.since), ("group", command.group)]
        {
            reply.bulk(key.as_bytes());
            reply.bulk(value.as_bytes());
        }
    }
}
