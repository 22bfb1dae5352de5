//! The shape of the graph, and its layout in tables.

use crate::workload::fields::{Field, concat};
use crate::workload::rows::Random;
use crate::workload::sealed::Seal;

/// Nodes; the key is the id.
pub(super) const NODES: usize = 0;
/// Links, hidden ones included; the key is the list and the id at the other end.
pub(super) const LINKS: usize = 1;
/// Visible links by time; the key is the list, the time with all bits inverted, so that the newest comes first, and the
/// id at the other end. The value has all else that a list of links shows.
pub(super) const BY_TIME: usize = 2;
/// How many links of a list are visible; the key is the list.
pub(super) const COUNTS: usize = 3;

/// The number of types of links.
pub(super) const LINK_TYPES: u32 = 2;
/// The most links of a loaded node, and of a list that is read.
pub(super) const LINKS_MAX: u64 = 10_000;
/// The first time after loading.
pub(super) const LOADED_TIME: u64 = LINKS_MAX + 1;

/// How fast nodes with more links become rarer: a node has at least k links with probability k^-1.3.
const DEGREE_EXPONENT: f64 = 1.3;
const NODE_TYPE: u32 = 2048;
const NODE_HEAD_BYTES: usize = 12;
pub(super) const NODE_DATA_BYTES: usize = 128;
pub(super) const NODE_KEY_BYTES: usize = 8;
pub(super) const NODE_VALUE_BYTES: usize = NODE_HEAD_BYTES + NODE_DATA_BYTES;

pub(super) const LIST_BYTES: usize = 12;
pub(super) const LINK_KEY_BYTES: usize = LIST_BYTES + 8;
pub(super) const LINK_VALUE_BYTES: usize = 21;
pub(super) const INDEX_KEY_BYTES: usize = LIST_BYTES + 16;
pub(super) const INDEX_VALUE_BYTES: usize = 12;
pub(super) const COUNT_VALUE_BYTES: usize = 24;

/// How many links of one type a node has when it is loaded; the first type has the odd one. They go to the node itself
/// and to those after it.
pub(super) fn loaded_links(list: List) -> u64 {
    let share = 1.0 - Random::new(!list.id1).unit();
    let all = (share.powf(-1.0 / DEGREE_EXPONENT) as u64).min(LINKS_MAX);
    let types = u64::from(LINK_TYPES);
    all / types + u64::from(u64::from(list.kind) < all % types)
}

/// How many links of both types a node has on the average: the sum over k of the share of nodes that have at least k.
pub(super) fn average_degree() -> f64 {
    (1..=LINKS_MAX).map(|least| (least as f64).powf(-DEGREE_EXPONENT)).sum()
}

/// The value of a node: its type, its time, and data from which its id and version can be read.
pub(super) fn write_node(value: &mut Vec<u8>, id: u64, version: u64, time: u64) {
    value.clear();
    value.extend_from_slice(&NODE_TYPE.to_be_bytes());
    value.extend_from_slice(&time.to_be_bytes());
    value.resize(NODE_VALUE_BYTES, 0);
    Seal { row: id, write: version }.write_over(&mut value[NODE_HEAD_BYTES..]);
}

/// The data of a node's value; none if it is too short.
pub(super) fn node_data(value: &[u8]) -> &[u8] {
    value.get(NODE_HEAD_BYTES..).unwrap_or_default()
}

/// The links of one type from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct List {
    pub id1: u64,
    pub kind: u32,
}

impl List {
    /// The key of its count, and the beginning of the keys of its links.
    pub fn key(self) -> [u8; LIST_BYTES] {
        concat([&self.id1.to_be_bytes(), &self.kind.to_be_bytes()])
    }

    pub fn of(key: &[u8]) -> Option<List> {
        let (id1, kind) = key.split_first_chunk()?;
        Some(List { id1: u64::from_be_bytes(*id1), kind: u32::from_be_bytes(kind.try_into().ok()?) })
    }

    pub fn link_key(self, id2: u64) -> [u8; LINK_KEY_BYTES] {
        concat([&self.key(), &id2.to_be_bytes()])
    }
}

/// A link from a node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub list: List,
    pub id2: u64,
    pub is_visible: bool,
    pub version: u32,
    pub time: u64,
}

