//! Commands: the table, and one file for each family.

mod bitfield;
mod bits;
mod client_kill;
mod client_list;
mod clients;
mod config;
mod connection;
mod databases;
mod delta;
mod directive;
mod directives;
mod hashes;
mod info;
mod key_flags;
mod keys;
mod lcs;
mod list_edits;
mod list_rows;
mod lists;
mod long_results;
mod persistence;
mod random_members;
mod scan;
mod server;
mod set_operations;
mod sets;
mod sort;
mod strings;
mod table;
mod table_hashes;
mod table_lists;
mod table_server;
mod table_sets;
mod table_zsets;
mod transactions;
mod zset_operations;
mod zset_ranges;
mod zsets;

use fulgurite_resp::parse_i64;

use crate::args::Args;
use crate::context::Context;
use crate::locks::Held;
use crate::session::Multi;
use crate::stop::{ErrorReply, Result, Stop};
use crate::tallies::Ran;

pub(crate) use config::Directives;
pub(crate) use long_results::LongResults;
pub(crate) use table::{commands, find};

/// Runs a command. Before its first reply or change of the session it may end with [`Stop::Blocked`], and runs again on a worker.
pub(crate) type Handler = fn(&mut Context<'_>, &Args<'_>) -> Result<()>;

/// Where the keys of a command are among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// The index of the first key; 0: it has none.
    pub first: i8,
    /// That of the last one; below 0 it counts from the end.
    pub last: i8,
    pub step: i8,
    /// The index of an argument that says how many keys follow it; 0: there is none.
    pub count_at: i8,
}

/// A command.
pub(crate) struct Command {
    /// Its name, in lower case.
    pub name: &'static str,
    /// How many arguments it takes, its name included; below 0: at least so many.
    pub arity: i8,
    pub flags: &'static [&'static str],
    pub keys: Keys,
    /// The categories of access control.
    pub categories: &'static [&'static str],
    /// The version of Redis that had it first.
    pub since: &'static str,
    pub group: &'static str,
    pub summary: &'static str,
    pub handler: Handler,
}

impl Command {
    pub fn takes(&self, arguments: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// The keys among the arguments of a command, which it [takes](Command::takes).
    pub fn keys_of<'s, 'a>(&self, args: &'s Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'s, 'a> {
        let Keys { first, last, step, count_at } = self.keys;
        let end = if last < 0 { args.len() as isize + last as isize } else { last as isize };
        let indices = (first.max(1) as isize..=end).step_by(step.max(1) as usize);
        let fixed = indices.take(if first == 0 { 0 } else { usize::MAX });
        let count_at = usize::from(count_at.unsigned_abs());
        let count = if count_at == 0 { None } else { args.get(count_at).and_then(parse_i64) };
        let counted = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let counted = args.from(count_at + 1).iter().take(counted).copied();
        fixed.filter_map(move |index| args.get(index as usize)).chain(counted)
    }

    /// The field or member among the arguments of a command that looks one up in the collection of its key; the last of several of
    /// `ZADD`, the first of several of others.
    pub fn member_of<'a>(&self, args: &Args<'a>) -> Option<&'a [u8]> {
        let looks_one_up = matches!(self.group, "hash" | "set" | "sorted-set") && self.has_flag("fast");
        let index = match self.name {
            "zadd" => args.len() - 1,
            "zincrby" => 3,
            _ => 2,
        };
        args.get(index).filter(|_| looks_one_up && index > 1)
    }

    /// Whether its arguments name keys.
    pub fn has_keys(&self) -> bool {
        self.keys.first > 0 || self.keys.count_at > 0
    }

    /// Whether it may run in one transaction with other commands: it writes keys that its arguments name, and does not
    /// wait for them.
    pub fn joins(&self) -> bool {
        self.has_keys() && self.has_flag("write") && !self.has_flag("blocking")
    }
}

