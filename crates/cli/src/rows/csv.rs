//! Comma-separated rows.

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::quotes::{Fault, QuoteWatch};
use super::{Column, Columns, Next, Row, Rows, ValueColumn};
use crate::failure::Failure;
use crate::input::{Source, SourceReader};

/// Reads records of RFC 4180; their lengths may differ.
pub(crate) struct CsvRows {
    reader: Reader<QuoteWatch<SourceReader>>,
    record: ByteRecord,
    columns: Columns,
    delimiter: u8,
    name: String,
    line: u64,
}

impl CsvRows {
    /// Begins to read; takes the header from the first record if there is one. `None` if a signal came first.
    pub fn open(
        source: Source,
        key: &Column,
        value: &ValueColumn,
        header: bool,
        delimiter: u8,
    ) -> Result<Option<CsvRows>, Failure> {
        let name = source.name().to_string();
        let mut builder = ReaderBuilder::new();
        let builder = builder.has_headers(false).flexible(true).delimiter(delimiter).buffer_capacity(1 << 18);
        let mut rows = CsvRows {
            reader: builder.from_reader(QuoteWatch::new(SourceReader::new(source), delimiter)),
            record: ByteRecord::new(),
            columns: Columns { key: 0, value: None },
            delimiter,
            name,
            line: 0,
        };
        let mut names = ByteRecord::new();
        if header {
            match rows.read()? {
                Next::Interrupted => return Ok(None),
                _ => names = rows.record.clone(),
            }
        }
        let names: Vec<&[u8]> = names.iter().collect();
        rows.columns = Columns::find(key, value, &names, &rows.name)?;
        Ok(Some(rows))
    }

    fn read(&mut self) -> Result<Next, Failure> {
        self.line = self.reader.position().line();
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => {
                self.line = self.record.position().map_or(self.line, csv::Position::line);
                let end = self.reader.position().byte();
                match self.reader.get_mut().fault_before(end) {
                    None => Ok(Next::Row),
                    Some(Fault::TextBehind) => {
                        Ok(Next::Bad("text follows the closing quote of a field".to_string()))
                    }
                    Some(Fault::NeverClosed) => Err(Failure::new(format!(
                        "{}, line {}: a quoted field begins here and is never closed",
                        self.name, self.line
                    ))),
                }
            }
            Ok(false) => Ok(Next::End),
            Err(error) if matches!(error.kind(), ErrorKind::Io(_)) => {
                let source = self.reader.get_mut().inner_mut();
                if source.interrupted() {
                    return Ok(Next::Interrupted);
                }
                let failure = source.take_failure();
                Err(failure.unwrap_or_else(|| Failure::new(format!("reading {}: {error}", self.name))))
            }
            Err(error) => Ok(Next::Bad(error.to_string())),
        }
    }

    /// Takes key and value out of the record; or returns how many columns it has, if those are too few.
    fn split(&self, row: &mut Row) -> Result<(), usize> {
        let fields = &self.record;
        row.key.extend_from_slice(fields.get(self.columns.key).ok_or(fields.len())?);
        if let Some(value) = self.columns.value {
            row.value.extend_from_slice(fields.get(value).ok_or(fields.len())?);
            return Ok(());
        }
        let key = self.columns.key;
        let mut rest = fields.iter().enumerate().filter(|(index, _)| *index != key).map(|(_, field)| field);
        match (rest.next(), rest.next()) {
            (None, _) => return Err(fields.len()),
            (Some(only), None) => row.value.extend_from_slice(only),
            (Some(first), Some(second)) => {
                write_field(first, self.delimiter, &mut row.value);
                for field in std::iter::once(second).chain(rest) {
                    row.value.push(self.delimiter);
                    write_field(field, self.delimiter, &mut row.value);
                }
            }
        }
        Ok(())
    }
}

impl Rows for CsvRows {
    fn next(&mut self, row: &mut Row) -> Result<Next, Failure> {
        let next = self.read()?;
        if !matches!(next, Next::Row) {
            return Ok(next);
        }
        row.clear();
        match self.split(row) {
            Ok(()) => Ok(Next::Row),
            Err(columns) => Ok(Next::Bad(self.columns.too_few(columns))),
        }
    }

    fn line(&self) -> u64 {
        self.line
    }
}

/// Appends a field, in quotes if a reader would take it for something else without them.
pub(super) fn write_field(field: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    let special = |&byte: &u8| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
    // A reader drops a byte order mark at the start of a file, and some trim blanks.
    let edge = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t' | 0xef));
    if !field.iter().any(special) && !edge(field.first()) && !edge(field.last()) {
        return out.extend_from_slice(field);
    }
    out.push(b'"');
    for &byte in field {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let fields: [&[u8]; 8] =
            [b"", b"plain", b"a,b", b"a;b", b"say \"x\"", b"two\r\nlines", b"\xef\xbb\xbfmark", b"\xff\x00"];
        for delimiter in *b",;\t" {
            let mut text = Vec::new();
            for (index, field) in fields.iter().enumerate() {
                if index > 0 {
                    text.push(delimiter);
                }
                write_field(field, delimiter, &mut text);
            }
            text.push(b'\n');
            let mut reader = ReaderBuilder::new();
            let mut reader = reader.has_headers(false).delimiter(delimiter).from_reader(&text[..]);
            let record = reader.byte_records().next().unwrap().unwrap();
            assert_eq!(record.iter().collect::<Vec<_>>(), fields);
        }
    }
}
