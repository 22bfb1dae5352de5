//! Numbers, sizes and bytes for human readers.

/// `1234567` as `1,234,567`.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1234567` as `1.2M`: at most five characters up to a thousand billions.
pub(crate) fn short(value: u64) -> String {
    const UNITS: [&str; 4] = ["", "k", "M", "G"];
    let (mut scaled, mut unit) = (value as f64, 0);
    while scaled >= 1000.0 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    if unit == 0 || scaled >= 100.0 {
        format!("{scaled:.0}{}", UNITS[unit])
    } else {
        format!("{scaled:.1}{}", UNITS[unit])
    }
}

/// `1` as `1 row`, `2` as `2 rows`.
pub(crate) fn count(value: u64, singular: &str) -> String {
    match (value, singular) {
        (1, _) => format!("1 {singular}"),
        (_, "entry") => format!("{} entries", number(value)),
        (_, "dirty leaf") => format!("{} dirty leaves", number(value)),
        _ => format!("{} {singular}s", number(value)),
    }
}

/// Bytes in the largest unit that leaves a number of at least one.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 10.0 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
}

/// Bytes as text that does not disturb a terminal: all but printable UTF-8 is written as `\xNN`.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                c if c.is_control() => {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8)
                        .bytes()
                        .for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// Like [`printable`], in quotes and cut to a few dozen characters: for messages.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    const CHARS_MAX: usize = 60;
    let text = printable(bytes);
    if text.chars().count() <= CHARS_MAX {
        return format!("\"{text}\"");
    }
    let head: String = text.chars().take(CHARS_MAX).collect();
    format!("\"{head}...\"")
}

/// A moment in milliseconds since 1970-01-01 UTC, as a date and time.
pub(crate) fn utc(ms: u64) -> String {
    let (days, seconds) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Years begin in March, so that a leap day is the last day of its year; 400 years have 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day_of_month:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Rows of entries as lines of aligned columns; the columns that `right` names are aligned right.
pub(crate) fn aligned(rows: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|entry| entry.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let mut text = String::new();
        for (column, entry) in row.iter().enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let width = widths[column];
            match right.contains(&column) {
                true => text.push_str(&format!("{gap}{entry:>width$}")),
                false => text.push_str(&format!("{gap}{entry:<width$}")),
            }
        }
        text.trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_of_three() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn short_numbers_are_short() {
        assert_eq!(
            [0, 999, 1000, 12_345, 886_323, 1_234_567].map(short),
            ["0", "999", "1.0k", "12.3k", "886k", "1.2M"]
        );
    }

    #[test]
    fn moments_are_dates() {
        let moments = [0, 951_782_399_000, 951_782_400_000, 951_868_800_999, 4_107_542_399_000];
        assert_eq!(
            moments.map(utc),
            [
                "1970-01-01 00:00:00 UTC",
                "2000-02-28 23:59:59 UTC",
                "2000-02-29 00:00:00 UTC",
                "2000-03-01 00:00:00 UTC",
                "2100-02-28 23:59:59 UTC"
            ]
        );
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!([0, 1023, 1536, 64 << 20].map(size), ["0 B", "1023 B", "1.5 KiB", "64 MiB"]);
        assert_eq!(size(u64::MAX), "16384 PiB");
    }

    #[test]
    fn control_sequences_are_escaped() {
        assert_eq!(printable(b"a\tb\x1b[2J\xff\xc3\xa9"), "a\\tb\\x1b[2J\\xff\u{e9}");
        assert_eq!(quoted(&[b'x'; 61]).len(), 60 + 5);
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["a".to_string(), "10".into()], vec!["bcd".into(), "9".into()]];
        assert_eq!(aligned(&rows, &[1]), ["a    10", "bcd   9"]);
    }
}