/// The index of an argument with which a command does nothing but store it.
pub(crate) fn stored_argument(command: &Command) -> Option<usize> {
    match command.name {
        "set" | "setnx" | "getset" => Some(2),
        "setex" | "psetex" => Some(3),
        _ => None,
    }
}

/// Runs a command that was looked up by its first argument.
pub(crate) fn run(
    context: &mut Context<'_>,
    command: Option<&'static Command>,
    args: &Args<'_>,
) -> Result<()> {
    if let Some(command) = command {
        context.session.client.command.store(&command.name);
    }
    let checked = check(context, command, args);
    if checked.is_err()
        && let Some(multi) = &mut context.session.multi
    {
        multi.is_broken = true;
    }
    if let Some(command) = command.filter(|_| checked.is_ok())
        && context.shared.pause.holds(|| writes(context, command), || context.shared.monotonic_ms())
    {
        return Err(Stop::Paused);
    }
    if transactions::is_queued(context, command) {
        return transactions::queue(context, args, checked);
    }
    checked?;
    let command = command.expect("a command that does not exist was refused");
    run_checked(context, command, args)
}

/// Whether a command writes; that of a transaction whether one of its commands does.
fn writes(context: &Context<'_>, command: &Command) -> bool {
    let multi = context.session.multi.as_ref().filter(|_| command.name == "exec");
    command.has_flag("write") || multi.is_some_and(Multi::writes)
}

/// Whether a command exists, is well formed, and may be run.
fn check(context: &Context<'_>, command: Option<&Command>, args: &Args<'_>) -> Result<()> {
    let Some(command) = command else { return Err(unknown(args)) };
    if !command.takes(args.len()) {
        let message = format!("wrong number of arguments for '{}' command", command.name);
        return context.fail("ERR", message);
    }
    let session = &*context.session;
    if !session.is_authenticated && !command.has_flag("no_auth") && context.shared.settings.has_password() {
        return Err(ErrorReply::NO_AUTH.into());
    }
    if session.multi.is_some() {
        if command.has_flag("no_multi") {
            return Err(ErrorReply::new("ERR", "Command not allowed inside a transaction").into());
        }
        if !subcommands(command.name).is_empty() {
            find_subcommand(command.name, args)?;
        }
    }
    Ok(())
}

/// Runs a command that was checked before.
pub(crate) fn run_command(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let Some(command) = find(&args[0]) else { return Err(unknown(args)) };
    run_checked(context, command, args)
}

/// Runs a command, and notes how long that took if it ended.
fn run_checked(context: &mut Context<'_>, command: &Command, args: &Args<'_>) -> Result<()> {
    let began_ns = context.shared.monotonic_ns();
    let result = run_locked(context, command, args);
    let (subcommand, in_memtables) = (context.subcommand.take(), context.in_memtables.take());
    let error = match &result {
        Ok(()) => None,
        Err(Stop::Reply(error)) => Some(error.code),
        Err(_) => return result,
    };
    let processing_ns = context.shared.monotonic_ns() - began_ns;
    let name = subcommand.unwrap_or(command.name);
    context.ran.push(Ran { name, processing_ns, in_memtables, error });
    result
}

/// Runs a command with the locks of the keys that it writes.
fn run_locked(context: &mut Context<'_>, command: &Command, args: &Args<'_>) -> Result<()> {
    if let Some(key) = command.keys_of(args).find(|key| key.len() > KEY_BYTES_MAX) {
        let message = format!("the key has {} bytes, the longest allowed has {KEY_BYTES_MAX}", key.len());
        return context.fail("ERR", message);
    }
    let is_alone = !context.is_in_exec() && context.snapshot.is_none();
    // `EXEC` has the locks of all its commands.
    let mut locks = if command.has_flag("write") && is_alone {
        let keys = command.keys_of(args);
        let locks = context.shared.locks.lock(context.session.database, keys, context.runner)?;
        context.begin_with_locks();
        locks
    } else {
        Held::default()
    };
    // `CLIENT PAUSE` takes each lock once before it replies: what is here then does not write any more.
    if is_alone && context.shared.pause.holds(|| command.has_flag("write"), || context.shared.monotonic_ms())
    {
        return Err(Stop::Paused);
    }
    let result = (command.handler)(context, args);
    locks.note(context.session.own);
    result
}

