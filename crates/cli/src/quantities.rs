//! Lengths of time, and sizes, on the command line.

use std::time::Duration;

/// Reads a number and a unit: `5m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err("a number and a unit are expected: ms, s, m, h or d".into()),
    };
    let number: u64 = number.parse().map_err(|_| "the number is missing or too large".to_string())?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(|| "that is too long".into())
}

/// Reads a number of bytes and a unit: `512MiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit_bytes: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err("a number and a unit are expected: B, KiB, MiB or GiB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "the number is missing or too large".to_string())?;
    number.checked_mul(unit_bytes).ok_or_else(|| "that is more than any memory".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(
            [parse_size("0B"), parse_size("3GiB"), parse_size("7KiB")],
            [Ok(0), Ok(3 << 30), Ok(7 << 10)]
        );
        for wrong in ["512", "MiB", "-1MiB", "1.5GiB", "", "99999999999GiB", "1GB", "1\u{e9}"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("20ms"), Ok(Duration::from_millis(20)));
        for wrong in ["5", "m", "-1s", "1.5h", "", "99999999999999999d", "1w", "5\u{e9}"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
