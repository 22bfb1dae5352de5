//! The head record of a key: its type, its expiry, and the value of a string.

/// The type of a key. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    String = 1,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        (number == Kind::String as u8).then_some(Kind::String)
    }

    /// Its name in a reply to `TYPE`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
        }
    }
}

/// Set in the first byte of a record with an expiry.
const EXPIRES: u8 = 0x80;

/// The bits of the first byte that are the kind.
const KIND: u8 = 0x0F;

/// A head record without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    /// When the key expires, in milliseconds since 1970; 0 is never.
    pub expires_at_ms: u64,
}

impl Head {
    /// The head, and where the body begins; `None` if the bytes are no record.
    pub fn decode(record: &[u8]) -> Option<(Head, usize)> {
        let (&tag, rest) = record.split_first()?;
        let kind = Kind::of(tag & KIND).filter(|_| tag & !(KIND | EXPIRES) == 0)?;
        if tag & EXPIRES == 0 {
            return Some((Head { kind, expires_at_ms: 0 }, 1));
        }
        let expires_at_ms = u64::from_le_bytes(*rest.first_chunk()?);
        (expires_at_ms != 0).then_some((Head { kind, expires_at_ms }, 9))
    }

    /// Appends the record up to its body.
    pub fn encode(self, out: &mut Vec<u8>) {
        let Head { kind, expires_at_ms } = self;
        if expires_at_ms == 0 {
            return out.push(kind as u8);
        }
        out.push(kind as u8 | EXPIRES);
        out.extend_from_slice(&expires_at_ms.to_le_bytes());
    }

    /// Whether the key exists for a command at `now_ms`.
    pub fn is_live(self, now_ms: u64) -> bool {
        self.expires_at_ms == 0 || self.expires_at_ms > now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of `docs/format/redis.md`.
    #[test]
    fn records_have_the_bytes_of_the_specification() {
        let lasting = Head { kind: Kind::String, expires_at_ms: 0 };
        let expiring = Head { kind: Kind::String, expires_at_ms: 0x0102_0304_0506_0708 };
        for (head, golden) in [(lasting, &[0x01][..]), (expiring, &[0x81, 8, 7, 6, 5, 4, 3, 2, 1])] {
            let mut record = Vec::new();
            head.encode(&mut record);
            assert_eq!(record, golden);
            record.extend_from_slice(b"body");
            assert_eq!(Head::decode(&record), Some((head, golden.len())));
        }
    }

    #[test]
    fn bytes_that_are_no_record_are_refused() {
        let cut = [0x81, 8, 7, 6, 5, 4, 3, 2];
        let never = [0x81, 0, 0, 0, 0, 0, 0, 0, 0];
        for bytes in [&[][..], &[0x00], &[0x02], &[0x11], &[0x41], &cut, &never] {
            assert_eq!(Head::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_key_is_gone_from_the_millisecond_of_its_expiry_on() {
        let head = Head { kind: Kind::String, expires_at_ms: 1_000 };
        assert!(head.is_live(999) && !head.is_live(1_000));
        assert!(Head { expires_at_ms: 0, ..head }.is_live(u64::MAX));
    }
}
