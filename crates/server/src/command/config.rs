//! `CONFIG`: the directives of redis.conf.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fulgurite::Database;
use parking_lot::Mutex;

use super::directive::{Directive, Effect, Use};
use super::directives::DIRECTIVES;
use super::{Subcommand, help, run_subcommand};
use crate::args::Args;
use crate::context::Context;
use crate::settings::OutputLimit;
use crate::shared::Shared;
use crate::stop::{ErrorReply, Result};
use crate::{Config, glob};

pub(super) static SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "config|get", arity: -3, handler: get },
    Subcommand { name: "config|set", arity: -4, handler: set },
    Subcommand { name: "config|resetstat", arity: 2, handler: resetstat },
    Subcommand { name: "config|rewrite", arity: 2, handler: rewrite },
    Subcommand { name: "config|help", arity: 2, handler: config_help },
];

pub(super) fn config(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    run_subcommand(context, "config", args)
}

fn config_help(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    const LINES: [&str; 8] = [
        "GET <pattern> [<pattern> ...]",
        "    Return directives that match one of the patterns, and their values.",
        "SET <directive> <value> [<directive> <value> ...]",
        "    Set directives, all or none, until the server stops.",
        "RESETSTAT",
        "    Reset the counts that INFO reports.",
        "REWRITE",
        "    Not possible: there is no configuration file.",
    ];
    help(context, "CONFIG", &LINES)
}

/// The values of all directives.
#[derive(Debug)]
pub(crate) struct Directives {
    /// In the order of [`DIRECTIVES`].
    values: Mutex<Vec<String>>,
    /// The memory budget with which the database was opened.
    memory_bytes: u64,
    /// 0: any number.
    buffer_bytes_max: AtomicUsize,
}

impl Directives {
    /// Those of a server that starts.
    pub fn new(config: &Config, addresses: &[SocketAddr], db: &Database) -> Directives {
        let memory_bytes = db.stats().memory.budget_bytes;
        let hosts: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
        let value = |directive: &Directive| match directive.name {
            "bind" => hosts.join(" "),
            "client-query-buffer-limit" => config.query_bytes_max.to_string(),
            "databases" => crate::session::DATABASES.to_string(),
            "dir" => db.path().display().to_string(),
            "io-threads" => config.io_threads.to_string(),
            "maxclients" => config.clients_max.to_string(),
            "maxmemory" => memory_bytes.to_string(),
            "port" => addresses.first().map_or(0, SocketAddr::port).to_string(),
            "proto-max-bulk-len" => config.argument_bytes_max.to_string(),
            "requirepass" => config.password.as_ref().map_or("", |password| password.text()).into(),
            _ => directive.default.into(),
        };
        let values = Mutex::new(DIRECTIVES.iter().map(value).collect());
        let directives = Directives { values, memory_bytes, buffer_bytes_max: 0.into() };
        directives.set_buffer_bytes_max(db);
        directives
    }

    /// How much the buffers of all connections may take, in bytes; `None` is any number.
    pub fn buffer_bytes_max(&self) -> Option<usize> {
        Some(self.buffer_bytes_max.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Has `maxmemory-clients` be in force, which may be a part of the memory budget.
    fn set_buffer_bytes_max(&self, db: &Database) {
        let value = self.value("maxmemory-clients");
        let bytes = match value.strip_suffix('%') {
            Some(percent) => {
                db.stats().memory.budget_bytes / 100 * percent.parse::<u64>().unwrap_or_default()
            }
            None => value.parse().unwrap_or_default(),
        };
        self.buffer_bytes_max.store(usize::try_from(bytes).unwrap_or(usize::MAX), Relaxed);
    }

    /// The value of a directive; empty if it is unknown.
    pub fn value(&self, name: &str) -> String {
        let index = DIRECTIVES.iter().position(|directive| directive.name == name);
        index.map(|index| self.values.lock()[index].clone()).unwrap_or_default()
    }
}

/// `CONFIG GET pattern [pattern ...]`. A directive that is named as a whole is shown as it was named.
fn get(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let values = context.shared.directives.values.lock();
    let named = || {
        let pairs = DIRECTIVES.iter().zip(values.iter());
        pairs.flat_map(|(directive, value)| [(directive.name, value), (directive.alias, value)])
    };
    let mut found: BTreeMap<&[u8], &str> = BTreeMap::new();
    for pattern in args.from(2) {
        let is_name = !pattern.iter().any(|byte| b"*?[".contains(byte));
        for (name, value) in named().filter(|(name, _)| !name.is_empty()) {
            if is_name && name.as_bytes().eq_ignore_ascii_case(pattern) {
                found.insert(pattern, value);
            } else if !is_name && glob::matches(pattern, name.as_bytes()) {
                found.insert(name.as_bytes(), value);
            }
        }
    }
    let mut reply = context.reply();
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name);
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// A directive that is to be set.
struct Setting<'a> {
    index: usize,
    /// The name that was given: its own or its alias.
    name: &'static str,
    given: &'a [u8],
}

impl Setting<'_> {
    fn failed(&self, why: &str) -> ErrorReply {
        failed(self.name, why)
    }
}

fn failed(name: &str, why: &str) -> ErrorReply {
    let message = format!("CONFIG SET failed (possibly related to argument '{name}') - {why}");
    ErrorReply { code: "ERR", message: message.into() }
}

