//! A base for tests: a sorted map under a lock. Its cursor reads a few entries at a time, like one over leaves, so its
//! entries may be older than the map's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fulgurite_types::sync::RwLock;
use fulgurite_types::{Csn, KeySpan, Lsn, key_after};

use crate::base::*;
use crate::pass::{WriteOut, WriteOutReport};
use crate::version::{OutOfLine, Pinned, Version, VersionRef};

type Map = BTreeMap<Vec<u8>, Vec<Version>>;

#[derive(Clone, Default)]
pub(super) struct MapBase(Arc<RwLock<Map>>);

fn newest(versions: &[Version], at: Csn) -> Option<&Version> {
    versions.iter().find(|version| version.csn <= at)
}

fn prune(key: &[u8], versions: &mut Vec<Version>, rules: &PruneRules) {
    let mut newer = None;
    versions.retain(|version| {
        // The lowest reader that may still see the version: a snapshot, or the horizon.
        let mut readers = rules.snapshots.iter().copied().filter(|&snapshot| snapshot >= version.csn);
        let seen_at = readers.next().unwrap_or(Csn::MAX).min(rules.horizon);
        let successor = newer.replace(version.csn).is_some_and(|csn| csn <= seen_at);
        !successor && rules.range_deletes.covering(key, seen_at).is_none_or(|csn| csn <= version.csn)
    });
    if let [only] = &versions[..]
        && only.flags.is_tombstone()
        && only.csn <= rules.horizon
    {
        versions.clear();
    }
}

impl Base for MapBase {
    type Cursor = MapCursor;

    fn get(&self, key: &[u8], at: Csn, _io: Io) -> Result<Option<Version>, IndexError> {
        Ok(self.0.read().get(key).and_then(|versions| newest(versions, at)).cloned())
    }

    fn newest_csn(&self, key: &[u8], io: Io) -> Result<Option<Csn>, IndexError> {
        Ok(self.get(key, Csn::MAX, io)?.map(|version| version.csn))
    }

    fn any_newer_in_range(&self, range: KeySpan<&[u8]>, than: Csn, _io: Io) -> Result<bool, IndexError> {
        Ok(self.0.read().range::<[u8], _>(range).any(|(_, versions)| versions[0].csn > than))
    }

    fn cursor(&self, at: Csn) -> MapCursor {
        MapCursor { map: self.0.clone(), at, leaf: VecDeque::new(), forward: true, limits: None }
    }

    /// A step ends after about `bytes_max` bytes of keys.
    fn merge_some(
        &self,
        batch: &mut dyn MergeSource,
        rules: &PruneRules,
        bytes_max: usize,
    ) -> Result<(), IndexError> {
        let mut left = bytes_max;
        while left > 0
            && let Some(key) = batch.peek_key().map(<[u8]>::to_vec)
        {
            left = left.saturating_sub(key.len().max(1));
            let mut versions = Vec::new();
            batch.take_versions(&mut versions);
            let mut map = self.0.write();
            let stored = map.entry(key.clone()).or_default();
            for version in versions {
                if stored.iter().all(|present| present.csn != version.csn) {
                    stored.push(Version {
                        csn: version.csn,
                        flags: version.flags,
                        expires_at_ms: version.expires_at_ms,
                        payload: Pinned::from_vec(version.payload.into_owned()),
                    });
                }
            }
            stored.sort_by_key(|version| std::cmp::Reverse(version.csn));
            prune(&key, stored, rules);
            if stored.is_empty() {
                map.remove(&key);
            }
        }
        Ok(())
    }

    fn purge_some(
        &self,
        range: KeySpan<&[u8]>,
        rules: &PruneRules,
        _bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, IndexError> {
        let mut map = self.0.write();
        map.range_mut::<[u8], _>(range).for_each(|(key, versions)| prune(key, versions, rules));
        map.retain(|_, versions| !versions.is_empty());
        Ok(None)
    }

    fn finish_write_out(&self, _: WriteOut) -> Result<WriteOutReport, IndexError> {
        Ok(WriteOutReport::default())
    }

    fn dirty_bytes(&self) -> u64 {
        0
    }

    fn evict(&self, _resident_bytes_max: usize) -> usize {
        0
    }

    fn find_extent(&self, _key: &[u8], _lsn: Lsn) -> Result<Option<(Csn, OutOfLine)>, IndexError> {
        Ok(None)
    }

    fn relocate(&self, _key: &[u8], _csn: Csn, _from: Lsn, _to: Lsn) -> Result<bool, IndexError> {
        Ok(false)
    }

    fn len_estimate(&self) -> u64 {
        self.0.read().len() as u64
    }
}

const LEAF_ENTRIES: usize = 3;

pub(super) struct MapCursor {
    map: Arc<RwLock<Map>>,
    at: Csn,
    leaf: VecDeque<(Vec<u8>, Version)>,
    forward: bool,
    limits: Option<Arc<KeySpan>>,
}

impl MapCursor {
    /// Reads the first entries of a range or, backward, the last ones.
    fn load(&mut self, range: KeySpan<&[u8]>, forward: bool) {
        let map = self.map.read();
        let visible = |(key, versions): (&Vec<u8>, &Vec<Version>)| {
            newest(versions, self.at).map(|version| (key.clone(), version.clone()))
        };
        self.forward = forward;
        let mut range = range;
        if let Some(limits) = self.limits.as_deref().map(KeySpan::borrowed) {
            let (start, end) = if forward { (&[][..], limits.end) } else { (limits.start, None) };
            range = range.intersection(KeySpan::new(start, end));
            if range.is_empty() {
                self.leaf = VecDeque::new();
                return;
            }
        }
        self.leaf = if forward {
            map.range::<[u8], _>(range).filter_map(visible).take(LEAF_ENTRIES).collect()
        } else {
            map.range::<[u8], _>(range).rev().filter_map(visible).take(LEAF_ENTRIES).collect()
        };
    }

    fn step(&mut self, forward: bool) {
        let Some((key, _)) = self.leaf.front().cloned() else { return };
        if forward == self.forward && self.leaf.len() > 1 {
            self.leaf.pop_front();
        } else {
            let next = key_after(&key);
            self.load(if forward { KeySpan::from(&next) } else { KeySpan::before(&key) }, forward);
        }
    }
}

impl BaseCursor for MapCursor {
    fn set_limits(&mut self, limits: Arc<KeySpan>) {
        self.limits = Some(limits);
    }

    fn seek(&mut self, start: &[u8]) -> Result<(), IndexError> {
        self.load(KeySpan::from(start), true);
        Ok(())
    }

    fn seek_back(&mut self, end: Option<&[u8]>) -> Result<(), IndexError> {
        self.load(KeySpan::new(&[], end), false);
        Ok(())
    }

    fn next(&mut self) -> Result<(), IndexError> {
        self.step(true);
        Ok(())
    }

    fn prev(&mut self) -> Result<(), IndexError> {
        self.step(false);
        Ok(())
    }

    fn key(&self) -> Option<&[u8]> {
        self.leaf.front().map(|(key, _)| key.as_slice())
    }

    fn pinned_key(&self) -> Pinned {
        Pinned::from_vec(self.leaf[0].0.clone())
    }

    fn version(&self) -> VersionRef<'_> {
        self.leaf[0].1.borrowed()
    }

    fn pinned_payload(&self) -> Pinned {
        self.leaf[0].1.payload.clone()
    }
}
