//! Keys of any type: existence, deletion, expiry.

use fulgurite_resp::parse_i64;

use crate::args::{Args, parse_within};
use crate::context::Context;
use crate::model::{Head, Kind, Old};
use crate::session::DATABASES;
use crate::stop::{ErrorReply, Result};

/// How a command gives a time of expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    AfterSeconds,
    AfterMs,
    AtSeconds,
    AtMs,
}

impl Deadline {
    /// The option at an index: `EX`, `PX`, `EXAT` or `PXAT`.
    pub fn of_option(args: &Args<'_>, index: usize) -> Option<Deadline> {
        let options = [
            ("ex", Deadline::AfterSeconds),
            ("px", Deadline::AfterMs),
            ("exat", Deadline::AtSeconds),
            ("pxat", Deadline::AtMs),
        ];
        options.into_iter().find(|(word, _)| args.is(index, word)).map(|(_, deadline)| deadline)
    }

    /// The time in milliseconds since 1970, or `None` if it is out of range.
    fn time_ms(self, now_ms: u64, number: i64) -> Option<i64> {
        let ms = match self {
            Deadline::AfterSeconds | Deadline::AtSeconds => number.checked_mul(1_000)?,
            Deadline::AfterMs | Deadline::AtMs => number,
        };
        match self {
            Deadline::AfterSeconds | Deadline::AfterMs => ms.checked_add(i64::try_from(now_ms).ok()?),
            Deadline::AtSeconds | Deadline::AtMs => Some(ms),
        }
    }
}

/// The time of expiry, which has to be above 0, of a command that writes a value.
pub(super) fn deadline_of(
    context: &Context<'_>,
    name: &str,
    number: &[u8],
    deadline: Deadline,
) -> Result<u64> {
    deadline_at(context.now_ms, name, number, deadline)
}

/// The same for a command that runs at `now_ms`.
pub(super) fn deadline_at(now_ms: u64, name: &str, number: &[u8], deadline: Deadline) -> Result<u64> {
    let number = parse_i64(number).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    let time_ms = if number > 0 { deadline.time_ms(now_ms, number) } else { None };
    time_ms.and_then(|ms| u64::try_from(ms).ok()).ok_or_else(|| {
        let message = format!("invalid expire time in '{name}' command");
        ErrorReply { code: "ERR", message: message.into() }.into()
    })
}

pub(super) fn del(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let deleted = context.write(|write| {
        let mut deleted = 0;
        for key in args.from(1) {
            if let Some(old) = write.stored(key)? {
                deleted += i64::from(old.head.is_live(write.now_ms));
                write.delete(key, &old)?;
            }
        }
        Ok(deleted)
    })?;
    context.reply().integer(deleted);
    Ok(())
}

pub(super) fn exists(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read_all(args.from(1))?;
    context.reply().integer(found.iter().flatten().count() as i64);
    Ok(())
}

pub(super) fn type_of(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let found = context.read(&args[1])?;
    context.reply().simple(found.map_or("none", |old| old.head.kind.name()).as_bytes());
    Ok(())
}

pub(super) fn expire(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    set_expiry(context, args, Deadline::AfterSeconds, "expire")
}

pub(super) fn pexpire(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    set_expiry(context, args, Deadline::AfterMs, "pexpire")
}

pub(super) fn expireat(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    set_expiry(context, args, Deadline::AtSeconds, "expireat")
}

pub(super) fn pexpireat(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    set_expiry(context, args, Deadline::AtMs, "pexpireat")
}

/// The conditions of the `EXPIRE` family.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    only_without: bool,
    only_with: bool,
    only_later: bool,
    only_sooner: bool,
}

impl Conditions {
    fn parse(context: &Context<'_>, args: &Args<'_>) -> Result<Conditions> {
        let mut conditions = Conditions::default();
        for (index, option) in args.from(3).iter().enumerate() {
            match () {
                () if args.is(3 + index, "nx") => conditions.only_without = true,
                () if args.is(3 + index, "xx") => conditions.only_with = true,
                () if args.is(3 + index, "gt") => conditions.only_later = true,
                () if args.is(3 + index, "lt") => conditions.only_sooner = true,
                () => {
                    let option = String::from_utf8_lossy(option);
                    return context.fail("ERR", format!("Unsupported option {option}"));
                }
            }
        }
        let Conditions { only_without, only_with, only_later, only_sooner } = conditions;
        if only_without && (only_with || only_later || only_sooner) {
            return Err(ErrorReply::new(
                "ERR",
                "NX and XX, GT or LT options at the same time are not compatible",
            )
            .into());
        }
        if only_later && only_sooner {
            return Err(
                ErrorReply::new("ERR", "GT and LT options at the same time are not compatible").into()
            );
        }
        Ok(conditions)
    }

