//! The log's threads: one flushes, one makes segments, and one drains staging buffers, if there are any.

use crate::error::LogError;
use crate::segments::supply;
use crate::shared::Shared;
use crate::stream::{CommitStream, flusher, stage};
use fulgurite_env::Joiner;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread sleeps that could not do its work, at first and at most.
pub(crate) const RETRY: Duration = Duration::from_millis(200);
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(3);

/// What a thread runs.
type Body = fn(&Arc<CommitStream>);

/// Starts the threads, if the options ask for them.
pub(crate) fn start(stream: &Arc<CommitStream>) -> Result<Vec<Box<dyn Joiner>>, LogError> {
    let shared = &stream.shared;
    if !shared.options.background || shared.options.read_only {
        return Ok(Vec::new());
    }
    let spawn = |name: &str, body: Body| {
        let stream = Arc::clone(stream);
        shared.env.spawn(name, Box::new(move || body(&stream)))
    };
    let failed = |source| LogError::Io {
        action: "start the threads of",
        path: stream.segments.dir().path().to_owned(),
        source,
    };
    let mut bodies: Vec<(&str, Body)> =
        vec![("fulgurite-log", flusher::run), ("fulgurite-segs", supply::run)];
    if stream.staging().is_some() {
        bodies.push(("fulgurite-drain", stage::run));
    }
    let mut threads = Vec::with_capacity(bodies.len());
    for (name, body) in bodies {
        match spawn(name, body) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                shared.set_closed();
                shared.wake_threads();
                threads.into_iter().for_each(|thread| _ = thread.join());
                return Err(failed(error));
            }
        }
    }
    Ok(threads)
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
