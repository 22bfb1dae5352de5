//! Waits for commits to become durable, in their order, and tells about it.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite::env::{Env, Joiner};
use fulgurite::{Error, Ticket};

use crate::failure::Failure;

/// Commits that are on their way to the disk at a time.
const IN_FLIGHT: usize = 8;
/// Progress is printed at most this often.
const PRINT_INTERVAL_NS: u64 = 5_000_000;

/// A thread that waits for tickets, so that the one that parses never does.
pub(super) struct Acknowledger {
    tickets: SyncSender<(Ticket, u64)>,
    shared: Arc<Shared>,
    thread: Box<dyn Joiner>,
}

#[derive(Default)]
struct Shared {
    /// Rows of all commits up to the first that is not known to be durable.
    durable_rows: AtomicU64,
    failure: Mutex<Option<Error>>,
}

impl Acknowledger {
    pub fn start(env: &Arc<dyn Env>, json: bool) -> Result<Acknowledger, Failure> {
        let (tickets, receiver) = sync_channel(IN_FLIGHT);
        let shared = Arc::new(Shared::default());
        let (theirs, clock) = (shared.clone(), env.clone());
        let thread = env
            .spawn("fulgurite-durable", Box::new(move || theirs.wait_for_all(&receiver, &*clock, json)))
            .map_err(|error| Failure::new(format!("starting the thread that waits for the disk: {error}")))?;
        Ok(Acknowledger { tickets, shared, thread })
    }

    /// Hands over a commit of `rows` rows; waits if too many are on their way.
    pub fn expect(&self, ticket: Ticket, rows: u64) -> Result<(), Failure> {
        let sent = self.tickets.send((ticket, rows));
        sent.map_err(|_| Failure::new("an earlier commit failed"))
    }

    /// Waits for all commits; tells how many rows are durable, and what failed.
    pub fn finish(self) -> (u64, Result<(), Failure>) {
        std::mem::drop(self.tickets);
        let returned = self.thread.join();
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let outcome = match failure {
            Some(error) => Err(error.into()),
            None if !returned => Err(Failure::new("the thread that waits for the disk has died")),
            None => Ok(()),
        };
        (self.shared.durable_rows.load(Ordering::Acquire), outcome)
    }
}

impl Shared {
    fn wait_for_all(&self, tickets: &Receiver<(Ticket, u64)>, env: &dyn Env, json: bool) {
        let mut printed = (0, 0);
        while let Ok((ticket, rows)) = tickets.recv() {
            if let Err(error) = ticket.wait() {
                *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                return;
            }
            let durable = self.durable_rows.fetch_add(rows, Ordering::AcqRel) + rows;
            let now_ns = env.clock().monotonic_ns();
            if json && now_ns.saturating_sub(printed.1) >= PRINT_INTERVAL_NS {
                print(durable);
                printed = (durable, now_ns);
            }
        }
        let durable = self.durable_rows.load(Ordering::Acquire);
        if json && printed.0 < durable {
            print(durable);
        }
    }
}

/// Tells a program how many rows are durable.
fn print(durable_rows: u64) {
    let mut stdout = io::stdout().lock();
    // Without a reader the load goes on all the same.
    let _ = writeln!(stdout, "{{\"durable_rows\":{durable_rows}}}").and_then(|()| stdout.flush());
}
