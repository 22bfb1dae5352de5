//! Keys and values of several fields, one after another.

/// A field of a value: numbers are little-endian, text of varying length comes after its length.
pub(super) trait Field<'a>: Sized {
    fn put(&self, out: &mut Vec<u8>);

    /// Takes the field from the front of `bytes`.
    fn take(bytes: &mut &'a [u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Field<'_> for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                bytes.split_off(..size_of::<$type>())?.try_into().ok().map(<$type>::from_le_bytes)
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 i64 }

/// Text of a fixed length.
impl<'a, const N: usize> Field<'a> for &'a [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(*self);
    }

    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        bytes.split_off(..N)?.try_into().ok()
    }
}

/// Text of varying length, below 2^14: its length in one byte if it is below 128, otherwise in two, of which the first
/// has the upper bits and its highest bit set.
impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        let length = self.len() as u16;
        if length >= 128 {
            out.push(0x80 | (length >> 8) as u8);
        }
        out.push(length as u8);
        out.extend_from_slice(self);
    }

    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let first = u8::take(bytes)?;
        let length = match first & 0x80 {
            0 => first.into(),
            _ => u16::from_be_bytes([first & 0x7f, u8::take(bytes)?]),
        };
        bytes.split_off(..length.into())
    }
}

/// The fields one after another; together they are `N` bytes.
pub(super) fn concat<const N: usize, const COUNT: usize>(fields: [&[u8]; COUNT]) -> [u8; N] {
    let mut whole = [0; N];
    let mut at = 0;
    for field in fields {
        whole[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    debug_assert_eq!(at, N);
    whole
}
