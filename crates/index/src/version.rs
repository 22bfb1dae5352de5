//! One value of one key, and the owner that keeps its bytes in memory while a reader uses it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use fulgurite_types::{Csn, DecodeError, Lsn, Reader, Writer};

use crate::memory::COUNTS_BYTES;

/// Bits that a version carries, in memory and on disk. The numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VersionFlags(pub u8);

impl VersionFlags {
    /// The key was deleted; the version has no payload.
    pub const TOMBSTONE: u8 = 1;
    /// The payload is an encoded [`OutOfLine`], not the value.
    pub const OUT_OF_LINE: u8 = 2;
    /// The version has an expiry time.
    pub const EXPIRES: u8 = 4;

    /// Whether the key was deleted.
    pub const fn is_tombstone(self) -> bool {
        self.0 & Self::TOMBSTONE != 0
    }
    /// Whether the payload is an [`OutOfLine`].
    pub const fn is_out_of_line(self) -> bool {
        self.0 & Self::OUT_OF_LINE != 0
    }
    /// Whether an expiry time is stored.
    pub const fn expires(self) -> bool {
        self.0 & Self::EXPIRES != 0
    }
}

/// A version found in a table.
#[derive(Clone, Debug)]
pub struct Version {
    /// Which commit wrote it.
    pub csn: Csn,
    /// The kind of version.
    pub flags: VersionFlags,
    /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// The value's bytes; with [`VersionFlags::OUT_OF_LINE`] an encoded [`OutOfLine`].
    pub payload: Pinned,
}

impl Version {
    /// The same without the pin.
    pub fn borrowed(&self) -> VersionRef<'_> {
        let Version { csn, flags, expires_at_ms, ref payload } = *self;
        VersionRef { csn, flags, expires_at_ms, payload }
    }

    /// Whether a reader whose transaction fixed `now_ms` sees a value here.
    pub fn is_live_at(&self, now_ms: u64) -> bool {
        self.borrowed().is_live_at(now_ms)
    }
}

/// A version found in a table, borrowed from its finder: from a cursor until the cursor moves.
#[derive(Clone, Copy, Debug)]
pub struct VersionRef<'a> {
    /// Which commit wrote it.
    pub csn: Csn,
    /// The kind of version.
    pub flags: VersionFlags,
    /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// The value's bytes; with [`VersionFlags::OUT_OF_LINE`] an encoded [`OutOfLine`].
    pub payload: &'a [u8],
}

impl VersionRef<'_> {
    /// Whether a reader whose transaction fixed `now_ms` sees a value here.
    #[inline]
    pub fn is_live_at(&self, now_ms: u64) -> bool {
        !self.flags.is_tombstone() && (self.expires_at_ms == 0 || self.expires_at_ms > now_ms)
    }
}

/// Bytes that stay as they are until this is dropped: in a leaf, in a commit's block of the memtables, on the heap, or, if they are few,
/// in itself. To count a reader of a block or of a leaf takes a cache line that others write, too: longer than to copy a few bytes.
#[derive(Clone)]
pub struct Pinned(Bytes);

/// It has room for so many bytes: with them it has the size that it has without.
const COPIED_BYTES: usize = 31;

/// Schedules pin all.
const COPIED_BYTES_MAX: usize = if cfg!(feature = "shuttle") { 0 } else { COPIED_BYTES };

const _: () = assert!(size_of::<Pinned>() == size_of::<Owner>() + size_of::<&[u8]>());

#[derive(Clone)]
enum Bytes {
    Copied {
        len: u8,
        bytes: [u8; COPIED_BYTES],
    },
    Owned {
        // Keeps the bytes alive.
        owner: Owner,
        bytes: *const [u8],
    },
}

/// An allocation that a [`Pinned`] keeps alive.
pub trait Held: Send + Sync {
    /// How many bytes of memory it takes.
    fn held_bytes(&self) -> usize;
}

impl<T: Send + Sync> Held for Vec<T> {
    fn held_bytes(&self) -> usize {
        self.capacity() * size_of::<T>() + size_of::<Vec<T>>() + COUNTS_BYTES
    }
}

impl Held for crate::ValueBytes {
    fn held_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

/// The owner of the memory that a [`Pinned`] points to.
#[derive(Clone)]
pub enum Owner {
    /// Some reference-counted allocation whose bytes never move or change while it lives.
    Shared(Arc<dyn Held>),
    /// A commit's block in a table's memtables.
    Block(crate::memtables::BlockRef),
    /// A resident leaf of a tree.
    Leaf(Arc<crate::btree::Leaf>),
}

// SAFETY: the bytes are immutable for as long as the owner lives, and every owner is Send and Sync.
unsafe impl Send for Pinned {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// No bytes.
    pub const EMPTY: Pinned = Pinned(Bytes::Copied { len: 0, bytes: [0; COPIED_BYTES] });

    /// Pins `bytes`, which the owner keeps in place, or copies them if they are few: then it needs no owner.
    ///
    /// # Safety
    /// `bytes` must stay valid, unmoved and unchanged for as long as what `owner` returns or a clone of it lives.
    #[inline]
    pub unsafe fn new(owner: impl FnOnce() -> Owner, bytes: &[u8]) -> Pinned {
        Pinned::copied(bytes).unwrap_or_else(|| Pinned::owned(owner(), bytes))
    }

