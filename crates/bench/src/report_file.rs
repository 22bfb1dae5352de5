//! A report as the text of a file, and back.

use std::fmt::Display;

use serde_json::Value;

use crate::report::{FORMAT, FORMAT_MIN, Report};

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
    /// If the text is no report, or was written by a program with an older or newer [`FORMAT`]: the rest of a sentence
    /// that begins with the name of the file, with the place or the field at fault.
    pub fn from_json(text: &str) -> Result<Report, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        let not_report = |what: &dyn Display| format!("is not the report of a benchmark: {what}");
        match value.get("format").and_then(Value::as_u64) {
            Some(format) if (FORMAT_MIN.into()..=FORMAT.into()).contains(&format) => {}
            Some(format) => {
                return Err(format!(
                    "is of format {format}, this program reads formats {FORMAT_MIN} to {FORMAT}: use the program that \
                     wrote it"
                ));
            }
            None => return Err(not_report(&"it has no number `format`")),
        }
        serde_json::from_str(text).map_err(|error| not_report(&error))
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
        let message = |text: &str| Report::from_json(text).expect_err("no report");
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