impl Link {
    pub fn key(&self) -> [u8; LINK_KEY_BYTES] {
        self.list.link_key(self.id2)
    }

    pub fn value(&self) -> [u8; LINK_VALUE_BYTES] {
        let visible = [u8::from(self.is_visible)];
        concat([&visible, &self.version.to_le_bytes(), &self.time.to_le_bytes(), &self.data()])
    }

    /// `None` if the bytes are not those of a link as it was written.
    pub fn of(key: &[u8], value: &[u8]) -> Option<Link> {
        let (list, id2) = key.split_at_checked(LIST_BYTES)?;
        let mut rest = value;
        let link = Link {
            list: List::of(list)?,
            id2: u64::from_be_bytes(id2.try_into().ok()?),
            is_visible: u8::take(&mut rest)? == 1,
            version: u32::take(&mut rest)?,
            time: u64::take(&mut rest)?,
        };
        (rest == link.data()).then_some(link)
    }

    pub fn index_key(&self) -> [u8; INDEX_KEY_BYTES] {
        concat([&self.list.key(), &(!self.time).to_be_bytes(), &self.id2.to_be_bytes()])
    }

    pub fn index_value(&self) -> [u8; INDEX_VALUE_BYTES] {
        concat([&self.version.to_le_bytes(), &self.data()])
    }

    /// Its text, which is derived from the rest.
    fn data(&self) -> [u8; 8] {
        let ends = self.list.id1 ^ self.id2.rotate_left(32) ^ u64::from(self.list.kind).rotate_left(16);
        Random::new(ends ^ u64::from(self.version).rotate_left(48)).next().to_be_bytes()
    }
}

/// The count of a list of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub links: u64,
    pub version: u64,
    pub time: u64,
}

impl Count {
    pub fn value(&self) -> [u8; COUNT_VALUE_BYTES] {
        concat([&self.links.to_le_bytes(), &self.version.to_le_bytes(), &self.time.to_le_bytes()])
    }

    pub fn of(value: &[u8]) -> Option<Count> {
        let mut rest = value;
        let mut next = || u64::take(&mut rest);
        let count = Count { links: next()?, version: next()?, time: next()? };
        rest.is_empty().then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: List = List { id1: 7, kind: 1 };

    #[test]
    fn links_are_read_as_they_were_written() {
        let link = Link { list: LIST, id2: 9, is_visible: true, version: 3, time: 77 };
        assert_eq!(Link::of(&link.key(), &link.value()), Some(link));
        let hidden = Link { is_visible: false, ..link };
        assert_eq!(Link::of(&hidden.key(), &hidden.value()), Some(hidden));
        assert_eq!(
            Link::of(&Link { id2: 8, ..link }.key(), &link.value()),
            None,
            "the text is of another link"
        );
        assert_eq!(Link::of(&link.key(), &link.value()[..20]), None);
        assert_eq!(Link::of(&link.key()[..19], &link.value()), None);
        let count = Count { links: 1, version: 2, time: 3 };
        assert_eq!(Count::of(&count.value()), Some(count));
        assert_eq!(List::of(&LIST.key()), Some(LIST));
    }

    #[test]
    fn newer_links_come_first_in_their_list() {
        let link = |id1, time, id2| {
            Link { list: List { id1, kind: 0 }, id2, is_visible: true, version: 0, time }.index_key()
        };
        assert!([link(1, 500, 1), link(1, 499, 9), link(1, 0, 1), link(2, 900, 1)].is_sorted());
    }

    #[test]
    fn degrees_follow_a_power_law() {
        let degree = |id1| (0..LINK_TYPES).map(|kind| loaded_links(List { id1, kind })).sum::<u64>();
        let degrees: Vec<u64> = (0..100_000).map(degree).collect();
        for least in [1, 2, 10, 100] {
            let share = degrees.iter().filter(|degree| **degree >= least).count() as f64 / 1e5;
            let theory = (least as f64).powf(-DEGREE_EXPONENT);
            assert!((share / theory - 1.0).abs() < 0.15, "{share} instead of {theory} have {least} links");
        }
        assert!(degrees.iter().all(|degree| (1..=LINKS_MAX).contains(degree)));
    }
}
