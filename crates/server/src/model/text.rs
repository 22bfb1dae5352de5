//! Strings: a short one is in its head record as a whole; a long one is in fragments, of which a command touches only those that it
//! must. A fragment that is missing, or shorter than others, has zeros for what it lacks: writing far behind the end costs one.

use std::ops::{Bound, Deref, Range};

use super::content::{fragment_key, split_fragment_key};
use super::head::{Head, Kind};
use super::view::{Order, View, damaged_row};
use super::write::{Old, Write};
use crate::stop::{ErrorReply, Result, Stop};

/// A longer string is in fragments.
const WHOLE_BYTES_MAX: usize = 64 << 10;

/// How long a fragment is.
pub(crate) const FRAGMENT_BYTES: usize = 16 << 10;

/// An I/O thread does not run commands with longer strings.
pub(crate) const INLINE_VALUE_BYTES_MAX: usize = 256 << 10;

/// The bytes of a string that was read.
pub(crate) enum Text {
    Whole(Old),
    Assembled(Vec<u8>),
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Text::Whole(old) => old.body(),
            Text::Assembled(bytes) => bytes,
        }
    }
}

/// A string in fragments: the body of its head record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragmented {
    /// Under which its content is; never given twice.
    pub id: u64,
    pub len: u64,
}

impl Fragmented {
    /// `None` if the bytes are no body.
    pub fn decode(body: &[u8]) -> Option<Fragmented> {
        let (numbers, rest) = body.as_chunks::<8>();
        match (numbers, rest) {
            (&[id, len], []) => Some(Fragmented { id: u64::from_le_bytes(id), len: u64::from_le_bytes(len) }),
            _ => None,
        }
    }

    pub fn encode(self) -> [u8; 16] {
        let mut body = [0; 16];
        body[..8].copy_from_slice(&self.id.to_le_bytes());
        body[8..].copy_from_slice(&self.len.to_le_bytes());
        body
    }
}

impl Old {
    /// The value of a string that is whole; `None` if it is in fragments.
    ///
    /// # Errors
    /// `WRONGTYPE` if it is no string.
    pub fn whole_text(&self) -> Result<Option<&[u8]>> {
        match self.head.kind {
            Kind::String => Ok(Some(self.body())),
            Kind::FragmentedString => Ok(None),
            _ => Err(ErrorReply::WRONG_TYPE.into()),
        }
    }

    /// Fails with `WRONGTYPE` if it is no string.
    pub fn check_text(&self) -> Result<()> {
        self.whole_text().map(|_| ())
    }

    /// How long a string is.
    pub fn text_len(&self) -> Result<usize> {
        Ok(match self.whole_text()? {
            Some(value) => value.len(),
            None => self.fragmented()?.len as usize,
        })
    }

    pub(super) fn fragmented(&self) -> Result<Fragmented> {
        Fragmented::decode(self.body()).ok_or_else(|| super::write::DAMAGED.into())
    }
}

impl View<'_> {
    /// The string of a key that exists.
    pub fn text_of(&self, key: &[u8]) -> Result<Option<Text>> {
        self.live(key)?.map(|old| self.text(&old)).transpose()
    }

    /// The string whose record was read.
    pub fn text(&self, old: &Old) -> Result<Text> {
        if old.whole_text()?.is_some() {
            return Ok(Text::Whole(old.clone()));
        }
        let len = old.text_len()?;
        Ok(Text::Assembled(self.text_range(old, 0..len)?))
    }

    /// The bytes of a range within a string, or as many as it has of them.
    pub fn text_range(&self, old: &Old, range: Range<usize>) -> Result<Vec<u8>> {
        let len = old.text_len()?;
        let range = range.start.min(len)..range.end.min(len);
        if let Some(value) = old.whole_text()? {
            return Ok(value.get(range).unwrap_or_default().to_vec());
        }
        if range.is_empty() {
            return Ok(Vec::new());
        }
        if !self.runner.may_take_long() && range.len() > INLINE_VALUE_BYTES_MAX {
            return Err(Stop::Large);
        }
        let mut bytes = Vec::with_capacity(range.len());
        self.push_fragments(old.fragmented()?.id, range, &mut bytes)?;
        Ok(bytes)
    }

    /// Appends the bytes of a range, which is not empty, of a string in fragments.
    pub fn push_fragments(&self, id: u64, range: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.resize(start + range.len(), 0);
        let bytes = &mut out[start..];
        let first = fragment_key(id, (range.start / FRAGMENT_BYTES) as u32);
        let last = fragment_key(id, ((range.end - 1) / FRAGMENT_BYTES) as u32);
        self.each_row(
            (Bound::Included(first), Bound::Included(last)),
            Order::Forward,
            usize::MAX,
            |row, fragment| {
                let number = split_fragment_key(&row).ok_or_else(|| damaged_row(&row))?;
                let begin = number as usize * FRAGMENT_BYTES;
                let overlap = begin.max(range.start)..(begin + fragment.len()).min(range.end);
                if !overlap.is_empty() {
                    bytes[overlap.start - range.start..overlap.end - range.start]
                        .copy_from_slice(&fragment[overlap.start - begin..overlap.end - begin]);
                }
                Ok(true)
            },
        )
    }
}

