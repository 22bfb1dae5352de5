//! `linkbench`: nodes and links of a social graph.

mod check;
mod client;
mod graph;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::client::LinkBenchClient;
use self::graph::{
    BY_TIME, COUNT_VALUE_BYTES, COUNTS, Count, INDEX_KEY_BYTES, INDEX_VALUE_BYTES, LINK_KEY_BYTES,
    LINK_TYPES, LINK_VALUE_BYTES, LINKS, LIST_BYTES, Link, List, NODE_KEY_BYTES, NODE_VALUE_BYTES, NODES,
    average_degree, loaded_links, write_node,
};
use super::choose::Zipfian;
use super::rows::{Random, fill};
use super::shuffle::Shuffle;
use super::{Client, Done, Filling, Shape, Workload};
use crate::Result;
use crate::engine::{Needs, Store, Transaction};

/// A social graph under the mix of operations of LinkBench (Armstrong, Ponnekanti, Borthakur and Callaghan, SIGMOD
/// 2013), as key-value transactions.
///
/// A node has an id, a type, a version, a time and 128 bytes of data. A link goes from a node (id1) to another (id2) and
/// has one of two types, a visibility, a version, a time and 8 bytes of data; the links of one type from a node are a
/// list. The tables are
///
/// * `nodes`: id to the rest of the node;
/// * `links`: list (id1 and type) and id2 to the rest of the link, hidden links included;
/// * `by_time`: list, time (latest first) and id2 to the rest that a list shows of a visible link;
/// * `counts`: list to the number of its visible links, a version and a time.
///
/// A loaded node has at least k links with probability k^-1.3, at most 10,000 and fewer than four on average; they go
/// to itself and the nodes after it. The operations, with the paper's shares in percent, are
///
/// * add link (8.99): reads the link, writes it and its entry by time, deletes the old entry, and adds one to the
///   count, if it was not visible; in 5 of 100 cases the link is a loaded one;
/// * delete link (2.99): hides the link, deletes its entry and subtracts one from the count, if it was visible (90 of
///   100 are loaded ones); update link (8.01): like add link, 90 of 100 are loaded ones;
/// * count links (4.89): reads the count of a list;
/// * multiget link (0.53): reads 2.6 links of a list on average, at most 128, in one transaction; half are loaded;
/// * get link list (50.72): reads the newest links of a list, at most 10,000;
/// * add node (2.57): writes a node with the next id; update node (7.36): reads a node and writes it with another
///   version; delete node (1.01): deletes a node; get node (12.93): reads one.
///
/// All writes of one operation are one transaction. The nodes of operations are loaded ones, with the popular ones
/// spread among them: Zipfian with 0.8 for reads of links, 0.741 for writes, 0.625 for reads of nodes, 0.606 for
/// updates; deleted nodes are drawn uniformly. As in LinkBench, deleting a node leaves its links, and a deleted node
/// may be read. Left out are the few reads of a list's older links and the slight preference for nodes with many links;
/// and data always has the median length.
#[derive(Clone, Debug)]
pub struct LinkBench {
    nodes: u64,
    popular: [Zipfian; 4],
    shuffle: Shuffle,
    /// The id of the next node that is added.
    next_node: Arc<AtomicU64>,
}

/// The operations with which a node is popular: an index into [`LinkBench::popular`].
#[derive(Clone, Copy)]
enum Popularity {
    LinkReads,
    LinkWrites,
    NodeReads,
    NodeUpdates,
}

/// Of [`Popularity`], in its order.
const SKEWS: [f64; 4] = [0.8, 0.741, 0.625, 0.606];

/// An operation: an index into [`MIX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    AddLink,
    DeleteLink,
    UpdateLink,
    CountLinks,
    MultigetLink,
    GetLinkList,
    AddNode,
    UpdateNode,
    DeleteNode,
    GetNode,
}

/// The operations, their names, and how many of ten thousand are of each.
const MIX: [(Operation, &str, u64); 10] = [
    (Operation::AddLink, "add-link", 899),
    (Operation::DeleteLink, "delete-link", 299),
    (Operation::UpdateLink, "update-link", 801),
    (Operation::CountLinks, "count-links", 489),
    (Operation::MultigetLink, "multiget-link", 53),
    (Operation::GetLinkList, "get-link-list", 5072),
    (Operation::AddNode, "add-node", 257),
    (Operation::UpdateNode, "update-node", 736),
    (Operation::DeleteNode, "delete-node", 101),
    (Operation::GetNode, "get-node", 1293),
];

