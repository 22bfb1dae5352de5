//! The tables of commands, each sorted by name. Arity, flags, keys and categories are those of Redis 7.2.

use super::table_hashes::HASH_COMMANDS;
use super::table_lists::LIST_COMMANDS;
use super::table_server::SERVER_COMMANDS;
use super::table_sets::SET_COMMANDS;
use super::table_zsets::ZSET_COMMANDS;
use super::{Command, Handler, Keys, bitfield, bits, connection, keys, lcs, scan, strings, transactions};

/// All tables.
static TABLES: [&[Command]; 6] =
    [COMMANDS, HASH_COMMANDS, LIST_COMMANDS, SET_COMMANDS, ZSET_COMMANDS, SERVER_COMMANDS];

/// All commands.
pub(crate) fn commands() -> impl Iterator<Item = &'static Command> + Clone {
    TABLES.into_iter().flatten()
}

/// The commands that read and write keys, and those of connections and transactions.
static COMMANDS: &[Command] = &[
    row(
        "append",
        3,
        &["write", "denyoom", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("2.0.0", "string"),
        "Appends a string to the value of a key",
        strings::append,
    ),
    row(
        "auth",
        -2,
        &["noscript", "loading", "stale", "fast", "no_auth"],
        (0, 0, 0),
        &["fast", "connection"],
        ("1.0.0", "connection"),
        "Authenticates the connection",
        connection::auth,
    ),
    row(
        "bitcount",
        -2,
        &["readonly"],
        (1, 1, 1),
        &["read", "bitmap", "slow"],
        ("2.6.0", "bitmap"),
        "Counts the bits of a string that are set",
        bits::bitcount,
    ),
    row(
        "bitfield",
        -2,
        &["write", "denyoom"],
        (1, 1, 1),
        &["write", "bitmap", "slow"],
        ("3.2.0", "bitmap"),
        "Reads and writes integers at bits of a string",
        bitfield::bitfield,
    ),
    row(
        "bitfield_ro",
        -2,
        &["readonly", "fast"],
        (1, 1, 1),
        &["read", "bitmap", "fast"],
        ("6.0.0", "bitmap"),
        "Reads integers at bits of a string",
        bitfield::bitfield,
    ),
    row(
        "bitop",
        -4,
        &["write", "denyoom"],
        (2, -1, 1),
        &["write", "bitmap", "slow"],
        ("2.6.0", "bitmap"),
        "Combines strings bit by bit, and stores the result",
        bits::bitop,
    ),
    row(
        "bitpos",
        -3,
        &["readonly"],
        (1, 1, 1),
        &["read", "bitmap", "slow"],
        ("2.8.7", "bitmap"),
        "Finds the first bit of a string that is set, or is not",
        bits::bitpos,
    ),
    row(
        "copy",
        -3,
        &["write", "denyoom"],
        (1, 2, 1),
        &["keyspace", "write", "slow"],
        ("6.2.0", "generic"),
        "Copies a key",
        keys::copy,
    ),
    row(
        "dbsize",
        1,
        &["readonly", "fast"],
        (0, 0, 0),
        &["keyspace", "read", "fast"],
        ("1.0.0", "server"),
        "Returns the number of keys in the database",
        keys::dbsize,
    ),
    row(
        "decr",
        2,
        &["write", "denyoom", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("1.0.0", "string"),
        "Decrements the integer value of a key by one",
        strings::decr,
    ),
    row(
        "decrby",
        3,
        &["write", "denyoom", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("1.0.0", "string"),
        "Decrements the integer value of a key by a number",
        strings::decrby,
    ),
    row(
        "del",
        -2,
        &["write"],
        (1, -1, 1),
        &["keyspace", "write", "slow"],
        ("1.0.0", "generic"),
        "Deletes keys",
        keys::del,
    ),
    row(
        "discard",
        1,
        &["noscript", "loading", "stale", "fast"],
        (0, 0, 0),
        &["fast", "transaction"],
        ("2.0.0", "transactions"),
        "Discards the queued commands",
        transactions::discard,
    ),
    row(
        "durability",
        -1,
        &["loading", "stale", "fast"],
        (0, 0, 0),
        &["fast", "connection"],
        ("7.2.0", "connection"),
        "Sets or returns the durability level of the connection's commits",
        connection::durability,
    ),
    row(
        "echo",
        2,
        &["loading", "stale", "fast"],
        (0, 0, 0),
        &["fast", "connection"],
        ("1.0.0", "connection"),
        "Returns its argument",
        connection::echo,
    ),
    row(
        "exec",
        1,
        &["noscript", "loading", "stale"],
        (0, 0, 0),
        &["slow", "transaction"],
        ("1.2.0", "transactions"),
        "Runs the queued commands as one transaction",
        transactions::exec,
    ),
    row(
        "exists",
        -2,
        &["readonly", "fast"],
        (1, -1, 1),
        &["keyspace", "read", "fast"],
        ("1.0.0", "generic"),
        "Counts the keys that exist",
        keys::exists,
    ),
    row(
        "expire",
        -3,
        &["write", "fast"],
        (1, 1, 1),
        &["keyspace", "write", "fast"],
        ("1.0.0", "generic"),
        "Sets the expiry of a key in seconds from now",
        keys::expire,
    ),
    row(
        "expireat",
        -3,
        &["write", "fast"],
        (1, 1, 1),
        &["keyspace", "write", "fast"],
        ("1.2.0", "generic"),
        "Sets the expiry of a key to a time in seconds",
        keys::expireat,
    ),
    row(
        "expiretime",
        2,
        &["readonly", "fast"],
        (1, 1, 1),
        &["keyspace", "read", "fast"],
        ("7.0.0", "generic"),
        "Returns the expiry of a key in seconds",
        keys::expiretime,
    ),
    row(
        "get",
        2,
        &["readonly", "fast"],
        (1, 1, 1),
        &["read", "string", "fast"],
        ("1.0.0", "string"),
        "Returns the string value of a key",
        strings::get,
    ),
    row(
        "getbit",
        3,
        &["readonly", "fast"],
        (1, 1, 1),
        &["read", "bitmap", "fast"],
        ("2.2.0", "bitmap"),
        "Returns a bit of a string",
        bits::getbit,
    ),
    row(
        "getdel",
        2,
        &["write", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("6.2.0", "string"),
        "Returns the string value of a key, and deletes it",
        strings::getdel,
    ),
    row(
        "getex",
        -2,
        &["write", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("6.2.0", "string"),
        "Returns the string value of a key, and sets its expiry",
        strings::getex,
    ),
    row(
        "getrange",
        4,
        &["readonly"],
        (1, 1, 1),
        &["read", "string", "slow"],
        ("2.4.0", "string"),
        "Returns a part of the string value of a key",
        strings::getrange,
    ),
    row(
        "getset",
        3,
        &["write", "denyoom", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("1.0.0", "string"),
        "Returns the string value of a key, and sets another",
        strings::getset,
    ),
    row(
        "hello",
        -1,
        &["noscript", "loading", "stale", "fast", "no_auth"],
        (0, 0, 0),
        &["fast", "connection"],
        ("6.0.0", "connection"),
        "Negotiates the protocol",
        connection::hello,
    ),
    row(
        "incr",
        2,
        &["write", "denyoom", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("1.0.0", "string"),
        "Increments the integer value of a key by one",
        strings::incr,
    ),
    row(
        "incrby",
        3,
        &["write", "denyoom", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("1.0.0", "string"),
        "Increments the integer value of a key by a number",
        strings::incrby,
    ),
    row(
        "incrbyfloat",
        3,
        &["write", "denyoom", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("2.6.0", "string"),
        "Increments the floating point value of a key by a number",
        strings::incrbyfloat,
    ),
    row(
        "keys",
        2,
        &["readonly"],
        (0, 0, 0),
        &["keyspace", "read", "slow", "dangerous"],
        ("1.0.0", "generic"),
        "Returns all keys that match a pattern",
        scan::keys,
    ),
    row(
        "lcs",
        -3,
        &["readonly"],
        (1, 2, 1),
        &["read", "string", "slow"],
        ("7.0.0", "string"),
        "Finds the longest common subsequence of two strings",
        lcs::lcs,
    ),
    row(
        "mget",
        -2,
        &["readonly", "fast"],
        (1, -1, 1),
        &["read", "string", "fast"],
        ("1.0.0", "string"),
        "Returns the string values of several keys",
        strings::mget,
    ),
    row(
        "move",
        3,
        &["write", "fast"],
        (1, 1, 1),
        &["keyspace", "write", "fast"],
        ("1.0.0", "generic"),
        "Moves a key to another database",
        keys::move_to,
    ),
    row(
        "mset",
        -3,
        &["write", "denyoom"],
        (1, -1, 2),
        &["write", "string", "slow"],
        ("1.0.1", "string"),
        "Sets the string values of several keys",
        strings::mset,
    ),
    row(
        "msetnx",
        -3,
        &["write", "denyoom"],
        (1, -1, 2),
        &["write", "string", "slow"],
        ("1.0.1", "string"),
        "Sets the string values of several keys if none of them exists",
        strings::msetnx,
    ),
    row(
        "multi",
        1,
        &["noscript", "loading", "stale", "fast"],
        (0, 0, 0),
        &["fast", "transaction"],
        ("1.2.0", "transactions"),
        "Begins to queue a transaction",
        transactions::multi,
    ),
    row(
        "object",
        -2,
        &["readonly"],
        (2, 2, 1),
        &["keyspace", "read", "slow"],
        ("2.2.3", "generic"),
        "Tells of how a value is kept",
        keys::object,
    ),
    row(
        "persist",
        2,
        &["write", "fast"],
        (1, 1, 1),
        &["keyspace", "write", "fast"],
        ("2.2.0", "generic"),
        "Removes the expiry of a key",
        keys::persist,
    ),
    row(
        "pexpire",
        -3,
        &["write", "fast"],
        (1, 1, 1),
        &["keyspace", "write", "fast"],
        ("2.6.0", "generic"),
        "Sets the expiry of a key in milliseconds from now",
        keys::pexpire,
    ),
    row(
        "pexpireat",
        -3,
        &["write", "fast"],
        (1, 1, 1),
        &["keyspace", "write", "fast"],
        ("2.6.0", "generic"),
        "Sets the expiry of a key to a time in milliseconds",
        keys::pexpireat,
    ),
    row(
        "pexpiretime",
        2,
        &["readonly", "fast"],
        (1, 1, 1),
        &["keyspace", "read", "fast"],
        ("7.0.0", "generic"),
        "Returns the expiry of a key in milliseconds",
        keys::pexpiretime,
    ),
    row(
        "ping",
        -1,
        &["fast"],
        (0, 0, 0),
        &["fast", "connection"],
        ("1.0.0", "connection"),
        "Replies with PONG, or with its argument",
        connection::ping,
    ),
    row(
        "psetex",
        4,
        &["write", "denyoom"],
        (1, 1, 1),
        &["write", "string", "slow"],
        ("2.6.0", "string"),
        "Sets the string value and the expiry in milliseconds of a key",
        strings::psetex,
    ),
    row(
        "pttl",
        2,
        &["readonly", "fast"],
        (1, 1, 1),
        &["keyspace", "read", "fast"],
        ("2.6.0", "generic"),
        "Returns the time to live of a key in milliseconds",
        keys::pttl,
    ),
    row(
        "quit",
        -1,
        &["noscript", "loading", "stale", "fast", "no_auth"],
        (0, 0, 0),
        &["fast", "connection"],
        ("1.0.0", "connection"),
        "Closes the connection",
        connection::quit,
    ),
    row(
        "randomkey",
        1,
        &["readonly"],
        (0, 0, 0),
        &["keyspace", "read", "slow"],
        ("1.0.0", "generic"),
        "Returns a random key",
        scan::randomkey,
    ),
    row(
        "rename",
        3,
        &["write"],
        (1, 2, 1),
        &["keyspace", "write", "slow"],
        ("1.0.0", "generic"),
        "Gives a key another name",
        keys::rename,
    ),
    row(
        "renamenx",
        3,
        &["write", "fast"],
        (1, 2, 1),
        &["keyspace", "write", "fast"],
        ("1.0.0", "generic"),
        "Gives a key another name if no key has it",
        keys::renamenx,
    ),
    row(
        "reset",
        1,
        &["noscript", "loading", "stale", "fast", "no_auth"],
        (0, 0, 0),
        &["fast", "connection"],
        ("6.2.0", "connection"),
        "Puts the connection's state back",
        connection::reset,
    ),
    row(
        "scan",
        -2,
        &["readonly"],
        (0, 0, 0),
        &["keyspace", "read", "slow"],
        ("2.8.0", "generic"),
        "Goes through the keys of the database in steps",
        scan::scan,
    ),
    row(
        "select",
        2,
        &["loading", "stale", "fast"],
        (0, 0, 0),
        &["fast", "connection"],
        ("1.0.0", "connection"),
        "Selects a database",
        keys::select,
    ),
    row(
        "set",
        -3,
        &["write", "denyoom"],
        (1, 1, 1),
        &["write", "string", "slow"],
        ("1.0.0", "string"),
        "Sets the string value of a key",
        strings::set,
    ),
    row(
        "setbit",
        4,
        &["write", "denyoom"],
        (1, 1, 1),
        &["write", "bitmap", "slow"],
        ("2.2.0", "bitmap"),
        "Sets a bit of a string",
        bits::setbit,
    ),
    row(
        "setex",
        4,
        &["write", "denyoom"],
        (1, 1, 1),
        &["write", "string", "slow"],
        ("2.0.0", "string"),
        "Sets the string value and the expiry in seconds of a key",
        strings::setex,
    ),
    row(
        "setnx",
        3,
        &["write", "denyoom", "fast"],
        (1, 1, 1),
        &["write", "string", "fast"],
        ("1.0.0", "string"),
        "Sets the string value of a key if it does not exist",
        strings::setnx,
    ),
    row(
        "setrange",
        4,
        &["write", "denyoom"],
        (1, 1, 1),
        &["write", "string", "slow"],
        ("2.2.0", "string"),
        "Overwrites a part of the string value of a key",
        strings::setrange,
    ),
    row(
        "strlen",
        2,
        &["readonly", "fast"],
        (1, 1, 1),
        &["read", "string", "fast"],
        ("2.2.0", "string"),
        "Returns the length of the string value of a key",
        strings::strlen,
    ),
    row(
        "substr",
        4,
        &["readonly"],
        (1, 1, 1),
        &["read", "string", "slow"],
        ("1.0.0", "string"),
        "Returns a part of the string value of a key",
        strings::getrange,
    ),
    row(
        "touch",
        -2,
        &["readonly", "fast"],
        (1, -1, 1),
        &["keyspace", "read", "fast"],
        ("3.2.1", "generic"),
        "Counts the keys that exist",
        keys::exists,
    ),
    row(
        "ttl",
        2,
        &["readonly", "fast"],
        (1, 1, 1),
        &["keyspace", "read", "fast"],
        ("1.0.0", "generic"),
        "Returns the time to live of a key in seconds",
        keys::ttl,
    ),
    row(
        "type",
        2,
        &["readonly", "fast"],
        (1, 1, 1),
        &["keyspace", "read", "fast"],
        ("1.0.0", "generic"),
        "Returns the type of a key",
        keys::type_of,
    ),
    row(
        "unlink",
        -2,
        &["write", "fast"],
        (1, -1, 1),
        &["keyspace", "write", "fast"],
        ("4.0.0", "generic"),
        "Deletes keys",
        keys::del,
    ),
    row(
        "unwatch",
        1,
        &["noscript", "loading", "stale", "fast"],
        (0, 0, 0),
        &["fast", "transaction"],
        ("2.2.0", "transactions"),
        "Forgets the watched keys",
        transactions::unwatch,
    ),
    row(
        "watch",
        -2,
        &["noscript", "loading", "stale", "fast"],
        (1, -1, 1),
        &["fast", "transaction"],
        ("2.2.0", "transactions"),
        "Has EXEC do nothing if one of these keys is written before",
        transactions::watch,
    ),
];

#[expect(clippy::too_many_arguments, reason = "the columns of the table, in its order")]
pub(super) const fn row(
    name: &'static str,
    arity: i8,
    flags: &'static [&'static str],
    (first, last, step): (i8, i8, i8),
    categories: &'static [&'static str],
    (since, group): (&'static str, &'static str),
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys: Keys { first, last, step, count_at: 0 },
        categories,
        since,
        group,
        summary,
        handler,
    }
}

impl Command {
    /// The same, with more keys: an argument says how many follow it.
    pub(super) const fn with_key_count_at(mut self, count_at: i8) -> Command {
        self.keys.count_at = count_at;
        self
    }
}

/// The longest name of a command, and more.
const NAME_BYTES_MAX: usize = 32;

/// The slots of a hash table of the commands: several times as many as there are commands.
const SLOTS: usize = 2048;

/// By the hash of its name, or in the slots after that one: the table of a command, and its index there.
static BY_NAME: [Option<(u8, u8)>; SLOTS] = by_name();

const fn by_name() -> [Option<(u8, u8)>; SLOTS] {
    let mut slots = [None; SLOTS];
    let mut table = 0;
    while table < TABLES.len() {
        let mut index = 0;
        while index < TABLES[table].len() {
            let mut slot = slot_of(TABLES[table][index].name.as_bytes());
            while slots[slot].is_some() {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = Some((table as u8, index as u8));
            index += 1;
        }
        table += 1;
    }
    slots
}

/// FNV-1a, blind for the case of letters.
const fn slot_of(name: &[u8]) -> usize {
    let mut hash = 0x811c_9dc5_u32;
    let mut index = 0;
    while index < name.len() {
        hash = (hash ^ (name[index] | 0x20) as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    (hash ^ hash >> 16) as usize % SLOTS
}

/// The command of this name, in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let mut slot = slot_of(name);
    loop {
        let (table, index) = BY_NAME[slot]?;
        let command = &TABLES[usize::from(table)][usize::from(index)];
        if name.eq_ignore_ascii_case(command.name.as_bytes()) {
            return Some(command);
        }
        slot = (slot + 1) % SLOTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_command_is_found_in_any_case() {
        assert!(TABLES.iter().all(|table| table.len() < 256 && table.is_sorted_by(|a, b| a.name < b.name)));
        for command in commands() {
            assert_eq!(commands().filter(|other| other.name == command.name).count(), 1, "{}", command.name);
            assert_eq!(find(command.name.to_uppercase().as_bytes()).unwrap().name, command.name);
            let has_kind =
                command.has_flag("write") || command.has_flag("readonly") || command.name == "watch";
            let has_keys = command.keys.first != 0 || command.keys.count_at != 0;
            assert!(!has_keys || has_kind, "{}", command.name);
        }
        assert!(find(b"").is_none() && find(b"nothing").is_none() && find(&[b'a'; 100]).is_none());
    }
}
