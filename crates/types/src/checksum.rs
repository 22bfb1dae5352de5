//! CRC-32C (Castagnoli), the checksum of everything on disk.

use crate::{Csn, TableId};
use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A CRC-32C over several pieces. Pieces are not delimited: with variable-length fields the caller adds their lengths,
/// too.
#[derive(Clone)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The checksum of nothing.
    pub fn new() -> Crc32c {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) -> &mut Crc32c {
        self.0.update(bytes);
        self
    }

    /// Adds a number, little-endian.
    pub fn update_u64(&mut self, value: u64) -> &mut Crc32c {
        self.update(&value.to_le_bytes())
    }

    /// The checksum of everything added.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Crc32c::new()
    }
}

/// The part of an out-of-line value's checksum that is known before its commit has a CSN: over the table, the key and
/// the bytes.
pub fn value_checksum(table: TableId, key: &[u8], value: &[&[u8]]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&table.0.to_le_bytes()).update_u64(key.len() as u64).update(key);
    for piece in value {
        crc.update(piece);
    }
    crc.finish()
}

/// Adds the commit's CSN to a [`value_checksum`]: the result is stored with the value's extents.
pub fn seal_checksum(partial: u32, csn: Csn) -> u32 {
    Crc32c::new().update(&partial.to_le_bytes()).update_u64(csn.0).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn pieces_equal_the_whole() {
        let mut pieces = Crc32c::new();
        pieces.update(b"1234").update(b"").update(b"56789");
        assert_eq!(pieces.finish(), crc32c(b"123456789"));
    }
}
