//! The log thread, and the one round of work that it repeats.

use crate::core::Core;
use crate::error::LogError;
use fulgurite_base::Csn;
use fulgurite_env::Joiner;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the thread rests when nothing is expected.
const REST: Duration = Duration::from_millis(200);

/// Starts the thread, if the options want one.
pub(crate) fn start(core: &Arc<Core>) -> Result<Option<Box<dyn Joiner>>, LogError> {
    if !core.options.background {
        return Ok(None);
    }
    let shared = Arc::clone(core);
    let spawned = core.env.spawn("fulgurite-log", Box::new(move || run(&shared)));
    let thread = spawned.map_err(|source| LogError::Io {
        action: "start the thread of",
        path: core.store.path(1).parent().map(Into::into).unwrap_or_default(),
        source,
    })?;
    Ok(Some(thread))
}

/// Ends all writing if the thread dies of a panic: nobody serves requests any more, and who made one would wait.
struct Dying<'a>(&'a Core);

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.fail("the log thread panicked", None);
        }
    }
}

fn run(core: &Arc<Core>) {
    let _dying = Dying(core);
    while !core.closed.load(Ordering::Acquire) {
        let result = maintain(core);
        if let Err(error) = &result {
            tracing::debug!(%error, "the log thread could not do its work; it tries again");
        }
        if matches!(result, Ok(true)) {
            continue;
        }
        // Said before it is asked what is due: who adds something after that sees it, and wakes.
        core.signal.resting.store(true, Ordering::SeqCst);
        let rest = if result.is_ok() { rest(core) } else { Some(REST) };
        if let Some(rest) = rest {
            let mut woken = core.signal.woken.lock();
            if !*woken && !core.closed.load(Ordering::Acquire) {
                core.signal.changed.wait_for(&mut woken, rest);
            }
            *woken = false;
        }
        core.signal.resting.store(false, Ordering::SeqCst);
        core.signal.resting_long.store(false, Ordering::SeqCst);
    }
}

/// How long the thread may sleep; `None` if there is work.
fn rest(core: &Core) -> Option<Duration> {
    core.signal.resting_long.store(true, Ordering::SeqCst);
    let now = core.env.clock().monotonic_ns();
    if core.requested(now) > core.durable_csn() {
        return None;
    }
    let due = core.marks.due_ns.load(Ordering::SeqCst);
    let hint = if hint_due(core).is_some() { core.options.hint_idle } else { REST };
    let due = if due == 0 { REST } else { Duration::from_nanos(due.saturating_sub(now)) };
    Some(hint.min(due))
}

/// Flushes what was requested, makes segments ready, writes the idle hint.
pub(crate) fn maintain(core: &Arc<Core>) -> Result<bool, LogError> {
    core.check_usable()?;
    let mut worked = flush_requested(core)?;
    worked |= refill(core)?;
    worked |= idle_hint(core)?;
    if !worked {
        worked = core.store.remove_unwanted()?;
    }
    Ok(worked)
}

fn flush_requested(core: &Core) -> Result<bool, LogError> {
    let requested = core.requested(core.env.clock().monotonic_ns());
    if requested <= core.durable_csn() {
        return Ok(false);
    }
    let requested = requested.min(core.reserved_csn());
    core.wait_durable(requested)?;
    Ok(true)
}

/// Makes one segment, if the pool is short.
fn refill(core: &Core) -> Result<bool, LogError> {
    if core.slots().ready() >= core.options.ready_segments {
        return Ok(false);
    }
    let mut maker = core.store.maker();
    core.check_usable()?;
    let taken = {
        let slot = core.slots();
        if slot.ready() >= core.options.ready_segments {
            return Ok(false);
        }
        slot.segments_taken()
    };
    let segment = core.store.make(&mut maker, taken, 0, &core.stats)?;
    core.slots().push_ready(segment, &core.credit);
    Ok(true)
}

/// The durable CSN that no durable group testifies to yet.
fn hint_due(core: &Core) -> Option<Csn> {
    let durable = core.durable_csn();
    (core.marks.hinted_csn.load(Ordering::Relaxed) < durable.0).then_some(durable)
}

/// Once the stream has been idle: makes durable what nobody asked for, then notes with one empty group how far that
/// is. A hint adds no CSN, so none answers another; it is written only if nothing waits to be written.
fn idle_hint(core: &Arc<Core>) -> Result<bool, LogError> {
    let leftover = !core.slots().is_idle();
    if hint_due(core).is_none() && !leftover {
        return Ok(false);
    }
    let now = core.env.clock().monotonic_ns();
    let idle_ns = now.saturating_sub(core.marks.busy_ns.load(Ordering::Relaxed));
    if u128::from(idle_ns) < core.options.hint_idle.as_nanos() {
        return Ok(false);
    }
    if leftover {
        return core.scheme.flush(core, false);
    }
    write_hint(core)
}

fn write_hint(core: &Arc<Core>) -> Result<bool, LogError> {
    if hint_due(core).is_none() || !core.append_hint()? {
        return Ok(false);
    }
    core.scheme.flush(core, true)
}

/// Makes everything that is reserved durable, and the fact known.
pub(crate) fn settle(core: &Arc<Core>) -> Result<(), LogError> {
    core.wait_durable(core.reserved_csn())?;
    match write_hint(core) {
        Ok(_) | Err(LogError::NoSpace { .. } | LogError::Io { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
