//! The head record of a key: its type, its expiry, and the value of a string or what is known of a collection.

/// The type of a key. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    String = 1,
    Hash = 2,
    List = 3,
    Set = 4,
    SortedSet = 5,
    /// A string above a size.
    FragmentedString = 6,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::String, Kind::Hash, Kind::List, Kind::Set, Kind::SortedSet, Kind::FragmentedString];

    fn of(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The type with this name, in any case.
    pub fn named(name: &[u8]) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()))
    }

    /// Its name in a reply to `TYPE`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String | Kind::FragmentedString => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
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

/// The body of the head record of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// Under which its content is; never given twice.
    pub id: u64,
    /// How many fields, elements or members it has.
    pub count: u64,
    /// The position of the first element of a list; how many rows of blocks a sorted set has; 0 for other collections.
    pub first: i64,
}

impl Collection {
    /// `None` if the bytes are no body.
    pub fn decode(body: &[u8]) -> Option<Collection> {
        let (numbers, rest) = body.as_chunks::<8>();
        match (numbers, rest) {
            (&[id, count, first], []) => Some(Collection {
                id: u64::from_le_bytes(id),
                count: u64::from_le_bytes(count),
                first: i64::from_le_bytes(first),
            }),
            _ => None,
        }
    }

    pub fn encode(self) -> [u8; 24] {
        let Collection { id, count, first } = self;
        let mut body = [0; 24];
        body[..8].copy_from_slice(&id.to_le_bytes());
        body[8..16].copy_from_slice(&count.to_le_bytes());
        body[16..].copy_from_slice(&first.to_le_bytes());
        body
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
        let numbers = Kind::ALL.map(|kind| kind as u8);
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
        let list = Collection { id: 0x0102, count: 3, first: -1 };
        let golden = [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
        assert_eq!(list.encode(), golden);
        assert_eq!(Collection::decode(&golden), Some(list));
    }

    #[test]
    fn bytes_that_are_no_record_are_refused() {
        let cut = [0x81, 8, 7, 6, 5, 4, 3, 2];
        let never = [0x81, 0, 0, 0, 0, 0, 0, 0, 0];
        for bytes in [&[][..], &[0x00], &[0x07], &[0x11], &[0x41], &cut, &never] {
            assert_eq!(Head::decode(bytes), None, "{bytes:?}");
        }
        for len in [0, 23, 25, 32] {
            assert_eq!(Collection::decode(&vec![0; len]), None, "{len}");
        }
    }

    #[test]
    fn a_key_is_gone_from_the_millisecond_of_its_expiry_on() {
        let head = Head { kind: Kind::String, expires_at_ms: 1_000 };
        assert!(head.is_live(999) && !head.is_live(1_000));
        assert!(Head { expires_at_ms: 0, ..head }.is_live(u64::MAX));
    }
}
