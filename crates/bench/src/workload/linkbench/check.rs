//! Checks that a graph is consistent.

use std::collections::BTreeMap;

use super::LinkBench;
use super::graph::{BY_TIME, COUNTS, Count, LINKS, Link, List, NODES, node_data};
use crate::engine::Store;
use crate::workload::sealed::Seal;
use crate::workload::{Done, read_all};
use crate::{Error, Result};

/// The links that are visible.
#[derive(Default)]
struct Visible {
    /// How many each list has.
    of_list: BTreeMap<List, u64>,
    entries: Entries,
}

/// Some entries of an index, in any order: how many, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entries {
    number: u64,
    sum: u64,
}

impl Entries {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = key.iter().chain(value).fold(0xcbf2_9ce4_8422_2325, step);
        self.number += 1;
        self.sum = self.sum.wrapping_add(hash);
    }
}

fn wrong(what: &str, key: &[u8]) -> Error {
    Error::Wrong(format!("the {what} {} is not as it was written", key.escape_ascii()))
}

/// All nodes and links are as they were written; the index has exactly the visible links; the count of each list is
/// that of its visible links.
pub(super) fn check(workload: &LinkBench, store: &dyn Store, done: Option<&Done>) -> Result<()> {
    check_nodes(workload, store, done)?;
    let visible = visible_links(store)?;
    let mut entries = Entries::default();
    read_all(store, BY_TIME, |key, value| {
        entries.add(key, value);
        Ok(())
    })?;
    if entries != visible.entries {
        return Err(Error::Wrong(format!(
            "the index `by_time` holds {} entries, which are not those of the {} visible links",
            entries.number, visible.entries.number
        )));
    }
    check_counts(store, visible.of_list)
}

/// Each node is as it was written. They are as many as were loaded and added, less the deleted ones; some of those may
/// have been deleted before.
fn check_nodes(workload: &LinkBench, store: &dyn Store, done: Option<&Done>) -> Result<()> {
    let mut nodes = 0;
    read_all(store, NODES, |key, value| {
        nodes += 1;
        match Seal::of(node_data(value)) {
            Some(seal) if key == seal.row.to_be_bytes() => Ok(()),
            _ => Err(wrong("node", key)),
        }
    })?;
    let Some((added, deleted)) = done.map(LinkBench::nodes_changed) else { return Ok(()) };
    let most = workload.nodes + added;
    let least = most.saturating_sub(deleted);
    match (least..=most).contains(&nodes) {
        true => Ok(()),
        false => Err(Error::Wrong(format!("there are {nodes} nodes instead of {least} to {most}"))),
    }
}

fn visible_links(store: &dyn Store) -> Result<Visible> {
    let mut visible = Visible::default();
    read_all(store, LINKS, |key, value| {
        let link = Link::of(key, value).ok_or_else(|| wrong("link", key))?;
        if link.is_visible {
            *visible.of_list.entry(link.list).or_default() += 1;
            visible.entries.add(&link.index_key(), &link.index_value());
        }
        Ok(())
    })?;
    Ok(visible)
}

fn check_counts(store: &dyn Store, mut links: BTreeMap<List, u64>) -> Result<()> {
    read_all(store, COUNTS, |key, value| {
        let (Some(list), Some(count)) = (List::of(key), Count::of(value)) else {
            return Err(wrong("count", key));
        };
        match links.remove(&list).unwrap_or(0) {
            links if links == count.links => Ok(()),
            links => Err(Error::Wrong(format!(
                "{list:?} has {links} visible links and a count of {}",
                count.links
            ))),
        }
    })?;
    match links.pop_first() {
        Some((list, links)) => Err(Error::Wrong(format!("{list:?} has {links} visible links and no count"))),
        None => Ok(()),
    }
}
