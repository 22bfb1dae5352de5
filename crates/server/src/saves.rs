//! Checkpoints that clients asked for: `SAVE` and `BGSAVE`; and when the last one was.

use std::sync::Arc;

use fulgurite::Database;
use fulgurite::env::{Env, Joiner};
use parking_lot::Mutex;

/// The checkpoints that clients asked for, and those that the database wrote by itself, as far as they were noticed.
#[derive(Default)]
pub(crate) struct Saves(Mutex<State>);

#[derive(Default)]
struct State {
    /// How many checkpoints the database had when that was last looked at.
    seen: u64,
    /// When a new one was seen last, or the server started, in milliseconds since 1970.
    last_ms: u64,
    failed: bool,
    is_running: bool,
    thread: Option<Box<dyn Joiner>>,
}

impl Saves {
    pub fn new(db: &Database) -> Saves {
        let state = State { seen: db.stats().checkpoints, last_ms: db.now_ms(), ..State::default() };
        Saves(Mutex::new(state))
    }

    /// When the last checkpoint was seen to be complete, or the server started, in milliseconds since 1970. The database writes some by
    /// itself, and each call looks for these.
    pub fn last_ms(&self, db: &Database) -> u64 {
        let seen = db.stats().checkpoints;
        let mut state = self.0.lock();
        if seen > state.seen {
            (state.seen, state.last_ms) = (seen, db.now_ms());
        }
        state.last_ms
    }

    /// Whether one is being written in the background, and whether the last one that was asked for failed.
    pub fn status(&self) -> (bool, bool) {
        let state = self.0.lock();
        (state.is_running, state.failed)
    }

    /// Writes a checkpoint.
    ///
    /// # Errors
    /// Those of [`Database::checkpoint`].
    pub fn save(&self, db: &Database) -> fulgurite::Result<()> {
        let saved = db.checkpoint();
        self.0.lock().failed = saved.is_err();
        saved?;
        self.last_ms(db);
        Ok(())
    }

    /// Writes a checkpoint on a thread of its own. Returns false if one is being written so.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn begin(self: &Arc<Saves>, db: &Database, env: &dyn Env) -> std::io::Result<bool> {
        let mut state = self.0.lock();
        if state.is_running {
            return Ok(false);
        }
        let (saves, db) = (self.clone(), db.clone());
        let body = move || {
            if let Err(error) = saves.save(&db) {
                tracing::error!(%error, "a checkpoint that a client asked for failed");
            }
            drop(db);
            saves.0.lock().is_running = false;
        };
        state.thread = Some(env.spawn("fg-save", Box::new(body))?);
        state.is_running = true;
        Ok(true)
    }

    /// Waits for the one in the background.
    pub fn wait(&self) {
        let thread = self.0.lock().thread.take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}
