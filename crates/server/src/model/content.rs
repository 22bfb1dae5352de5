//! The content of collections: rows of one table, whose keys begin with the id of their collection and a section.

use std::ops::Bound;

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::tables::TableKey;

/// Which rows of a collection. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Section {
    /// By hash and name: the fields of a hash with their values, the members of a set, those of a sorted set with their scores.
    Members = 1,
    /// By score and name: the members of a sorted set.
    Scores = 2,
    /// How many members of a sorted set are in each stretch of that order.
    Blocks = 3,
    /// By position: the elements of a list.
    Elements = 4,
    /// By number: the fragments of a string.
    Fragments = 5,
}

/// The bounds of rows.
pub(crate) type Bounds = (Bound<TableKey>, Bound<TableKey>);

/// The beginning of the keys of a section.
pub(crate) fn section_key(id: u64, section: Section) -> TableKey {
    let mut key = TableKey::from_slice(&id.to_be_bytes());
    key.push(section as u8);
    key
}

/// All rows of a section.
pub(crate) fn section_bounds(id: u64, section: Section) -> Bounds {
    let mut end = section_key(id, section);
    *end.last_mut().expect("it has a section") += 1;
    (Bound::Included(section_key(id, section)), Bound::Excluded(end))
}

/// All rows of a collection.
pub(crate) fn content_bounds(id: u64) -> Bounds {
    let from = TableKey::from_slice(&id.to_be_bytes());
    let end = match id.checked_add(1) {
        Some(next) => Bound::Excluded(SmallVec::from_slice(&next.to_be_bytes())),
        None => Bound::Unbounded,
    };
    (Bound::Included(from), end)
}

/// How many bytes of a key come before the name of a member: id, section, hash.
const MEMBER_KEY_BYTES: usize = 17;

/// The longest name of a field or member: that of a sorted set is in a key after id, section and score, too, and in the key of a block
/// after as many bytes.
pub(crate) const NAME_BYTES_MAX: usize = fulgurite::limits::KEY_BYTES_MAX - MEMBER_KEY_BYTES;

/// The place of a name among the members: it does not follow from the name for one who does not know the seed. It has 63 bits,
/// because it is a cursor, and some clients take one for a signed number.
pub(crate) fn hash_of(seed: u64, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, seed) >> 1
}

/// The key of a field or member.
pub(crate) fn member_key(id: u64, seed: u64, name: &[u8]) -> TableKey {
    let mut key = section_key(id, Section::Members);
    key.extend_from_slice(&hash_of(seed, name).to_be_bytes());
    key.extend_from_slice(name);
    key
}

/// The members from this hash on.
pub(crate) fn members_from(id: u64, hash: u64) -> Bounds {
    let mut from = section_key(id, Section::Members);
    from.extend_from_slice(&hash.to_be_bytes());
    (Bound::Included(from), section_bounds(id, Section::Members).1)
}

/// The hash and the name in the key of a member.
pub(crate) fn split_member_key(key: &[u8]) -> Option<(u64, &[u8])> {
    let (hash, name) = key.get(9..)?.split_first_chunk()?;
    Some((u64::from_be_bytes(*hash), name))
}

/// The key of an element of a list. Positions are in the order of their numbers.
pub(crate) fn element_key(id: u64, position: i64) -> TableKey {
    let mut key = section_key(id, Section::Elements);
    key.extend_from_slice(&(position as u64 ^ 1 << 63).to_be_bytes());
    key
}

/// The position in the key of an element.
pub(crate) fn split_element_key(key: &[u8]) -> Option<i64> {
    let position = <[u8; 8]>::try_from(key.get(9..)?).ok()?;
    Some((u64::from_be_bytes(position) ^ 1 << 63) as i64)
}

/// The key of a fragment of a string.
pub(crate) fn fragment_key(id: u64, number: u32) -> TableKey {
    let mut key = section_key(id, Section::Fragments);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The number in the key of a fragment.
pub(crate) fn split_fragment_key(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(9..)?.try_into().ok()?))
}

