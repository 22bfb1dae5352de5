//! Inline commands: a line is split into arguments as `sdssplitargs` of Redis does it.
//!
//! Blanks separate arguments. Double quotes enclose blanks and the escapes `\xHH`, `\n`, `\r`, `\t`, `\b`, `\a`; any
//! other escaped byte is itself. Single quotes enclose blanks and `\'`. A quote may begin within an argument, and ends
//! it. A NUL byte is an ordinary byte; Redis finds no line end after it.

use crate::event::Span;

/// Appends the arguments of a line, which has no line end, to `text`, and where they are to `arguments`.
///
/// # Errors
/// If a quote is not closed, or the closing one is followed by another byte than a blank.
pub(crate) fn split(line: &[u8], text: &mut Vec<u8>, arguments: &mut Vec<Span>) -> Result<(), Unbalanced> {
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|&&byte| is_blank(byte)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return Ok(());
        }
        let start = text.len();
        rest = argument(rest, text)?;
        arguments.push(Span { start, end: text.len() });
    }
}

/// Quotes that do not match.
#[derive(Debug)]
pub(crate) struct Unbalanced;

/// As `isspace` of C.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Appends one argument; returns the rest of the line.
fn argument<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            // Vertical tab and form feed separate arguments only before their beginning.
            [b' ' | b'\n' | b'\r' | b'\t', after @ ..] => return Ok(after),
            [b'"', after @ ..] => return closed(double_quoted(after, text)?),
            [b'\'', after @ ..] => return closed(single_quoted(after, text)?),
            [byte, after @ ..] => {
                text.push(*byte);
                after
            }
        }
    }
}

fn closed(rest: &[u8]) -> Result<&[u8], Unbalanced> {
    if rest.first().is_none_or(|&byte| is_blank(byte)) { Ok(rest) } else { Err(Unbalanced) }
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                text.push(hex_digit(*high) << 4 | hex_digit(*low));
                after
            }
            [b'\\', byte, after @ ..] => {
                text.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    byte => *byte,
                });
                after
            }
            [byte, after @ ..] => {
                text.push(*byte);
                after
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'\'', after @ ..] => return Ok(after),
            [b'\\', b'\'', after @ ..] => {
                text.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                text.push(*byte);
                after
            }
        }
    }
}

/// The value of a hexadecimal digit.
pub(crate) fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_to_vec(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        split(line, &mut text, &mut spans).ok()?;
        Some(spans.iter().map(|span| text[span.start..span.end].to_vec()).collect())
    }

    #[test]
    fn lines_are_split_as_redis_splits_them() {
        let cases: [(&[u8], &[&[u8]]); 15] = [
            (b"", &[]),
            (b" \t\x0b\x0c\r ", &[]),
            (b"set  key\tvalue ", &[b"set", b"key", b"value"]),
            (b"\"foo bar\" \"bar foo:bar\"", &[b"foo bar", b"bar foo:bar"]),
            (b"\"\"", &[b""]),
            (b"'' x", &[b"", b"x"]),
            (b"a\"b c\" d", &[b"ab c", b"d"]),
            (b"a'b c'", &[b"ab c"]),
            (b"\"\\x41\\xfF\\x4\\xg0\"", &[b"A\xffx4xg0"]),
            (b"\"\\n\\r\\t\\b\\a\\\\\\\"\\q\"", &[b"\n\r\t\x08\x07\\\"q"]),
            (b"'\\n\\'\"'", &[b"\\n'\""]),
            (b"\\x41", &[b"\\x41"]),
            (b"a\x0bb", &[b"a\x0bb"]),
            (b"\"a\"\x0b\"b\"", &[b"a", b"b"]),
            (b"a\0b", &[b"a\0b"]),
        ];
        for (line, arguments) in cases {
            let found = split_to_vec(line).expect("the quotes match");
            assert_eq!(found, arguments, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn quotes_must_match() {
        let cases: [&[u8]; 8] = [b"\"", b"'", b"\"a", b"a'b", b"\"a\"b", b"'a''b'", b"\"a\\\"", b"'a\\'"];
        for line in cases {
            assert!(split_to_vec(line).is_none(), "{}", line.escape_ascii());
        }
    }
}