const KINDS: [&str; MIX.len()] = {
    let mut kinds = [""; MIX.len()];
    let mut index = 0;
    while index < kinds.len() {
        kinds[index] = MIX[index].1;
        index += 1;
    }
    kinds
};

impl Operation {
    fn drawn(random: &mut Random) -> Operation {
        let mut rest = random.below(10_000);
        for (operation, _, share) in MIX {
            match rest.checked_sub(share) {
                Some(left) => rest = left,
                None => return operation,
            }
        }
        unreachable!("the shares are ten thousand")
    }
}

const NODE_BYTES: u64 = (NODE_KEY_BYTES + NODE_VALUE_BYTES) as u64;
/// In `links` and `by_time`.
const LINK_BYTES: u64 = (LINK_KEY_BYTES + LINK_VALUE_BYTES + INDEX_KEY_BYTES + INDEX_VALUE_BYTES) as u64;
const COUNT_BYTES: u64 = (LIST_BYTES + COUNT_VALUE_BYTES) as u64;

impl LinkBench {
    /// With `nodes` loaded nodes, at least one; about half a kilobyte each with its links.
    pub fn new(nodes: u64) -> LinkBench {
        LinkBench {
            nodes,
            popular: SKEWS.map(|skew| Zipfian::new(nodes, skew)),
            shuffle: Shuffle::new(nodes),
            next_node: Arc::new(AtomicU64::new(nodes)),
        }
    }

    /// About how many links are loaded: the average of this many nodes.
    fn links(&self) -> u64 {
        (self.nodes as f64 * average_degree()) as u64
    }

    fn node(&self, popularity: Popularity, random: &mut Random) -> u64 {
        self.shuffle.item_at(self.popular[popularity as usize].next(random))
    }

    /// How many nodes were added, and how many deleted, some of them perhaps twice.
    fn nodes_changed(done: &Done) -> (u64, u64) {
        (done.kinds[Operation::AddNode as usize], done.kinds[Operation::DeleteNode as usize])
    }
}

/// The lists of a node.
fn lists(id1: u64) -> impl Iterator<Item = List> {
    (0..LINK_TYPES).map(move |kind| List { id1, kind })
}

impl Workload for LinkBench {
    fn shape(&self) -> Shape {
        let written = MIX.map(|(operation, _, share)| match operation {
            Operation::AddLink | Operation::DeleteLink | Operation::UpdateLink => {
                share * (LINK_BYTES + COUNT_BYTES)
            }
            Operation::AddNode | Operation::UpdateNode => share * NODE_BYTES,
            _ => 0,
        });
        Shape {
            name: "linkbench".into(),
            about: format!("{} nodes, about {} links, {LINK_TYPES} types of links", self.nodes, self.links()),
            tables: &["nodes", "links", "by_time", "counts"],
            needs: Needs { transactions: true, ..Needs::default() },
            kinds: &KINDS,
            loaded_bytes: self.nodes * (NODE_BYTES + u64::from(LINK_TYPES) * COUNT_BYTES)
                + self.links() * LINK_BYTES,
            bytes_per_operation: written.iter().sum::<u64>() / 10_000,
            ..Shape::default()
        }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        self.next_node.store(self.nodes, Ordering::Relaxed);
        let mut value = Vec::new();
        let bytes = self.shape().loaded_bytes / self.nodes;
        fill(store, 0..self.nodes, bytes, filling, |id, open| load_node(open, id, &mut value))
    }

    fn client(&self, thread: u32, threads: u32) -> Client {
        let mut client = LinkBenchClient::new(self.clone(), thread, threads);
        Box::new(move |session| client.step(session))
    }

    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        check::check(self, store, done)
    }

    /// How many links are there depends on the chosen nodes.
    fn live_bytes(&self, _: &Done) -> Option<u64> {
        None
    }
}

