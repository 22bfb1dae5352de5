//! The paper's scheme: the winner of the sync lock syncs for all queued requests.

use super::Scheme;
use crate::core::Core;
use crate::error::LogError;
use crate::stats::add;
use fulgurite_types::Csn;
use fulgurite_types::sync::{AtomicBool, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// A flushing thread's request.
struct Request {
    /// The thread's group, and the group's last commit.
    sequence: u64,
    csn: Csn,
    is_complete: AtomicBool,
}

/// The scheme of Son, Yeom and Han (2017), section 3.
///
/// 1. As in the baseline, one thread of each group writes it through the page cache.
/// 2. It puts a request (the group's last commit and a completion flag) into the primary queue, and tries the sync
///    lock.
/// 3. The winner swaps the queues: the requests so far are in the secondary queue, new ones go to the primary. It syncs
///    once, declares the newest commit of all requests durable, and sets their flags.
/// 4. The others sleep. A thread that finds its flag set returns without trying the lock again. The winner wakes one
///    thread whose request came after the swap, to try it.
///
/// INV-LOG-14: while the lock is free, a queued request has a thread that is awake. A thread queues its request, then
/// tries the lock. The winner frees the lock, then reads the queue. So either the thread gets the lock, or the winner
/// sees the request and wakes its thread.
#[derive(Default)]
pub(super) struct Aggregated {
    primary: Mutex<Vec<Arc<Request>>>,
    /// Only the winner touches it, and swaps it with the primary queue.
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
                // Complete now, unless another winner took the request and its sync failed: then the log is poisoned.
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

/// Releases the sync lock, and wakes one thread whose request came too late for this sync.
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
    /// The winner's work. Its own request is among those that it takes, or was completed before.
    fn sync_for_all(&self, core: &Core) -> Result<(), LogError> {
        let unlock = Unlock(self, core);
        let Some((first, before)) = core.flushing(|| self.sync_requests(core))? else { return Ok(()) };
        drop(unlock);
        // Also the waiters whose commits were durable before: their requests are complete only now.
        core.wake_durable(before.min(first.prev()));
        core.complete(before);
        Ok(())
    }

    /// Syncs for the queued requests, and completes them. Returns the first of their commits, and the newest commit
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
