//! Writes rows in a format that `load` reads back.

use std::io::{self, Write};
use std::time::SystemTime;

use memchr::memchr;

use super::jsonl::{EXPIRY_FIELD, TABLE_FIELD};
use super::{Format, csv, jsonl, tsv};
use crate::keys::hex;

/// An entry of a table.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// When it expires; `None`: never.
    pub expires_at: Option<SystemTime>,
}

/// Writes rows in one format.
pub(crate) struct RowWriter {
    format: Format,
    delimiter: u8,
    /// TSV only: bytes as they are, and an error for a row that could not be read back.
    raw: bool,
    /// Keys and values in hexadecimal.
    hex: bool,
    keys_only: bool,
    /// Entries that expire are written like those that do not.
    without_expiry: bool,
    /// The table that each row names.
    table: Option<String>,
    line: Vec<u8>,
}

impl RowWriter {
    pub fn new(format: Format) -> RowWriter {
        RowWriter {
            format,
            delimiter: b',',
            raw: false,
            hex: false,
            keys_only: false,
            without_expiry: false,
            table: None,
            line: Vec::new(),
        }
    }

    /// Puts another byte than a comma between the columns of CSV.
    pub fn delimiter(self, delimiter: u8) -> RowWriter {
        RowWriter { delimiter, ..self }
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

    /// Leaves out when entries expire.
    pub fn without_expiry(self, without_expiry: bool) -> RowWriter {
        RowWriter { without_expiry, ..self }
    }

    /// From now on each row names this table. A line of its own names it first, because the table may be empty. JSON
    /// lines only.
    pub fn begin_table(&mut self, table: &str, out: &mut impl Write) -> io::Result<()> {
        let name = serde_json::Value::from(table);
        self.table = Some(format!("\"{TABLE_FIELD}\":{name}"));
        writeln!(out, "{{\"{TABLE_FIELD}\":{name}}}")
    }

    /// Writes one row. The error of a row that the format cannot hold has the kind `InvalidData`.
    pub fn write(&mut self, entry: Entry<'_>, out: &mut impl Write) -> io::Result<()> {
        let expires_at_ms = match entry.expires_at {
            Some(time) if !self.without_expiry => Some(milliseconds(time)),
            _ => None,
        };
        if expires_at_ms.is_some() && self.format != Format::Jsonl {
            let name = self.format.name();
            let why = format!(
                "it expires, and {name} cannot say when: write JSON lines (--format jsonl), or give --without-expiry \
                 to write it as one that never expires"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        self.line.clear();
        if self.hex {
            let value = if self.keys_only { String::new() } else { hex(entry.value) };
            self.append(hex(entry.key).as_bytes(), value.as_bytes(), expires_at_ms)?;
        } else {
            self.append(entry.key, entry.value, expires_at_ms)?;
        }
        self.line.push(b'\n');
        out.write_all(&self.line)
    }

    fn append(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> io::Result<()> {
        let line = &mut self.line;
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
                csv::write_field(key, self.delimiter, line);
                line.push(self.delimiter);
                csv::write_field(value, self.delimiter, line);
            }
            Format::Jsonl => {
                line.push(b'{');
                if let Some(table) = &self.table {
                    line.extend_from_slice(table.as_bytes());
                    line.push(b',');
                }
                jsonl::write_field("key", key, line);
                if !self.keys_only {
                    line.push(b',');
                    jsonl::write_field("value", value, line);
                }
                if let Some(time) = expires_at_ms {
                    line.extend_from_slice(format!(",\"{EXPIRY_FIELD}\":{time}").as_bytes());
                }
                line.push(b'}');
            }
        }
        Ok(())
    }
}

/// A time in milliseconds since 1970-01-01 UTC.
fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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
