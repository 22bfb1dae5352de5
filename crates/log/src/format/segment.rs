//! The first block of a segment file, and its name.

use fulgurite_types::{DatabaseId, DecodeError, Reader, Writer, crc32c};

/// Where the data of a segment begins: the first block holds the header alone.
pub const SEGMENT_DATA_START: u32 = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"FulgSeg\n");
/// The version that is written; 1 is read, too. A program that knows 1 would not find the groups of format 2.
const VERSION: u16 = 2;
const CHECKED_BYTES: usize = 36;

/// The suffix of a segment that is ready or in use.
pub(crate) const SEGMENT_SUFFIX: &str = ".seg";
/// The suffix of a file that is not a segment yet.
pub(crate) const NEW_SUFFIX: &str = ".new";

/// The first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The length of the file in bytes.
    pub bytes: u32,
    /// The database that it belongs to.
    pub database: DatabaseId,
    /// Its number, as in its name.
    pub number: u32,
}

impl SegmentHeader {
    /// The whole first block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(SEGMENT_DATA_START as usize);
        block.put_u64(MAGIC);
        block.put_u16(VERSION);
        block.put_u16(0);
        block.put_u32(self.bytes);
        block.put_u128(self.database.0);
        block.put_u32(self.number);
        block.put_u32(crc32c(&block));
        block.resize(SEGMENT_DATA_START as usize, 0);
        block
    }

    /// Reads the first block.
    pub fn decode(block: &[u8]) -> Result<SegmentHeader, DecodeError> {
        let mut reader = Reader::new(block);
        expect(&mut reader, "magic", |r, field| Ok(r.u64(field)? == MAGIC))?;
        expect(&mut reader, "format version", |r, field| Ok((1..=VERSION).contains(&r.u16(field)?)))?;
        expect(&mut reader, "reserved", |r, field| Ok(r.u16(field)? == 0))?;
        let bytes = reader.u32("file bytes")?;
        let database = DatabaseId(reader.u128("database id")?);
        let number = reader.u32("number")?;
        expect(&mut reader, "header checksum", |r, field| {
            Ok(r.u32(field)? == crc32c(&block[..CHECKED_BYTES]))
        })?;
        if bytes <= SEGMENT_DATA_START || number == 0 {
            return Err(DecodeError { field: "file bytes or number", offset: 12 });
        }
        Ok(SegmentHeader { bytes, database, number })
    }
}

/// Reads one field with `check`; fails at the field's offset unless that returns true.
fn expect(
    reader: &mut Reader<'_>,
    field: &'static str,
    check: impl FnOnce(&mut Reader<'_>, &'static str) -> Result<bool, DecodeError>,
) -> Result<(), DecodeError> {
    let error = reader.error(field);
    if check(reader, field)? { Ok(()) } else { Err(error) }
}

/// `0000000042.seg`
pub(crate) fn segment_file_name(number: u32) -> String {
    format!("{number:010}{SEGMENT_SUFFIX}")
}

/// `0000000042.new`
pub(crate) fn new_file_name(number: u32) -> String {
    format!("{number:010}{NEW_SUFFIX}")
}

/// The number in a name of ten digits and `suffix`; any other name is not the log's.
pub(crate) fn parse_number(name: &str, suffix: &str) -> Option<u32> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|&number| number > 0)
}
