//! The log's threads, and their rounds of work.

use crate::core::Core;
use crate::error::LogError;
use crate::store::From;
use fulgurite_env::Joiner;
use fulgurite_types::Csn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::schemes::{GATHER_NS, GATHER_TURNS};
use crate::signal::Sleep;
use fulgurite_types::sync::yield_now;

/// How long a thread sleeps that could not do its work, at first and at most.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(3);

/// Starts the threads, if the options ask for them: the log thread flushes requested commits and writes mark groups;
/// another makes segments, so that no requested flush waits until a segment is filled with zeros.
pub(crate) fn start(core: &Arc<Core>) -> Result<Vec<Box<dyn Joiner>>, LogError> {
    if !core.options.background || core.options.read_only {
        return Ok(Vec::new());
    }
    let spawn = |name: &str, body: fn(&Arc<Core>)| {
        let shared = Arc::clone(core);
        core.env.spawn(name, Box::new(move || body(&shared)))
    };
    let failed = |source| LogError::Io {
        action: "start the threads of",
        path: core.store.dir().path().to_owned(),
        source,
    };
    let flusher = spawn("fulgurite-log", flush_loop).map_err(failed)?;
    match spawn("fulgurite-segs", supply_loop) {
        Ok(supplier) => Ok(vec![flusher, supplier]),
        Err(error) => {
            core.closed.store(true, Ordering::Release);
            core.wake();
            flusher.join();
            Err(failed(error))
        }
    }
}

/// Poisons the log unless it is forgotten: a thread of the log panicked, so nothing serves requests any more, and
/// threads that filed one would wait for ever.
struct Dying<'a>(&'a Core);

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        let _ = self.0.fail("a thread of the log panicked", None);
        // The thread that would serve it may be this one.
        self.0.serve_completion();
    }
}

fn flush_loop(core: &Arc<Core>) {
    let dying = Dying(core);
    while !core.closed.load(Ordering::Acquire) {
        let result = serve(core);
        if let Err(error) = &result {
            tracing::debug!(%error, "the log thread could not do its work; it tries again");
        }
        let failed = match result {
            Ok(true) => continue,
            Ok(false) => false,
            Err(_) => true,
        };
        core.signal.sleep(|| match look(core) {
            _ if core.completion_wanted.load(Ordering::SeqCst) => Sleep::No,
            Sleep::No if failed && !core.closed.load(Ordering::Acquire) => Sleep::Nap(RETRY),
            sleep => sleep,
        });
    }
    std::mem::forget(dying);
}

fn supply_loop(core: &Arc<Core>) {
    let dying = Dying(core);
    let mut retry = RETRY;
    while !core.closed.load(Ordering::Acquire) {
        let result = supply(core);
        if let Err(error) = &result {
            tracing::debug!(%error, "no segment could be made; it is tried again");
        }
        let failed = match result {
            Ok(true) => {
                retry = RETRY;
                continue;
            }
            Ok(false) => false,
            Err(_) => true,
        };
        core.supply.sleep(|| {
            if core.closed.load(Ordering::Acquire) {
                Sleep::No
            } else if core.poison.is_set() {
                Sleep::Rest
            } else if failed {
                Sleep::Nap(retry)
            } else if is_short_of_segments(core) {
                Sleep::No
            } else {
                Sleep::Rest
            }
        });
        retry = if failed { (2 * retry).min(RETRY_MAX) } else { RETRY };
    }
    std::mem::forget(dying);
}

/// How long the log thread may sleep (INV-LOG-15). Until it is woken, if nothing is requested or due later, the newest
/// durable mark has reached the durable CSN, and no group waits to be written.
fn look(core: &Core) -> Sleep {
    if core.closed.load(Ordering::Acquire) {
        return Sleep::No;
    }
    if core.poison.is_set() {
        return Sleep::Rest;
    }
    let now = core.env.clock().monotonic_ns();
    if core.requested(now).min(core.reserved_csn()) > core.durable_csn() {
        return Sleep::No;
    }
    let due = core.watermarks.due_ns.load(Ordering::SeqCst);
    let due = if due == 0 { Sleep::Rest } else { Sleep::Nap(Duration::from_nanos(due.saturating_sub(now))) };
    let is_idle = mark_due(core).is_none() && core.groups().is_idle();
    if is_idle { due } else { due.min(Sleep::Nap(until_mark(core, now))) }
}

/// When to check again whether the log is idle. Less often once it is idle and the thread could not act, as on a full
/// disk.
fn until_mark(core: &Core, now: u64) -> Duration {
    let idle = core.options.mark_idle;
    let waited_ns = now.saturating_sub(core.watermarks.busy_ns.load(Ordering::Relaxed));
    if u128::from(waited_ns) > 2 * idle.as_nanos() { idle.max(RETRY) } else { idle }
}

