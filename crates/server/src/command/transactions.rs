//! Transactions: commands that are queued, and run as one transaction of the engine.

use super::{Command, find};
use crate::args::{Args, OwnedArgs};
use crate::context::Context;
use crate::execute::INLINE_ARGUMENTS_MAX;
use crate::locks::Held;
use crate::long_exec::LongExec;
use crate::model::{PIECE_BYTES, head_key};
use crate::session::{Multi, Watched};
use crate::stop::{ErrorReply, Result, Stop};

/// The commands that run at once although a transaction is being queued.
const RUN_AT_ONCE: [&str; 6] = ["multi", "exec", "discard", "watch", "quit", "reset"];

/// Whether a command is queued instead of run.
pub(super) fn is_queued(context: &Context<'_>, command: Option<&Command>) -> bool {
    context.session.multi.is_some() && command.is_none_or(|command| !RUN_AT_ONCE.contains(&command.name))
}

/// Queues a command, if it is well formed.
pub(super) fn queue(context: &mut Context<'_>, args: &Args<'_>, checked: Result<()>) -> Result<()> {
    checked?;
    let multi = context.session.multi.as_mut().expect("a transaction is being queued");
    let args = OwnedArgs::copy(args);
    multi.arguments += args.args().len();
    multi.bytes += args.bytes();
    if multi.bytes > context.shared.settings.query_bytes_max() {
        *multi = Multi { is_broken: true, ..Multi::default() };
        return Err(ErrorReply::new("ERR", "the transaction is longer than query_bytes_max").into());
    }
    multi.commands.push(args);
    context.reply().simple(b"QUEUED");
    Ok(())
}

pub(super) fn multi(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    if context.session.multi.is_some() {
        return Err(ErrorReply::new("ERR", "MULTI calls can not be nested").into());
    }
    context.session.multi = Some(Multi::default());
    context.ok()
}

pub(super) fn discard(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    if context.session.multi.take().is_none() {
        return Err(ErrorReply::new("ERR", "DISCARD without MULTI").into());
    }
    context.session.watched.clear();
    context.ok()
}

/// Notes the last write to each key, as of the newest visible commit.
pub(super) fn watch(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if context.session.multi.is_some() {
        return Err(ErrorReply::new("ERR", "WATCH inside MULTI is not allowed").into());
    }
    let (database, keyspace) = (context.session.database, context.keyspace());
    let version = context.model().keyspaces.version_of(context.counts.stripe);
    // The connection's reads begin there from now on: one that did not see what is watched would miss a write before it.
    let at = context.shared.db.visible_csn();
    context.check_keyspaces(at)?;
    let mut watched = Vec::new();
    for key in args.from(1) {
        // The reply says nothing of it yet: `EXEC` does, and needs it then.
        let found = context.find_at(&head_key(keyspace, key), at)?;
        let live = found.old.filter(|old| old.head.is_live(context.now_ms));
        let expires_at_ms = live.as_ref().map_or(0, |old| old.head.expires_at_ms);
        let exists = live.is_some();
        let state = Watched { csn: found.csn, at, expires_at_ms, keyspace, version, exists };
        watched.push((*key, state));
    }
    for (key, state) in watched {
        context.session.watched.add(database, key, state);
    }
    context.session.own = context.session.own.max(at);
    context.ok()
}

pub(super) fn unwatch(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    context.session.watched.clear();
    context.ok()
}

/// Whether a watched key of a database was written, or has expired, since, or was another one meanwhile because the database had
/// another keyspace.
fn has_changed(context: &mut Context<'_>, database: usize, key: &[u8], watched: Watched) -> Result<bool> {
    let at = context.shared.db.visible_csn();
    let stripe = context.counts.stripe;
    let Some(mut others) = context.model().keyspaces.since(watched.version, database, stripe) else {
        return Ok(true);
    };
    others.retain(|keyspace| *keyspace != watched.keyspace);
    let found = context.find_at(&head_key(watched.keyspace, key), at)?;
    // A smaller number: it was deleted, and the delete was pruned.
    let is_written = found.csn != watched.csn;
    let has_expired = watched.expires_at_ms != 0 && watched.expires_at_ms <= context.now_ms;
    let mut has_changed = is_written || has_expired || (watched.exists && !others.is_empty());
    let mut needs = found.needs;
    for keyspace in others {
        let found = context.find_at(&head_key(keyspace, key), at)?;
        let exists = found.old.is_some_and(|old| old.head.is_live(context.now_ms));
        // Also one that was written there and deleted.
        has_changed |= exists || found.csn > watched.at;
        needs = needs.max(found.needs);
    }
    if has_changed {
        context.needs = context.needs.max(needs);
    }
    Ok(has_changed)
}

