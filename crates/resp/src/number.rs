//! Integers and floating-point numbers in arguments.

use std::ops::RangeInclusive;

use crate::hex_float;

/// Most digits of an `i64`, and its sign.
pub(crate) const I64_BYTES_MAX: usize = 20;

/// The integer that these bytes are, as strictly as `string2ll` of Redis: decimal digits, `-` before them; no plus, no
/// blanks, no zeros before other digits, and not `-0`.
#[inline]
pub fn parse_i64(bytes: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < I64_BYTES_MAX => {}
        _ => return None,
    }
    // 19 digits fit a `u64`.
    let mut value = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    if is_negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// The integer that these bytes are, as [`parse_i64`], if it is in `range`.
pub fn parse_range_i64(bytes: &[u8], range: RangeInclusive<i64>) -> Option<i64> {
    parse_i64(bytes).filter(|value| range.contains(value))
}

/// The number that these bytes are, as `getDoubleFromObject` of Redis reads it with `strtod` in the C locale: decimal
/// with or without an exponent (`1`, `-.5`, `5.`, `1e+3`), hexadecimal (`0x1.8p3`), `inf` and `infinity` in any case,
/// each with or without a sign.
///
/// `None` for `nan`, blanks before or after, an empty text, and a number whose nearest `f64` is infinite, or zero
/// although it is not zero. The nearest `f64` is exact, ties to even.
pub fn parse_f64(bytes: &[u8]) -> Option<f64> {
    let (is_negative, unsigned) = match bytes {
        [b'-', unsigned @ ..] => (true, unsigned),
        [b'+', unsigned @ ..] => (false, unsigned),
        unsigned => (false, unsigned),
    };
    let value = match unsigned {
        [b'0', b'x' | b'X', digits @ ..] => hex_float::parse(digits)?,
        [b'0'..=b'9' | b'.', ..] => parse_decimal(unsigned)?,
        _ if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") => {
            f64::INFINITY
        }
        _ => return None,
    };
    Some(if is_negative { -value } else { value })
}

fn parse_decimal(bytes: &[u8]) -> Option<f64> {
    let is_of_decimal = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    if !bytes.iter().all(is_of_decimal) {
        return None;
    }
    let value: f64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    let is_zero = || {
        let mantissa = bytes.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
        mantissa.clone().all(|byte| matches!(byte, b'0' | b'.'))
    };
    (value.is_finite() && (value != 0.0 || is_zero())).then_some(value)
}

/// Appends the decimal digits of an integer.
#[inline]
pub fn format_i64(value: i64, out: &mut Vec<u8>) {
    let mut text = [0; I64_BYTES_MAX];
    let start = write_backwards(value, &mut text);
    out.extend_from_slice(&text[start..]);
}

/// Writes the decimal digits of an integer to the end of `text`; returns where they begin.
#[inline]
pub(crate) fn write_backwards(value: i64, text: &mut [u8; I64_BYTES_MAX]) -> usize {
    let mut rest = value.unsigned_abs();
    let mut start = text.len();
    loop {
        start -= 1;
        text[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        start -= 1;
        text[start] = b'-';
    }
    start
}