    /// Whether a key with the expiry `old_ms` gets the expiry `new_ms`. A key without one expires later than any other.
    fn allow(self, old_ms: u64, new_ms: i64) -> bool {
        let old = if old_ms == 0 { i64::MAX } else { i64::try_from(old_ms).unwrap_or(i64::MAX) };
        let Conditions { only_without, only_with, only_later, only_sooner } = self;
        !(only_without && old_ms != 0
            || only_with && old_ms == 0
            || only_later && (old_ms == 0 || new_ms <= old)
            || only_sooner && old_ms != 0 && new_ms >= old)
    }
}

fn set_expiry(context: &mut Context<'_>, args: &Args<'_>, deadline: Deadline, name: &str) -> Result<()> {
    let conditions = Conditions::parse(context, args)?;
    let number = parse_i64(&args[2]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    let Some(time_ms) = deadline.time_ms(context.now_ms, number) else {
        return context.fail("ERR", format!("invalid expire time in '{name}' command"));
    };
    let key = &args[1];
    let is_set = context.write(|write| {
        let stored = write.stored(key)?;
        let Some(old) = stored.filter(|old| old.head.is_live(write.now_ms)) else { return Ok(false) };
        if !conditions.allow(old.head.expires_at_ms, time_ms) {
            return Ok(false);
        }
        match u64::try_from(time_ms).ok().filter(|&ms| ms > write.now_ms) {
            Some(expires_at_ms) => {
                write.put(key, Some(&old), Head { expires_at_ms, ..old.head }, old.body())?
            }
            None => write.delete(key, &old)?,
        }
        Ok(true)
    })?;
    context.reply().integer(is_set.into());
    Ok(())
}

pub(super) fn persist(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let key = &args[1];
    let persisted = context.write(|write| {
        let stored = write.stored(key)?;
        let Some(old) = stored.filter(|old| old.head.is_live(write.now_ms)) else { return Ok(false) };
        if old.head.expires_at_ms == 0 {
            return Ok(false);
        }
        write.put(key, Some(&old), Head { expires_at_ms: 0, ..old.head }, old.body())?;
        Ok(true)
    })?;
    context.reply().integer(persisted.into());
    Ok(())
}

/// -2 without a key, -1 without an expiry, else what `value` makes of the expiry.
fn reply_expiry(context: &mut Context<'_>, args: &Args<'_>, value: fn(i64, i64) -> i64) -> Result<()> {
    let found = context.read(&args[1])?;
    let now_ms = context.now_ms as i64;
    context.reply().integer(match found {
        None => -2,
        Some(old) if old.head.expires_at_ms == 0 => -1,
        Some(old) => value(old.head.expires_at_ms as i64, now_ms),
    });
    Ok(())
}

pub(super) fn ttl(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_expiry(context, args, |at_ms, now_ms| (at_ms - now_ms + 500) / 1_000)
}

pub(super) fn pttl(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_expiry(context, args, |at_ms, now_ms| at_ms - now_ms)
}

pub(super) fn expiretime(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_expiry(context, args, |at_ms, _| at_ms / 1_000 + (at_ms % 1_000 + 500) / 1_000)
}

pub(super) fn pexpiretime(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    reply_expiry(context, args, |at_ms, _| at_ms)
}

const NO_SUCH_KEY: ErrorReply = ErrorReply::new("ERR", "no such key");
const SAME_OBJECTS: ErrorReply = ErrorReply::new("ERR", "source and destination objects are the same");

pub(super) fn rename(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    move_key(context, &args[1], &args[2], true)?;
    context.ok()
}

pub(super) fn renamenx(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let is_moved = move_key(context, &args[1], &args[2], false)?;
    context.reply().integer(is_moved.into());
    Ok(())
}

/// Gives a key another name, with its expiry. False if there is a key of that name, and it is not to be replaced.
fn move_key(context: &mut Context<'_>, from: &[u8], to: &[u8], replaces: bool) -> Result<bool> {
    context.write(|write| {
        let stored = write.stored(from)?;
        let old = stored.filter(|old| old.head.is_live(write.now_ms)).ok_or(NO_SUCH_KEY)?;
        if from == to {
            return Ok(replaces);
        }
        let other = write.stored(to)?;
        if write.is_live(&other) && !replaces {
            return Ok(false);
        }
        write.put(to, other.as_ref(), old.head, old.body())?;
        write.remove(from, &old)?;
        Ok(true)
    })
}

/// The number of a database among the arguments.
fn database_of(number: &[u8]) -> Result<usize> {
    let number = parse_within(number, i32::MIN.into()..=i32::MAX.into())?;
    let database = usize::try_from(number).ok().filter(|&database| database < DATABASES);
    Ok(database.ok_or(ErrorReply::new("ERR", "DB index is out of range"))?)
}

pub(super) fn select(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    context.session.database = database_of(&args[1])?;
    context.ok()
}

/// `COPY source destination [DB database] [REPLACE]`
pub(super) fn copy(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let (mut database, mut replaces, mut index) = (context.session.database, false, 3);
    while index < args.len() {
        if args.is(index, "replace") {
            replaces = true;
        } else if args.is(index, "db") && index + 1 < args.len() {
            index += 1;
            database = database_of(&args[index])?;
        } else {
            return Err(ErrorReply::SYNTAX.into());
        }
        index += 1;
    }
    let is_copied = copy_key(context, &args[1], &args[2], database, Copy { replaces, deletes: false })?;
    context.reply().integer(is_copied.into());
    Ok(())
}

pub(super) fn move_to(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let database = database_of(&args[2])?;
    let is_moved = copy_key(context, &args[1], &args[1], database, Copy { replaces: false, deletes: true })?;
    context.reply().integer(is_moved.into());
    Ok(())
}

/// How a key is copied.
#[derive(Clone, Copy)]
struct Copy {
    /// Also over another key.
    replaces: bool,
    /// And deleted where it was.
    deletes: bool,
}

/// Copies a key into a database, with its expiry. False if there is none, or another key is there.
fn copy_key(context: &mut Context<'_>, from: &[u8], to: &[u8], database: usize, how: Copy) -> Result<bool> {
    if database == context.session.database && from == to {
        return Err(SAME_OBJECTS.into());
    }
    context.write(|write| {
        let keyspace = write.keyspaces[database];
        let stored = write.stored(from)?;
        let Some(old) = stored.filter(|old| old.head.is_live(write.now_ms)) else { return Ok(false) };
        let is_copied = write.in_keyspace(keyspace, |write| {
            let other = write.stored(to)?;
            if write.is_live(&other) && !how.replaces {
                return Ok(false);
            }
            if how.deletes {
                write.put(to, other.as_ref(), old.head, old.body())?;
            } else {
                let body = write.copy_body(&old)?;
                write.put(to, other.as_ref(), old.head, &body)?;
            }
            Ok(true)
        })?;
        if is_copied && how.deletes {
            write.remove(from, &old)?;
        }
        Ok(is_copied)
    })
}

pub(super) fn dbsize(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    let keys = context.count_keys()?;
    context.reply().integer(keys.max(0));
    Ok(())
}

/// `OBJECT ENCODING | FREQ | IDLETIME | REFCOUNT key`, or `OBJECT HELP`. Values have no encodings here: the reply is what Redis has for one
/// of that type and size.
pub(super) fn object(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    const HELP: [&str; 11] = [
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    Return the encoding that Redis has for a value of that type and size.",
        "FREQ <key>",
        "    Return an error: the frequency of accesses is not tracked.",
        "IDLETIME <key>",
        "    Return 0: the time of the last access is not tracked.",
        "REFCOUNT <key>",
        "    Return 1.",
        "HELP",
        "    Print this help.",
    ];
    if args.is(1, "help") && args.len() == 2 {
        let mut reply = context.reply();
        reply.array(HELP.len());
        HELP.iter().for_each(|line| reply.simple(line.as_bytes()));
        return Ok(());
    }
    let known = ["encoding", "freq", "idletime", "refcount", "help"];
    let is_known = known[..4].iter().any(|known| args.is(1, known));
    if !is_known || args.len() != 3 {
        return Err(super::wrong_subcommand("object", args, &known));
    }
    let found = context.read(&args[2])?;
    let Some(old) = found else {
        context.reply().null();
        return Ok(());
    };
    match () {
        () if args.is(1, "encoding") => {
            let encoding = encoding_of(&old)?;
            context.reply().bulk(encoding.as_bytes());
        }
        () if args.is(1, "freq") => {
            let message = "An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
                           switching between policies at runtime LRU and LFU data will take some time to adjust.";
            return Err(ErrorReply::new("ERR", message).into());
        }
        () if args.is(1, "idletime") => context.reply().integer(0),
        () => context.reply().integer(1),
    }
    Ok(())
}

/// The encoding that Redis has for a value of that type and size by default.
fn encoding_of(old: &Old) -> Result<&'static str> {
    const EMBEDDED_BYTES_MAX: usize = 44;
    const LISTPACK_ENTRIES_MAX: u64 = 128;
    let collection = old.collection(old.head.kind).ok();
    let is_short = collection.is_some_and(|collection| collection.count <= LISTPACK_ENTRIES_MAX);
    Ok(match old.head.kind {
        Kind::String if parse_i64(old.body()).is_some() => "int",
        Kind::String if old.body().len() <= EMBEDDED_BYTES_MAX => "embstr",
        Kind::String | Kind::FragmentedString => "raw",
        Kind::List if is_short => "listpack",
        Kind::List => "quicklist",
        Kind::Hash | Kind::SortedSet | Kind::Set if is_short => "listpack",
        Kind::Hash | Kind::Set => "hashtable",
        Kind::SortedSet => "skiplist",
    })
}