fn find<'a>(pair: &[&'a [u8]]) -> Result<Setting<'a>> {
    let is = |name: &str| !name.is_empty() && pair[0].eq_ignore_ascii_case(name.as_bytes());
    let found = DIRECTIVES.iter().enumerate().find_map(|(index, directive)| {
        let name = [directive.name, directive.alias].into_iter().find(|name| is(name))?;
        Some(Setting { index, name, given: pair[1] })
    });
    found.ok_or_else(|| {
        let name = String::from_utf8_lossy(pair[0]);
        let message = format!("Unknown option or number of arguments for CONFIG SET - '{name}'");
        ErrorReply { code: "ERR", message: message.into() }.into()
    })
}

/// `CONFIG SET directive value [directive value ...]`: all or none.
fn set(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let pairs = args.from(2);
    if !pairs.len().is_multiple_of(2) {
        return Err(ErrorReply::SYNTAX.into());
    }
    let shared = context.shared;
    // No other `CONFIG SET` runs meanwhile.
    let mut values = shared.directives.values.lock();
    let mut settings: Vec<Setting<'_>> = Vec::new();
    for pair in pairs.chunks_exact(2) {
        let setting = find(pair)?;
        let as_given = || String::from_utf8_lossy(pair[0]).into_owned();
        let is_fixed = DIRECTIVES[setting.index].usage == Use::Fixed;
        if is_fixed && !setting.given.eq_ignore_ascii_case(values[setting.index].as_bytes()) {
            return Err(failed(&as_given(), "can't set immutable config").into());
        }
        if settings.iter().any(|other| other.name == setting.name) {
            return Err(failed(&as_given(), "duplicate parameter").into());
        }
        settings.push(setting);
    }
    let mut after = values.clone();
    for setting in &settings {
        let value = &mut after[setting.index];
        *value = check(shared, setting, value)?;
    }
    apply_all(shared, &values, &after)?;
    *values = after;
    drop(values);
    shared.directives.set_buffer_bytes_max(&shared.db);
    // Threads that wait for events have other deadlines now.
    shared.wake_all();
    context.ok()
}

/// The new value of a directive, as it is kept.
fn check(shared: &Shared, setting: &Setting<'_>, before: &str) -> Result<String> {
    let directive = &DIRECTIVES[setting.index];
    if directive.usage == Use::Fixed {
        return Ok(before.into());
    }
    let given = std::str::from_utf8(setting.given).map_err(|_| setting.failed("argument is not UTF-8"))?;
    let value = directive.values.parse(given, before).map_err(|why| setting.failed(&why))?;
    let is_open = || shared.config.bind.iter().any(|address| !address.ip().is_loopback());
    if directive.usage == Use::Takes(Effect::Password) && value.is_empty() && is_open() {
        return Err(setting
            .failed("without a password the server listens on loopback addresses only")
            .into());
    }
    Ok(value)
}

/// Has the server do what the directives say that changed. The one that can fail is first.
fn apply_all(shared: &Shared, before: &[String], after: &[String]) -> Result<()> {
    let changed = (0..after.len()).filter(|&index| before[index] != after[index]);
    let mut effects: Vec<(Effect, usize)> = changed
        .filter_map(|index| match DIRECTIVES[index].usage {
            Use::Takes(effect) => Some((effect, index)),
            _ => None,
        })
        .collect();
    effects.sort_by_key(|(effect, _)| *effect != Effect::Memory);
    effects.into_iter().try_for_each(|(effect, index)| {
        apply(shared, effect, &after[index]).map_err(|why| failed(DIRECTIVES[index].name, &why).into())
    })
}

fn apply(shared: &Shared, effect: Effect, value: &str) -> Result<(), String> {
    let settings = &shared.settings;
    let number = value.parse::<u64>().unwrap_or_default();
    let size = usize::try_from(number).unwrap_or(usize::MAX);
    match effect {
        Effect::ClientsMax => settings.set_clients_max(size),
        Effect::IdleMax => settings.set_idle_s_max(number),
        Effect::Keepalive => settings.set_keepalive_s(number),
        Effect::ArgumentBytesMax => settings.set_argument_bytes_max(size),
        Effect::QueryBytesMax => settings.set_query_bytes_max(size),
        Effect::Password => settings.set_password(value),
        Effect::OutputLimits => {
            let mut numbers = value.split(' ').skip(1).map(|word| word.parse().unwrap_or_default());
            let mut next = || numbers.next().unwrap_or_default();
            let (hard, soft, soft_s) = (next(), next(), next());
            let bytes = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            let limit = OutputLimit { hard_bytes: bytes(hard), soft_bytes: bytes(soft), soft_s };
            settings.set_output_limit(limit);
        }
        Effect::Memory => {
            // 0 is no limit in Redis. Here it is the budget that the database was opened with.
            let bytes = if number == 0 { shared.directives.memory_bytes } else { number };
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            shared.db.set_memory_bytes(bytes).map_err(|error| error.to_string())?;
        }
        // Depends on the budget, too: once all directives have their values.
        Effect::BufferBytesMax => {}
    }
    Ok(())
}

/// The counts that `INFO` reports begin anew.
fn resetstat(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    let shared = context.shared;
    shared.commands.reset();
    [&shared.accepted, &shared.rejected].into_iter().for_each(|count| count.store(0, Relaxed));
    context.ok()
}

fn rewrite(_: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    Err(ErrorReply::new("ERR", "The server is running without a config file").into())
}
