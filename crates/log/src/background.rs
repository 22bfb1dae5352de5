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
            let _ = self.0.poison.set("the log thread panicked", None);
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
        // Said before it is asked whether a hint is due: who makes one due after that sees it, and wakes.
        core.signal.resting.store(true, Ordering::SeqCst);
        let rest = if result.is_ok() && hint_due(core).is_some() { core.options.hint_idle } else { REST };
        let mut woken = core.signal.woken.lock();
        if !*woken && !core.closed.load(Ordering::Acquire) {
            core.signal.changed.wait_for(&mut woken, rest);
        }
        *woken = false;
        core.signal.resting.store(false, Ordering::Relaxed);
    }
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
    let reserved = core.slot().next_csn().prev();
    let requested = Csn(core.marks.requested_csn.load(Ordering::Acquire)).min(reserved);
    if requested <= core.durable_csn() {
        return Ok(false);
    }
    core.wait_durable(requested)?;
    Ok(true)
}

/// Makes one segment, if the pool is short.
fn refill(core: &Core) -> Result<bool, LogError> {
    if core.slot().ready() >= core.options.ready_segments {
        return Ok(false);
    }
    let mut maker = core.store.maker();
    core.check_usable()?;
    let taken = {
        let slot = core.slot();
        if slot.ready() >= core.options.ready_segments {
            return Ok(false);
        }
        slot.segments_taken()
    };
    let segment = core.store.make(&mut maker, taken, 0, &core.stats)?;
    core.slot().push_ready(segment);
    Ok(true)
}

/// The durable CSN that no durable group testifies to yet.
fn hint_due(core: &Core) -> Option<Csn> {
    let durable = core.durable_csn();
    (core.marks.hinted_csn.load(Ordering::Relaxed) < durable.0).then_some(durable)
}

/// Writes and syncs one empty group after a burst of commits. A hint adds no CSN, so none answers another; it is
/// written only if nobody leads and nothing waits. It is synced under the leadership: a sync beside another's could
/// take the error that belongs to the other.
fn idle_hint(core: &Arc<Core>) -> Result<bool, LogError> {
    if hint_due(core).is_none() {
        return Ok(false);
    }
    let idle_ns = core.env.clock().monotonic_ns().saturating_sub(core.marks.busy_ns.load(Ordering::Relaxed));
    if u128::from(idle_ns) < core.options.hint_idle.as_nanos() {
        return Ok(false);
    }
    write_hint(core)
}

fn write_hint(core: &Arc<Core>) -> Result<bool, LogError> {
    let Some(leadership) = core.try_lead() else {
        return Ok(false);
    };
    if hint_due(core).is_none() || !core.append_hint()? {
        return Ok(false);
    }
    core.flush(&leadership)
}

/// Makes everything that is reserved durable, and the fact known.
pub(crate) fn settle(core: &Arc<Core>) -> Result<(), LogError> {
    let last = core.slot().next_csn().prev();
    core.wait_durable(last)?;
    match write_hint(core) {
        Ok(_) | Err(LogError::NoSpace { .. } | LogError::Io { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
