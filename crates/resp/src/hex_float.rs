//! Hexadecimal floating-point numbers, as `strtod` of C reads them.

use crate::inline::hex_digit;

/// Bits of an `f64`'s significand, the hidden one included.
const SIGNIFICAND_BITS: i64 = 53;
/// The exponent of the least normal number's highest bit.
const EXPONENT_MIN: i64 = -1022;
const EXPONENT_MAX: i64 = 1023;
/// Beyond it every number overflows, or becomes zero, however many digits it has in memory.
const EXPONENT_LIMIT: i64 = i64::MAX / 4;

/// The number of these bytes, which follow `0x`: hexadecimal digits, a point among them, and `p` with a decimal
/// exponent of two. `None` if it is not one, or if the nearest `f64` is infinite, or zero although it is not.
pub(crate) fn parse(bytes: &[u8]) -> Option<f64> {
    let (digits, exponent) = match bytes.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&bytes[..at], parse_exponent(&bytes[at + 1..])?),
        None => (bytes, 0),
    };
    let (mut significand, mut exponent) = (0u64, exponent);
    let (mut has_digits, mut is_fraction) = (false, false);
    for &byte in digits {
        if byte == b'.' && !is_fraction {
            is_fraction = true;
            continue;
        }
        if !byte.is_ascii_hexdigit() {
            return None;
        }
        has_digits = true;
        let has_room = significand < 1 << 60;
        if has_room {
            significand = significand << 4 | u64::from(hex_digit(byte));
        } else {
            // The lowest bit stands for all that follow: it is far below the rounding position.
            significand |= u64::from(byte != b'0');
        }
        exponent += 4 * (i64::from(!has_room) - i64::from(is_fraction));
    }
    has_digits.then(|| nearest(significand, exponent))?
}

fn parse_exponent(bytes: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let append = |value: i64, digit: &u8| (value * 10 + i64::from(digit - b'0')).min(EXPONENT_LIMIT / 10);
    let mut value = 0;
    for digit in digits {
        value = append(value, digit);
    }
    Some(if is_negative { -value } else { value })
}

/// The `f64` nearest to `significand` · 2^`exponent`, ties to even.
fn nearest(significand: u64, exponent: i64) -> Option<f64> {
    if significand == 0 {
        return Some(0.0);
    }
    let shift = i64::from(significand.leading_zeros());
    let significand = significand << shift;
    // That of the highest bit.
    let exponent = exponent - shift + 63;
    if exponent > EXPONENT_MAX {
        return None;
    }
    let missing = (EXPONENT_MIN - exponent).max(0);
    let dropped_bits = (64 - SIGNIFICAND_BITS + missing).min(100) as u32;
    let wide = u128::from(significand);
    let kept = (wide >> dropped_bits) as u64;
    let dropped = wide & ((1 << dropped_bits) - 1);
    let half = 1 << (dropped_bits - 1);
    let is_up = dropped > half || (dropped == half && kept & 1 == 1);
    // A carry out of the significand increments the exponent, as it should.
    let exponent_bits = if missing == 0 { (exponent - EXPONENT_MIN) as u64 } else { 0 };
    let value = f64::from_bits((exponent_bits << (SIGNIFICAND_BITS - 1)) + kept + u64::from(is_up));
    (value != 0.0 && value.is_finite()).then_some(value)
}
