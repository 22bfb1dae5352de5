//! The ten operations.

use std::sync::atomic::Ordering;

use super::graph::{
    BY_TIME, COUNTS, Count, LINK_TYPES, LINKS, LINKS_MAX, LIST_BYTES, LOADED_TIME, Link, List, NODES,
    loaded_links, node_data, write_node,
};
use super::{LinkBench, Operation, Popularity};
use crate::engine::{Range, Transaction, Verdict};
use crate::retrying_session::RetryingSession;
use crate::workload::Step;
use crate::workload::rows::Random;
use crate::workload::sealed::{Seal, expect_row};
use crate::{Error, Result};

/// The share of operations whose link was loaded, in percent.
const ADDED_EXISTS: u64 = 5;
const UPDATED_EXISTS: u64 = 90;
const DELETED_EXISTS: u64 = 90;
const GOT_EXISTS: u64 = 50;
/// The chance that a multiget ends with its current link, and the most links that it gets.
const MULTIGET_ENDS: f64 = 0.382;
const MULTIGET_LINKS_MAX: u64 = 128;

pub(super) struct LinkBenchClient {
    workload: LinkBench,
    random: Random,
    /// The time of the next write; each write advances it by `step`.
    time: u64,
    step: u64,
    value: Vec<u8>,
}

impl LinkBenchClient {
    pub fn new(workload: LinkBench, thread: u32, threads: u32) -> LinkBenchClient {
        LinkBenchClient {
            workload,
            random: Random::new(u64::from(thread) << 32),
            time: LOADED_TIME + u64::from(thread),
            step: threads.into(),
            value: Vec::new(),
        }
    }

    pub fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        self.time += self.step;
        let operation = Operation::drawn(&mut self.random);
        match operation {
            Operation::AddLink => self.put_link(session, ADDED_EXISTS)?,
            Operation::DeleteLink => self.delete_link(session)?,
            Operation::UpdateLink => self.put_link(session, UPDATED_EXISTS)?,
            Operation::CountLinks => self.count_links(session)?,
            Operation::MultigetLink => self.multiget_link(session)?,
            Operation::GetLinkList => self.get_link_list(session)?,
            Operation::AddNode => self.add_node(session)?,
            Operation::UpdateNode => self.update_node(session)?,
            Operation::DeleteNode => self.delete_node(session)?,
            Operation::GetNode => self.get_node(session)?,
        }
        Ok(Step::Done(operation as usize))
    }
}

/// Of links.
impl LinkBenchClient {
    fn list(&mut self, popularity: Popularity) -> List {
        let id1 = self.workload.node(popularity, &mut self.random);
        List { id1, kind: self.random.below(LINK_TYPES.into()) as u32 }
    }

    /// The other end of a link, which is a loaded one in `exists_percent` of a hundred cases.
    fn other_end(&mut self, list: List, exists_percent: u64) -> u64 {
        list.id1 + self.random.below(ends(list, exists_percent))
    }

    fn put_link(&mut self, session: &mut RetryingSession<'_>, exists_percent: u64) -> Result<()> {
        let list = self.list(Popularity::LinkWrites);
        let id2 = self.other_end(list, exists_percent);
        let time = self.time;
        session.write(|open| {
            let before = self.read_link(open, list, id2)?;
            let version = before.map_or(0, |link| link.version + 1);
            let link = Link { list, id2, is_visible: true, version, time };
            match before.filter(|link| link.is_visible) {
                Some(before) => open.delete(BY_TIME, &before.index_key())?,
                None => self.change_count(open, list, 1)?,
            }
            open.put(LINKS, &link.key(), &link.value())?;
            open.put(BY_TIME, &link.index_key(), &link.index_value())?;
            Ok(Verdict::Commit)
        })?;
        Ok(())
    }

    /// A deleted link stays, hidden.
    fn delete_link(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let list = self.list(Popularity::LinkWrites);
        let id2 = self.other_end(list, DELETED_EXISTS);
        session.write(|open| {
            if let Some(before) = self.read_link(open, list, id2)?.filter(|link| link.is_visible) {
                let hidden = Link { is_visible: false, version: before.version + 1, ..before };
                open.delete(BY_TIME, &before.index_key())?;
                open.put(LINKS, &hidden.key(), &hidden.value())?;
                self.change_count(open, list, -1)?;
            }
            Ok(Verdict::Commit)
        })?;
        Ok(())
    }

