//! Newtypes for numbers that must never be confused.

use std::fmt;

/// A log sequence number: a position in the log, `(segment number << 32) + byte offset`. Physical and local to one
/// database directory.
///
/// Segment numbers start at 1 and are never reused, so [`Lsn::NULL`] (segment 0) is no position.
///
/// ```
/// use fulgurite_types::Lsn;
///
/// let lsn = Lsn::new(3, 4096);
/// assert_eq!((lsn.segment(), lsn.offset(), lsn.to_string()), (3, 4096, "3:4096".to_string()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// No position: the LSN of a node that was never written.
    pub const NULL: Lsn = Lsn(0);

    /// The position `offset` bytes into segment `segment`.
    pub const fn new(segment: u32, offset: u32) -> Lsn {
        Lsn(((segment as u64) << 32) | offset as u64)
    }

    /// The number of the segment.
    pub const fn segment(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The byte offset inside the segment.
    pub const fn offset(self) -> u32 {
        self.0 as u32
    }

    /// Whether this is [`Lsn::NULL`].
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The position `bytes` later in the same segment.
    ///
    /// # Panics
    /// If that is beyond 4 GiB: segments are far smaller, so this is a bug in the caller.
    pub fn advance(self, bytes: u32) -> Lsn {
        let offset = self.offset().checked_add(bytes).expect("an LSN does not cross its segment");
        Lsn::new(self.segment(), offset)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment(), self.offset())
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lsn({self})")
    }
}

/// A commit sequence number: dense, from 1, in commit order. It stamps each version and each snapshot, never changes,
/// and is the same on every replica.
///
/// ```
/// use fulgurite_types::Csn;
///
/// assert!(Csn(6) < Csn(6).next());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Csn(pub u64);

impl Csn {
    /// Before the first commit.
    pub const ZERO: Csn = Csn(0);
    /// After every commit: reads at it see the newest version.
    pub const MAX: Csn = Csn(u64::MAX);

    /// The commit after this one.
    pub const fn next(self) -> Csn {
        Csn(self.0 + 1)
    }

    /// The commit before this one; [`Csn::ZERO`] stays.
    pub const fn prev(self) -> Csn {
        Csn(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Csn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Csn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Csn({})", self.0)
    }
}

/// The number of a table. 0 is the catalog; numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TableId(pub u32);

impl TableId {
    /// The catalog: names to table descriptions, itself a table.
    pub const CATALOG: TableId = TableId(0);
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableId({})", self.0)
    }
}

/// The number of one opening of a database: each open starts an epoch, and every group of the log has its epoch's
/// number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({})", self.0)
    }
}

/// An entry of a replicated log: the term of the leader that made it, and its index, dense from 1. They order as the
/// election rule of Raft compares last entries: by term, then by index. [`EntryId::default`] is before the first.
///
/// ```
/// use fulgurite_types::EntryId;
///
/// assert!(EntryId { term: 2, index: 7 } > EntryId { term: 1, index: 9 });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// The leader's term.
    pub term: u64,
    /// The position in the replicated log.
    pub index: u64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of term {}", self.index, self.term)
    }
}

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntryId({self})")
    }
}

/// The random identity of one database. Every file has it, so that a file of another database is not mistaken for one
/// of this.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DatabaseId(pub u128);

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_orders_by_segment_then_offset() {
        assert!(Lsn::new(1, u32::MAX) < Lsn::new(2, 0));
        assert_eq!(Lsn::new(7, 9).advance(3), Lsn::new(7, 12));
        assert_eq!(Lsn::new(7, 9).to_string(), "7:9");
        assert!(Lsn::NULL.is_null());
    }

    #[test]
    fn csn_saturates_at_zero() {
        assert_eq!(Csn::ZERO.prev(), Csn::ZERO);
        assert_eq!(Csn(4).next().prev(), Csn(4));
    }
}
