//! Floating-point numbers as Redis prints them.

use crate::{format_double, format_human_double, parse_f64};

fn text_of(format: fn(f64, &mut Vec<u8>), value: f64) -> String {
    let mut text = b"before ".to_vec();
    format(value, &mut text);
    String::from_utf8(text.split_off(7)).expect("it is ASCII")
}

#[test]
fn doubles_have_the_least_digits_in_the_layout_of_redis() {
    let cases = [
        (0.0, "0"),
        (-0.0, "-0"),
        (3.0, "3"),
        (-17.0, "-17"),
        (0.1, "0.1"),
        (1.5, "1.5"),
        (-2.25, "-2.25"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
        (-f64::NAN, "nan"),
        // Whole numbers: all digits up to 2^62.
        (1e15, "1000000000000000"),
        (1e18, "1000000000000000000"),
        (9007199254740993.0, "9007199254740992"),
        (4611686018427387904.0, "4611686018427387904"),
        (-4611686018427387904.0, "-4611686018427387904"),
        // The next above 2^62 has 16 digits and three zeros.
        (4611686018427388928.0, "4611686018427389000"),
        (5e18, "5e+18"),
        (1e19, "1e+19"),
        (1e21, "1e+21"),
        (1e22, "1e+22"),
        (123456789012345680000.0, "123456789012345680000"),
        (1.25e20, "1.25e+20"),
        (1.2345678901234567e23, "123456789012345670000000"),
        (1.2345678901234568e24, "1.2345678901234568e+24"),
        (1e100, "1e+100"),
        (-1.5e300, "-1.5e+300"),
        (f64::MAX, "1.7976931348623157e+308"),
        // Fractions: without an exponent if the last digit is the sixth or before, or the first is near the point.
        (0.000001, "0.000001"),
        (0.0000001, "1e-7"),
        (0.0000015, "1.5e-6"),
        (0.000123, "0.000123"),
        (0.0001234, "1.234e-4"),
        (0.001234567, "0.001234567"),
        (0.01, "0.01"),
        (1234.123456789, "1234.123456789"),
        (12345.123456, "12345.123456"),
        (12345.1234567, "1.23451234567e+4"),
        (123456.5, "123456.5"),
        (0.30000000000000004, "0.30000000000000004"),
        (1.0 / 3.0, "0.3333333333333333"),
        (f64::from_bits(1), "5e-324"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        (1234567.25, "1234567.25"),
    ];
    for (value, text) in cases {
        assert_eq!(text_of(format_double, value), text);
        if !value.is_nan() {
            assert_eq!(parse_f64(text.as_bytes()).map(f64::to_bits), Some(value.to_bits()), "{text}");
        }
    }
}

#[test]
fn human_doubles_have_no_exponent() {
    let cases = [
        (0.0, "0"),
        (-0.0, "0"),
        (3.0, "3"),
        (10.6, "10.6"),
        (-0.1, "-0.1"),
        (5000.0, "5000"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e-7, "0.0000001"),
        (1e-17, "0.00000000000000001"),
        (1e-18, "0"),
        (-1e-18, "0"),
        (6e-18, "0.00000000000000001"),
        (0.012345678901234567, "0.01234567890123457"),
        (0.01234567890123456, "0.01234567890123456"),
        (18446744073709551616.0, "18446744073709551616"),
        (1e22, "10000000000000000000000"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
        (f64::from_bits(1), "0"),
    ];
    for (value, text) in cases {
        assert_eq!(text_of(format_human_double, value), text);
    }
    assert_eq!(text_of(format_human_double, f64::MAX).len(), 309);
}
