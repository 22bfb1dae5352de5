//! Each limit, at its boundary and one beyond, with the text of the error.

use crate::fuzzing::receive;
use crate::{LINE_BYTES_MAX, Limits, Parser};

/// What a connection receives if the bytes arrive whole; checks that it is the same byte by byte.
fn outcome(is_authenticated: bool, limits: Limits, input: &[u8]) -> Result<usize, String> {
    let received = |cuts: &[usize]| {
        let mut parser = Parser::new(limits);
        parser.set_authenticated(is_authenticated);
        receive(&mut parser, input, cuts)
    };
    let whole = received(&[]);
    let cuts: Vec<usize> = (1..input.len()).collect();
    assert_eq!(received(&cuts), whole);
    whole.error.map_or(Ok(whole.commands.len()), Err)
}

fn accepted(input: &[u8]) -> Result<usize, String> {
    outcome(true, Limits::default(), input)
}

fn refused(text: &str) -> Result<usize, String> {
    Err(format!("Protocol error: {text}"))
}

#[test]
fn counts_of_arguments() {
    let text = refused("invalid multibulk length");
    for count in ["", "-", "+1", "01", "-0", " 1", "1 ", "a", "0x1", "1.0", "9223372036854775808", "\n"] {
        assert_eq!(accepted(format!("*{count}\r\n").as_bytes()), text, "{count:?}");
    }
    for count in ["0", "-1", "-9223372036854775808", "1048576"] {
        assert_eq!(accepted(format!("*{count}\r\n").as_bytes()), Ok(0), "{count:?}");
    }
    assert_eq!(accepted(b"*1048577\r\n"), text);
    assert_eq!(accepted(b"*9223372036854775807\r\n"), text);
    let limits = Limits { arguments_max: 2, ..Limits::default() };
    assert_eq!(outcome(true, limits, b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"), Ok(1));
    assert_eq!(outcome(true, limits, b"*3\r\n"), text);
}

#[test]
fn lengths_of_arguments() {
    let text = refused("invalid bulk length");
    for length in ["", "-1", "-0", "+1", "01", " 1", "1 ", "a", "9223372036854775807", "99999999999999999999"]
    {
        assert_eq!(accepted(format!("*1\r\n${length}\r\n").as_bytes()), text, "{length:?}");
    }
    assert_eq!(accepted(b"*1\r\n$536870912\r\n"), Ok(0));
    assert_eq!(accepted(b"*1\r\n$536870913\r\n"), text);
    let limits = Limits { argument_bytes_max: 3, ..Limits::default() };
    assert_eq!(outcome(true, limits, b"*1\r\n$3\r\nabc\r\n"), Ok(1));
    assert_eq!(outcome(true, limits, b"*1\r\n$4\r\n"), text);
}

#[test]
fn before_authentication() {
    let outcome = |input: &[u8]| outcome(false, Limits::default(), input);
    assert_eq!(outcome(format!("*10\r\n{}", "$1\r\na\r\n".repeat(10)).as_bytes()), Ok(1));
    assert_eq!(outcome(b"*11\r\n"), refused("unauthenticated multibulk length"));
    assert_eq!(outcome(b"*1048577\r\n"), refused("invalid multibulk length"));
    assert_eq!(outcome(format!("*1\r\n$16384\r\n{}\r\n", "a".repeat(16384)).as_bytes()), Ok(1));
    assert_eq!(outcome(b"*1\r\n$16385\r\n"), refused("unauthenticated bulk length"));
    assert_eq!(outcome(b"*1\r\n$536870913\r\n"), refused("invalid bulk length"));
}

#[test]
fn lines_without_an_end() {
    let line = |first: &str, len: usize, end: &str| {
        let line = format!("{first}{}{end}", "1".repeat(len - first.len()));
        accepted(line.as_bytes())
    };
    let max = LINE_BYTES_MAX;
    assert_eq!(max, 65_536);
    assert_eq!(line("", max, ""), Ok(0));
    assert_eq!(line("", max, "\n"), Ok(1));
    assert_eq!(line("", max + 1, ""), refused("too big inline request"));
    assert_eq!(line("", max + 1, "\n"), refused("too big inline request"));
    assert_eq!(line("*", max, ""), Ok(0));
    assert_eq!(line("*", max, "\r\n"), refused("invalid multibulk length"));
    assert_eq!(line("*", max + 1, ""), refused("too big mbulk count string"));
    assert_eq!(line("*", max + 1, "\r\n"), refused("too big mbulk count string"));
    let count = "*1\r\n";
    let max = max + count.len();
    assert_eq!(line("*1\r\n$", max, ""), Ok(0));
    assert_eq!(line("*1\r\n$", max, "\r\n"), refused("invalid bulk length"));
    assert_eq!(line("*1\r\n$", max + 1, ""), refused("too big bulk count string"));
    assert_eq!(line("*1\r\n$", max + 1, "\r\n"), refused("too big bulk count string"));
}

#[test]
fn arguments_begin_with_a_dollar() {
    let cases = [
        ("x", "x"),
        (":", ":"),
        (" ", " "),
        ("'", "'"),
        ("\r", " "),
        ("\n", " "),
        ("\0", "\\x00"),
        ("\x7f", "\\x7f"),
    ];
    for (first, shown) in cases {
        let expected = refused(&format!("expected '$', got '{shown}'"));
        assert_eq!(accepted(format!("*1\r\n{first}3\r\n").as_bytes()), expected, "{first:?}");
    }
    assert_eq!(accepted(b"*1\r\n\xe43\r\n"), refused("expected '$', got '\\xe4'"));
    assert_eq!(accepted(b"*1\r\n\r\n"), refused("expected '$', got ' '"));
    assert_eq!(accepted(b"*1\r\nfoo"), Ok(0), "Redis looks at whole lines");
}

#[test]
fn quotes_of_inline_commands() {
    assert_eq!(accepted(b"PING\r\nset \"a\r\n"), refused("unbalanced quotes in request"));
    assert_eq!(accepted(b"set 'a'b\n"), refused("unbalanced quotes in request"));
}

#[test]
fn a_deep_error_has_the_text_of_a_shallow_one() {
    assert_eq!(accepted(b"*2\r\n$1\r\na\r\n$x\r\n"), refused("invalid bulk length"));
    assert_eq!(accepted(b"*2\r\n$1\r\na\r\nfooz\r\n"), refused("expected '$', got 'f'"));
}
