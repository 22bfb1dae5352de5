//! The server's side: replies, appended to a buffer.

use crate::double::double_text;
use crate::number::{I64_BYTES_MAX, write_backwards};

/// The version of the protocol that a connection speaks: RESP2, until `HELLO 3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Simple strings, errors, integers, bulk strings, arrays.
    #[default]
    Resp2,
    /// These, and maps, sets, pushes, attributes, doubles, booleans, nulls, big numbers, verbatim strings.
    Resp3,
}

/// Appends replies to a buffer. A type that RESP2 lacks is written as Redis writes it there.
///
/// An aggregate is its header, then its elements one by one:
///
/// ```
/// use fulgurite_resp::{Encoder, Protocol};
///
/// let mut out = Vec::new();
/// for protocol in [Protocol::Resp2, Protocol::Resp3] {
///     let mut encoder = Encoder::new(&mut out, protocol);
///     encoder.map(1);
///     encoder.bulk(b"score");
///     encoder.double(0.5);
/// }
/// assert_eq!(out, b"*2\r\n$5\r\nscore\r\n$3\r\n0.5\r\n%1\r\n$5\r\nscore\r\n,0.5\r\n");
/// ```
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Encoder<'a> {
    /// An encoder that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Encoder<'a> {
        Encoder { out, protocol }
    }

    /// The protocol that it writes.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// A simple string, `+OK`. Each CR and LF in it becomes a space.
    pub fn simple(&mut self, text: &[u8]) {
        self.out.push(b'+');
        self.line(text);
    }

    /// An error: its code (`ERR`, `WRONGTYPE`), a space, the message. Each CR and LF becomes a space, as in Redis.
    pub fn error(&mut self, code: &str, message: &str) {
        self.out.push(b'-');
        self.text(code.as_bytes());
        self.out.push(b' ');
        self.line(message.as_bytes());
    }

    /// An error whose text begins with its code.
    pub(crate) fn error_text(&mut self, text: &[u8]) {
        self.out.push(b'-');
        self.line(text);
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bulk_header(bytes.len());
        self.out.extend_from_slice(bytes);
        self.crlf();
    }

    /// The header of a bulk string of `len` bytes. The caller appends the bytes to the buffer itself, or sends the
    /// buffer and then the bytes, and writes [`Encoder::crlf`] after them.
    #[inline]
    pub fn bulk_header(&mut self, len: usize) {
        self.header_of_len(b'$', len);
    }

    /// CR and LF, after the bytes of a bulk string.
    #[inline]
    pub fn crlf(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// No value: a null bulk string in RESP2.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// No array, the reply of an aborted `EXEC` and of a blocking command after its timeout.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The header of an array of `len` elements.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header_of_len(b'*', len);
    }

    /// The header of a map of `pairs` keys, each followed by its value: an array of twice as many in RESP2.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header_of_len(b'*', pairs * 2),
            Protocol::Resp3 => self.header_of_len(b'%', pairs),
        }
    }

    /// The header of a set of `len` elements: an array in RESP2.
    pub fn set(&mut self, len: usize) {
        self.header_of_len(self.one_of(b'*', b'~'), len);
    }

    /// The header of a push of `len` elements, which may come between replies: an array in RESP2.
    pub fn push(&mut self, len: usize) {
        self.header_of_len(self.one_of(b'*', b'>'), len);
    }

    /// The header of `pairs` attributes, each a key and a value, of the reply that follows them. RESP2 has none: then
    /// nothing is written, the result is false, and the caller leaves keys and values out.
    #[must_use]
    pub fn attribute(&mut self, pairs: usize) -> bool {
        let is_written = self.protocol == Protocol::Resp3;
        if is_written {
            self.header_of_len(b'|', pairs);
        }
        is_written
    }

    /// A number, as [`format_double`](crate::format_double) prints it: a bulk string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = double_text(value);
        self.text_or_bulk(b',', text.as_bytes());
    }

    /// A boolean: the integers 1 and 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// An integer of any size, in decimal digits: a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &[u8]) {
        self.text_or_bulk(b'(', digits);
    }

    /// A string for people in this format, `txt` or `mkd`: a bulk string of the text in RESP2.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        if self.protocol == Protocol::Resp2 {
            return self.bulk(text);
        }
        self.header_of_len(b'=', text.len() + format.len() + 1);
        self.out.extend_from_slice(&format);
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.crlf();
    }

    fn text_or_bulk(&mut self, kind: u8, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.out.push(kind);
                self.line(text);
            }
        }
    }

    fn one_of(&self, resp2: u8, resp3: u8) -> u8 {
        match self.protocol {
            Protocol::Resp2 => resp2,
            Protocol::Resp3 => resp3,
        }
    }

    fn line(&mut self, text: &[u8]) {
        self.text(text);
        self.crlf();
    }

    fn text(&mut self, text: &[u8]) {
        let one_line = |&byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        self.out.extend(text.iter().map(one_line));
    }

    fn header_of_len(&mut self, kind: u8, len: usize) {
        write_header(self.out, kind, i64::try_from(len).expect("no aggregate is so long"));
    }

    fn header(&mut self, kind: u8, number: i64) {
        write_header(self.out, kind, number);
    }
}

/// Appends a line of a byte and a number.
#[inline]
fn write_header(out: &mut Vec<u8>, kind: u8, number: i64) {
    if let digit @ 0..=9 = number {
        out.extend_from_slice(&[kind, b'0' + digit as u8, b'\r', b'\n']);
        return;
    }
    let mut text = [0; I64_BYTES_MAX];
    let start = write_backwards(number, &mut text);
    out.push(kind);
    out.extend_from_slice(&text[start..]);
    out.extend_from_slice(b"\r\n");
}

/// Appends a request, the client's side: an array of bulk strings.
pub fn encode_command(out: &mut Vec<u8>, arguments: &[impl AsRef<[u8]>]) {
    let mut encoder = Encoder::new(out, Protocol::Resp2);
    encoder.array(arguments.len());
    arguments.iter().for_each(|argument| encoder.bulk(argument.as_ref()));
}
