//! Commits that wait for room on the disk: for the checkpoints that free dead segments.
//!
//! **INV-SPACE-4.** *A commit is refused by a look at the room between two checkpoints.* While one is written more is needed, and
//! what it frees is not free yet. So a commit asks for a checkpoint after it has looked, and not while one is written: there is time
//! to look before the next one begins.
//!
//! A commit that does not fit asks for a checkpoint and sleeps until one has ended. It is refused only when checkpoints
//! gain nothing: [`ROUNDS_MAX`] of them ended, one of which began after it had asked; the segments that they retired are
//! freed; and still it does not fit. If other commits were admitted meanwhile, or the room has grown, it begins to count
//! again, [`GAINS_MAX`] times at most, and not after [`GAINS_NS`]. A callback does not wait. So no commit waits for ever. Until something is committed,
//! or a moment has passed, later commits of its kind are refused at once.

use std::sync::atomic::Ordering;

use fulgurite_types::Csn;

use crate::Result;
use crate::commit::quiet::is_in_callback;
use crate::engine::Engine;
use crate::latency::Waited;
use crate::space::budget::{Admitted, Kind};
use crate::space::need::WriteCost;

/// After so many checkpoints without a gain a commit is refused. The first may have begun before the commit asked.
const ROUNDS_MAX: u64 = 4;

/// The same for commits that only delete: they go on even where nothing is gained.
const ROUNDS_MAX_OF_DELETES: u64 = 2;

/// How many times others may take what was gained, or a gain may not be enough.
const GAINS_MAX: u32 = 100;

/// After this time no gain counts: what others take, or what is gained too slowly, is not waited for any longer.
const GAINS_NS: u64 = 30_000_000_000;

/// The least that counts as a gain.
const GAIN_BYTES: i64 = 64 << 10;

/// How many times a commit sleeps for readers that keep retired segments, once it has waited for the checkpoints.
const FREEING_MAX: u32 = 50;

/// How many times a commit that would be refused sleeps until the checkpoint that is being written ends.
const WRITING_MAX: u32 = 500;

/// For so long after a refusal the next commits are refused at once, unless something was committed since.
const REFUSAL_NS: u64 = 1_000_000_000;

/// How often a database without background threads tries to free the segments that a checkpoint retired.
const FREEING_ROUNDS: u32 = 8;

/// How long a commit still waits.
struct Patience {
    rounds_from: u64,
    /// The newest commit, and what was left for puts or missing for them.
    newest: Csn,
    left: i64,
    gains_left: u32,
    gains_end_ns: u64,
    freeing_left: u32,
    writing_left: u32,
}

impl Patience {
    /// Whether the commit goes on waiting for the end of the checkpoint that is being written.
    fn waits_for_writing(&mut self) -> bool {
        let waits = self.writing_left > 0;
        self.writing_left = self.writing_left.saturating_sub(1);
        waits
    }
}

