//! Tab-separated rows.

use memchr::{memchr, memchr_iter};

use super::header::without_mark;
use super::{Column, Columns, Next, Row, Rows, ValueColumn};
use crate::failure::Failure;
use crate::input::{Lines, Step};

/// Reads a row a line, split at tabs by hand: the rest of a line is taken as it is.
pub(crate) struct TsvRows {
    lines: Lines,
    columns: Columns,
    escaped: bool,
    unescaped: Vec<u8>,
}

impl TsvRows {
    /// Begins to read; takes the header from the first line if there is one. `None` if a signal came first.
    pub fn open(
        mut lines: Lines,
        key: &Column,
        value: &ValueColumn,
        header: bool,
        escaped: bool,
    ) -> Result<Option<TsvRows>, Failure> {
        let first = if header { first_line(&mut lines)? } else { Some(Vec::new()) };
        let Some(first) = first else { return Ok(None) };
        let names: Vec<&[u8]> = first.split(|&byte| byte == b'\t').collect();
        let columns = Columns::find(key, value, &names, lines.source_name())?;
        Ok(Some(TsvRows { lines, columns, escaped, unescaped: Vec::new() }))
    }
}

/// The first line, empty if there is none. `None` if a signal came first.
fn first_line(lines: &mut Lines) -> Result<Option<Vec<u8>>, Failure> {
    loop {
        match lines.next()? {
            Step::Line(range) => return Ok(Some(without_mark(lines.get(range)).to_vec())),
            Step::Idle => {}
            Step::Interrupted => return Ok(None),
            Step::End => return Ok(Some(Vec::new())),
        }
    }
}

impl Rows for TsvRows {
    fn next(&mut self, row: &mut Row) -> Result<Next, Failure> {
        let range = match self.lines.next()? {
            Step::Line(range) => range,
            Step::Idle => return Ok(Next::Idle),
            Step::Interrupted => return Ok(Next::Interrupted),
            Step::End => return Ok(Next::End),
        };
        let line = self.lines.get(range);
        row.clear();
        if let Err(columns) = split(line, self.columns, row) {
            return Ok(Next::Bad(self.columns.too_few(columns)));
        }
        if self.escaped {
            for field in [&mut row.key, &mut row.value] {
                if let Err(why) = unescape(field, &mut self.unescaped) {
                    return Ok(Next::Bad(why));
                }
            }
        }
        Ok(Next::Row)
    }

    fn line(&self) -> u64 {
        self.lines.number()
    }
}

/// Takes key and value out of a line; or returns how many columns it has, if those are too few.
fn split(line: &[u8], columns: Columns, row: &mut Row) -> Result<(), usize> {
    if (columns.key, columns.value) == (0, None) {
        let tab = memchr(b'\t', line).ok_or(if line.is_empty() { 0usize } else { 1 })?;
        row.key.extend_from_slice(&line[..tab]);
        row.value.extend_from_slice(&line[tab + 1..]);
        return Ok(());
    }
    let (mut start, mut found) = (0, 0);
    let (mut has_key, mut has_value) = (false, false);
    for end in memchr_iter(b'\t', line).chain([line.len()]) {
        let field = &line[start..end];
        if found == columns.key {
            row.key.extend_from_slice(field);
            has_key = true;
        }
        let is_value = columns.value.map_or(found != columns.key, |value| found == value);
        if is_value {
            if has_value {
                row.value.push(b'\t');
            }
            row.value.extend_from_slice(field);
            has_value = true;
        }
        found += 1;
        start = end + 1;
    }
    if has_key && has_value { Ok(()) } else { Err(found) }
}

/// Replaces `\t`, `\n`, `\r` and `\\`.
fn unescape(field: &mut Vec<u8>, spare: &mut Vec<u8>) -> Result<(), String> {
    if memchr(b'\\', field).is_none() {
        return Ok(());
    }
    spare.clear();
    let mut bytes = field.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            spare.push(byte);
            continue;
        }
        spare.push(match bytes.next() {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'\\') => b'\\',
            Some(other) => {
                return Err(format!("there is no escape \\{}", other.escape_ascii()));
            }
            None => return Err("a column ends with a single backslash".into()),
        });
    }
    std::mem::swap(field, spare);
    Ok(())
}

/// Appends `field` with the bytes that would end a line replaced by the escapes that [`unescape`] reads; with `tabs`,
/// tabs too.
pub(super) fn escape(field: &[u8], tabs: bool, out: &mut Vec<u8>) {
    for &byte in field {
        match byte {
            b'\t' if tabs => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &[u8], key: usize, value: Option<usize>) -> Result<(Vec<u8>, Vec<u8>), usize> {
        let mut row = Row::default();
        split(line, Columns { key, value }, &mut row).map(|()| (row.key, row.value))
    }

    fn text(key: &str, value: &str) -> Result<(Vec<u8>, Vec<u8>), usize> {
        Ok((key.into(), value.into()))
    }

    #[test]
    fn the_rest_is_taken_as_it_is() {
        assert_eq!(row(b"k\ta\tb\t", 0, None), text("k", "a\tb\t"));
        assert_eq!(row(b"\t", 0, None), text("", ""));
        assert_eq!(row(b"a\tk\t\tb", 1, None), text("k", "a\t\tb"));
    }

    #[test]
    fn columns_are_picked() {
        assert_eq!(row(b"a\tb\tc", 2, Some(0)), text("c", "a"));
        assert_eq!(row(b"a\tb\tc", 1, Some(1)), text("b", "b"));
    }

    #[test]
    fn too_few_columns_are_counted() {
        assert_eq!(row(b"", 0, None), Err(0));
        assert_eq!(row(b"k", 0, None), Err(1));
        assert_eq!(row(b"a\tb", 2, None), Err(2));
        assert_eq!(row(b"a\tb", 0, Some(2)), Err(2));
    }

    #[test]
    fn escapes_come_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        for tabs in [true, false] {
            let mut field = Vec::new();
            escape(&bytes, tabs, &mut field);
            assert!(!field.contains(&b'\n') && field.contains(&b'\t') != tabs);
            unescape(&mut field, &mut Vec::new()).unwrap();
            assert_eq!(field, bytes);
        }
        for wrong in [&b"\\x"[..], b"\\"] {
            assert!(unescape(&mut wrong.to_vec(), &mut Vec::new()).is_err());
        }
    }
}