    fn read_link(&mut self, open: &mut dyn Transaction, list: List, id2: u64) -> Result<Option<Link>> {
        let key = list.link_key(id2);
        if !open.get_for_update(LINKS, &key, &mut self.value)? {
            return Ok(None);
        }
        Link::of(&key, &self.value).map(Some).ok_or_else(|| broken("link", &key))
    }

    fn change_count(&mut self, open: &mut dyn Transaction, list: List, by: i64) -> Result<()> {
        let key = list.key();
        let before = match open.get_for_update(COUNTS, &key, &mut self.value)? {
            true => Count::of(&self.value).ok_or_else(|| broken("count", &key))?,
            false => Count::default(),
        };
        let links = before.links.checked_add_signed(by).ok_or_else(|| broken("count", &key))?;
        let after = Count { links, version: before.version + 1, time: self.time };
        open.put(COUNTS, &key, &after.value())
    }

    fn count_links(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let key = self.list(Popularity::LinkReads).key();
        match session.get(COUNTS, &key, &mut self.value)? && Count::of(&self.value).is_none() {
            true => Err(broken("count", &key)),
            false => Ok(()),
        }
    }

    fn multiget_link(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let list = self.list(Popularity::LinkReads);
        let mut links = 1;
        while links < MULTIGET_LINKS_MAX && self.random.unit() >= MULTIGET_ENDS {
            links += 1;
        }
        let ends = ends(list, GOT_EXISTS).max(links);
        let first = self.random.below(ends);
        session.read(|open| {
            for id2 in (0..links).map(|link| list.id1 + (first + link) % ends) {
                let key = list.link_key(id2);
                if open.get(LINKS, &key, &mut self.value)? && Link::of(&key, &self.value).is_none() {
                    return Err(broken("link", &key));
                }
            }
            Ok(())
        })
    }

    fn get_link_list(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let list = self.list(Popularity::LinkReads).key();
        session.read(|open| {
            let mut links = 0;
            open.scan(Range::forward(BY_TIME, Some(&list)), &mut |key, _| {
                links += 1;
                Ok(key[..LIST_BYTES] == list && links < LINKS_MAX)
            })
        })
    }
}

/// The number of nodes, from the list's own on, from which its other ends are drawn, so that `exists_percent` of a
/// hundred are loaded ones.
fn ends(list: List, exists_percent: u64) -> u64 {
    (loaded_links(list) * 100).div_ceil(exists_percent).max(1)
}

/// Of nodes.
impl LinkBenchClient {
    fn add_node(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let id = self.workload.next_node.fetch_add(1, Ordering::Relaxed);
        write_node(&mut self.value, id, 0, self.time);
        session.write(|open| open.put(NODES, &id.to_be_bytes(), &self.value).map(|()| Verdict::Commit))?;
        Ok(())
    }

    /// The node may have been deleted; then nothing is written.
    fn update_node(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let id = self.workload.node(Popularity::NodeUpdates, &mut self.random);
        let key = id.to_be_bytes();
        session.write(|open| {
            if open.get_for_update(NODES, &key, &mut self.value)? {
                let seal = Seal::of(node_data(&self.value)).filter(|seal| seal.row == id);
                let version = seal.ok_or_else(|| broken("node", &key))?.write + 1;
                write_node(&mut self.value, id, version, self.time);
                open.put(NODES, &key, &self.value)?;
            }
            Ok(Verdict::Commit)
        })?;
        Ok(())
    }

    fn delete_node(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let id = self.random.below(self.workload.nodes);
        session.write(|open| open.delete(NODES, &id.to_be_bytes()).map(|()| Verdict::Commit))?;
        Ok(())
    }

    fn get_node(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let id = self.workload.node(Popularity::NodeReads, &mut self.random);
        let key = id.to_be_bytes();
        match session.get(NODES, &key, &mut self.value)? {
            true => expect_row(true, &key, node_data(&self.value), id),
            false => Ok(()),
        }
    }
}

fn broken(what: &str, key: &[u8]) -> Error {
    Error::engine("reading", format!("the {what} {} is not as it was written", key.escape_ascii()))
}