/// Flushes requested commits, makes segments ready, writes a mark group if the log is idle.
pub(crate) fn maintain(core: &Arc<Core>) -> Result<bool, LogError> {
    let served = serve(core)?;
    Ok(supply(core)? || served)
}

/// Flushes requested commits, and writes a mark group if the log is idle.
fn serve(core: &Arc<Core>) -> Result<bool, LogError> {
    core.serve_completion();
    core.check_usable()?;
    let flushed = flush_requested(core)?;
    Ok(idle_mark(core)? || flushed)
}

/// Makes segments ready, and removes unwanted files.
fn supply(core: &Arc<Core>) -> Result<bool, LogError> {
    core.check_usable()?;
    if core.store.is_nearly_full() && keep_reserve(core)? {
        return Ok(true);
    }
    let refilled = refill(core);
    if matches!(refilled, Ok(true)) {
        return Ok(true);
    }
    // Also if the disk is full: that makes room.
    let removed = core.store.remove_unwanted()?;
    Ok(refilled? || removed || keep_reserve(core)?)
}

/// Adds a file to the reserve for a full disk, if one is missing and there is room.
fn keep_reserve(core: &Core) -> Result<bool, LogError> {
    let mut maker = core.store.maker();
    core.check_usable()?;
    core.fill_reserve(&mut maker, core.options.reserve_segments)
}

fn flush_requested(core: &Core) -> Result<bool, LogError> {
    let requested = core.requested(core.env.clock().monotonic_ns());
    if requested <= core.durable_csn() {
        return Ok(false);
    }
    let requested = requested.min(core.reserved_csn());
    if requested <= core.durable_csn() {
        return Ok(false);
    }
    gather(core);
    core.wait_durable(requested)?;
    Ok(true)
}

/// Keeps at least the time of one write between two requested flushes: requests filed meanwhile share the second. The
/// first of a burst does not wait.
fn gather(core: &Core) {
    let clock = core.env.clock();
    let end = core.watermarks.busy_ns.load(Ordering::Relaxed)
        + core.watermarks.io_ns.load(Ordering::Relaxed).min(GATHER_NS);
    for _ in 0..GATHER_TURNS {
        if clock.monotonic_ns() >= end {
            break;
        }
        yield_now();
    }
}

fn is_short_of_segments(core: &Core) -> bool {
    core.groups().ready() < core.options.ready_segments
}

/// Makes one segment, if the pool is short.
fn refill(core: &Core) -> Result<bool, LogError> {
    if !is_short_of_segments(core) {
        return Ok(false);
    }
    let mut maker = core.store.maker();
    core.check_usable()?;
    let taken = {
        let slot = core.groups();
        if slot.ready() >= core.options.ready_segments {
            return Ok(false);
        }
        slot.segments_taken()
    };
    let segment = core.make_segment(&mut maker, taken, 0, From::Disk)?;
    core.groups().push_ready(segment, &core.credit);
    Ok(true)
}

/// The durable CSN, if no durable group's durable mark has reached it yet.
fn mark_due(core: &Core) -> Option<Csn> {
    let durable = core.durable_csn();
    (core.watermarks.marked_csn.load(Ordering::Relaxed) < durable.0).then_some(durable)
}

/// Once the stream is idle: flushes commits that no thread requested, then writes one mark group. A mark group adds no
/// CSN, so none causes another. It is written only if no group waits to be written.
fn idle_mark(core: &Arc<Core>) -> Result<bool, LogError> {
    let leftover = !core.groups().is_idle();
    if mark_due(core).is_none() && !leftover {
        return Ok(false);
    }
    let now = core.env.clock().monotonic_ns();
    let idle_ns = now.saturating_sub(core.watermarks.busy_ns.load(Ordering::Relaxed));
    if u128::from(idle_ns) < core.options.mark_idle.as_nanos() {
        return Ok(false);
    }
    if leftover {
        return core.scheme.flush(core, false);
    }
    write_mark(core)
}

fn write_mark(core: &Arc<Core>) -> Result<bool, LogError> {
    if mark_due(core).is_none() || !core.append_mark()? {
        return Ok(false);
    }
    core.scheme.flush(core, true)
}

/// Makes everything that is reserved durable, and writes a durable mark that says so.
pub(crate) fn settle(core: &Arc<Core>) -> Result<(), LogError> {
    core.wait_durable(core.reserved_csn())?;
    match write_mark(core) {
        Ok(_) | Err(LogError::NoSpace { .. } | LogError::Io { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