/// Puts a node, its links with the newest last, and their counts.
fn load_node(open: &mut dyn Transaction, id: u64, value: &mut Vec<u8>) -> Result<()> {
    write_node(value, id, 0, 0);
    open.put(NODES, &id.to_be_bytes(), value)?;
    for list in lists(id) {
        let links = loaded_links(list);
        for time in 0..links {
            let link = Link { list, id2: id + time, is_visible: true, version: 0, time };
            open.put(LINKS, &link.key(), &link.value())?;
            open.put(BY_TIME, &link.index_key(), &link.index_value())?;
        }
        open.put(COUNTS, &list.key(), &Count { links, version: 0, time: links }.value())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Range;
    use crate::testing::Bed;

    fn links_of(nodes: u64) -> u64 {
        (0..nodes).flat_map(lists).map(loaded_links).sum()
    }

    #[test]
    fn the_number_of_links_is_about_the_stated_one() {
        let (said, loaded) = (LinkBench::new(200_000).links() as f64, links_of(200_000) as f64);
        assert!((said / loaded - 1.0).abs() < 0.1, "{said} instead of {loaded}");
    }

    #[test]
    fn the_graph_stays_whole() {
        for threads in [1, 4] {
            let (bed, done) = Bed::checked(LinkBench::new(200), threads, 2000);
            assert_eq!(done.operations(), 2000 * u64::from(threads));
            let links = bed.rows(LINKS).len() as u64;
            assert!(links > links_of(200), "links were added");
            assert!((bed.rows(BY_TIME).len() as u64) < links, "links were hidden");
        }
    }

    #[test]
    fn operations_are_as_frequent_as_in_the_paper() {
        assert_eq!(MIX.iter().map(|(_, _, share)| share).sum::<u64>(), 10_000);
        assert!((0..).zip(MIX).all(|(index, (operation, ..))| operation as usize == index));
        let mut random = Random::new(1);
        let mut drawn = [0u64; 10];
        for _ in 0..100_000 {
            drawn[Operation::drawn(&mut random) as usize] += 1;
        }
        for ((operation, _, share), drawn) in MIX.into_iter().zip(drawn) {
            let expected = share * 10;
            let slack = 4 * expected.isqrt();
            assert!(drawn.abs_diff(expected) < slack, "{drawn} of {operation:?} instead of {expected}");
        }
    }

    #[test]
    fn a_loaded_graph_is_whole_and_as_large_as_it_says() {
        let bed = Bed::new(LinkBench::new(300));
        bed.check(None).expect("a whole graph");
        let rows = [NODES, LINKS, BY_TIME, COUNTS].map(|table| bed.rows(table).len() as u64);
        assert_eq!(rows, [300, links_of(300), links_of(300), 600]);
    }

    #[test]
    fn a_damaged_graph_is_noticed() {
        let (bed, done) = Bed::checked(LinkBench::new(50), 1, 300);
        let list = List { id1: 10, kind: 0 };
        let link = Link { list, id2: 9, is_visible: true, version: 5, time: 3 };
        let fails = |why: &str| assert!(bed.check(None).is_err(), "{why}");

        bed.tamper(|open| open.put(LINKS, &link.key(), &link.value()));
        fails("a visible link that is not in the index");
        bed.tamper(|open| open.put(BY_TIME, &link.index_key(), &link.index_value()));
        fails("a link that is not in the count");
        bed.tamper(|open| open.delete(COUNTS, &list.key()));
        fails("no count");

        let hidden = Link { is_visible: false, ..link };
        bed.tamper(|open| {
            let mut links = 0;
            open.put(LINKS, &hidden.key(), &hidden.value())?;
            open.delete(BY_TIME, &link.index_key())?;
            open.scan(Range::forward(BY_TIME, Some(&list.key())), &mut |key, _| {
                let is_of_list = key.starts_with(&list.key());
                links += u64::from(is_of_list);
                Ok(is_of_list)
            })?;
            open.put(COUNTS, &list.key(), &Count { links, version: 0, time: 0 }.value())
        });
        bed.check(Some(&done)).expect("all is well again");

        bed.tamper(|open| open.put(NODES, &60_000u64.to_be_bytes(), b"text"));
        fails("no node");
        bed.tamper(|open| {
            open.delete(NODES, &60_000u64.to_be_bytes())?;
            (0..50u64).try_for_each(|id| open.delete(NODES, &id.to_be_bytes()))
        });
        bed.check(None).expect("the number of deletes is unknown");
        assert!(bed.check(Some(&done)).is_err(), "too few nodes");
    }
}
