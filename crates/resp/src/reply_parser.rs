//! The client's side: replies of either protocol.

use memchr::memchr2;

use crate::error::ReplyError;
use crate::limits::REPLY_DEPTH_MAX;
use crate::number::{parse_f64, parse_i64};
use crate::reply::Reply;

/// The reply at the beginning of `input`, and its length in bytes; `None` if it is not complete, and then the next call
/// parses it from its beginning. RESP3's strings and aggregates of unknown length are not supported: Redis sends none.
///
/// # Errors
/// If the input breaks the protocol.
///
/// ```
/// use fulgurite_resp::{Reply, parse_reply};
///
/// let reply = Reply::Array(vec![Reply::Integer(7), Reply::NullBulk]);
/// assert_eq!(parse_reply(b"*2\r\n:7\r\n$-1\r\n+OK\r\n"), Ok(Some((reply, 13))));
/// assert_eq!(parse_reply(b"*2\r\n:7\r\n$"), Ok(None));
/// ```
pub fn parse_reply(input: &[u8]) -> Result<Option<(Reply, usize)>, ReplyError> {
    let mut input = Input { bytes: input, position: 0 };
    match input.reply(REPLY_DEPTH_MAX) {
        Ok(reply) => Ok(Some((reply, input.position))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Error(error)) => Err(error),
    }
}

enum Stop {
    Incomplete,
    Error(ReplyError),
}

impl From<ReplyError> for Stop {
    fn from(error: ReplyError) -> Stop {
        Stop::Error(error)
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Input<'a> {
    fn reply(&mut self, depth_left: usize) -> Result<Reply, Stop> {
        let kind = *self.bytes.get(self.position).ok_or(Stop::Incomplete)?;
        if !b"+-:$*_%~>|,#(=!".contains(&kind) {
            return Err(ReplyError::UnknownType(kind).into());
        }
        self.position += 1;
        let line = self.line()?;
        Ok(match kind {
            b'+' => Reply::Simple(line.to_vec()),
            b'-' => Reply::Error(line.to_vec()),
            b':' => Reply::Integer(parse_i64(line).ok_or(ReplyError::InvalidValue)?),
            b'$' if line == b"-1" => Reply::NullBulk,
            b'$' => Reply::Bulk(self.bulk(line)?.to_vec()),
            b'!' => Reply::BulkError(self.bulk(line)?.to_vec()),
            b'=' => verbatim(self.bulk(line)?)?,
            b'_' if line.is_empty() => Reply::Null,
            b'#' if line == b"t" => Reply::Boolean(true),
            b'#' if line == b"f" => Reply::Boolean(false),
            b'_' | b'#' => return Err(ReplyError::InvalidValue.into()),
            b',' => double(line)?,
            b'(' if is_big_number(line) => Reply::BigNumber(line.to_vec()),
            b'(' => return Err(ReplyError::InvalidValue.into()),
            b'*' if line == b"-1" => Reply::NullArray,
            b'*' => Reply::Array(self.elements(line, depth_left)?),
            b'~' => Reply::Set(self.elements(line, depth_left)?),
            b'>' => Reply::Push(self.elements(line, depth_left)?),
            b'%' => Reply::Map(self.pairs(line, depth_left)?),
            _ => {
                let attributes = self.pairs(line, depth_left)?;
                Reply::Attributed(attributes, Box::new(self.reply(deeper(depth_left)?)?))
            }
        })
    }

    /// The bytes before the next CR and LF.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.position..];
        let at = memchr2(b'\r', b'\n', rest).ok_or(Stop::Incomplete)?;
        if rest[at] == b'\n' {
            return Err(ReplyError::MissingLineEnd.into());
        }
        match rest.get(at + 1) {
            None => Err(Stop::Incomplete),
            Some(b'\n') => {
                self.position += at + 2;
                Ok(&rest[..at])
            }
            Some(_) => Err(ReplyError::MissingLineEnd.into()),
        }
    }

    fn bulk(&mut self, len: &[u8]) -> Result<&'a [u8], Stop> {
        let len = length(len)?;
        let rest = &self.bytes[self.position..];
        let bytes = rest.get(..len).ok_or(Stop::Incomplete)?;
        match &rest[len..] {
            [b'\r', b'\n', ..] => {
                self.position += len + 2;
                Ok(bytes)
            }
            [] | [b'\r'] => Err(Stop::Incomplete),
            _ => Err(ReplyError::MissingLineEnd.into()),
        }
    }

    fn elements(&mut self, len: &[u8], depth_left: usize) -> Result<Vec<Reply>, Stop> {
        let depth_left = deeper(depth_left)?;
        // Memory grows with the elements that arrived.
        (0..length(len)?).map(|_| self.reply(depth_left)).collect::<Result<Vec<_>, _>>()
    }

    fn pairs(&mut self, len: &[u8], depth_left: usize) -> Result<Vec<(Reply, Reply)>, Stop> {
        let depth_left = deeper(depth_left)?;
        (0..length(len)?).map(|_| Ok((self.reply(depth_left)?, self.reply(depth_left)?))).collect()
    }
}

fn deeper(depth_left: usize) -> Result<usize, ReplyError> {
    depth_left.checked_sub(1).ok_or(ReplyError::TooDeep)
}

fn length(digits: &[u8]) -> Result<usize, ReplyError> {
    let len = parse_i64(digits).and_then(|len| usize::try_from(len).ok());
    len.ok_or(ReplyError::InvalidLength)
}

fn verbatim(bytes: &[u8]) -> Result<Reply, ReplyError> {
    match bytes {
        [first, second, third, b':', text @ ..] => {
            Ok(Reply::Verbatim([*first, *second, *third], text.to_vec()))
        }
        _ => Err(ReplyError::InvalidValue),
    }
}

fn double(text: &[u8]) -> Result<Reply, ReplyError> {
    if text != b"nan" && parse_f64(text).is_none() {
        return Err(ReplyError::InvalidValue);
    }
    Ok(Reply::Double(text.iter().map(|&byte| char::from(byte)).collect()))
}

fn is_big_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}