impl Write<'_> {
    /// Gives a key whose record was `old` this string; an expiry of 0 is none.
    pub fn put_text(
        &mut self,
        key: &[u8],
        old: Option<&Old>,
        value: &[u8],
        expires_at_ms: u64,
    ) -> Result<()> {
        if value.len() <= WHOLE_BYTES_MAX {
            return self.put(key, old, Head { kind: Kind::String, expires_at_ms }, value);
        }
        if !self.runner.may_take_long() && value.len() > INLINE_VALUE_BYTES_MAX {
            return Err(Stop::Large);
        }
        let id = self.model.new_id(self.runner)?;
        self.put_fragments(id, 0, value)?;
        let fragmented = Fragmented { id, len: value.len() as u64 };
        self.put(key, old, Head { kind: Kind::FragmentedString, expires_at_ms }, &fragmented.encode())
    }

    /// Writes the fragments of a string whose bytes begin at an offset, that of a fragment.
    pub fn put_fragments(&mut self, id: u64, offset: usize, bytes: &[u8]) -> Result<()> {
        let first = (offset / FRAGMENT_BYTES) as u32;
        (first..)
            .zip(bytes.chunks(FRAGMENT_BYTES))
            .try_for_each(|(number, fragment)| self.put_row(&fragment_key(id, number), fragment))
    }

    /// Writes bytes into the string of a key from an offset on, zeros between its end and that, and keeps its expiry. `old` is the key's
    /// record. Returns how long the string is then.
    pub fn write_text(
        &mut self,
        key: &[u8],
        old: Option<&Old>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<usize> {
        let live = old.filter(|old| old.head.is_live(self.now_ms));
        let before = live.map_or(Ok(0), Old::text_len)?;
        let len = before.max(offset + bytes.len());
        let expires_at_ms = live.map_or(0, |old| old.head.expires_at_ms);
        let whole = live.map_or(Ok(Some(&[][..])), Old::whole_text)?;
        if let Some(value) = whole
            && len <= WHOLE_BYTES_MAX
        {
            let mut new = Vec::with_capacity(len);
            new.extend_from_slice(value);
            new.resize(len, 0);
            new[offset..offset + bytes.len()].copy_from_slice(bytes);
            self.put(key, old, Head { kind: Kind::String, expires_at_ms }, &new)?;
            return Ok(len);
        }
        if !self.runner.may_take_long() && bytes.len() > INLINE_VALUE_BYTES_MAX {
            return Err(Stop::Large);
        }
        let id = match (live, whole) {
            (Some(old), None) => old.fragmented()?.id,
            (_, whole) => {
                let id = self.model.new_id(self.runner)?;
                self.put_fragments(id, 0, whole.unwrap_or_default())?;
                id
            }
        };
        let mut written = 0;
        while written < bytes.len() {
            let at = offset + written;
            let (number, start) = ((at / FRAGMENT_BYTES) as u32, at % FRAGMENT_BYTES);
            let count = (FRAGMENT_BYTES - start).min(bytes.len() - written);
            let row = fragment_key(id, number);
            let mut fragment = match self.view().row(&row)? {
                Some(fragment) if count < FRAGMENT_BYTES => fragment.to_vec(),
                _ => Vec::new(),
            };
            fragment.resize(fragment.len().max(start + count), 0);
            fragment[start..start + count].copy_from_slice(&bytes[written..written + count]);
            self.put_row(&row, &fragment)?;
            written += count;
        }
        let fragmented = Fragmented { id, len: len as u64 };
        self.put(key, old, Head { kind: Kind::FragmentedString, expires_at_ms }, &fragmented.encode())?;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of `docs/format/redis.md`.
    #[test]
    fn bodies_have_the_bytes_of_the_specification() {
        let fragmented = Fragmented { id: 0x0102, len: 70_000 };
        let golden = [2, 1, 0, 0, 0, 0, 0, 0, 0x70, 0x11, 1, 0, 0, 0, 0, 0];
        assert_eq!(fragmented.encode(), golden);
        assert_eq!(Fragmented::decode(&golden), Some(fragmented));
        assert!(Fragmented::decode(&golden[1..]).is_none() && Fragmented::decode(&[0; 24]).is_none());
    }
}
