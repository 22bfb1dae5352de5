//! The beginning of a transaction.

use super::Transaction;
use super::memory::TransactionCharge;
use super::savepoints::Savepoints;
use super::taken::Taken;
use crate::Acks;
use crate::Isolation;
use crate::handle::Handle;
use crate::read_set::ReadSet;
use crate::snapshots::SnapshotGuard;
use crate::write_set::WriteSet;
use fulgurite_log::Durability;

/// A transaction that makes room puts no more than this.
const MAKES_ROOM_BYTES_MAX: usize = 4 << 10;

impl Transaction {
    pub(crate) fn begin(engine: &Handle, isolation: Isolation) -> Transaction {
        let snapshot = engine.reads.ending_snapshot(|| engine.pipeline.visible());
        Transaction::begin_at(engine, isolation, snapshot)
    }

    /// Begins the transaction of a single operation, which is not ended however long it takes.
    pub(crate) fn begin_single(engine: &Handle) -> Transaction {
        let snapshot = engine.reads.snapshot(|| engine.pipeline.visible());
        Transaction::begin_at(engine, Isolation::Snapshot, snapshot)
    }

    pub(crate) fn at_level(self, durability: Durability) -> Transaction {
        Transaction { durability, ..self }
    }

    /// Has the commit admitted like one that only deletes, where the disk is nearly full: for a transaction that deletes, and puts
    /// a little beside that, such as a count. It has no effect on one that puts more than 4 KiB.
    pub fn set_makes_room(&mut self) {
        self.makes_room = true;
    }

    /// How many times it has written a key or deleted a range so far, also where that was rolled back to a savepoint: a number that
    /// is the same as before says that nothing was written since.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// let mut txn = db.begin();
    /// txn.get(&users, "alice")?;
    /// assert_eq!(txn.changes(), 0);
    /// txn.put(&users, "alice", "1")?;
    /// assert_eq!(txn.changes(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self) -> u64 {
        self.writes.changes
    }

    /// Whether it has to be admitted as one that needs room.
    pub(super) fn only_puts(&self) -> bool {
        let makes_room = self.makes_room && self.writes.put_bytes() <= MAKES_ROOM_BYTES_MAX;
        self.writes.has_puts() && !makes_room
    }

    fn begin_at(engine: &Handle, isolation: Isolation, snapshot: SnapshotGuard) -> Transaction {
        Transaction {
            // Read after the snapshot was taken, so that no synchronous commit in it is above.
            reads: ReadSet::new(isolation, engine.pipeline.newest_synchronous()),
            snapshot,
            durability: engine.options.effective(engine.options.durability),
            acks: Acks::Quorum,
            engine: engine.clone(),
            isolation,
            writes: WriteSet::default(),
            spill: None,
            savepoints: Savepoints::default(),
            charge: TransactionCharge::default(),
            claims: Vec::new(),
            taken: Taken::default(),
            makes_room: false,
            id: 0,
            new_table: None,
        }
    }
}
