//! Values of options.

use std::fmt::Display;
use std::time::Duration;

use super::Failure;
use crate::engine::parse_ms;
use crate::measurement::Limit;
use crate::workload::Sizes;

/// A number of seconds, fractions included.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_string())?;
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err("allowed are 0.01 to 86400 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A number of operations, or a time.
pub(super) fn warm_up(text: &str) -> Result<Limit, String> {
    if let Ok(operations) = text.parse() {
        return Ok(Limit::Operations(operations));
    }
    match parse_ms(text) {
        Some(ms) if ms <= 86_400_000 => Ok(Limit::Time(Duration::from_millis(ms))),
        _ => Err("a number of operations, or a time with s or ms is expected: 1000, 2s".into()),
    }
}

/// Bytes with a unit: `256MiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err("a number and a unit are expected: B, KiB, MiB or GiB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "the number is missing or too large".to_string())?;
    number
        .checked_shl(shift)
        .filter(|bytes| bytes >> shift == number)
        .ok_or_else(|| "that is more than a 64-bit number of bytes".into())
}

/// A factor of sizes.
pub(crate) fn scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| "a number is expected".to_string())?;
    if !(0.0001..=10_000.0).contains(&scale) {
        return Err("allowed are 0.0001 to 10000".into());
    }
    Ok(scale)
}

/// The lengths of keys and values: `20,100`.
pub(super) fn sizes(text: &str) -> Result<Sizes, String> {
    let parsed = text.split_once(',').and_then(|(key, value)| Some((key.parse().ok()?, value.parse().ok()?)));
    let (key_bytes, value_bytes) =
        parsed.ok_or("two numbers of bytes are expected, of the key and the value: 20,100")?;
    let sizes = Sizes { key_bytes, value_bytes };
    if !(Sizes::KEY_BYTES_MIN..=Sizes::KEY_BYTES_MAX).contains(&key_bytes) {
        let (least, most) = (Sizes::KEY_BYTES_MIN, Sizes::KEY_BYTES_MAX);
        return Err(format!("a key has {least} to {most} bytes, not {key_bytes}"));
    }
    if value_bytes > Sizes::VALUE_BYTES_MAX {
        return Err(format!("a value has at most {} bytes, not {value_bytes}", Sizes::VALUE_BYTES_MAX));
    }
    Ok(sizes)
}

/// Fails if a value of an option is repeated.
pub(super) fn check_unique<T: PartialEq + Display>(option: &str, values: &[T]) -> Result<(), Failure> {
    let is_first = |index: usize| !values[..index].contains(&values[index]);
    match (0..values.len()).find(|index| !is_first(*index)) {
        Some(index) => Err(Failure::usage(format!("--{option} names {} twice", values[index]))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_seconds_have_limits() {
        assert_eq!(sizes("20,0"), Ok(Sizes { key_bytes: 20, value_bytes: 0 }));
        for wrong in ["20", "11,100", "20,1048577", "a,b", "20,100,1"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "1s", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn warm_ups_are_operations_or_times() {
        assert_eq!(warm_up("0"), Ok(Limit::Operations(0)));
        assert_eq!(warm_up("2s"), Ok(Limit::Time(Duration::from_secs(2))));
        assert_eq!(warm_up("500ms"), Ok(Limit::Time(Duration::from_millis(500))));
        for wrong in ["", "s", "-1", "1m", "1.5s", "99999999999999999999s", "99999999s"] {
            assert!(warm_up(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("256MiB"), Ok(256 << 20));
        assert_eq!(bytes("4096"), Ok(4096));
        for wrong in ["", "MiB", "1MB", "-1", "99999999999GiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
