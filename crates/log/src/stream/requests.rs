//! Requests for durability that no thread waits for: the log thread serves them, now or within an interval.

use fulgurite_types::Csn;
use fulgurite_types::sync::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

#[derive(Default)]
pub(super) struct Requests {
    /// The newest CSN to make durable now.
    requested_csn: AtomicU64,
    /// The newest CSN requested within an interval, and when it is due, in monotonic nanoseconds; 0: nothing is due.
    due_csn: AtomicU64,
    due_ns: AtomicU64,
}

impl Requests {
    /// Requests that `csn` become durable. True if that is news to the log thread.
    pub fn request(&self, csn: Csn) -> bool {
        self.requested_csn.fetch_max(csn.0, SeqCst) < csn.0
    }

    /// Requests that `csn` become durable at `due_ns`, above 0. True if that is the earliest.
    pub fn request_at(&self, csn: Csn, due_ns: u64) -> bool {
        self.due_csn.fetch_max(csn.0, SeqCst);
        let sooner = |set: u64| (set == 0 || due_ns < set).then_some(due_ns);
        self.due_ns.fetch_update(SeqCst, SeqCst, sooner).is_ok()
    }

    /// The newest commit to make durable at `now_ns`.
    pub fn requested(&self, now_ns: u64) -> Csn {
        let due = self.due_ns.load(SeqCst);
        if due != 0 && due <= now_ns {
            // A thread that raises `due_csn` after the load below finds `due_ns` cleared, and sets it anew.
            self.due_ns.store(0, SeqCst);
            let csn = self.due_csn.load(SeqCst);
            self.requested_csn.fetch_max(csn, SeqCst);
        }
        Csn(self.requested_csn.load(SeqCst))
    }

    /// When the next request is due; `None` if none is.
    pub fn due_ns(&self) -> Option<u64> {
        Some(self.due_ns.load(SeqCst)).filter(|due| *due != 0)
    }
}
