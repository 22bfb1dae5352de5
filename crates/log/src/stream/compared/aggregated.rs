//! The paper's scheme: the winner of the sync lock syncs for all queued requests.

use super::{Buffered, CommitStream};
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

impl Aggregated {
    pub fn wait(&self, buffered: &Buffered, stream: &CommitStream, csn: Csn) -> Result<(), LogError> {
        let Some(own) = stream.close_group_of(csn)? else { return Ok(()) };
        if !stream.groups.claim(own.sequence) {
            return stream.wait_for_flusher(csn);
        }
        buffered.write_up_to(stream, own.last_csn)?;
        let request = Arc::new(Request {
            sequence: own.sequence,
            csn: own.last_csn,
            is_complete: AtomicBool::new(false),
        });
        self.primary.lock().push(Arc::clone(&request));
        let shared = &stream.shared;
        let mut start_ns = shared.now_ns();
        while !request.is_complete.load(SeqCst) {
            shared.poison.check()?;
            if !self.is_locked.swap(true, SeqCst) {
                add(&shared.stats.sync_lock_ns, shared.now_ns().saturating_sub(start_ns));
                self.sync_for_all(buffered, stream)?;
                // Complete now, unless another winner took the request and its sync failed: then the log is poisoned.
                start_ns = shared.now_ns();
                continue;
            }
            let is_over =
                || request.is_complete.load(SeqCst) || !self.is_locked.load(SeqCst) || shared.poison.is_set();
            add(&shared.stats.parks, u64::from(shared.parking.park(request.csn, is_over)));
        }
        add(&shared.stats.sync_lock_ns, shared.now_ns().saturating_sub(start_ns));
        Ok(())
    }

    /// The winner's work. Its own request is among those that it takes, or was completed before.
    fn sync_for_all(&self, buffered: &Buffered, stream: &CommitStream) -> Result<(), LogError> {
        let unlock = Unlock { scheme: self, stream };
        let flushing = stream.shared.flushing();
        let synced = self.sync_requests(buffered, stream);
        flushing.end();
        let Some(synced) = synced? else { return Ok(()) };
        drop(unlock);
        // Also the waiters whose commits were durable before: their requests are complete only now.
        stream.wake_durable(synced.before.min(synced.first.prev()));
        stream.complete(synced.before);
        Ok(())
    }

    /// Syncs for the queued requests, and completes them. `None` if there was no request.
    fn sync_requests(&self, buffered: &Buffered, stream: &CommitStream) -> Result<Option<Synced>, LogError> {
        let _lock = buffered.sync_lock(stream);
        let mut requests = self.secondary.lock();
        std::mem::swap(&mut *self.primary.lock(), &mut *requests);
        let first = requests.iter().map(|request| request.csn).min();
        let last = requests.iter().max_by_key(|request| request.sequence);
        let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
        if last.csn > stream.durable_csn() {
            stream.sync_written()?;
        }
        let before = stream.durable_csn();
        stream.raise_durable(last.sequence);
        stream.progress.raise_synced();
        for request in &*requests {
            request.is_complete.store(true, SeqCst);
        }
        add(&stream.shared.stats.requests_completed, requests.len() as u64);
        requests.clear();
        Ok(Some(Synced { first, before }))
    }
}

/// What a sync for all requests completed.
struct Synced {
    /// The first of their commits.
    first: Csn,
    /// The newest commit that was durable before.
    before: Csn,
}

/// Releases the sync lock, and wakes one thread whose request came too late for this sync.
struct Unlock<'a> {
    scheme: &'a Aggregated,
    stream: &'a CommitStream,
}

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        let Unlock { scheme, stream } = self;
        scheme.is_locked.store(false, SeqCst);
        let next = scheme.primary.lock().first().map(|request| request.csn);
        if let Some(csn) = next {
            add(&stream.shared.stats.wakes, stream.shared.parking.wake_range(csn.prev(), csn));
        }
    }
}
