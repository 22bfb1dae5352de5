//! A log of numbers only, for tests of the pipeline. Under shuttle each of its steps is a scheduling point.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fulgurite_env::SimEnv;
use fulgurite_log::{
    BulkPosition, ChunkRef, Durability, FrameHeader, LogError, Numbers, PoisonCause, TimeBounds,
};
use fulgurite_types::{Csn, Lsn};

use super::{Apply, Frame, Pipeline};
use crate::latency::Stopwatch;
use fulgurite_log::CommitLog;
use fulgurite_types::sync::{Condvar, Mutex};

type Observer = Box<dyn Fn(Csn) + Send + Sync>;
type Completer = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct State {
    /// Whether the frame of each commit is filled, from CSN 1.
    filled: Vec<bool>,
    /// The times of the commits.
    times_ms: Vec<u64>,
    durable: u64,
    /// Follows `durable` only on request (`wait_synced`).
    synced: u64,
    requested: u64,
    leading: bool,
    /// Nothing becomes durable any more.
    ended: bool,
    poison: Option<&'static str>,
}

pub(crate) struct FakeLog {
    state: Mutex<State>,
    changed: Condvar,
    observer: OnceLock<Observer>,
    completer: OnceLock<Completer>,
    #[cfg(not(feature = "shuttle"))]
    filled: OnceLock<Observer>,
}

impl FakeLog {
    pub fn new() -> Arc<FakeLog> {
        Arc::new(FakeLog {
            state: Mutex::default(),
            changed: Condvar::new(),
            observer: OnceLock::new(),
            completer: OnceLock::new(),
            #[cfg(not(feature = "shuttle"))]
            filled: OnceLock::new(),
        })
    }

    /// The newest number given out.
    pub fn reserved_csn(&self) -> Csn {
        Csn(self.state.lock().filled.len() as u64)
    }

    /// Calls `hook` on the owner's thread when a frame is filled.
    #[cfg(not(feature = "shuttle"))]
    pub fn on_filled(&self, hook: impl Fn(Csn) + Send + Sync + 'static) {
        assert!(self.filled.set(Box::new(hook)).is_ok(), "there is one hook");
    }

    /// The times of the commits, from CSN 1.
    #[cfg(feature = "shuttle")]
    pub fn times_ms(&self) -> Vec<u64> {
        self.state.lock().times_ms.clone()
    }

    /// Makes all numbered commits durable, and no commit afterwards.
    pub fn close(&self) {
        loop {
            let _ = self.wait_durable(self.reserved_csn());
            let mut state = self.state.lock();
            while state.leading {
                self.changed.wait(&mut state);
            }
            if state.durable == state.filled.len() as u64 {
                state.ended = true;
                self.changed.notify_all();
                return;
            }
        }
    }

    /// Reports what a leader made durable, and ends its lead.
    fn end_lead(&self, filled: u64) {
        if let Some(observer) = self.observer.get() {
            observer(Csn(filled));
        }
        self.state.lock().leading = false;
        self.changed.notify_all();
        if let Some(completer) = self.completer.get() {
            completer();
        }
    }

    /// Does the work of a real log's thread: makes requested commits durable, until `last` is.
    pub fn serve(&self, last: Csn) {
        loop {
            let requested = {
                let mut state = self.state.lock();
                while state.requested <= state.durable && state.durable < last.0 && state.poison.is_none() {
                    self.changed.wait(&mut state);
                }
                if state.durable >= last.0 || state.poison.is_some() {
                    return;
                }
                Csn(state.requested.min(state.filled.len() as u64))
            };
            let _ = self.wait_durable(requested);
        }
    }
}

impl CommitLog for FakeLog {
    type Admission = ();
    type Reservation = Numbers;

    fn admit(&self, _: u32, _: u32) -> Result<(), LogError> {
        Ok(())
    }

    fn try_admit(&self, _: u32, _: u32) -> Result<Option<()>, LogError> {
        Ok(Some(()))
    }

    fn reserve_at(&self, (): (), _: Durability, time: TimeBounds) -> Option<Numbers> {
        let mut state = self.state.lock();
        let time_ms = time.from_ms.max(state.times_ms.last().copied().unwrap_or(0));
        if time_ms >= time.before_ms {
            return None;
        }
        state.times_ms.push(time_ms);
        state.filled.push(false);
        Some(Numbers { csn: Csn(state.filled.len() as u64), body_lsn: Lsn::NULL, time_ms })
    }

    fn numbers(reservation: &Numbers) -> Numbers {
        *reservation
    }

    fn require_bulk(&self, _: BulkPosition) {}

    fn fill(&self, Numbers { csn, .. }: Numbers, _: &FrameHeader, _: &[u8], _: &[ChunkRef]) {
        self.state.lock().filled[csn.0 as usize - 1] = true;
        self.changed.notify_all();
        #[cfg(not(feature = "shuttle"))]
        if let Some(filled) = self.filled.get() {
            filled(csn);
        }
    }

