//! Waits for commits to become durable, in their order, and reports them.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fulgurite::env::{Env, Joiner};
use fulgurite::{Error, Ticket};

use crate::failure::Failure;

/// The most commits that wait for the disk at a time.
const IN_FLIGHT: usize = 8;
/// Progress is printed at most this often.
const PRINT_INTERVAL: Duration = Duration::from_millis(5);

/// A thread that waits for tickets, so that the parsing thread never does.
pub(super) struct Acknowledger {
    tickets: SyncSender<(Ticket, u64)>,
    shared: Arc<Shared>,
    thread: Box<dyn Joiner>,
}

#[derive(Default)]
struct Shared {
    /// Rows of all commits before the first that is not known to be durable.
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

    /// Hands over a commit of `rows` rows; waits if too many commits wait for the disk.
    pub fn expect(&self, ticket: Ticket, rows: u64) -> Result<(), Failure> {
        let sent = self.tickets.send((ticket, rows));
        sent.map_err(|_| Failure::new("an earlier commit failed"))
    }

    /// Waits for all commits; returns how many rows are durable, and the first failure.
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
        let mut printed = Printed { rows: 0, at_ns: 0 };
        loop {
            let unsaid = json && printed.rows < self.durable_rows.load(Ordering::Acquire);
            // A pause of the input must not delay a report.
            let received = match unsaid {
                true => tickets.recv_timeout(PRINT_INTERVAL),
                false => tickets.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let durable = match received {
                Ok((ticket, rows)) => {
                    if let Err(error) = ticket.wait() {
                        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        return;
                    }
                    self.durable_rows.fetch_add(rows, Ordering::AcqRel) + rows
                }
                Err(RecvTimeoutError::Timeout) => self.durable_rows.load(Ordering::Acquire),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let now_ns = env.clock().monotonic_ns();
            if json && u128::from(now_ns.saturating_sub(printed.at_ns)) >= PRINT_INTERVAL.as_nanos() {
                print(durable);
                printed = Printed { rows: durable, at_ns: now_ns };
            }
        }
        let durable = self.durable_rows.load(Ordering::Acquire);
        if json && printed.rows < durable {
            print(durable);
        }
    }
}

/// The last report that was printed.
struct Printed {
    rows: u64,
    at_ns: u64,
}

/// Reports to a program how many rows are durable.
fn print(durable_rows: u64) {
    let mut stdout = io::stdout().lock();
    // Without a reader the load continues all the same.
    let _ = writeln!(stdout, "{{\"durable_rows\":{durable_rows}}}").and_then(|()| stdout.flush());
}
