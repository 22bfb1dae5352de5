//! Numbers, sizes and dates for human readers.

/// Three significant digits, with commas: `12,300`, `4.57`, `0.0123`. Whole numbers below 1,000 as they are.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let (rounded, exponent) = three_digits(value);
    match exponent {
        _ if rounded == 0.0 => "0".to_string(),
        ..-4 => format!("{value:.2e}"),
        _ if rounded.fract() == 0.0 && value.fract() == 0.0 => grouped(&format!("{rounded:.0}")),
        _ => grouped(&format!("{rounded:.*}", usize::try_from(2 - exponent).unwrap_or(0))),
    }
}

/// The ratio of two figures: two digits after the point where those matter.
pub(crate) fn ratio(value: f64) -> String {
    if (0.1..10.0).contains(&value) { format!("{value:.2}") } else { number(value) }
}

/// A size in the largest binary unit that gives at least one.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (value.max(1).ilog2() / 10).min(UNITS.len() as u32 - 1);
    format!("{} {}", number(value as f64 / 1024f64.powi(unit as i32)), UNITS[unit as usize])
}

/// A time in milliseconds since 1970, to the minute: `2026-03-01 17:05 UTC`.
pub(crate) fn utc(ms: u64) -> String {
    let minutes = ms / 60_000;
    let (year, month, day) = date(minutes / (24 * 60));
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
}

/// The nearest value of three digits, and the power of ten of its first digit.
fn three_digits(value: f64) -> (f64, i32) {
    if value == 0.0 {
        return (0.0, 0);
    }
    let exponent_of = |value: f64| value.abs().log10().floor() as i32;
    let last_digit = exponent_of(value) - 2;
    let rounded = match last_digit {
        0.. => (value / 10f64.powi(last_digit)).round() * 10f64.powi(last_digit),
        _ => (value * 10f64.powi(-last_digit)).round() / 10f64.powi(-last_digit),
    };
    (rounded, exponent_of(rounded))
}

/// Puts commas into the digits before the point.
fn grouped(digits: &str) -> String {
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = String::with_capacity(digits.len() + whole.len() / 3);
    for (index, digit) in whole.char_indices() {
        let follow = whole.len() - index;
        if index > 0 && follow.is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

/// Year, month and day of a day counted from 1970-01-01. Years begin in March, so that a leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let since_march_of_0 = days + 719_468;
    let day_of_era = since_march_of_0 % DAYS_OF_400_YEARS;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + since_march_of_0 / DAYS_OF_400_YEARS * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_kept() {
        let cases = [
            (0.0, "0"),
            (5.0, "5"),
            (1.5, "1.50"),
            (4.567, "4.57"),
            (9.999, "10.0"),
            (99.96, "100"),
            (123.4, "123"),
            (999.6, "1,000"),
            (12_345.0, "12,300"),
            (1_234_567.8, "1,230,000"),
            (0.012_34, "0.0123"),
            (0.000_012_3, "1.23e-5"),
            (-1_234.0, "-1,230"),
            (-123.0, "-123"),
            (-123_456.0, "-123,000"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn ratios_have_two_digits_after_the_point() {
        assert_eq!([0.95, 1.0, 9.876, 12.34, 0.012].map(ratio), ["0.95", "1.00", "9.88", "12.3", "0.0120"]);
    }

    #[test]
    fn sizes_have_units() {
        let cases =
            [(0, "0 B"), (512, "512 B"), (1536, "1.50 KiB"), (64 << 20, "64 MiB"), (3 << 40, "3 TiB")];
        for (value, text) in cases {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_772_384_759_999), "2026-03-01 17:05 UTC");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01 00:00 UTC");
    }
}
