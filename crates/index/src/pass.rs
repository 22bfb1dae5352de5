//! A pass that writes a base out, and what it reports.

use fulgurite_types::Lsn;

use crate::AccountChange;

/// A pass over a base that writes what is dirty, in steps: leaves first, then the inner nodes right above them.
#[derive(Debug, Default)]
pub struct WriteOut {
    pub(crate) number: u64,
    /// Whether the steps have come to the inner nodes.
    pub(crate) is_above_leaves: bool,
    /// The key to continue from; `None`: no step is left.
    pub(crate) position: Option<Vec<u8>>,
    /// The bytes of the nodes that were picked since the steps last began with the first one.
    bytes: usize,
    /// The bytes of all nodes that were picked.
    bytes_total: u64,
    /// How often the steps went over all leaves, or over all inner nodes.
    rounds: u32,
    is_room_scarce: bool,
    evicts: bool,
    pub(crate) records_written: [u64; 4],
    pub(crate) bytes_written: u64,
}

impl WriteOut {
    /// The steps go over the leaves again if they wrote more than this, since merges cut leaves behind them, and so over
    /// the inner nodes: then the end of the pass has little to pick under the lock that merges need.
    const REST_BYTES: usize = 1 << 20;
    /// They go over either this often at most, however fast merges are.
    const ROUNDS_MAX: u32 = 4;

    pub(crate) fn new(number: u64) -> WriteOut {
        WriteOut { number, position: Some(Vec::new()), ..WriteOut::default() }
    }

    /// The pass of a step of eviction.
    pub(crate) fn to_evict(number: u64, step: &EvictionStep) -> WriteOut {
        WriteOut { evicts: !step.for_checkpoint, is_room_scarce: step.scarce_room, ..WriteOut::new(number) }
    }

    pub(crate) fn evicts(&self) -> bool {
        self.evicts
    }

    /// Tells the pass whether room is scarce. While it is, a leaf delta record is smaller than a quarter of the leaf: what
    /// both records keep of the disk stays below five quarters of it.
    pub fn set_scarce_room(&mut self, is_scarce: bool) {
        self.is_room_scarce = is_scarce;
    }

    pub(crate) fn is_room_scarce(&self) -> bool {
        self.is_room_scarce
    }

    /// Whether no step is left.
    pub fn is_done(&self) -> bool {
        self.position.is_none()
    }

    /// The bytes of the nodes that the steps wrote.
    pub fn picked_bytes(&self) -> u64 {
        self.bytes_total
    }

    /// A step picked a node.
    pub(crate) fn picked(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.bytes_total += bytes as u64;
    }

    /// The steps have gone over all leaves, or over all inner nodes: once more? Inner nodes come after leaves.
    pub(crate) fn traversed(&mut self) {
        self.rounds += 1;
        let again = std::mem::take(&mut self.bytes) > Self::REST_BYTES && self.rounds < Self::ROUNDS_MAX;
        if again || !self.is_above_leaves {
            self.position = Some(Vec::new());
        }
        if !again {
            self.is_above_leaves = true;
            self.rounds = 0;
        }
    }
}

/// The result of [`crate::Base::write_out`].
#[derive(Clone, Debug, Default)]
pub struct WriteOutReport {
    /// The root's record; [`Lsn::NULL`] if the base is empty.
    pub root: Lsn,
    /// The changes of segments' live bytes that no step has returned: the bytes that the new records occupy and
    /// reference, minus those of the records that they replace.
    pub accounts: Vec<AccountChange>,
    /// How many records of each [`crate::NodeKind`] were written.
    pub records_written: [u64; 4],
}

/// What one step of eviction may do: it ends with whatever is used up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionStep {
    /// How many bytes of nodes it is to give back; those of nodes that it writes count.
    pub bytes: usize,
    /// At how many slots it looks.
    pub slots: usize,
    /// Bytes of dirty nodes that it may write to give them back. Once they are used up, dirty nodes stay.
    pub write_bytes: usize,
    /// Whether it gives back only leaves that were not read since they were loaded, and leaves the marks of the other nodes alone.
    pub unread_only: bool,
    /// See [`WriteOut::set_scarce_room`].
    pub scarce_room: bool,
    /// Whether a checkpoint is being written while little room is left: the step writes leaves only, and into the room that is
    /// kept for checkpoints.
    pub for_checkpoint: bool,
}

impl EvictionStep {
    /// A step over all slots that drops every clean node.
    pub const ALL_CLEAN: EvictionStep = EvictionStep {
        bytes: usize::MAX,
        slots: usize::MAX,
        write_bytes: 0,
        unread_only: false,
        scarce_room: false,
        for_checkpoint: false,
    };
}

/// The nodes that were moved out of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedNodes {
    /// About the bytes of the records of live nodes: those that were copied, and those that the next write-out will write.
    pub bytes: u64,
    /// Of these: of records that were copied.
    pub copied: u64,
}

/// What one step of eviction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Bytes of the nodes that are no longer in the tree's memory. Values and cursors may hold some of them.
    pub bytes: usize,
    /// How many nodes.
    pub nodes: u64,
    /// How many nodes were passed by because they were read.
    pub spared: u64,
    /// How many dirty leaves were written.
    pub written_leaves: u64,
    /// How many dirty inner nodes were written.
    pub written_inner_nodes: u64,
    /// Whether the clock came to the end of the tree: the next step begins with its first leaf.
    pub is_round_over: bool,
}
