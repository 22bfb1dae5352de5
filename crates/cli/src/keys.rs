//! Keys, prefixes and bounds on the command line.

use std::ops::Bound;

use clap::Args;

use crate::failure::Failure;

/// How keys are written on the command line.
#[derive(Args)]
pub(crate) struct KeyFormat {
    /// Keys and bounds are in hexadecimal, such as 00ff12, instead of text.
    #[arg(long)]
    pub hex: bool,
}

impl KeyFormat {
    /// The bytes of a key as the user wrote it.
    pub fn bytes(&self, text: &str) -> Result<Vec<u8>, Failure> {
        if self.hex { decode_hex(text) } else { Ok(text.as_bytes().to_vec()) }
    }
}

/// A range of a table: all of it, the keys with a prefix, or the keys between two bounds.
#[derive(Args)]
pub(crate) struct RangeArgs {
    /// Only keys that start with this.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
    /// Only keys at or after this one.
    #[arg(long)]
    pub from: Option<String>,
    /// Only keys before this one.
    #[arg(long)]
    pub to: Option<String>,
}

/// An owned range of keys.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl RangeArgs {
    pub fn bounds(&self, format: &KeyFormat) -> Result<Bounds, Failure> {
        if let Some(prefix) = &self.prefix {
            let prefix = format.bytes(prefix)?;
            let end = after_prefix(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
            return Ok((Bound::Included(prefix), end));
        }
        let from = self.from.as_deref().map(|text| format.bytes(text)).transpose()?;
        let to = self.to.as_deref().map(|text| format.bytes(text)).transpose()?;
        Ok((from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded)))
    }
}

/// The bounds as the library takes them.
pub(crate) fn as_range(bounds: &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice))
}

/// The smallest key after all that start with `prefix`; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}

fn decode_hex(text: &str) -> Result<Vec<u8>, Failure> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pair = |pair: &[u8]| Some((nibble(pair[0])? << 4) | nibble(pair[1])?);
    let bytes: Option<Vec<u8>> = match digits.len() % 2 {
        0 => digits.as_bytes().chunks_exact(2).map(pair).collect(),
        _ => None,
    };
    bytes.ok_or_else(|| {
        Failure::usage(format!("`{text}` is not hexadecimal: pairs of the digits 0-9 and a-f are expected"))
    })
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_comes_back() {
        assert_eq!(decode_hex(&hex(&[0, 255, 18])).unwrap(), [0, 255, 18]);
        assert_eq!(decode_hex("0xFF").unwrap(), [255]);
        assert_eq!(decode_hex("").unwrap(), [0; 0]);
        for wrong in ["f", "gg", "0x1", "\u{e9}", "+1"] {
            assert!(decode_hex(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
