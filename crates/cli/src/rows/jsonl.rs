//! Rows as JSON objects, one a line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::value::RawValue;

use super::{Next, Row, Rows};
use crate::failure::Failure;
use crate::input::{Lines, Step};

/// Suffix of the name of a field that holds bytes in base64.
const BASE64_SUFFIX: &str = "_base64";
/// The value field that means the whole line.
const WHOLE_LINE: &str = ".";

/// Reads an object a line.
pub(crate) struct JsonRows {
    lines: Lines,
    key: Field,
    /// `None`: the whole line.
    value: Option<Field>,
    /// The field with the time of expiry, if one is read.
    expiry: Option<String>,
    /// Whether each line names its table.
    has_tables: bool,
}

/// The field with the name of a row's table.
pub(super) const TABLE_FIELD: &str = "table";
/// The field with the time at which an entry expires, unless another one is named.
pub(super) const EXPIRY_FIELD: &str = "expires_at_ms";

/// Which fields make a row.
pub(crate) struct JsonFields<'a> {
    pub key: &'a str,
    /// `.`: the whole line.
    pub value: &'a str,
    /// The field with the time of expiry; `None`: [`EXPIRY_FIELD`], unless the whole line is the value: its fields then
    /// mean what their author intended.
    pub expiry: Option<&'a str>,
    /// Whether each line names its table.
    pub has_tables: bool,
}

/// A field, and the name it has when it holds base64.
struct Field {
    name: String,
    base64_name: String,
}

impl Field {
    fn new(name: &str) -> Field {
        Field { name: name.into(), base64_name: format!("{name}{BASE64_SUFFIX}") }
    }

    /// Appends the field's bytes: a string's text, another value's compact JSON.
    fn take(&self, object: &BTreeMap<Cow<'_, str>, &RawValue>, out: &mut Vec<u8>) -> Result<(), String> {
        if let Some(value) = object.get(self.name.as_str()) {
            let json = value.get();
            match json.starts_with('"') {
                true => out.extend_from_slice(string(&self.name, json)?.as_bytes()),
                false => compact(json, out),
            }
            return Ok(());
        }
        let name = &self.base64_name;
        let Some(value) = object.get(name.as_str()) else {
            return Err(format!("there is no field \"{}\"", self.name));
        };
        let text = string(name, value.get())?;
        BASE64.decode_vec(text, out).map_err(|error| format!("field \"{name}\" is not base64: {error}"))
    }
}

impl JsonRows {
    pub fn new(lines: Lines, fields: &JsonFields<'_>) -> JsonRows {
        let value = (fields.value != WHOLE_LINE).then(|| Field::new(fields.value));
        let expiry = fields.expiry.or(value.is_some().then_some(EXPIRY_FIELD)).map(String::from);
        JsonRows { lines, key: Field::new(fields.key), value, expiry, has_tables: fields.has_tables }
    }

    /// Parses a line; returns whether it is a row, and not only the name of a table.
    fn parse(&self, line: &[u8], row: &mut Row) -> Result<bool, String> {
        let object: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(line).map_err(|error| {
            format!("it is not a JSON object: {}, at column {}", without_position(&error), error.column())
        })?;
        if self.has_tables {
            let table = object.get(TABLE_FIELD).ok_or("there is no field \"table\"")?;
            row.table = string(TABLE_FIELD, table.get())?;
            if object.len() == 1 {
                return Ok(false);
            }
        }
        self.key.take(&object, &mut row.key)?;
        if let Some(field) = &self.expiry
            && let Some(time) = object.get(field.as_str()).filter(|time| time.get() != "null")
        {
            let time = serde_json::from_str(time.get()).ok().filter(|time| *time > 0);
            row.expires_at_ms = Some(time.ok_or_else(|| {
                format!("field \"{field}\" is not a number of milliseconds since 1970-01-01 UTC")
            })?);
        }
        match &self.value {
            Some(field) => field.take(&object, &mut row.value)?,
            None => row.value.extend_from_slice(line),
        }
        Ok(true)
    }
}

impl Rows for JsonRows {
    fn next(&mut self, row: &mut Row) -> Result<Next, Failure> {
        let range = match self.lines.next()? {
            Step::Line(range) => range,
            Step::Idle => return Ok(Next::Idle),
            Step::Interrupted => return Ok(Next::Interrupted),
            Step::End => return Ok(Next::End),
        };
        row.clear();
        match self.parse(self.lines.get(range), row) {
            Ok(true) => Ok(Next::Row),
            Ok(false) => Ok(Next::Table),
            Err(why) => Ok(Next::Bad(why)),
        }
    }

    fn line(&self) -> u64 {
        self.lines.number()
    }
}

fn string(field: &str, json: &str) -> Result<String, String> {
    let failed = |error| format!("field \"{field}\" is not a string: {}", without_position(&error));
    serde_json::from_str(json).map_err(failed)
}

/// The error without its position: its line is relative to the object, its column perhaps to a field.
fn without_position(error: &serde_json::Error) -> String {
    let position = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    text.strip_suffix(&position).map(String::from).unwrap_or(text)
}

/// Appends valid JSON without the blanks between its tokens; numbers and the order of fields stay as they are.
fn compact(json: &str, out: &mut Vec<u8>) {
    let (mut in_string, mut escaped) = (false, false);
    for &byte in json.as_bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if byte.is_ascii_whitespace() {
            continue;
        } else {
            in_string = byte == b'"';
        }
        out.push(byte);
    }
}

/// The name and the text of a field for these bytes: as they are, or in base64 if they are not UTF-8.
pub(crate) fn bytes_field<'b>(name: &str, bytes: &'b [u8]) -> (String, Cow<'b, str>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_string(), Cow::Borrowed(text)),
        Err(_) => (format!("{name}{BASE64_SUFFIX}"), Cow::Owned(BASE64.encode(bytes))),
    }
}

/// Appends `"name":value`.
pub(super) fn write_field(name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    let (name, text) = bytes_field(name, bytes);
    out.extend_from_slice(format!("\"{name}\":").as_bytes());
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_json_keeps_strings_and_numbers() {
        let mut out = Vec::new();
        compact(r#" { "b" : [ 1.50 , "x \" y" ] , "a" : "\\" } "#, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"b":[1.50,"x \" y"],"a":"\\"}"#);
    }

    /// Regression: a long value of zeros was exported, and its line was too long to be loaded.
    #[test]
    fn no_byte_takes_more_room_than_a_line_that_is_loaded_may_have() {
        let mut none = Vec::new();
        write_field("key", b"", &mut none);
        for byte in 0..=255u8 {
            let mut line = Vec::new();
            write_field("key", &[byte; 300], &mut line);
            let most = none.len() + crate::input::ESCAPED_BYTES_MAX * 300;
            assert!(line.len() <= most + "_base64".len(), "{byte}: {} bytes", line.len());
        }
    }

    #[test]
    fn fields_come_back() {
        for bytes in [&b"text \"\n\x00"[..], b"\xff\xfe", b""] {
            let mut line = b"{".to_vec();
            write_field("key", bytes, &mut line);
            line.push(b'}');
            let object = serde_json::from_slice(&line).unwrap();
            let mut found = Vec::new();
            Field::new("key").take(&object, &mut found).unwrap();
            assert_eq!(found, bytes);
        }
    }
}
