//! The cases that are measured.

/// A way to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// At the end of a file that grows, then `fdatasync`, which has to write the file's length as well.
    AppendSync,
    /// Over zeros that were written before, then `fdatasync`.
    ZeroedSync,
    /// Over zeros, around the page cache, durable when the call returns.
    DirectSync,
    /// Over zeros, around the page cache, in the device's cache when the call returns.
    Direct,
}

impl Variant {
    pub const ALL: [Variant; 4] =
        [Variant::AppendSync, Variant::ZeroedSync, Variant::DirectSync, Variant::Direct];

    /// The name that programs see.
    pub fn name(self) -> &'static str {
        match self {
            Variant::AppendSync => "append_sync",
            Variant::ZeroedSync => "zeroed_sync",
            Variant::DirectSync => "direct_sync",
            Variant::Direct => "direct",
        }
    }

    /// What people read.
    pub fn label(self) -> &'static str {
        match self {
            Variant::AppendSync => "append, fdatasync",
            Variant::ZeroedSync => "over zeros, fdatasync",
            Variant::DirectSync => "over zeros, direct, data-synchronous",
            Variant::Direct => "over zeros, direct, no flush",
        }
    }

    /// Whether it goes around the page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Variant::DirectSync | Variant::Direct)
    }
}

/// One thread that writes, and waits for every `writes_per_sync`-th write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteCase {
    pub variant: Variant,
    /// The size of each write.
    pub bytes: usize,
    pub writes_per_sync: u64,
}

/// Threads that read at random offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadCase {
    /// The size of each read.
    pub bytes: usize,
    /// How many threads.
    pub depth: usize,
}

/// The sizes of writes in bytes.
pub(super) const WRITE_BYTES: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 64 << 10, 1 << 20];
const READ_BYTES: [usize; 3] = [4 << 10, 8 << 10, 16 << 10];
const DEPTHS: [usize; 2] = [1, 32];
const WRITES_PER_SYNC: [u64; 2] = [16, 256];

impl WriteCase {
    /// A case in which the thread waits for every write.
    pub const fn each(variant: Variant, bytes: usize) -> WriteCase {
        WriteCase { variant, bytes, writes_per_sync: 1 }
    }

    /// Every case, those with a sync for several writes last.
    pub fn all() -> Vec<WriteCase> {
        let each = |variant| WRITE_BYTES.map(|bytes| WriteCase::each(variant, bytes));
        let several = WRITES_PER_SYNC.map(|writes_per_sync| WriteCase {
            variant: Variant::ZeroedSync,
            bytes: WRITE_BYTES[0],
            writes_per_sync,
        });
        Variant::ALL.into_iter().flat_map(each).chain(several).collect()
    }
}

impl ReadCase {
    pub fn all() -> Vec<ReadCase> {
        DEPTHS.into_iter().flat_map(|depth| READ_BYTES.map(|bytes| ReadCase { bytes, depth })).collect()
    }
}
