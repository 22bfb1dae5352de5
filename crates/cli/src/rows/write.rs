//! Rows on their way out: what `load` reads back.

use std::io::{self, Write};

use memchr::memchr;

use super::{Format, csv, jsonl, tsv};
use crate::keys::hex;

/// Writes rows in one format.
pub(crate) struct RowWriter {
    format: Format,
    /// Of TSV: bytes as they stand, and no row that could not be read back.
    raw: bool,
    /// Keys and values in hexadecimal.
    hex: bool,
    keys_only: bool,
    line: Vec<u8>,
}

impl RowWriter {
    pub fn new(format: Format) -> RowWriter {
        RowWriter { format, raw: false, hex: false, keys_only: false, line: Vec::new() }
    }

    /// Leaves TSV without escapes.
    pub fn raw(self, raw: bool) -> RowWriter {
        RowWriter { raw, ..self }
    }

    /// Writes keys and values in hexadecimal.
    pub fn hex(self, hex: bool) -> RowWriter {
        RowWriter { hex, ..self }
    }

    /// Leaves the values out.
    pub fn keys_only(self, keys_only: bool) -> RowWriter {
        RowWriter { keys_only, ..self }
    }

    /// Writes one row. The error of a row that the format cannot hold has the kind `InvalidData`.
    pub fn write(&mut self, key: &[u8], value: &[u8], out: &mut impl Write) -> io::Result<()> {
        if self.hex {
            let value = if self.keys_only { String::new() } else { hex(value) };
            return self.write_bytes(hex(key).as_bytes(), value.as_bytes(), out);
        }
        self.write_bytes(key, value, out)
    }

    fn write_bytes(&mut self, key: &[u8], value: &[u8], out: &mut impl Write) -> io::Result<()> {
        let line = &mut self.line;
        line.clear();
        match self.format {
            Format::Tsv if self.raw => {
                if let Some(why) = unreadable(key, value) {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                line.extend_from_slice(key);
                line.push(b'\t');
                line.extend_from_slice(value);
            }
            Format::Tsv => {
                tsv::escape(key, true, line);
                if !self.keys_only {
                    line.push(b'\t');
                    tsv::escape(value, false, line);
                }
            }
            Format::Csv => {
                csv::write_field(key, line);
                line.push(b',');
                csv::write_field(value, line);
            }
            Format::Jsonl => {
                line.push(b'{');
                jsonl::write_field("key", key, line);
                if !self.keys_only {
                    line.push(b',');
                    jsonl::write_field("value", value, line);
                }
                line.push(b'}');
            }
        }
        line.push(b'\n');
        out.write_all(line)
    }
}

/// Why a row would not come back from TSV without escapes.
fn unreadable(key: &[u8], value: &[u8]) -> Option<&'static str> {
    if memchr(b'\t', key).is_some() {
        return Some("the key holds a tab");
    }
    if memchr(b'\n', key).is_some() || memchr(b'\n', value).is_some() {
        return Some("it holds a line break");
    }
    value.ends_with(b"\r").then_some("its value ends with a carriage return")
}
