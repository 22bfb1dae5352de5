//! What the server says about itself: `INFO`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite::env::{ContextSwitches, MemoryMedium};
use fulgurite::{Missing, Stats};

use super::server::REDIS_VERSION;
use crate::args::Args;
use crate::context::Context;
use crate::model::split_expiry_key;
use crate::session::DATABASES;
use crate::stop::{Result, Stop};
use crate::tallies::{Tally, Times};

type Section = (&'static str, fn(&mut Context<'_>, &Stats, &mut String) -> Result<()>);

/// The sections, in the order of a reply.
const SECTIONS: [Section; 11] = [
    ("server", server),
    ("clients", clients),
    ("memory", memory),
    ("persistence", persistence),
    ("stats", stats),
    ("replication", replication),
    ("commandstats", commandstats),
    ("errorstats", errorstats),
    ("fulgurite_commands", fulgurite_commands),
    ("cluster", cluster),
    ("keyspace", keyspace),
];

/// Those that a reply has only if it is asked for them, or for all.
const ASKED_FOR: [&str; 2] = ["commandstats", "fulgurite_commands"];

pub(super) fn info(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if !context.runner.may_wait() {
        // Its figures take locks, and counts may be on disk.
        return Err(Stop::Blocked(Missing::Node));
    }
    let names = args.from(1);
    let is_wanted = |name: &str| {
        let is_default = !ASKED_FOR.contains(&name);
        names.is_empty() && is_default
            || names.iter().any(|wanted| {
                let is = |word: &str| wanted.eq_ignore_ascii_case(word.as_bytes());
                is(name) || is("all") || is("everything") || (is("default") && is_default)
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
            ("redis_git_sha1", &"00000000"),
            ("redis_git_dirty", &0),
            ("redis_build_id", &"0"),
            ("fulgurite_version", &version),
            ("redis_mode", &"standalone"),
            ("os", &std::env::consts::OS),
            ("arch_bits", &usize::BITS),
            ("multiplexing_api", &"epoll"),
            ("process_id", &std::process::id()),
            ("run_id", &shared.run_id),
            ("tcp_port", &shared.directives.value("port")),
            ("server_time_usec", &(context.now_ms * 1_000)),
            ("uptime_in_seconds", &up_s),
            ("uptime_in_days", &(up_s / 86_400)),
            ("hz", &shared.directives.value("hz")),
            ("executable", &std::env::current_exe().unwrap_or_default().display()),
            ("config_file", &""),
            ("io_threads_active", &u8::from(shared.config.io_threads > 1)),
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
            ("cluster_connections", &0),
            ("maxclients", &shared.settings.clients_max()),
            ("blocked_clients", &0),
            ("tracking_clients", &0),
            ("clients_in_timeout_table", &0),
        ],
    );
    Ok(())
}

fn memory(_: &mut Context<'_>, stats: &Stats, text: &mut String) -> Result<()> {
    let memory = &stats.memory;
    let used = memory.total_bytes();
    lines(
        text,
        [
            ("used_memory", &used),
            ("used_memory_human", &human(used)),
            ("mem_clients_normal", &memory.program_bytes),
            ("used_memory_rss", &memory.resident_bytes),
            ("used_memory_rss_human", &human(memory.resident_bytes)),
            ("maxmemory", &memory.budget_bytes),
            ("maxmemory_human", &human(memory.budget_bytes)),
            ("maxmemory_policy", &"noeviction"),
        ],
    );
    Ok(())
}

/// A number of bytes as Redis shows it to people.
fn human(bytes: u64) -> String {
    let units = [(1_u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let unit = units.into_iter().find(|(size, _)| bytes >= *size);
    unit.map_or(format!("{bytes}B"), |(size, name)| format!("{:.2}{name}", bytes as f64 / size as f64))
}

fn persistence(context: &mut Context<'_>, stats: &Stats, text: &mut String) -> Result<()> {
    let status = if stats.poisoned.is_some() { "err" } else { "ok" };
    let shared = context.shared;
    let (is_saving, has_failed) = shared.saves.status();
    lines(
        text,
        [
            ("loading", &0),
            ("async_loading", &0),
            ("rdb_changes_since_last_save", &stats.visible.0.saturating_sub(stats.checkpoint_covered.0)),
            ("rdb_bgsave_in_progress", &u8::from(is_saving)),
            ("rdb_last_save_time", &(shared.saves.last_ms(&shared.db) / 1_000)),
            ("rdb_last_bgsave_status", &if has_failed { "err" } else { "ok" }),
            ("aof_enabled", &1),
            ("aof_rewrite_in_progress", &0),
            ("aof_rewrite_scheduled", &0),
            ("aof_last_bgrewrite_status", &"ok"),
            ("aof_last_write_status", &status),
            ("fulgurite_durable_commit", &stats.durable.0),
            ("fulgurite_visible_commit", &stats.visible.0),
            ("fulgurite_commits_per_sync", &format_args!("{:.2}", stats.log.commits_per_sync())),
        ],
    );
    staging(stats, text);
    Ok(())
}

fn staging(stats: &Stats, text: &mut String) {
    let Some(staging) = &stats.staging else {
        return lines(text, [("fulgurite_staging", &"none")]);
    };
    let medium = match staging.medium {
        MemoryMedium::Persistent => "persistent",
        MemoryMedium::Volatile => "volatile",
    };
    lines(
        text,
        [
            ("fulgurite_staging", &medium),
            ("fulgurite_staging_file", &staging.path.display()),
            ("fulgurite_staged_bytes", &stats.log.staged_bytes),
            ("fulgurite_synced_commit", &stats.synced.0),
            ("fulgurite_stagings", &stats.log.stagings),
            ("fulgurite_staging_drains", &stats.log.drains),
            ("fulgurite_staging_waits", &stats.log.staging_waits),
        ],
    );
}

fn stats(context: &mut Context<'_>, stats: &Stats, text: &mut String) -> Result<()> {
    let counts = &context.shared.commands;
    let (inline, at_workers) = (counts.inline.load(Relaxed), counts.at_workers.load(Relaxed));
    let reclaimed = &context.shared.reclaimed;
    lines(
        text,
        [
            ("total_connections_received", &context.shared.accepted.load(Relaxed)),
            ("total_commands_processed", &(inline + at_workers)),
            ("rejected_connections", &context.shared.rejected.load(Relaxed)),
            ("evicted_clients", &context.shared.clients.evicted.load(Relaxed)),
            ("expired_keys", &reclaimed.expired_keys.load(Relaxed)),
            ("evicted_keys", &0),
            ("pubsub_channels", &0),
            ("pubsub_patterns", &0),
            ("fulgurite_commands_inline", &inline),
            ("fulgurite_commands_at_workers", &at_workers),
            ("fulgurite_rows_read_ahead", &context.shared.read_ahead.rows.load(Relaxed)),
            ("fulgurite_split_blocks", &context.shared.split_blocks.load(Relaxed)),
            ("fulgurite_commands_left_for_later", &counts.left_for_later.load(Relaxed)),
            ("fulgurite_long_replies", &context.shared.long_replies()),
            ("fulgurite_cut_replies", &counts.cut_replies.load(Relaxed)),
            ("fulgurite_arriving_values", &context.shared.arrivals.len()),
            ("fulgurite_conflicts", &stats.conflicts),
            ("fulgurite_reclaimed_rows", &reclaimed.rows.load(Relaxed)),
            ("fulgurite_reclaimed_flushed_keys", &reclaimed.flushed_keys.load(Relaxed)),
            ("fulgurite_garbage_rows_estimate", &context.model().tables.garbage.len_estimate()),
        ],
    );
    Ok(())
}

fn replication(context: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    let run_id = &context.shared.run_id;
    lines(
        text,
        [
            ("role", &"master"),
            ("connected_slaves", &0),
            ("master_failover_state", &"no-failover"),
            ("master_replid", run_id),
            ("master_replid2", &format_args!("{:040}", 0)),
            ("master_repl_offset", &0),
            ("second_repl_offset", &-1),
            ("repl_backlog_active", &0),
        ],
    );
    Ok(())
}

/// The commands that ran or were refused, as Redis shows them.
fn commandstats(context: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    for (name, tally) in context.shared.commands.sums().commands {
        let (Times { calls, processing_ns, .. }, rejected, failed) =
            (tally.all(), tally.rejected, tally.failed);
        if calls + rejected == 0 {
            continue;
        }
        let (usec, per_call) = (processing_ns / 1_000, processing_ns as f64 / 1e3 / calls.max(1) as f64);
        _ = write!(text, "cmdstat_{name}:calls={calls},usec={usec},usec_per_call={per_call:.2}");
        _ = write!(text, ",rejected_calls={rejected},failed_calls={failed}\r\n");
    }
    Ok(())
}

fn errorstats(context: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    for (code, count) in context.shared.commands.sums().errors {
        _ = write!(text, "errorstat_{code}:count={count}\r\n");
    }
    Ok(())
}

/// Where commands ran and why, and how long they waited for that.
fn fulgurite_commands(context: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    let shared = context.shared;
    let commands = shared.commands.sums().commands;
    lines(text, [("fulgurite_dispatch", &shared.config.dispatch.name())]);
    if let Some(ContextSwitches { voluntary, involuntary }) = shared.env.context_switches() {
        lines(
            text,
            [
                ("fulgurite_voluntary_context_switches", &voluntary),
                ("fulgurite_involuntary_context_switches", &involuntary),
            ],
        );
    }
    let mut handed_on = BTreeMap::new();
    for (reason, count) in commands.values().flat_map(Tally::handed_on) {
        *handed_on.entry(reason).or_default() += count;
    }
    for (reason, count) in Tally::default().handed_on() {
        let count = handed_on.get(reason).copied().unwrap_or(count);
        _ = write!(text, "fulgurite_handed_on_for_{reason}:{count}\r\n");
    }
    for (name, tally) in commands {
        let rows = [
            ("inline", tally.inline),
            ("at_workers", tally.at_workers),
            ("in_memtables", tally.in_memtables),
            ("not_in_memtables", tally.not_in_memtables),
        ];
        for (which, Times { calls, waiting_ns, processing_ns }) in rows.iter().filter(|row| row.1.calls > 0) {
            let (waiting, processing) = (waiting_ns / 1_000, processing_ns / 1_000);
            _ = write!(text, "fulgurite_{which}_{name}:calls={calls},waiting_usec={waiting}");
            _ = write!(text, ",processing_usec={processing}\r\n");
        }
        let reasons: Vec<String> = tally
            .handed_on()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{reason}={count}"))
            .collect();
        if !reasons.is_empty() {
            _ = write!(text, "fulgurite_handed_on_{name}:{}\r\n", reasons.join(","));
        }
    }
    Ok(())
}

fn cluster(_: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    lines(text, [("cluster_enabled", &0)]);
    Ok(())
}

/// So many entries of the index of expiries are counted.
const EXPIRING_KEYS_MAX: usize = 10_000;

/// How many keys with an expiry each keyspace has, of those that expire first.
fn count_expiring(context: &mut Context<'_>) -> Result<HashMap<u32, u64>> {
    let mut counts = HashMap::new();
    let txn = context.begin()?;
    for entry in txn.range(&context.model().tables.expiry, ..)?.take(EXPIRING_KEYS_MAX) {
        if let Some((_, keyspace, _)) = split_expiry_key(&entry?.0) {
            *counts.entry(keyspace).or_default() += 1;
        }
    }
    context.needs = context.needs.max(txn.needs());
    Ok(counts)
}

fn keyspace(context: &mut Context<'_>, _: &Stats, text: &mut String) -> Result<()> {
    let selected = context.session.database;
    let expiring = count_expiring(context)?;
    for database in 0..DATABASES {
        context.session.database = database;
        let keys = context.count_keys();
        context.session.database = selected;
        if let keys @ 1.. = keys? {
            let expires = expiring.get(&context.keyspaces[database]).copied().unwrap_or_default();
            _ = write!(text, "db{database}:keys={keys},expires={expires},avg_ttl=0\r\n");
        }
    }
    Ok(())
}
