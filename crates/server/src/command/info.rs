//! What the server says about itself: `INFO` and `CONFIG`.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite::{Missing, Stats};

use super::server::REDIS_VERSION;
use crate::args::Args;
use crate::context::Context;
use crate::glob;
use crate::session::DATABASES;
use crate::shared::Shared;
use crate::stop::{ErrorReply, Result, Stop};

type Section = (&'static str, fn(&mut Context<'_>, &Stats, &mut String) -> Result<()>);

/// The sections, in the order of a reply.
const SECTIONS: [Section; 9] = [
    ("server", server),
    ("clients", clients),
    ("memory", memory),
    ("persistence", persistence),
    ("stats", stats),
    ("replication", replication),
    ("commandstats", commandstats),
    ("cluster", cluster),
    ("keyspace", keyspace),
];

pub(super) fn info(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if !context.may_wait {
        // Its figures take locks, and counts may be on disk.
        return Err(Stop::Blocked(Missing::Node));
    }
    let names = args.from(1);
    let is_wanted = |name: &str| {
        names.is_empty() && name != "commandstats"
            || names.iter().any(|wanted| {
                let is = |word: &str| wanted.eq_ignore_ascii_case(word.as_bytes());
                is(name) || is("all") || is("everything") || (is("default") && name != "commandstats")
            })
    };
    let stats = context.shared.db.stats();
    let mut text = String::new();
    for (name, section) in SECTIONS.iter().filter(|(name, _)| is_wanted(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let title = name[..1].to_uppercase() + &name[1..];
        _ = write!(text, "# {title}\r\n");
        section(context, &stats, &mut text)?;
    }
    context.reply().verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// Appends lines of a name and a value each.
fn lines<const N: usize>(text: &mut String, fields: [(&str, &dyn std::fmt::Display); N]) {
    for (name, value) in fields {
        _ = write!(text, "{name}:{value}\r\n");
    }
}

fn server(context: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    let shared = context.shared;
    let up_s = shared.uptime().as_secs();
    let version = env!("CARGO_PKG_VERSION");
    lines(
        text,
        [
            ("redis_version", &REDIS_VERSION),
            ("fulgurite_version", &version),
            ("redis_mode", &"standalone"),
            ("os", &std::env::consts::OS),
            ("arch_bits", &usize::BITS),
            ("process_id", &std::process::id()),
            ("tcp_port", &shared.config.bind.first().map_or(0, std::net::SocketAddr::port)),
            ("uptime_in_seconds", &up_s),
            ("uptime_in_days", &(up_s / 86_400)),
            ("io_threads_active", &shared.config.io_threads),
        ],
    );
    Ok(())
}

fn clients(context: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    let shared = context.shared;
    lines(
        text,
        [
            ("connected_clients", &shared.connected.load(Relaxed)),
            ("maxclients", &shared.config.clients_max),
            ("blocked_clients", &0),
        ],
    );
    Ok(())
}

fn memory(_: &mut Context<'_>, stats: &Stats, text: &mut String) -> Result<()> {
    let memory = &stats.memory;
    let used = memory.node_bytes
        + memory.value_bytes
        + memory.slot_bytes
        + memory.memtable_bytes
        + memory.table_bytes
        + memory.log_buffer_bytes
        + memory.transaction_bytes
        + memory.tombstone_bytes
        + memory.ticket_bytes
        + memory.account_bytes
        + memory.collection_bytes;
    lines(
        text,
        [
            ("used_memory", &used),
            ("used_memory_rss", &memory.resident_bytes),
            ("maxmemory", &memory.budget_bytes),
            ("maxmemory_policy", &"noeviction"),
        ],
    );
    Ok(())
}

fn persistence(_: &mut Context<'_>, stats: &Stats, text: &mut String) -> Result<()> {
    let status = if stats.poisoned.is_some() { "err" } else { "ok" };
    lines(
        text,
        [
            ("loading", &0),
            ("rdb_changes_since_last_save", &0),
            ("rdb_bgsave_in_progress", &0),
            ("rdb_last_bgsave_status", &"ok"),
            ("aof_enabled", &1),
            ("aof_rewrite_in_progress", &0),
            ("aof_last_write_status", &status),
            ("fulgurite_durable_commit", &stats.durable.0),
            ("fulgurite_visible_commit", &stats.visible.0),
            ("fulgurite_commits_per_sync", &format_args!("{:.2}", stats.log.commits_per_sync())),
        ],
    );
    Ok(())
}

fn stats(context: &mut Context<'_>, stats: &Stats, text: &mut String) -> Result<()> {
    let counts = &context.shared.commands;
    let (inline, at_workers) = (counts.inline.load(Relaxed), counts.at_workers.load(Relaxed));
    lines(
        text,
        [
            ("total_connections_received", &context.shared.accepted.load(Relaxed)),
            ("total_commands_processed", &(inline + at_workers)),
            ("rejected_connections", &context.shared.rejected.load(Relaxed)),
            ("fulgurite_commands_inline", &inline),
            ("fulgurite_commands_at_workers", &at_workers),
            ("fulgurite_conflicts", &stats.conflicts),
        ],
    );
    Ok(())
}

fn replication(_: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    lines(text, [("role", &"master"), ("connected_slaves", &0)]);
    Ok(())
}

/// Why commands went to workers.
fn commandstats(context: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    for (reason, count) in context.shared.commands.handed_on() {
        _ = write!(text, "fulgurite_handed_on_for_{reason}:{count}\r\n");
    }
    Ok(())
}

fn cluster(_: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    lines(text, [("cluster_enabled", &0)]);
    Ok(())
}

fn keyspace(context: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    let selected = context.session.database;
    for database in 0..DATABASES {
        context.session.database = database;
        let keys = context.count_keys();
        context.session.database = selected;
        if let keys @ 1.. = keys? {
            _ = write!(text, "db{database}:keys={keys}\r\n");
        }
    }
    Ok(())
}

/// The directives of redis.conf that say something here, and their values.
fn directives(shared: &Shared) -> Vec<(&'static str, String)> {
    let config = &shared.config;
    let bind: Vec<String> = config.bind.iter().map(|address| address.ip().to_string()).collect();
    vec![
        ("appendfsync", "always".into()),
        ("appendonly", "yes".into()),
        ("bind", bind.join(" ")),
        ("databases", DATABASES.to_string()),
        ("io-threads", config.io_threads.to_string()),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("port", config.bind.first().map_or(0, std::net::SocketAddr::port).to_string()),
        ("proto-max-bulk-len", config.argument_bytes_max.to_string()),
        ("save", String::new()),
        ("timeout", "0".into()),
    ]
}

pub(super) fn config(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if args.is(1, "get") && args.len() > 2 {
        let mut found = directives(context.shared);
        found.retain(|(name, _)| {
            args.from(2).iter().any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
        });
        let mut reply = context.reply();
        reply.map(found.len());
        for (name, value) in &found {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
        return Ok(());
    }
    if args.is(1, "set") && args.len() > 3 {
        return config_set(context, args);
    }
    Err(super::wrong_subcommand("config", args, &["get", "set"]))
}

/// Takes what is so already: nothing can be changed while the server runs.
fn config_set(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let pairs = args.from(2);
    if !pairs.len().is_multiple_of(2) {
        return Err(ErrorReply::new("ERR", "wrong number of arguments for 'config|set' command").into());
    }
    let directives = directives(context.shared);
    for pair in pairs.chunks_exact(2) {
        let is_named = |name: &str| pair[0].eq_ignore_ascii_case(name.as_bytes());
        let name = String::from_utf8_lossy(pair[0]).into_owned();
        let Some((_, value)) = directives.iter().find(|(name, _)| is_named(name)) else {
            let message = format!("Unknown option or number of arguments for CONFIG SET - '{name}'");
            return context.fail("ERR", message);
        };
        if !pair[1].eq_ignore_ascii_case(value.as_bytes()) {
            let message = format!(
                "CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config"
            );
            return context.fail("ERR", message);
        }
    }
    context.ok()
}
