//! One version of one key, as leaves have it in memory, and had it in records of version 1.
//!
//! ```text
//! entry := flags u8 | key length u16 | payload length u32 | csn u64 | [expiry u64] | key | payload
//! ```

use fulgurite_types::{Csn, Writer};

use super::format::{len_u16, len_u32};
use crate::VersionFlags;

/// Bytes before the expiry.
pub(super) const FIXED_BYTES: usize = 15;

/// Entry flag, besides those of [`VersionFlags`]: the entry before this one has the same key.
pub(crate) const SAME_KEY: u8 = 0x80;
/// Entry flag of delta records: the key has no versions left.
pub(crate) const REMOVED: u8 = 0x40;
/// The flags that belong to a version.
pub(crate) const VERSION_FLAGS: u8 =
    VersionFlags::TOMBSTONE | VersionFlags::OUT_OF_LINE | VersionFlags::EXPIRES;
/// The flags of versions that may be pruned one day although their key does not change: when no snapshot sees an older version any
/// more, or a tombstone, or when a version has expired.
pub(crate) const PRUNABLE_FLAGS: u8 = SAME_KEY | VersionFlags::TOMBSTONE | VersionFlags::EXPIRES;

/// A decoded entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The stored byte: the version's flags, [`SAME_KEY`], [`REMOVED`].
    pub flags: u8,
    pub csn: Csn,
    pub expires_at_ms: u64,
    pub key: &'a [u8],
    pub payload: &'a [u8],
}

/// A version without its key, on its way into a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped<'a> {
    /// Only the version's flags.
    pub flags: u8,
    pub csn: Csn,
    pub expires_at_ms: u64,
    pub payload: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Decodes the entry at `offset` of a heap and returns where the next one starts; `None` if it does not fit.
    #[inline]
    pub(crate) fn decode(heap: &'a [u8], offset: usize) -> Option<(Entry<'a>, usize)> {
        let fixed = heap.get(offset..)?.first_chunk::<FIXED_BYTES>()?;
        let flags = fixed[0];
        let key_len = usize::from(u16::from_le_bytes([fixed[1], fixed[2]]));
        let payload_len = u32::from_le_bytes([fixed[3], fixed[4], fixed[5], fixed[6]]) as usize;
        let csn = Csn(u64::from_le_bytes(*fixed.last_chunk::<8>()?));
        let mut at = offset + FIXED_BYTES;
        let mut expires_at_ms = 0;
        if flags & VersionFlags::EXPIRES != 0 {
            expires_at_ms = u64::from_le_bytes(*heap.get(at..)?.first_chunk::<8>()?);
            at += 8;
        }
        let key = heap.get(at..at + key_len)?;
        at += key_len;
        let payload = heap.get(at..at.checked_add(payload_len)?)?;
        Some((Entry { flags, csn, expires_at_ms, key, payload }, at + payload_len))
    }

    /// The CSN of the entry at `offset`, and whether it has the key of the one before.
    #[inline]
    pub(crate) fn peek(heap: &[u8], offset: usize) -> (Csn, bool) {
        let fixed = heap[offset..].first_chunk::<FIXED_BYTES>().expect("entries were validated");
        let csn = Csn(u64::from_le_bytes(*fixed.last_chunk::<8>().expect("an entry is longer")));
        (csn, fixed[0] & SAME_KEY != 0)
    }

    #[inline]
    pub(crate) fn is_same_key(&self) -> bool {
        self.flags & SAME_KEY != 0
    }

    pub(crate) fn version_flags(&self) -> VersionFlags {
        VersionFlags(self.flags & VERSION_FLAGS)
    }

    pub(crate) fn stamped(&self) -> Stamped<'a> {
        let Entry { flags, csn, expires_at_ms, payload, .. } = *self;
        Stamped { flags: flags & VERSION_FLAGS, csn, expires_at_ms, payload }
    }
}

/// Appends an entry; `mark` is [`SAME_KEY`], [`REMOVED`] or 0.
pub(crate) fn encode(out: &mut Vec<u8>, key: &[u8], version: &Stamped<'_>, mark: u8) {
    encode_before_key(out, key.len(), version, mark);
    out.put_bytes(key);
    out.put_bytes(version.payload);
}

/// Appends what comes before the key, and makes room for the rest.
pub(super) fn encode_before_key(out: &mut Vec<u8>, key_len: usize, version: &Stamped<'_>, mark: u8) {
    let mut fixed = [0u8; FIXED_BYTES];
    fixed[0] = version.flags | mark;
    fixed[1..3].copy_from_slice(&len_u16(key_len).to_le_bytes());
    fixed[3..7].copy_from_slice(&len_u32(version.payload.len()).to_le_bytes());
    fixed[7..].copy_from_slice(&version.csn.0.to_le_bytes());
    let expires = version.flags & VersionFlags::EXPIRES != 0;
    out.reserve(FIXED_BYTES + if expires { 8 } else { 0 } + key_len + version.payload.len());
    out.put_bytes(&fixed);
    if expires {
        out.put_u64(version.expires_at_ms);
    }
}
