//! Little-endian, fixed-width and LEB128 integers: the only encodings on disk.

use std::fmt;

/// Why bytes did not decode: the field, and its byte offset in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The field that was being read.
    pub field: &'static str,
    /// Its byte offset in the input.
    pub offset: usize,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the field `{}` at byte {} is cut short or out of range", self.field, self.offset)
    }
}

impl std::error::Error for DecodeError {}

/// Reads fields from a byte slice, front to back. No input makes it panic.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0 }
    }

    /// The byte offset of the next field.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The error for a wrong `field` at the current position.
    pub fn error(&self, field: &'static str) -> DecodeError {
        DecodeError { field, offset: self.position }
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        if len > self.remaining() {
            return Err(self.error(field));
        }
        let start = self.position;
        self.position += len;
        Ok(&self.bytes[start..self.position])
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let bytes = self.bytes(N, field)?;
        Ok(bytes.try_into().expect("the slice has N bytes"))
    }

    /// The next byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(field)?[0])
    }

    /// The next two bytes.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    /// The next four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// The next eight bytes.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// The next sixteen bytes.
    pub fn u128(&mut self, field: &'static str) -> Result<u128, DecodeError> {
        Ok(u128::from_le_bytes(self.array(field)?))
    }

    /// An LEB128 integer of at most ten bytes, in its shortest form.
    pub fn varint(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        let start = self.clone();
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(field)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(start.error(field));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(start.error(field));
                }
                return Ok(value);
            }
        }
        Err(start.error(field))
    }

    /// An LEB128 length, then that many bytes; at most `max`.
    pub fn prefixed(&mut self, max: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let start = self.clone();
        let len = self.varint(field)?;
        match usize::try_from(len) {
            Ok(len) if len <= max => self.bytes(len, field),
            _ => Err(start.error(field)),
        }
    }

    /// Fails unless everything was read.
    pub fn finish(&self, field: &'static str) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(self.error(field)) }
    }
}

/// Appends fields to a byte vector; the mirror of [`Reader`].
pub trait Writer {
    /// Appends raw bytes.
    fn put_bytes(&mut self, bytes: &[u8]);

    /// Appends one byte.
    fn put_u8(&mut self, value: u8) {
        self.put_bytes(&[value]);
    }
    /// Appends two bytes.
    fn put_u16(&mut self, value: u16) {
        self.put_bytes(&value.to_le_bytes());
    }
    /// Appends four bytes.
    fn put_u32(&mut self, value: u32) {
        self.put_bytes(&value.to_le_bytes());
    }
    /// Appends eight bytes.
    fn put_u64(&mut self, value: u64) {
        self.put_bytes(&value.to_le_bytes());
    }
    /// Appends sixteen bytes.
    fn put_u128(&mut self, value: u128) {
        self.put_bytes(&value.to_le_bytes());
    }
    /// Appends an LEB128 integer in its shortest form.
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }
    /// Appends an LEB128 length and the bytes.
    fn put_prefixed(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put_bytes(bytes);
    }
}

impl Writer for Vec<u8> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// How many bytes [`Writer::put_varint`] writes for `value`.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_come_back(value: u64) {
            let mut bytes = Vec::new();
            bytes.put_varint(value);
            prop_assert_eq!(bytes.len(), varint_len(value));
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint("v"), Ok(value));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.varint("v").is_ok() && !reader.is_empty() {}
            let mut reader = Reader::new(&bytes);
            while reader.prefixed(100, "p").is_ok() && !reader.is_empty() {}
        }
    }

    #[test]
    fn varints_have_one_form() {
        assert!(Reader::new(&[0x80, 0x00]).varint("v").is_err());
        assert!(Reader::new(&[0xff; 10]).varint("v").is_err());
        assert!(Reader::new(&[0x80]).varint("v").is_err());
        assert_eq!(Reader::new(&[0]).varint("v"), Ok(0));
    }

    #[test]
    fn errors_name_field_and_position() {
        let mut reader = Reader::new(&[1, 2, 3]);
        reader.u8("kind").unwrap();
        let error = reader.u64("csn").unwrap_err();
        assert_eq!(error, DecodeError { field: "csn", offset: 1 });
    }
}
