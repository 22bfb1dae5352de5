//! What keeps a database open: every handle that a user can hold owns a [`Handle`], and the last one to go closes.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::background::Background;
use crate::core::Core;
use crate::{Error, Result};

/// A share of an open database: databases, tables, transactions, snapshots and ranges each own one. Threads of the
/// database itself own only the [`Core`], so that they do not keep it open.
///
/// A struct that owns one declares it last: what else it holds goes before the database closes.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Closer>);

/// Closes the database, at the latest when the last [`Handle`] goes.
struct Closer {
    core: Arc<Core>,
    background: Mutex<Option<Background>>,
    /// How closing ended; held while the database is being closed, so that a second caller returns after the first.
    closed: Mutex<Option<Closed>>,
}

/// How closing ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closed {
    Cleanly,
    WithError,
}

impl Handle {
    /// The first share of a database that was just opened.
    pub fn new(core: Core) -> Result<Handle> {
        let core = Arc::new(core);
        let background = if core.options.background { Some(Background::start(&core)?) } else { None };
        Ok(Handle(Arc::new(Closer { core, background: Mutex::new(background), closed: Mutex::new(None) })))
    }

    /// Closes the database for all handles.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }

    pub fn core(&self) -> &Arc<Core> {
        &self.0.core
    }
}

impl Deref for Handle {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0.core
    }
}

impl Closer {
    fn close(&self) -> Result<()> {
        let mut closed = self.closed.lock();
        match *closed {
            Some(Closed::Cleanly) => return Ok(()),
            Some(Closed::WithError) => return Err(Error::Closed),
            None => {}
        }
        let outcome = self.close_once();
        *closed = Some(if outcome.is_ok() { Closed::Cleanly } else { Closed::WithError });
        outcome
    }

    fn close_once(&self) -> Result<()> {
        if let Some(background) = self.background.lock().take() {
            background.stop();
        }
        let core = &self.core;
        let outcome = if core.log.poisoned().is_none() { core.checkpoint().map(|_| ()) } else { Ok(()) };
        {
            // Whoever folds or checkpoints now is waited for; whoever comes later looks at the flag under the lock.
            let _maintenance = core.maintenance.lock();
            core.closed.store(true, Ordering::Release);
        }
        core.pipeline.begin_close();
        let closed = core.log.close().map_err(Error::from).and_then(|()| core.note_clean_close());
        core.pipeline.fail_tickets("the database was closed before the commit was known to be durable");
        core.lock.lock().take();
        outcome.and(closed)
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        if self.closed.lock().is_some() {
            return;
        }
        if let Err(error) = self.close() {
            tracing::warn!(%error, path = %self.core.dir.display(), "closing a database");
        }
    }
}
