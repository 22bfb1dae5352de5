//! How far a request was parsed, and the search for the ends of its lines.

use memchr::memchr;

use crate::error::ProtocolError;
use crate::limits::LINE_BYTES_MAX;
use crate::number::parse_i64;

/// Bytes of a line end.
pub(crate) const CRLF_BYTES: usize = 2;
/// A number of so many digits is computed while the end of its line is searched: it fits an `i64`.
const SHORT_NUMBER_DIGITS_MAX: usize = 18;

/// How far the input was parsed. Offsets count from the beginning of the input that is not consumed.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The first byte that was not parsed: the beginning of a line or of an argument's bytes.
    pub position: usize,
    /// The line at the position has no end before this offset.
    searched: usize,
    /// Bytes, lines and arguments that were looked at.
    #[cfg(test)]
    pub steps: usize,
}

/// A line with a count or a length.
pub(crate) enum Line {
    Incomplete { missing_bytes: usize },
    Whole { number: Option<i64>, end: usize },
}

impl Progress {
    /// The caller consumes what was parsed; returns how many bytes that are.
    pub fn consume(&mut self) -> usize {
        self.searched = 0;
        std::mem::take(&mut self.position)
    }

    /// The line at the position: a byte, a number, CR and any byte.
    #[inline]
    pub fn number_line(&mut self, input: &[u8], too_big: ProtocolError) -> Result<Line, ProtocolError> {
        let start = self.position;
        if self.searched <= start
            && let Some((number, end)) = short_number(input, start + 1)
        {
            self.step(end - start);
            return Ok(Line::Whole { number: Some(number), end });
        }
        let Some(at) = self.line_end(input, b'\r', too_big)? else {
            return Ok(Line::Incomplete { missing_bytes: CRLF_BYTES });
        };
        let end = at + CRLF_BYTES;
        if input.len() < end {
            return Ok(Line::Incomplete { missing_bytes: 1 });
        }
        let digits = input.get(start + 1..at).unwrap_or_default();
        self.step(digits.len());
        Ok(Line::Whole { number: parse_i64(digits), end })
    }

    /// Where in the input the line at the position ends.
    pub fn line_end(
        &mut self,
        input: &[u8],
        end: u8,
        too_big: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let from = self.searched.max(self.position);
        let to = input.len().min(self.position + LINE_BYTES_MAX + 1);
        if let Some(at) = memchr(end, &input[from..to]) {
            self.searched = from + at;
            self.step(at + 1);
            return Ok(Some(from + at));
        }
        if to - self.position > LINE_BYTES_MAX {
            return Err(too_big);
        }
        self.step(to - from);
        self.searched = to;
        Ok(None)
    }

    /// Counts work, for the test that it is linear.
    #[inline(always)]
    pub fn step(&mut self, _steps: usize) {
        #[cfg(test)]
        {
            self.steps += _steps;
        }
    }
}

/// A number that is not negative, in the input at `start`, and where its line ends. `None` if the line has another
/// form, or is not complete.
#[inline]
fn short_number(input: &[u8], start: usize) -> Option<(i64, usize)> {
    let bytes = input.get(start..)?;
    let mut number = 0;
    let mut len = 0;
    loop {
        let byte = *bytes.get(len)?;
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let is_canonical = len == 1 || (len > 1 && bytes[0] != b'0');
            let is_whole = byte == b'\r' && len + CRLF_BYTES <= bytes.len();
            return (is_canonical && is_whole).then_some((number, start + len + CRLF_BYTES));
        }
        if len == SHORT_NUMBER_DIGITS_MAX {
            return None;
        }
        number = number * 10 + i64::from(digit);
        len += 1;
    }
}
