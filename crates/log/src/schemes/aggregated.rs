//! The paper's scheme: whoever wins the sync lock syncs for all who asked.

use super::Scheme;
use crate::core::Core;
use crate::error::LogError;
use crate::stats::add;
use crate::sync::{AtomicBool, Mutex};
use fulgurite_types::Csn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// What a flushing thread asks for.
struct Request {
    /// Its group, and the last commit of that.
    sequence: u64,
    csn: Csn,
    is_complete: AtomicBool,
}

/// The scheme of Son, Yeom and Han (2017), section 3.
///
/// 1. As in the baseline, one thread of each group writes it through the page cache.
/// 2. It puts a request, its last commit and a completion flag, into the primary queue, and tries the sync lock.
/// 3. The winner swaps the queues: it has the requests so far in the secondary one, new ones go to the primary. It
///    syncs once, declares the newest commit of all requests durable, and sets their flags.
/// 4. The others sleep. Whoever finds its flag set returns without ever trying the lock again; one whose request came
///    after the swap is woken to try it.
///
/// INV-LOG-14: a request that is in the queue when the lock is free has a thread that is awake: it tries the lock after
/// it queued, and who lets go of the lock looks at the queue afterwards.
#[derive(Default)]
pub(super) struct Aggregated {
    primary: Mutex<Vec<Arc<Request>>>,
    /// Swapped with the primary queue by the winner, who alone touches it.
    secondary: Mutex<Vec<Arc<Request>>>,
    is_locked: AtomicBool,
}

impl Scheme for Aggregated {
    fn wait(&self, core: &Core, csn: Csn) -> Result<(), LogError> {
        let Some(own) = core.close_group_of(csn)? else { return Ok(()) };
        if !core.ring.claim(own.sequence) {
            return core.flush_wait(csn);
        }
        core.write_up_to(own.last_csn)?;
        let request = Arc::new(Request {
            sequence: own.sequence,
            csn: own.last_csn,
            is_complete: AtomicBool::new(false),
        });
        self.primary.lock().push(Arc::clone(&request));
        let clock = core.env.clock();
        let mut start = clock.monotonic_ns();
        while !request.is_complete.load(SeqCst) {
            core.poison.check()?;
            if !self.is_locked.swap(true, SeqCst) {
                add(&core.stats.sync_lock_ns, clock.monotonic_ns().saturating_sub(start));
                self.sync_for_all(core)?;
                // Complete now, unless somebody else took the request and its sync failed: then the log is poisoned.
                start = clock.monotonic_ns();
                continue;
            }
            let is_over =
                || request.is_complete.load(SeqCst) || !self.is_locked.load(SeqCst) || core.poison.is_set();
            add(&core.stats.parks, u64::from(core.parking.park(request.csn, is_over)));
        }
        add(&core.stats.sync_lock_ns, clock.monotonic_ns().saturating_sub(start));
        Ok(())
    }

    fn flush(&self, core: &Core, _barrier: bool) -> Result<bool, LogError> {
        core.flush_buffered()
    }
}

/// Lets go of the sync lock, and wakes one whose request came too late for it.
struct Unlock<'a>(&'a Aggregated, &'a Core);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        let Unlock(scheme, core) = self;
        scheme.is_locked.store(false, SeqCst);
        let next = scheme.primary.lock().first().map(|request| request.csn);
        if let Some(csn) = next {
            add(&core.stats.wakes, core.parking.wake_range(csn.prev(), csn));
        }
    }
}

impl Aggregated {
    /// The winner's part: its own request is among those that it takes, or was completed before.
    fn sync_for_all(&self, core: &Core) -> Result<(), LogError> {
        let unlock = Unlock(self, core);
        let Some((first, before)) = core.flushing(|| self.sync_requests(core))? else { return Ok(()) };
        drop(unlock);
        // Also those whose commits were durable before: only now are their requests complete.
        core.wake_durable(before.min(first.prev()));
        core.complete(before);
        Ok(())
    }

    /// Syncs for the requests that are in the queue, and completes them. The first of their commits, and the newest
    /// that was durable before; `None` if there was no request.
    fn sync_requests(&self, core: &Core) -> Result<Option<(Csn, Csn)>, LogError> {
        let _lock = core.sync_lock();
        let mut requests = self.secondary.lock();
        std::mem::swap(&mut *self.primary.lock(), &mut *requests);
        let first = requests.iter().map(|request| request.csn).min();
        let last = requests.iter().max_by_key(|request| request.sequence);
        let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
        if last.csn > core.durable_csn() {
            core.sync_buffered()?;
        }
        let before = core.durable_csn();
        core.raise_durable(last.sequence);
        core.raise_synced();
        for request in &*requests {
            request.is_complete.store(true, SeqCst);
        }
        add(&core.stats.requests_completed, requests.len() as u64);
        requests.clear();
        Ok(Some((first, before)))
    }
}
