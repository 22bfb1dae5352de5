//! Floating-point numbers in replies and values.

use std::fmt::{self, Write};

use crate::number::{I64_BYTES_MAX, write_backwards};

/// More than the longest text: a sign, 17 digits and seven zeros.
const TEXT_BYTES_MAX: usize = 32;
/// Redis prints whole numbers up to this amount, 2^62, with all digits.
const INTEGER_MAX: f64 = 4_611_686_018_427_387_904.0;
/// Most digits after the point of [`format_human_double`].
const FRACTION_DIGITS_MAX: i32 = 17;

/// Appends a number as `d2string` of Redis 7.2 prints it, the text of scores and of RESP3's doubles: the least digits
/// that give the same number when they are read again.
///
/// Whole numbers up to 2^62 have all digits and no point: `3`, `-1000000000000000000`. Of the others those whose
/// exponent is near zero have no exponent (`0.000001`, `1234.5`), the rest has one: `1e-7`, `1.5e+300`. Also `inf`,
/// `-inf`, `nan`, `-0`.
///
/// Redis has the digits from Grisu2 (Loitsch 2010), which does not find the least in about one case of a thousand:
/// there it prints one digit more, `9.999999999999999e+22` for 1e23.
pub fn format_double(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(double_text(value).as_bytes());
}

/// Appends a number as `INCRBYFLOAT` prints it: without an exponent, at most 17 digits after the point, no zeros at
/// the end.
///
/// Redis computes and prints with the 80-bit `long double` of x86, whose 64-bit significand shows 17 digits of
/// most decimal fractions as they were typed. Here a number is an `f64`: a whole one has all its digits, another the
/// least digits that give the same `f64`. So `10.6` and `0.1` print alike, but a sum of `f64`s shows its rounding
/// (0.1 + 0.2 is `0.30000000000000004`, and `0.3` in Redis), and from 2^53 on the numbers themselves differ.
pub fn format_human_double(value: f64, out: &mut Vec<u8>) {
    use std::io::Write;

    const INFALLIBLE: &str = "a vector takes every write";
    if !value.is_finite() {
        return format_double(value, out);
    }
    if value == value.trunc() {
        // `abs` turns -0 into 0.
        let value = if value == 0.0 { value.abs() } else { value };
        return write!(out, "{value:.0}").expect(INFALLIBLE);
    }
    let decimal = Decimal::new(value);
    if decimal.len as i32 - 1 - decimal.exponent <= FRACTION_DIGITS_MAX {
        return write!(out, "{value}").expect(INFALLIBLE);
    }
    let start = out.len();
    write!(out, "{value:.17}").expect(INFALLIBLE);
    while out.ends_with(b"0") {
        out.pop();
    }
    if out.ends_with(b".") {
        out.pop();
    }
    if out[start..] == *b"-0" {
        out.remove(start);
    }
}

/// The text of [`format_double`].
pub(crate) fn double_text(value: f64) -> Text {
    let mut text = Text::default();
    if value.is_nan() {
        text.push(b"nan");
        return text;
    }
    if value.is_sign_negative() {
        text.push(b"-");
    }
    let amount = value.abs();
    if amount.is_infinite() {
        text.push(b"inf");
    } else if amount <= INTEGER_MAX && amount == amount.trunc() {
        let mut digits = [0; I64_BYTES_MAX];
        let start = write_backwards(amount as i64, &mut digits);
        text.push(&digits[start..]);
    } else {
        push_decimal(&Decimal::new(amount), &mut text);
    }
    text
}

/// Digits and exponent as `fpconv_dtoa` of Redis lays them out.
fn push_decimal(decimal: &Decimal, text: &mut Text) {
    let digits = &decimal.digits[..decimal.len];
    // Of the last digit.
    let last_exponent = decimal.exponent - (decimal.len as i32 - 1);
    let distance = decimal.exponent.unsigned_abs();
    if last_exponent >= 0 && distance < decimal.len as u32 + 7 {
        text.push(digits);
        (0..last_exponent).for_each(|_| text.push(b"0"));
    } else if last_exponent < 0 && (last_exponent > -7 || distance < 4) {
        match usize::try_from(decimal.exponent) {
            Ok(exponent) => {
                let (whole, fraction) = digits.split_at(exponent + 1);
                text.push(whole);
                text.push(b".");
                text.push(fraction);
            }
            Err(_) => {
                text.push(b"0.");
                (1..distance).for_each(|_| text.push(b"0"));
                text.push(digits);
            }
        }
    } else {
        let (first, others) = digits.split_at(1);
        text.push(first);
        if !others.is_empty() {
            text.push(b".");
            text.push(others);
        }
        write!(text, "e{:+}", decimal.exponent).expect("the text is long enough");
    }
}

/// The least digits of a finite number, and the decimal exponent of the first.
struct Decimal {
    digits: [u8; 17],
    len: usize,
    exponent: i32,
}

impl Decimal {
    fn new(value: f64) -> Decimal {
        let mut text = Text::default();
        write!(text, "{:e}", value.abs()).expect("the text is long enough");
        let bytes = text.as_bytes();
        let at = bytes.iter().position(|&byte| byte == b'e').expect("the format has an exponent");
        let exponent = std::str::from_utf8(&bytes[at + 1..]).expect("the format is ASCII");
        let exponent = exponent.parse().expect("the exponent is a number");
        let mut decimal = Decimal { digits: [0; 17], len: 0, exponent };
        for &digit in bytes[..at].iter().filter(|&&byte| byte != b'.') {
            decimal.digits[decimal.len] = digit;
            decimal.len += 1;
        }
        decimal
    }
}

/// The text of a number.
#[derive(Default)]
pub(crate) struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl Text {
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}
