//! A report as the text of a file, and back.

use std::fmt;

use serde_json::Value;

use crate::report::{FORMAT, FORMAT_MIN, Report};

/// Why a text is no report. `Display` continues a sentence that begins with the name of the file: `a.json is not JSON:
/// …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It is not JSON: the error, and where.
    NotJson(String),
    /// It is JSON, but not of a report: the field that is missing or of the wrong type, and where.
    NotReport(String),
    /// It is a report in another format, of this number.
    Format(u64),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NotJson(what) => write!(f, "is not JSON: {what}"),
            ReadError::NotReport(what) => write!(f, "is not the report of a benchmark: {what}"),
            ReadError::Format(found) => write!(
                f,
                "is of format {found}, this program reads formats {FORMAT_MIN} to {FORMAT}: use the program that wrote it"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

impl Report {
    /// The report as JSON, the same text for the same report, with a line for each field.
    ///
    /// # Panics
    /// Never: all keys are strings.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a report is plain data");
        text.push('\n');
        text
    }

    /// Reads the text of [`Report::to_json`].
    ///
    /// # Errors
    /// If the text is no report, or was written by a program with an older or newer [`FORMAT`].
    pub fn from_json(text: &str) -> Result<Report, ReadError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| ReadError::NotJson(error.to_string()))?;
        let format = value.get("format").and_then(Value::as_u64);
        match format {
            Some(format) if (FORMAT_MIN.into()..=FORMAT.into()).contains(&format) => {}
            Some(format) => return Err(ReadError::Format(format)),
            None => return Err(ReadError::NotReport("it has no number `format`".into())),
        }
        serde_json::from_str(text).map_err(|error| ReadError::NotReport(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_tests::sample;

    #[test]
    fn a_written_report_is_read_back() {
        let mut report = sample();
        report.rows[0].runs[0].others_share = Some(0.1 + 0.2);
        let text = report.to_json();
        assert_eq!(Report::from_json(&text), Ok(report));
        assert!(text.starts_with("{\n  \"format\": 3,\n  \"version\": "), "{text}");
        assert!(text.ends_with("}\n"));
        let older = text.replacen("\"format\": 3", "\"format\": 2", 1).replace("\"data_point\"", "\"point\"");
        assert_eq!(Report::from_json(&older).map(|report| report.format), Ok(2));
    }

    #[test]
    fn errors_say_what_and_where() {
        let message = |text: &str| Report::from_json(text).expect_err("no report").to_string();
        assert_eq!(message("{\n  \"format\": 2,\n}"), "is not JSON: trailing comma at line 3 column 1");
        assert_eq!(message("[]"), "is not the report of a benchmark: it has no number `format`");
        let other = "is of format 4, this program reads formats 2 to 3: use the program that wrote it";
        assert_eq!(message("{\"format\": 4}"), other);
        let missing = message("{\"format\": 2}");
        assert_eq!(missing, "is not the report of a benchmark: missing field `version` at line 1 column 13");
        let wrong = sample().to_json().replacen("\"threads\": 8", "\"threads\": \"8\"", 1);
        assert!(message(&wrong).contains("invalid type: string \"8\", expected u32 at line"), "{wrong}");
    }
}
