//! The log's threads: one flushes, one makes segments.

use crate::error::LogError;
use crate::segments::supply;
use crate::shared::Shared;
use crate::stream::{CommitStream, flusher};
use fulgurite_env::Joiner;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread sleeps that could not do its work, at first and at most.
pub(crate) const RETRY: Duration = Duration::from_millis(200);
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(3);

/// Starts the threads, if the options ask for them.
pub(crate) fn start(stream: &Arc<CommitStream>) -> Result<Vec<Box<dyn Joiner>>, LogError> {
    let shared = &stream.shared;
    if !shared.options.background || shared.options.read_only {
        return Ok(Vec::new());
    }
    let spawn = |name: &str, body: fn(&Arc<CommitStream>)| {
        let stream = Arc::clone(stream);
        shared.env.spawn(name, Box::new(move || body(&stream)))
    };
    let failed = |source| LogError::Io {
        action: "start the threads of",
        path: stream.segments.dir().path().to_owned(),
        source,
    };
    let flusher = spawn("fulgurite-log", flusher::run).map_err(failed)?;
    match spawn("fulgurite-segs", supply::run) {
        Ok(supplier) => Ok(vec![flusher, supplier]),
        Err(error) => {
            shared.set_closed();
            shared.wake_threads();
            flusher.join();
            Err(failed(error))
        }
    }
}

/// Poisons the log unless the thread ends alive: a thread of the log panicked, so nothing serves requests any more, and
/// threads that filed one would wait for ever.
pub(crate) struct Dying<'a>(pub &'a Shared);

impl Dying<'_> {
    /// The thread ends without a panic.
    pub fn live(self) {
        std::mem::forget(self);
    }
}

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        let _ = self.0.fail("a thread of the log panicked", None);
        // The thread that would serve it may be this one.
        self.0.serve_completion();
    }
}