    /// A copy of few bytes.
    #[inline]
    fn copied(bytes: &[u8]) -> Option<Pinned> {
        if bytes.len() > COPIED_BYTES_MAX {
            return None;
        }
        let mut copy = [0; COPIED_BYTES];
        copy[..bytes.len()].copy_from_slice(bytes);
        Some(Pinned(Bytes::Copied { len: bytes.len() as u8, bytes: copy }))
    }

    /// Bytes that the owner keeps in place.
    fn owned(owner: Owner, bytes: *const [u8]) -> Pinned {
        Pinned(Bytes::Owned { owner, bytes })
    }

    /// Moves bytes from the heap into a pin.
    pub fn from_vec(bytes: Vec<u8>) -> Pinned {
        Pinned::copied(&bytes).unwrap_or_else(|| {
            let shared: Arc<Vec<u8>> = Arc::new(bytes);
            let bytes: *const [u8] = &**shared;
            Pinned::owned(Owner::Shared(shared), bytes)
        })
    }

    /// A copy.
    pub fn copy_of(bytes: &[u8]) -> Pinned {
        Pinned::copied(bytes).unwrap_or_else(|| Pinned::from_vec(bytes.to_vec()))
    }

    /// Pins a whole value.
    pub fn from_value(value: Arc<crate::ValueBytes>) -> Pinned {
        let bytes: *const [u8] = &**value;
        Pinned::owned(Owner::Shared(value), bytes)
    }

    /// How many bytes of memory it keeps alive beside itself: its owner's, which other pins may keep alive, too.
    pub fn held_bytes(&self) -> usize {
        match &self.0 {
            Bytes::Copied { .. } => 0,
            Bytes::Owned { owner, .. } => match owner {
                Owner::Shared(shared) => shared.held_bytes(),
                Owner::Block(block) => block.bytes(),
                Owner::Leaf(leaf) => leaf.held_bytes(),
            },
        }
    }

    /// A subslice of these bytes, pinned by the same owner.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Pinned {
        let some = &self[range];
        let of_owner = || match &self.0 {
            Bytes::Owned { owner, .. } => Pinned::owned(owner.clone(), some),
            Bytes::Copied { .. } => unreachable!("some of few bytes are few"),
        };
        Pinned::copied(some).unwrap_or_else(of_owner)
    }
}

impl Deref for Pinned {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Copied { len, bytes } => &bytes[..usize::from(*len)],
            // SAFETY: `new` was promised that the owner keeps these bytes in place, and the owner is alive.
            Bytes::Owned { bytes, .. } => unsafe { &**bytes },
        }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} bytes)", self.len())
    }
}

/// Consecutive bytes of a value in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The LSN of the first byte.
    pub lsn: Lsn,
    /// How many there are.
    pub len: u32,
}

/// The extents of an out-of-line value, and the checksum that each read verifies.
///
/// ```text
/// payload := total length u64 | checksum u32 | extent count u16 | count x (lsn u64, length u32)
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfLine {
    /// The value's length in bytes.
    pub len: u64,
    /// CRC-32C over table, key, bytes and, last, the CSN.
    pub checksum: u32,
    /// The value's bytes, in order.
    pub extents: Vec<Extent>,
}

impl OutOfLine {
    /// How many bytes [`OutOfLine::encode`] appends for one extent.
    pub const ENCODED_BYTES_ONE: usize = 26;

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.len);
        out.put_u32(self.checksum);
        out.put_u16(u16::try_from(self.extents.len()).expect("a value has at most 65,535 extents"));
        for extent in &self.extents {
            out.put_u64(extent.lsn.0);
            out.put_u32(extent.len);
        }
    }

    /// The checksum and the LSN of the first byte, of a payload with at least one extent. Cheaper than
    /// [`OutOfLine::decode`]: an identity of the value, since LSNs are never used again.
    pub fn identity(payload: &[u8]) -> Option<(Lsn, u32)> {
        let mut reader = Reader::new(payload);
        reader.u64("value length").ok()?;
        let checksum = reader.u32("value checksum").ok()?;
        reader.u16("extent count").ok()?;
        Some((Lsn(reader.u64("extent LSN").ok()?), checksum))
    }

    /// The length of the value, of a payload that [`OutOfLine::identity`] takes.
    pub fn len_of(payload: &[u8]) -> u64 {
        Reader::new(payload).u64("value length").unwrap_or(0)
    }

    /// Reads a payload; the extents must add up to the length.
    pub fn decode(payload: &[u8]) -> Result<OutOfLine, DecodeError> {
        let mut reader = Reader::new(payload);
        let len = reader.u64("value length")?;
        let checksum = reader.u32("value checksum")?;
        let count = reader.u16("extent count")?;
        let mut extents = Vec::with_capacity(usize::from(count).min(reader.remaining() / 12));
        let mut total = 0u64;
        for _ in 0..count {
            let extent = Extent { lsn: Lsn(reader.u64("extent LSN")?), len: reader.u32("extent length")? };
            total += u64::from(extent.len);
            extents.push(extent);
        }
        if total != len {
            return Err(reader.error("extent lengths"));
        }
        reader.finish("end of value reference")?;
        Ok(OutOfLine { len, checksum, extents })
    }
}
