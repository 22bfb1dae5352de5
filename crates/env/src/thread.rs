//! Named operating-system threads, used by both environments.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::Joiner;

struct Started(JoinHandle<()>);

impl Joiner for Started {
    fn join(self: Box<Self>) -> bool {
        if self.0.thread().id() == std::thread::current().id() {
            return true;
        }
        self.0.join().is_ok()
    }
}

/// Starts a thread called `name`.
#[expect(clippy::disallowed_methods, reason = "the one place that starts threads")]
pub(crate) fn spawn(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>> {
    let handle = Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(Box::new(Started(handle)))
}