/// The bytes of a score, which are in the order of scores. There is no NaN, and -0 is 0.
pub(crate) fn encode_score(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let ordered = if bits >> 63 == 0 { bits ^ 1 << 63 } else { !bits };
    ordered.to_be_bytes()
}

/// The score of these bytes.
pub(crate) fn decode_score(bytes: [u8; 8]) -> f64 {
    let ordered = u64::from_be_bytes(bytes);
    f64::from_bits(if ordered >> 63 == 1 { ordered ^ 1 << 63 } else { !ordered })
}

/// The key of a member of a sorted set in the order of scores, or of the block that begins there.
pub(crate) fn score_key(id: u64, section: Section, score: f64, name: &[u8]) -> TableKey {
    let mut key = section_key(id, section);
    key.extend_from_slice(&encode_score(score));
    key.extend_from_slice(name);
    key
}

/// The score and the name in such a key.
pub(crate) fn split_score_key(key: &[u8]) -> Option<(f64, &[u8])> {
    let (score, name) = key.get(9..)?.split_first_chunk()?;
    Some((decode_score(*score), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of `docs/format/redis.md`.
    #[test]
    fn keys_have_the_bytes_of_the_specification() {
        assert_eq!(member_key(7, 0, b"m")[..9], *b"\0\0\0\0\0\0\0\x07\x01");
        assert_eq!(split_member_key(&member_key(7, 5, b"m")), Some((hash_of(5, b"m"), &b"m"[..])));
        assert_eq!(fragment_key(7, 258)[..], *b"\0\0\0\0\0\0\0\x07\x05\0\0\x01\x02");
        assert_eq!(split_fragment_key(&fragment_key(7, 258)), Some(258));
        assert_eq!(element_key(7, 0)[..], *b"\0\0\0\0\0\0\0\x07\x04\x80\0\0\0\0\0\0\0");
        assert_eq!(score_key(7, Section::Scores, 1.5, b"m")[8..], *b"\x02\xBF\xF8\0\0\0\0\0\0m");
        assert_eq!(score_key(7, Section::Blocks, -1.5, b"")[8..], *b"\x03\x40\x07\xFF\xFF\xFF\xFF\xFF\xFF");
    }

    #[test]
    fn scores_and_positions_keep_their_order() {
        let scores =
            [f64::NEG_INFINITY, -1e300, -1.5, -f64::MIN_POSITIVE, 0.0, f64::MIN_POSITIVE, 1.0, f64::INFINITY];
        assert!(scores.map(encode_score).is_sorted());
        assert_eq!(scores.map(encode_score).map(decode_score), scores);
        assert_eq!(encode_score(-0.0), encode_score(0.0));
        let positions = [i64::MIN, -2, -1, 0, 1, i64::MAX];
        assert!(positions.map(|position| element_key(1, position)).is_sorted());
        assert_eq!(
            positions.map(|position| split_element_key(&element_key(1, position)).unwrap()),
            positions
        );
    }

    #[test]
    fn the_rows_of_a_collection_are_between_its_bounds() {
        for id in [0, 7, u64::MAX] {
            let rows =
                [member_key(id, 3, b"m"), element_key(id, -1), score_key(id, Section::Blocks, 1.0, b"")];
            for row in &rows {
                assert!(is_within(&content_bounds(id), row));
            }
            assert!(is_within(&section_bounds(id, Section::Members), &rows[0]));
            assert!(!is_within(&section_bounds(id, Section::Members), &rows[1]));
        }
        assert!(!is_within(&content_bounds(6), &member_key(7, 3, b"m")));
    }

    fn is_within(bounds: &Bounds, row: &TableKey) -> bool {
        use std::ops::RangeBounds;
        (bounds.0.as_ref(), bounds.1.as_ref()).contains(&row)
    }
}