/// A subcommand.
struct Subcommand {
    /// With the name of its command, in lower case: `client|list`.
    name: &'static str,
    /// As that of a command, with both names.
    arity: i8,
    handler: Handler,
}

/// The subcommands of a command.
fn subcommands(command: &str) -> &'static [Subcommand] {
    match command {
        "client" => clients::SUBCOMMANDS,
        "config" => config::SUBCOMMANDS,
        "delta" => delta::SUBCOMMANDS,
        _ => &[],
    }
}

/// The subcommand that the second argument names.
fn find_subcommand(command: &str, args: &Args<'_>) -> Result<&'static Subcommand> {
    let is_named =
        |subcommand: &&Subcommand| subcommand.name.split_once('|').is_some_and(|(_, name)| args.is(1, name));
    let Some(subcommand) = subcommands(command).iter().find(is_named) else {
        return Err(wrong_subcommand(command, args, &[]));
    };
    let count = usize::from(subcommand.arity.unsigned_abs());
    let is_taken = if subcommand.arity < 0 { args.len() >= count } else { args.len() == count };
    if !is_taken {
        let message = format!("wrong number of arguments for '{}' command", subcommand.name);
        return Err(Stop::Reply(ErrorReply { code: "ERR", message: message.into() }));
    }
    Ok(subcommand)
}

/// Runs the subcommand that the second argument names.
fn run_subcommand(context: &mut Context<'_>, command: &str, args: &Args<'_>) -> Result<()> {
    let subcommand = find_subcommand(command, args)?;
    context.session.client.command.store(&subcommand.name);
    context.subcommand = Some(subcommand.name);
    (subcommand.handler)(context, args)
}

/// Replies with lines of help, as `HELP` subcommands do.
fn help(context: &mut Context<'_>, command: &str, lines: &[&str]) -> Result<()> {
    let mut reply = context.reply();
    reply.array(lines.len() + 3);
    reply.simple(format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:").as_bytes());
    lines.iter().chain(&["HELP", "    Prints this help."]).for_each(|line| reply.simple(line.as_bytes()));
    Ok(())
}

/// The error for a subcommand that does not exist, or that has another number of arguments.
fn wrong_subcommand(command: &str, args: &Args<'_>, known: &[&str]) -> Stop {
    const SHOWN: usize = 128;
    let given = &args[1];
    let message = match known.iter().find(|known| given.eq_ignore_ascii_case(known.as_bytes())) {
        Some(known) => format!("wrong number of arguments for '{command}|{known}' command"),
        None => {
            let given = String::from_utf8_lossy(&given[..given.len().min(SHOWN)]);
            format!("unknown subcommand '{given}'. Try {} HELP.", command.to_uppercase())
        }
    };
    Stop::Reply(ErrorReply { code: "ERR", message: message.into() })
}

/// The longest key of a client: a key of the engine has 12 bytes more in the index of expiries.
const KEY_BYTES_MAX: usize = fulgurite::limits::KEY_BYTES_MAX - 12;

/// The error of Redis 7 for a command that does not exist.
fn unknown(args: &Args<'_>) -> Stop {
    const SHOWN: usize = 128;
    let text = |bytes: &[u8]| {
        let shown = &bytes[..bytes.len().min(SHOWN)];
        String::from_utf8_lossy(shown).replace(['\r', '\n'], " ")
    };
    let mut message = format!("unknown command '{}', with args beginning with: ", text(&args[0]));
    for argument in args.from(1) {
        if message.len() > SHOWN + 64 {
            break;
        }
        message.push_str(&format!("'{}' ", text(argument)));
    }
    Stop::Reply(ErrorReply { code: "ERR", message: message.into() })
}
