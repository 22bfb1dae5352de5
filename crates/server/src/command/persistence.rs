//! Durability and checkpoints: `WAIT`, `WAITAOF`, `SAVE` and its kind; and the end of the server.

use fulgurite::Missing;
use fulgurite_resp::parse_i64;

use crate::args::Args;
use crate::context::Context;
use crate::stop::{ErrorReply, Result, Stop};

/// A time to wait, in milliseconds.
pub(super) fn parse_timeout(text: &[u8]) -> Result<u64> {
    let ms = parse_i64(text).ok_or(ErrorReply::new("ERR", "timeout is not an integer or out of range"))?;
    Ok(u64::try_from(ms).map_err(|_| ErrorReply::new("ERR", "timeout is negative"))?)
}

/// Has the reply wait until all is durable that the connection has committed, at whatever level.
fn wait_for_own(context: &mut Context<'_>) {
    context.needs = context.needs.max(context.session.own);
}

/// `WAIT numreplicas timeout`: there are no replicas, so none has anything, however long one waits.
pub(super) fn wait(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    parse_i64(&args[1]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    parse_timeout(&args[2])?;
    wait_for_own(context);
    context.reply().integer(0);
    Ok(())
}

/// `WAITAOF numlocal numreplicas timeout`: the log here has all once it is durable, and no replica has anything.
pub(super) fn waitaof(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    const LOCAL: ErrorReply = ErrorReply::new("ERR", "value is out of range, value must between 0 and 1");
    const REPLICAS: ErrorReply = ErrorReply::new("ERR", "value is out of range, must be positive");
    let local = parse_i64(&args[1]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    if !(0..=1).contains(&local) {
        return Err(LOCAL.into());
    }
    let replicas = parse_i64(&args[2]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    if replicas < 0 {
        return Err(REPLICAS.into());
    }
    parse_timeout(&args[3])?;
    wait_for_own(context);
    let mut reply = context.reply();
    reply.array(2);
    reply.integer(1);
    reply.integer(0);
    Ok(())
}

/// Ends the command on a thread that may not wait.
fn on_worker(context: &Context<'_>) -> Result<()> {
    if context.runner.may_wait() { Ok(()) } else { Err(Stop::Blocked(Missing::Node)) }
}

pub(super) fn lastsave(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    on_worker(context)?;
    let last_ms = context.shared.saves.last_ms(&context.shared.db);
    context.reply().integer((last_ms / 1_000) as i64);
    Ok(())
}

pub(super) fn save(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    if !context.runner.may_take_long() {
        return Err(Stop::Large);
    }
    if context.shared.saves.status().0 {
        return Err(ErrorReply::new("ERR", "Background save already in progress").into());
    }
    context.shared.saves.save(&context.shared.db)?;
    wait_for_own(context);
    context.ok()
}

pub(super) fn bgsave(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    if args.len() > 2 || args.len() == 2 && !args.is(1, "schedule") {
        return Err(ErrorReply::SYNTAX.into());
    }
    on_worker(context)?;
    context.check_runs_once()?;
    let shared = context.shared;
    match shared.saves.begin(&shared.db, &*shared.env) {
        Ok(true) => context.reply().simple(b"Background saving started"),
        Ok(false) => return Err(ErrorReply::new("ERR", "Background save already in progress").into()),
        Err(error) => return context.fail("ERR", format!("no thread for the checkpoint: {error}")),
    }
    Ok(())
}

pub(super) fn bgrewriteaof(context: &mut Context<'_>, _: &Args<'_>) -> Result<()> {
    context.reply().simple(
        b"Background append only file rewriting is not needed: space of the log is reclaimed all the time",
    );
    Ok(())
}

/// `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE]`, or `SHUTDOWN ABORT`: the server stops as [`crate::Server::stop`] does. What was
/// acknowledged is durable anyway, so the options make no difference. It has no reply but an error: its
/// connection is closed after all others.
pub(super) fn shutdown(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let has = |word: &str| (1..args.len()).any(|index| args.is(index, word));
    let known = ["nosave", "save", "now", "force", "abort"];
    let is_known = |index: usize| known.iter().any(|word| args.is(index, word));
    let contradicts = has("save") && has("nosave") || has("abort") && args.len() > 2;
    if contradicts || !(1..args.len()).all(is_known) {
        return Err(ErrorReply::SYNTAX.into());
    }
    if has("abort") {
        return Err(ErrorReply::new("ERR", "No shutdown in progress.").into());
    }
    tracing::info!(client = context.session.client.origin.id, "a client stops the server");
    context.session.has_quit = true;
    context.session.has_shut_down = true;
    context.shared.begin_stop();
    Ok(())
}
