//! Numbers in arguments.

use crate::{format_i64, parse_f64, parse_i64, parse_range_i64};

#[test]
fn integers_are_strict() {
    let valid = [
        0,
        1,
        -1,
        9,
        10,
        -10,
        123,
        i64::MAX,
        i64::MIN,
        i64::MAX - 1,
        i64::MIN + 1,
        1_000_000_000_000_000_000,
    ];
    for value in valid {
        let mut text = Vec::new();
        format_i64(value, &mut text);
        assert_eq!(text, value.to_string().as_bytes());
        assert_eq!(parse_i64(&text), Some(value));
    }
    let invalid = [
        "",
        "-",
        "+1",
        "-0",
        "00",
        "01",
        "-01",
        " 1",
        "1 ",
        "1\n",
        "1.0",
        "1e3",
        "0x1",
        "a",
        "--1",
        "1-",
        "9223372036854775808",
        "-9223372036854775809",
        "10000000000000000000",
        "99999999999999999999",
        "18446744073709551617",
        "000000000000000000000000001",
    ];
    for text in invalid {
        assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn integers_of_a_range() {
    assert_eq!(parse_range_i64(b"3", 1..=3), Some(3));
    assert_eq!(parse_range_i64(b"4", 1..=3), None);
    assert_eq!(parse_range_i64(b"0", 1..=3), None);
    assert_eq!(parse_range_i64(b"x", i64::MIN..=i64::MAX), None);
}

#[test]
fn decimal_numbers() {
    let valid = [
        ("0", 0.0),
        ("-0", -0.0),
        ("3", 3.0),
        ("+3.5", 3.5),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("1.e2", 100.0),
        ("007", 7.0),
        ("1e3", 1000.0),
        ("1E+3", 1000.0),
        ("1e-3", 0.001),
        ("1e308", 1e308),
        ("1.7976931348623157e308", f64::MAX),
        ("5e-324", f64::from_bits(1)),
        ("3e-324", f64::from_bits(1)),
        ("0e999999999999999999999", 0.0),
        ("0.0e-999", 0.0),
        ("inf", f64::INFINITY),
        ("+inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
        ("Infinity", f64::INFINITY),
        ("-INFINITY", f64::NEG_INFINITY),
        ("9007199254740993", 9007199254740992.0),
    ];
    for (text, value) in valid {
        let found = parse_f64(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} is a number"));
        assert_eq!(found.to_bits(), value.to_bits(), "{text:?}");
    }
}

#[test]
fn what_strtod_refuses_or_leaves_over() {
    let invalid = [
        "", " ", " 1", "1 ", "\t1", "1\0", "+", "-", ".", "-.", "e5", ".e5", "1e", "1e+", "1e5.0", "1.2.3",
        "--1", "+-1", "1_000", "1,5", "nan", "-nan", "nan(1)", "infx", "infin", "in", "1e400", "-1e400",
        "1e-400", "2e-324", "0x", "0xg", "x1", "1f", "1d", "٣",
    ];
    for text in invalid {
        assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(parse_f64(b"\xff"), None);
}

#[test]
fn hexadecimal_numbers() {
    let valid = [
        ("0x0", 0.0),
        ("-0x0p5", -0.0),
        ("0x10", 16.0),
        ("0XfF", 255.0),
        ("0x1.8p3", 12.0),
        ("0x.8", 0.5),
        ("0x1.", 1.0),
        ("-0x1p-1", -0.5),
        ("0x1p+4", 16.0),
        ("0x1p-1074", f64::from_bits(1)),
        ("0x1.8p-1075", f64::from_bits(1)),
        ("0x1.fffffffffffffp1023", f64::MAX),
        ("0x1p-1022", f64::MIN_POSITIVE),
        ("0x1.fffffffffffffp-1023", f64::MIN_POSITIVE),
        ("0x0.fffffffffffffp-1022", f64::from_bits((1 << 52) - 1)),
        // Ties to even, and a digit far away that breaks one.
        ("0x20000000000001", 9007199254740992.0),
        ("0x20000000000003", 9007199254740996.0),
        ("0x20000000000001000000000000000000000001", 9007199254740994.0 * 2f64.powi(96)),
        ("0x0.00000000000000000000000001p104", 1.0),
    ];
    for (text, value) in valid {
        let found = parse_f64(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} is a number"));
        assert_eq!(found.to_bits(), value.to_bits(), "{text:?} is {found}");
    }
    let invalid = [
        "0x.",
        "0xp1",
        "0x1p",
        "0x1p+",
        "0x1p1.0",
        "0x1.1.1",
        "0x1 ",
        "0x-1",
        "0x1p1024",
        "0x1.fffffffffffff8p1023",
        "0x1p-1075",
        "0x1p-99999999999999999999",
        "0x1p99999999999999999999",
        "0x1g",
    ];
    for text in invalid {
        assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
    }
}