impl Engine {
    /// Admits a commit by the room on the disk. While it does not fit, waits for checkpoints that make room.
    #[inline]
    pub fn admit_by_room(&self, kind: Kind, cost: impl FnOnce() -> WriteCost) -> Result<Admitted<'_>> {
        if self.room.is_plenty() { Ok(Admitted::default()) } else { self.admit_where_short(kind, &cost()) }
    }

    #[cold]
    fn admit_where_short(&self, kind: Kind, cost: &WriteCost) -> Result<Admitted<'_>> {
        if let Some(admitted) = self.room.admit(kind, cost) {
            return Ok(admitted);
        }
        // The checkpointer, which looks at other times, may sleep. What fails of the look, it reports.
        _ = self.room.look();
        if let Some(admitted) = self.room.admit(kind, cost) {
            return Ok(admitted);
        }
        let start_ns = self.env.clock().monotonic_ns();
        let admitted = self.wait_for_room(kind, cost);
        let waited_ns = self.env.clock().monotonic_ns().saturating_sub(start_ns);
        self.pipeline.stopwatch().waited(Waited::Space, waited_ns);
        admitted
    }

    fn wait_for_room(&self, kind: Kind, cost: &WriteCost) -> Result<Admitted<'_>> {
        let _waiter = self.room.begin_wait(kind, cost);
        let _hurry = self.pacing.hurry();
        let mut patience = self.patience();
        let mut asked_after = None;
        loop {
            self.check_writable()?;
            if self.was_refused_just_now(kind) && !self.room.was_seen_writing() {
                break;
            }
            if is_in_callback() {
                // It may run on a thread whose work makes the room.
                break;
            }
            if self.options.background {
                let ended = self.room.rounds().ended.load(Ordering::SeqCst);
                if asked_after != Some(ended) && !self.room.is_writing() {
                    asked_after = Some(ended);
                    self.room.want_checkpoint();
                    self.wakeups.wake_checkpointer();
                }
                self.room.wait();
            } else {
                self.make_room();
            }
            _ = self.room.look();
            if let Some(admitted) = self.room.admit(kind, cost) {
                return Ok(admitted);
            }
            if !self.is_out_of_patience(kind, &mut patience) {
                continue;
            }
            // Deletes go on where checkpoints gain nothing, as long as the next checkpoint has room.
            let Some(check) = (kind == Kind::Deletes).then(|| self.room.check_for_deletes(cost)) else {
                break;
            };
            match check {
                Ok(()) => return Ok(Admitted::default()),
                // Another commit has looked since.
                Err(refused) if refused.while_writing && patience.waits_for_writing() => {}
                Err(_) => break,
            }
        }
        if !is_in_callback() {
            self.room.rounds().refused.lock()[kind as usize] =
                Some((self.pipeline.newest(), self.env.clock().monotonic_ns()));
        }
        match kind {
            Kind::Puts => Err(self.room.refuse_puts(cost)),
            Kind::Deletes => match self.room.check_for_deletes(cost) {
                Ok(()) => Ok(Admitted::default()),
                Err(refused) => Err(refused.error),
            },
        }
    }

    fn was_refused_just_now(&self, kind: Kind) -> bool {
        let refused: Option<(Csn, u64)> = self.room.rounds().refused.lock()[kind as usize];
        refused.is_some_and(|(newest, at_ns)| {
            newest == self.pipeline.newest()
                && self.env.clock().monotonic_ns().saturating_sub(at_ns) < REFUSAL_NS
        })
    }

    fn patience(&self) -> Patience {
        let rounds = self.room.rounds();
        Patience {
            rounds_from: rounds.ended.load(Ordering::SeqCst),
            newest: self.pipeline.newest(),
            left: self.room.left(),
            gains_left: GAINS_MAX,
            gains_end_ns: self.env.clock().monotonic_ns().saturating_add(GAINS_NS),
            freeing_left: FREEING_MAX,
            writing_left: WRITING_MAX,
        }
    }

    fn is_out_of_patience(&self, kind: Kind, patience: &mut Patience) -> bool {
        let rounds_max = if kind == Kind::Puts { ROUNDS_MAX } else { ROUNDS_MAX_OF_DELETES };
        let rounds = self.room.rounds();
        let has_gained =
            || self.pipeline.newest() != patience.newest || self.room.left() >= patience.left + GAIN_BYTES;
        let may_gain = patience.gains_left > 0 && self.env.clock().monotonic_ns() < patience.gains_end_ns;
        if may_gain && has_gained() {
            let &mut Patience { gains_left, gains_end_ns, writing_left, .. } = patience;
            *patience =
                Patience { gains_left: gains_left - 1, gains_end_ns, writing_left, ..self.patience() };
            return false;
        }
        if rounds.ended.load(Ordering::SeqCst) - patience.rounds_from < rounds_max {
            return false;
        }
        if self.room.was_seen_writing() && patience.waits_for_writing() {
            return false;
        }
        patience.freeing_left = patience.freeing_left.saturating_sub(1);
        patience.freeing_left == 0 || !self.space.lock().has_retiring()
    }

    /// Without background threads: writes a checkpoint, and frees what it retired.
    fn make_room(&self) {
        if let Err(error) = self.checkpoint() {
            tracing::debug!(%error, "a checkpoint for a commit that waits for room failed");
        }
        for _ in 0..FREEING_ROUNDS {
            if !matches!(self.free_retired(), Ok(true)) {
                break;
            }
        }
        // A failure shows in the next look: there is no more room.
        _ = self.log.maintain();
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_env::SimEnv;

    use super::*;
    use crate::{Database, Options};

    /// INV-SPACE-4. A delete was refused on a disk with 40 tables: segments were being cleaned, and the room that the moved
    /// nodes needed came back when the checkpoint ended.
    #[test]
    fn a_commit_is_not_refused_while_a_checkpoint_is_written() {
        let options = Options { background: false, ..Options::default() };
        let db = Database::open_with(SimEnv::new(1), "/data", options, |_| {}).unwrap();
        let engine = db.engine();
        for kind in [Kind::Puts, Kind::Deletes] {
            let mut patience = engine.patience();
            let mut gives_up = || {
                engine.room.look().unwrap();
                engine.is_out_of_patience(kind, &mut patience)
            };
            assert!(!gives_up());
            (0..ROUNDS_MAX).for_each(|_| engine.room.checkpoint_ended());
            let writing = engine.room.begin_writing();
            assert!((0..100).all(|_| !gives_up()));
            drop(writing);
            assert!(gives_up());
            let _writing = engine.room.begin_writing();
            assert!((0..WRITING_MAX).any(|_| gives_up()), "it does not wait for ever");
        }
    }
}
