//! A watch: how an event loop learns that commits may be acknowledged, at one wake-up for many of them.

use std::sync::Arc;

use fulgurite_types::Csn;

use crate::commit::watches::WatchState;
use crate::handle::Handle;
use crate::{Database, Error, Numbered, Result};

/// Tells a thread when commits may be acknowledged. For an event loop that has many commits on their way: it keeps its replies
/// in a queue by CSN, sends those up to [`Watch::reached`], and [asks](Watch::ask) for the first one that is left. However many
/// they are, that is one wake-up for each write of the log, and neither an allocation nor a lock for a commit. A
/// [`Ticket`](crate::Ticket) is the same for a single commit.
///
/// A watch keeps the database open. It belongs to one thread at a time.
///
/// ```
/// use std::sync::mpsc;
///
/// use fulgurite::{Database, Options};
///
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = Database::open(dir.path().join("data"), Options::default())?;
/// let events = db.table("events")?;
/// let (wake, wakes) = mpsc::channel();                // an event loop has a pipe or an eventfd
/// let mut watch = db.watch(move || _ = wake.send(()));
/// let mut replies = std::collections::VecDeque::new();
/// for n in 0..100_u32 {
///     let mut txn = db.begin();
///     txn.put(&events, n.to_be_bytes(), "started")?;
///     replies.push_back(txn.commit_numbered()?.needs); // visible soon, durable later
/// }
/// while let Some(&first) = replies.front() {
///     if !watch.ask(first)? {
///         wakes.recv().unwrap();                       // the loop would do other work
///     }
///     let reached = watch.reached();
///     while replies.front().is_some_and(|needs| *needs <= reached) {
///         replies.pop_front();                         // send the reply
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Watch {
    state: Arc<WatchState>,
    engine: Handle,
}

impl Database {
    /// A watch, not armed yet. `wake` is called once for each arming, and once when the log fails or the database is closed, on
    /// the thread that made the commits durable or visible: any thread that commits or watches, or one of the database. It holds no
    /// lock, but it should only wake the thread that watches: other acknowledgements may wait for it. It must not own a handle
    /// of the database, which it would keep open. Without threads of the database ([`Options::background`](crate::Options::background))
    /// [`Database::maintain`] calls it where no other thread does. A database looks at all its watches when it wakes one: have one
    /// for each event loop, not for each client.
    ///
    /// In a child of the process that opened the database ([`Error::Forked`]) the watch never wakes, and each of its calls fails.
    pub fn watch(&self, wake: impl Fn() + Send + Sync + 'static) -> Watch {
        let state = WatchState::new(wake);
        let engine = self.handle().clone();
        if engine.check_process().is_ok() {
            engine.pipeline.add_watch(&state);
        }
        Watch { state, engine }
    }
}

impl Watch {
    /// Whether commits up to `csn` may be acknowledged, now. If not, requests that they become durable, and arms the watch:
    /// `wake` will be called once they may be. Does not wait.
    ///
    /// If the watch is armed for a smaller CSN, it stays armed for that one. So after each wake-up ask for the first CSN that is
    /// still awaited. A wake-up that was on its way when this returned true may still come.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`]: no commit above [`Watch::reached`] will ever be acknowledged. Whether those happened
    /// is unknown until the database is opened again. [`Error::Forked`].
    pub fn ask(&mut self, csn: Csn) -> Result<bool> {
        self.engine.check_process()?;
        self.engine.pipeline.ask(&self.state, csn)
    }

    /// The CSN up to which commits may be acknowledged: they and all before them are durable and visible. Never falls, also
    /// after a failure.
    #[inline]
    pub fn reached(&self) -> Csn {
        self.engine.pipeline.reached()
    }

    /// The CSN up to which transactions that begin now see all commits.
    #[inline]
    pub fn visible(&self) -> Csn {
        self.engine.pipeline.visible()
    }

    /// Writes and syncs the log on this thread, unless another thread is doing so. For an event loop that has nothing else to do:
    /// its commits become durable without a switch to the log's thread and back. Waits for the disk, and for commits that other
    /// threads are copying into the log. Returns whether it wrote something; if not, or if [`Watch::reached`] is still short
    /// because such a commit was slow, [`Watch::ask`].
    ///
    /// With the [research schemes](crate::FlushScheme) it does nothing.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::Forked`].
    pub fn lead(&mut self) -> Result<bool> {
        self.engine.check_process()?;
        self.engine.pipeline.lead()
    }

    /// Call it right before the acknowledgement of a commit that [needed](Numbered::needs) others leaves, at
    /// [`Durability::Async`](crate::Durability::Async) or [`Durability::None`](crate::Durability::None): from now on
    /// [`Table::get`](crate::Table::get), snapshots and scans show it, on every thread. Does nothing while its needs are not
    /// reached, and for a commit of a higher level, which they show anyway once it is durable.
    pub fn acknowledge(&self, commit: Numbered) {
        if self.engine.check_process().is_ok() {
            self.engine.pipeline.acknowledge_numbered(commit);
        }
    }

    /// Why no commit will be acknowledged any more; `None` as long as nothing has failed.
    pub fn failure(&self) -> Option<Error> {
        self.engine.check_open().and_then(|()| self.engine.pipeline.check_log()).err()
    }
}

impl Drop for Watch {
    /// A wake-up may still be on its way.
    fn drop(&mut self) {
        if self.engine.check_process().is_ok() {
            self.engine.pipeline.remove_watch(&self.state);
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({:?})", self.state)
    }
}