pub(super) fn exec(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    let Some(multi) = context.session.multi.take() else {
        return Err(ErrorReply::new("ERR", "EXEC without MULTI").into());
    };
    if multi.is_broken {
        context.session.watched.clear();
        return Err(ErrorReply::new("EXECABORT", "Transaction discarded because of previous errors.").into());
    }
    let before = context.session.clone();
    let is_large = multi.arguments + before.watched.len() > INLINE_ARGUMENTS_MAX;
    if context.runner.may_take_long() && before.watched.is_empty() && multi.only_reads() {
        return exec_reads(context, multi);
    }
    let ran = if is_large && !context.runner.may_take_long() {
        Err(Stop::Large)
    } else {
        exec_until_it_commits(context, &multi)
    };
    match ran {
        Err(stop @ (Stop::Blocked(_) | Stop::Large | Stop::Paused)) => {
            // It runs again, from the beginning.
            *context.session = before;
            context.session.multi = Some(multi);
            Err(stop)
        }
        outcome => {
            context.session.watched.clear();
            outcome
        }
    }
}

/// Runs commands that only read in one snapshot, without a transaction of the engine. Their replies leave in pieces.
fn exec_reads(context: &mut Context<'_>, multi: Multi) -> Result<()> {
    let snapshot = loop {
        match context.snapshot() {
            Err(Stop::Conflict) => context.begin_again(),
            snapshot => break snapshot?,
        }
    };
    context.needs = context.needs.max(snapshot.needs());
    let exec = LongExec::new(context, snapshot, multi.commands);
    context.reply_long_exec(exec)
}

/// How often a transaction that conflicts runs again but on a long worker.
const ATTEMPTS_MAX: u32 = 3;

fn exec_until_it_commits(context: &mut Context<'_>, multi: &Multi) -> Result<()> {
    let mut locks = lock_keys(context, multi)?;
    context.begin_with_locks();
    if context.shared.pause.holds(|| multi.writes(), || context.shared.monotonic_ms()) {
        return Err(Stop::Paused);
    }
    let before = context.session.clone();
    let start = context.reply_len();
    let mut attempts = 0;
    loop {
        match exec_once(context, multi) {
            Err(Stop::Conflict) if context.runner.may_take_long() || attempts < ATTEMPTS_MAX => {
                attempts += 1;
                *context.session = before.clone();
                context.truncate_reply(start);
                context.begin_again();
            }
            Err(Stop::Conflict) => return Err(context.runner.give_up()),
            outcome => {
                locks.note(context.session.own);
                return outcome;
            }
        }
    }
}

/// The locks of all keys that its commands write, if they stay in one database. If one of them gives databases other keyspaces, all
/// locks: until the others are installed, what another client writes goes to the former ones, and so has to come before (INV-SRV-7).
fn lock_keys<'l>(context: &Context<'l>, multi: &Multi) -> Result<Held<'l>> {
    if multi.changes_keyspaces() {
        return if context.runner.may_take_long() {
            Ok(context.shared.locks.lock_all())
        } else {
            Err(Stop::Large)
        };
    }
    let commands: Vec<Args<'_>> = multi.commands.iter().map(OwnedArgs::args).collect();
    let mut keys = Vec::new();
    for args in &commands {
        if let Some(command) = find(&args[0]).filter(|command| command.has_flag("write")) {
            keys.extend(command.keys_of(args));
        }
    }
    context.shared.locks.lock(context.session.database, keys.into_iter(), context.runner)
}

/// Runs the commands in one transaction, and commits it. Errors of single commands are replies, and undo that command alone.
fn exec_once(context: &mut Context<'_>, multi: &Multi) -> Result<()> {
    context.begin_exec()?;
    let ran = run_commands(context, multi);
    match ran {
        Ok(true) => context.commit_exec(),
        Ok(false) => {
            context.drop_exec();
            context.reply().null_array();
            Ok(())
        }
        Err(stop) => {
            context.drop_exec();
            Err(stop)
        }
    }
}

/// False if a watched key has changed.
fn run_commands(context: &mut Context<'_>, multi: &Multi) -> Result<bool> {
    for (database, key, watched) in context.session.watched.clone().iter() {
        if has_changed(context, database, key, watched)? {
            return Ok(false);
        }
        context.guard_in_exec(context.keyspaces[database], key)?;
    }
    let begin = context.reply_len();
    let may_leave_in_pieces = !context.runner.may_take_long() && multi.only_reads();
    context.reply().array(multi.commands.len());
    for command in &multi.commands {
        let args = command.args();
        let start = context.reply_len();
        if may_leave_in_pieces && start - begin > PIECE_BYTES {
            return Err(Stop::Large);
        }
        let savepoint = context.savepoint_in_exec();
        match super::run_command(context, &args) {
            Ok(()) => {}
            Err(Stop::Reply(error)) => {
                context.roll_back_in_exec(savepoint)?;
                context.truncate_reply(start);
                context.reply().error(error.code, &error.message);
            }
            Err(stop) => return Err(stop),
        }
    }
    Ok(true)
}
