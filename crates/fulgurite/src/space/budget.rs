//! How much commits may still write before the room has to be looked at again.
//!
//! A look finds how many bytes are left beyond those that have to be kept. Commits that are admitted afterwards take
//! their cost from that, each before it is logged; so between two looks they never take more than was left. A commit that
//! was admitted, and is not applied yet, may be missing in what a look counts, so its cost counts as *in flight* until it
//! has ended. It is added to `in_flight` before it is added to `spent`, and a look reads `spent` first: a commit is
//! in flight in what the look reads, or it has been applied and is counted in the memtables, or it is spent after the
//! look.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// What a transaction asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It puts something.
    Puts,
    /// It only deletes, which in the end makes room.
    Deletes,
}

/// The bytes that commits may still take.
#[derive(Default)]
pub(crate) struct Budget {
    /// All that was ever taken, or asked for.
    spent: AtomicU64,
    in_flight: AtomicU64,
    /// Up to where `spent` may rise.
    puts_until: AtomicU64,
    deletes_until: AtomicU64,
}

/// What the next [`Budget::set`] has to know from before the look at the room.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    spent: u64,
    /// The cost of the commits in flight.
    pub in_flight: u64,
}

/// The admission of a commit; it is over when this is dropped.
#[derive(Default)]
#[must_use]
pub(crate) struct Admitted<'b>(Option<(&'b Budget, u64)>);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if let Some((budget, bytes)) = self.0 {
            budget.in_flight.fetch_sub(bytes, SeqCst);
        }
    }
}

impl Budget {
    /// Takes `bytes`, if as many are left.
    pub fn take(&self, kind: Kind, bytes: u64) -> Option<Admitted<'_>> {
        let admitted = self.fly(bytes);
        let end = self.spent.fetch_add(bytes, SeqCst) + bytes;
        (end <= self.until(kind).load(SeqCst)).then_some(admitted)
    }

    /// So many bytes are in flight, whatever is left.
    pub fn fly(&self, bytes: u64) -> Admitted<'_> {
        self.in_flight.fetch_add(bytes, SeqCst);
        Admitted(Some((self, bytes)))
    }

    /// Whether so many bytes are left. A [`Budget::take`] that finds too little takes the rest.
    pub fn has(&self, kind: Kind, bytes: u64) -> bool {
        self.spent.load(SeqCst).saturating_add(bytes) <= self.until(kind).load(SeqCst)
    }

    fn until(&self, kind: Kind) -> &AtomicU64 {
        match kind {
            Kind::Puts => &self.puts_until,
            Kind::Deletes => &self.deletes_until,
        }
    }

    /// Called before the room is looked at.
    pub fn look(&self) -> Look {
        let spent = self.spent.load(SeqCst);
        Look { spent, in_flight: self.in_flight.load(SeqCst) }
    }

    /// The room has so many bytes left, as of `look`.
    pub fn set(&self, look: Look, puts: u64, deletes: u64) {
        self.puts_until.store(look.spent.saturating_add(puts), SeqCst);
        self.deletes_until.store(look.spent.saturating_add(deletes), SeqCst);
    }

    /// Nothing is left until the next look.
    pub fn end(&self) {
        self.puts_until.store(0, SeqCst);
        self.deletes_until.store(0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_was_left() {
        let budget = Budget::default();
        assert!(budget.take(Kind::Puts, 1).is_none(), "there was no look");
        let look = budget.look();
        budget.set(look, 100, 200);
        let first = budget.take(Kind::Puts, 60);
        assert!(first.is_some() && budget.take(Kind::Puts, 60).is_none());
        assert!(budget.take(Kind::Deletes, 60).is_some());
        assert_eq!(budget.look().in_flight, 60);
        drop(first);
        assert_eq!(budget.look().in_flight, 0);
        budget.end();
        assert!(budget.take(Kind::Deletes, 1).is_none());
    }

    /// What is taken while the room is looked at is not in what the look counts.
    #[test]
    fn what_is_taken_during_a_look_counts_against_it() {
        let budget = Budget::default();
        budget.set(budget.look(), 100, 100);
        let look = budget.look();
        let taken = budget.take(Kind::Puts, 70);
        budget.set(look, 100, 100);
        assert!(taken.is_some() && budget.take(Kind::Puts, 40).is_none());
        assert_eq!(budget.look().in_flight, 70);
    }
}