    fn durable_csn(&self) -> Csn {
        Csn(self.state.lock().durable)
    }

    fn wait_durable(&self, csn: Csn) -> Result<(), LogError> {
        let mut state = self.state.lock();
        while state.durable < csn.0 {
            if let Some(what) = state.poison {
                return Err(LogError::Poisoned(Arc::new(PoisonCause { what, path: None, source: None })));
            }
            if state.ended {
                return Err(LogError::Closed);
            }
            let filled = state.filled.iter().take_while(|filled| **filled).count() as u64;
            if state.leading || filled == state.durable {
                self.changed.wait(&mut state);
                continue;
            }
            state.leading = true;
            state.durable = filled;
            drop(state);
            self.end_lead(filled);
            state = self.state.lock();
        }
        Ok(())
    }

    fn try_flush(&self) -> Result<bool, LogError> {
        let filled = {
            let mut state = self.state.lock();
            let filled = state.filled.iter().take_while(|filled| **filled).count() as u64;
            if state.leading || filled == state.durable || state.ended || state.poison.is_some() {
                return Ok(false);
            }
            state.leading = true;
            state.durable = filled;
            filled
        };
        self.end_lead(filled);
        Ok(true)
    }

    fn request_durable(&self, csn: Csn) {
        let mut state = self.state.lock();
        state.requested = state.requested.max(csn.0);
        self.changed.notify_all();
    }

    fn request_durable_within(&self, csn: Csn, _: Duration) {
        self.request_durable(csn);
    }

    fn synced_csn(&self) -> Csn {
        Csn(self.state.lock().synced)
    }

    fn wait_synced(&self, csn: Csn) -> Result<(), LogError> {
        self.wait_durable(csn)?;
        let mut state = self.state.lock();
        state.synced = state.durable;
        Ok(())
    }

    fn set_observer(&self, observer: Observer) {
        assert!(self.observer.set(observer).is_ok(), "there is one pipeline");
    }

    fn set_completer(&self, completer: Completer) {
        assert!(self.completer.set(completer).is_ok(), "there is one pipeline");
    }

    /// Does nothing: the thread that asks checks again when it stops being quiet.
    fn request_completion(&self) {}

    fn poison(&self, what: &'static str) {
        self.state.lock().poison.get_or_insert(what);
        self.changed.notify_all();
    }

    fn poisoned(&self) -> Option<Arc<PoisonCause>> {
        let what = self.state.lock().poison?;
        Some(Arc::new(PoisonCause { what, path: None, source: None }))
    }
}

/// A pipeline over a fake log with room for `1 << ring_bits` commits that are not visible.
pub(crate) fn pipeline(ring_bits: u32) -> (Arc<FakeLog>, Arc<Pipeline<FakeLog>>) {
    let log = FakeLog::new();
    let stopwatch = Stopwatch::new(SimEnv::new(1), "fake".as_ref(), std::time::Duration::MAX);
    (log.clone(), Pipeline::with_ring(log, Csn::ZERO, stopwatch, ring_bits, std::time::Duration::ZERO))
}

/// Work that is a closure.
struct Work<F>(F);

impl<F: FnOnce(Csn) + Send> Apply for Work<F> {
    fn apply(self: Box<Self>, csn: Csn, _: Lsn) {
        (self.0)(csn);
    }
}

/// Steps 0 and 2 to 4 for a commit whose work is `apply`.
pub(crate) fn submit(pipeline: &Pipeline<FakeLog>, apply: impl FnOnce(Csn) + Send + 'static) -> Csn {
    submit_at(pipeline, Durability::Sync, apply)
}

/// Like [`submit`], at a level.
pub(crate) fn submit_at(
    pipeline: &Pipeline<FakeLog>,
    level: Durability,
    apply: impl FnOnce(Csn) + Send + 'static,
) -> Csn {
    submit_in(pipeline, level, TimeBounds::ANY, apply, |_| {}).expect("any time will do")
}

/// Like [`submit_at`], within bounds of time. Calls `on_numbered` with the number; `None` if it would be too late.
pub(crate) fn submit_in(
    pipeline: &Pipeline<FakeLog>,
    level: Durability,
    time: TimeBounds,
    apply: impl FnOnce(Csn) + Send + 'static,
    on_numbered: impl FnOnce(Csn),
) -> Option<Csn> {
    let frame = Frame {
        is_local: false,
        user_bytes: 0,
        ops: 0,
        list_bytes: 0,
        kind: 0,
        body: vec![],
        body_crc: 0,
        time,
        local: vec![],
        after_bulk: BulkPosition::default(),
    };
    pipeline.admit(0, 0, true).expect("a fake admits everything");
    let _quiet = pipeline.quiet();
    pipeline.submit((), level, &frame, Box::new(Work(apply)), on_numbered)
}
