//! `COMMAND GETKEYS` and `COMMAND GETKEYSANDFLAGS`: the keys of a command, and what it does with each.

use fulgurite_resp::parse_i64;

use super::{Command, find, subcommands};
use crate::args::Args;
use crate::context::Context;
use crate::stop::{ErrorReply, Result};

/// What a command does with a key, by the names of Redis's key specifications.
type Flags = &'static [&'static str];

const READS: Flags = &["RO", "access"];
/// It looks at what it needs no value for: whether the key exists, its type, how many elements it has.
const LOOKS: Flags = &["RO"];
const CHANGES: Flags = &["RW", "access", "update"];
const UPDATES: Flags = &["RW", "update"];
const INSERTS: Flags = &["RW", "insert"];
const DELETES: Flags = &["RW", "delete"];
const TAKES: Flags = &["RW", "access", "delete"];
const OVERWRITES: Flags = &["OW", "update"];
const CREATES: Flags = &["OW", "insert"];
const REMOVES: Flags = &["RM", "delete"];

pub(super) fn getkeys(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let keys = keys_and_flags(&Args::of_slices(args.from(2)))?;
    let mut reply = context.reply();
    reply.array(keys.len());
    keys.iter().for_each(|(key, _)| reply.bulk(key));
    Ok(())
}

pub(super) fn getkeysandflags(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let keys = keys_and_flags(&Args::of_slices(args.from(2)))?;
    let mut reply = context.reply();
    reply.array(keys.len());
    for (key, flags) in keys {
        reply.array(2);
        reply.bulk(key);
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag.as_bytes()));
    }
    Ok(())
}

/// The keys of a command with its arguments.
fn keys_and_flags<'a>(args: &Args<'a>) -> Result<Vec<(&'a [u8], Flags)>> {
    let command = find(&args[0]).filter(|command| is_known(command, args));
    let command = command.ok_or(ErrorReply::new("ERR", "Invalid command specified"))?;
    if !command.has_keys() {
        return Err(ErrorReply::new("ERR", "The command has no key arguments").into());
    }
    if !command.takes(args.len()) {
        return Err(ErrorReply::new("ERR", "Invalid number of arguments specified for command").into());
    }
    if !has_as_many_keys_as_it_says(command, args) {
        return Err(ErrorReply::new("ERR", "Invalid arguments specified for command").into());
    }
    let keys = command.keys_of(args).enumerate();
    let mut keys: Vec<_> = keys.map(|(index, key)| (key, flags(command, args, index == 0))).collect();
    if command.name == "sort" {
        keys.extend(destination_of_sort(args).map(|key| (key, OVERWRITES)));
    }
    Ok(keys)
}

/// Whether a command has no subcommands, or the one that it is given.
fn is_known(command: &Command, args: &Args<'_>) -> bool {
    let named = |names: &[&str]| args.len() == 1 || names.iter().any(|name| args.is(1, name));
    match command.name {
        "command" => named(&["count", "docs", "getkeys", "getkeysandflags", "help", "info", "list"]),
        "object" => named(&["encoding", "freq", "help", "idletime", "refcount"]),
        "client" | "config" => {
            let all = subcommands(command.name).iter().filter_map(|all| all.name.split_once('|'));
            named(&all.map(|(_, name)| name).collect::<Vec<_>>())
        }
        _ => true,
    }
}

/// Whether the argument that says how many keys follow it says at least one, and no more than arguments follow.
fn has_as_many_keys_as_it_says(command: &Command, args: &Args<'_>) -> bool {
    let count_at = usize::from(command.keys.count_at.unsigned_abs());
    let count = args.get(count_at).and_then(parse_i64).and_then(|count| usize::try_from(count).ok());
    count_at == 0 || count.is_some_and(|count| (1..=args.from(count_at + 1).len()).contains(&count))
}

/// What a command does with its first key, or with another one.
fn flags(command: &Command, args: &Args<'_>, is_first: bool) -> Flags {
    match (command.name, is_first) {
        (
            "exists" | "hexists" | "hlen" | "hstrlen" | "llen" | "object" | "scard" | "sismember" | "strlen"
            | "touch" | "type" | "watch" | "zcard",
            _,
        ) => LOOKS,
        ("del" | "unlink", _) => REMOVES,
        (
            "expire" | "expireat" | "hmset" | "hset" | "lset" | "persist" | "pexpire" | "pexpireat"
            | "setrange" | "zadd",
            _,
        ) => UPDATES,
        ("append" | "hsetnx" | "linsert" | "lpush" | "lpushx" | "rpush" | "rpushx" | "sadd", _) => INSERTS,
        (
            "hdel" | "lrem" | "ltrim" | "srem" | "zrem" | "zremrangebylex" | "zremrangebyrank"
            | "zremrangebyscore",
            _,
        ) => DELETES,
        ("getdel" | "lmpop" | "lpop" | "rpop" | "spop" | "zmpop" | "zpopmax" | "zpopmin", _) => TAKES,
        ("lmove" | "rename" | "renamenx" | "rpoplpush" | "smove", true) => TAKES,
        ("lmove" | "rpoplpush" | "smove", false) => INSERTS,
        ("renamenx", false) => CREATES,
        ("copy", true) => READS,
        ("copy" | "rename", false) => OVERWRITES,
        ("sinterstore", true) => UPDATES,
        (
            "bitop" | "sdiffstore" | "sunionstore" | "zdiffstore" | "zinterstore" | "zrangestore"
            | "zunionstore",
            true,
        ) => OVERWRITES,
        (
            "bitop" | "sdiffstore" | "sinterstore" | "sunionstore" | "zdiffstore" | "zinterstore"
            | "zrangestore" | "zunionstore",
            false,
        ) => READS,
        ("mset" | "psetex" | "setex", _) => OVERWRITES,
        ("msetnx" | "setnx", _) => CREATES,
        ("set", _) if (3..args.len()).any(|index| args.is(index, "get")) => CHANGES,
        ("set", _) => OVERWRITES,
        ("sort", _) => READS,
        ("bitfield", _) if only_gets(args) => READS,
        _ if command.has_flag("write") => CHANGES,
        _ => READS,
    }
}

/// Whether a `BITFIELD` writes nothing.
fn only_gets(args: &Args<'_>) -> bool {
    let mut index = 2;
    while index < args.len() {
        let left = args.len() - index - 1;
        index += match () {
            () if args.is(index, "get") && left >= 2 => 3,
            () if args.is(index, "overflow") && left >= 1 => 2,
            () => return false,
        };
    }
    true
}

/// The key after the last `STORE` of a `SORT`.
fn destination_of_sort<'a>(args: &Args<'a>) -> Option<&'a [u8]> {
    let (mut index, mut found) = (2, None);
    while index < args.len() {
        index += match () {
            () if args.is(index, "limit") => 3,
            () if args.is(index, "get") || args.is(index, "by") => 2,
            () => {
                found = args.get(index + 1).filter(|_| args.is(index, "store")).or(found);
                1
            }
        };
    }
    found
}
