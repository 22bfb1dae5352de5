//! One file: the state that reads see, the state of the medium, and those between.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::content::{self, Content, SECTOR, Sector};
use super::fate::{Fate, Seq};
use super::memory::Memory;

/// How far a complete write got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The kernel has to write it back.
    PageCache,
    /// It is in the device, whose cache may be volatile.
    Device,
}

/// A complete, unsynced state of a sector.
#[derive(Clone)]
struct Version {
    seq: Seq,
    bytes: Sector,
    reach: Reach,
}

/// How many of the versions a crash cannot lose while the device keeps its cache: all up to the last one in the device.
fn in_device(versions: &[Version]) -> usize {
    versions.iter().rposition(|version| version.reach == Reach::Device).map_or(0, |last| last + 1)
}

/// Selects the versions up to a moment.
fn up_to(cutoff: Seq) -> impl Fn(&[Version]) -> usize {
    move |versions| versions.partition_point(|version| version.seq <= cutoff)
}

/// Which version is on the medium after a crash or a failed sync: 0 for the durable one, `i` for the i-th of the list.
fn pick(versions: &[Version], fate: &mut Fate, device_stays: bool) -> usize {
    let floor = if device_stays { in_device(versions) } else { 0 };
    floor + fate.pick(versions[floor..].iter().map(|version| version.seq))
}

/// A file of the simulated disk.
///
/// A sector without pending versions is clean: the kernel will not write it again. That is so after a sync, and also
/// after a failed sync, when `cache` and `durable` may differ permanently.
#[derive(Clone, Default)]
pub(super) struct Inode {
    cache: Content,
    cache_len: u64,
    durable: Content,
    durable_len: u64,
    /// For each sector the versions, ascending; a power cut may leave any of them instead of the durable one.
    pending: Arc<BTreeMap<u64, Vec<Version>>>,
    pending_lens: Vec<(Seq, u64)>,
    /// Where the hole at the end begins, if there is one, and where it does after a crash: a file system takes space for
    /// what is written into a hole when it writes that back.
    hole_from: Option<u64>,
    durable_hole_from: Option<u64>,
    /// Its content, if it is mapped; nothing above but the length counts then.
    memory: Option<Memory>,
    /// How many handles are open.
    pub(super) open: u32,
    /// Whether the cached directories name it.
    pub(super) linked: bool,
}

impl Inode {
    /// A file that is durable as a whole.
    pub(super) fn durable(content: Content, len: u64) -> Inode {
        let (cache, cache_len) = (content.clone(), len);
        Inode { cache, cache_len, durable: content, durable_len: len, linked: true, ..Inode::default() }
    }

    /// A mapped file.
    pub(super) fn of_memory(memory: Memory) -> Inode {
        let mut inode = Inode { linked: true, ..Inode::default() };
        inode.map(memory);
        inode
    }

    /// The file is mapped.
    pub(super) fn map(&mut self, memory: Memory) {
        self.cache_len = memory.words.len() as u64;
        self.memory = Some(memory);
    }

    pub(super) fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    pub(super) fn memory_mut(&mut self) -> Option<&mut Memory> {
        self.memory.as_mut()
    }

    pub(super) fn len(&self) -> u64 {
        self.cache_len
    }

    /// How far the file takes space: to the hole at its end.
    pub(super) fn allocated(&self) -> u64 {
        self.hole_from.map_or(self.cache_len, |from| from.min(self.cache_len))
    }

    /// Makes everything from `offset` on a hole. That it takes no space is durable at once.
    pub(super) fn punch_hole_from(&mut self, offset: u64, seq: Seq) {
        if offset < self.cache_len {
            self.clear_from(offset, seq);
            self.hole_from = Some(offset.min(self.allocated()));
            self.durable_hole_from = self.hole_from;
        }
    }

    /// Takes the space of the first `bytes`, and extends the file to them; the hole at its end becomes shorter.
    pub(super) fn allocate(&mut self, bytes: u64, seq: Seq) {
        if bytes > self.cache_len {
            self.note_len(bytes, seq);
        }
        self.note_allocated(bytes);
    }

    /// A write, or a shorter length, moves the hole. What a write leaves between counts as taken.
    fn note_allocated(&mut self, end: u64) {
        self.hole_from = self.hole_from.map(|from| from.max(end)).filter(|from| *from < self.cache_len);
    }

    /// Reads what the process sees.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let count = self.readable(buf.len(), offset);
        match &self.memory {
            Some(memory) => buf[..count].copy_from_slice(&memory.bytes()[offset as usize..][..count]),
            None => self.cache.read(&mut buf[..count], offset),
        }
        count
    }

    /// Reads around the cache. Such a read writes dirty pages back first (to the device, not durably), so only clean
    /// sectors show the durable state.
    pub(super) fn read_direct(&self, buf: &mut [u8], offset: u64) -> usize {
        if self.memory.is_some() {
            return self.read(buf, offset);
        }
        let count = self.readable(buf.len(), offset);
        self.durable.read(&mut buf[..count], offset);
        let end = offset + count as u64;
        for (sector, versions) in self.pending.range(content::sectors(offset, count as u64)) {
            let Some(version) = versions.last() else { continue };
            let start = (sector * SECTOR).max(offset);
            let stop = ((sector + 1) * SECTOR).min(end);
            let target = &mut buf[(start - offset) as usize..(stop - offset) as usize];
            let inside = (start % SECTOR) as usize..(start % SECTOR) as usize + target.len();
            match &version.bytes {
                Some(bytes) => target.copy_from_slice(&bytes[inside]),
                None => target.fill(0),
            }
        }
        count
    }

    fn readable(&self, wanted: usize, offset: u64) -> usize {
        let rest = self.cache_len.saturating_sub(offset);
        usize::try_from(rest).map_or(wanted, |rest| rest.min(wanted))
    }

    /// A complete write. A write into the device takes along, sector by sector, older dirty data. It counts as being in
    /// the device up to the shortest length that a crash may leave.
    pub(super) fn write(&mut self, data: &[u8], offset: u64, seq: Seq, reach: Reach) {
        self.cache.write(data, offset);
        let sectors = content::sectors(offset, data.len() as u64);
        self.note_range(sectors.clone(), seq);
        if reach == Reach::Device {
            let len_min = self.pending_lens.iter().map(|(_, len)| *len).fold(self.durable_len, u64::min);
            self.note_in_device(sectors.start..sectors.end.min(len_min / SECTOR));
        }
        let end = offset + data.len() as u64;
        if end > self.cache_len {
            self.note_len(end, seq);
        }
        self.note_allocated(end);
    }

    /// A complete change of the length.
    pub(super) fn set_len(&mut self, len: u64, seq: Seq) {
        if len < self.cache_len {
            self.clear_from(len, seq);
        }
        if len != self.cache_len {
            self.note_len(len, seq);
        }
        self.note_allocated(0);
    }

    /// Zeros the content after a length, so that no sync of a later extension brings it back.
    fn clear_from(&mut self, len: u64, seq: Seq) {
        let mut pages: Vec<u64> = self.cache.pages_from(len).collect();
        pages.extend(self.durable.pages_from(len));
        self.cache.clear_from(len);
        for page in pages {
            self.note_range(content::sectors_of_page(page), seq);
        }
    }

    fn note_len(&mut self, len: u64, seq: Seq) {
        self.cache_len = len;
        self.pending_lens.push((seq, len));
    }

    /// Keeps the sectors' new states as pending versions.
    fn note_range(&mut self, sectors: Range<u64>, seq: Seq) {
        let mut sector = sectors.start;
        while sector < sectors.end {
            let page = content::page_of_sector(sector);
            let end = content::sectors_of_page(page).end.min(sectors.end);
            let hole = !self.cache.has_page(page) && !self.durable.has_page(page);
            if !hole || self.pending.range(sector..end).next().is_some() {
                (sector..end).for_each(|sector| self.note(sector, seq));
            }
            sector = end;
        }
    }

    fn note(&mut self, sector: u64, seq: Seq) {
        let now = self.cache.sector(sector);
        let before = match self.pending.get(&sector).and_then(|versions| versions.last()) {
            Some(version) => version.bytes.as_ref().map(|bytes| &bytes[..]),
            None => self.durable.sector(sector),
        };
        if content::same(now, before) {
            return;
        }
        let version = Version { seq, bytes: content::version_of(now), reach: Reach::PageCache };
        Arc::make_mut(&mut self.pending).entry(sector).or_default().push(version);
    }

    /// Marks the newest states of these sectors as being in the device. A sector without pending versions is durable
    /// anyway.
    fn note_in_device(&mut self, sectors: Range<u64>) {
        if sectors.is_empty() || self.pending.range(sectors.clone()).next().is_none() {
            return;
        }
        for (_, versions) in Arc::make_mut(&mut self.pending).range_mut(sectors) {
            if let Some(newest) = versions.last_mut() {
                newest.reach = Reach::Device;
            }
        }
    }

    /// A sync that covers every change up to `cutoff`.
    pub(super) fn sync(&mut self, cutoff: Seq) {
        self.resolve_versions(0..u64::MAX, up_to(cutoff), <[Version]>::len);
        self.persist_len(cutoff);
        self.durable_hole_from = self.hole_from;
    }

    /// A failed sync: the data that it covered is clean from now on, durable or not. The journal keeps the length, so
    /// the next sync tries it again.
    pub(super) fn fail_sync(&mut self, cutoff: Seq, fate: &mut Fate, power_safe: bool) {
        self.resolve_versions(0..u64::MAX, up_to(cutoff), |versions| pick(versions, fate, power_safe));
    }

    /// A flush of the device's cache without one of the page cache.
    pub(super) fn flush_device(&mut self) {
        self.resolve_versions(0..u64::MAX, in_device, <[Version]>::len);
    }

    /// Makes durable the sectors of a range and a length that makes them readable, nothing else.
    pub(super) fn sync_range(&mut self, offset: u64, len: u64, grew: bool) {
        self.resolve_versions(content::sectors(offset, len), <[Version]>::len, <[Version]>::len);
        if grew {
            self.persist_len(Seq::MAX);
        }
        let end = offset + len;
        self.pending_lens.retain(|(_, pending)| *pending >= end);
        self.durable_len = self.durable_len.max(end);
    }

    /// A data-synchronous write of a range that failed.
    pub(super) fn fail_sync_range(&mut self, (offset, len): (u64, u64), fate: &mut Fate, power_safe: bool) {
        let sectors = content::sectors(offset, len);
        self.resolve_versions(sectors, <[Version]>::len, |versions| pick(versions, fate, power_safe));
    }

    /// For each sector of the range, `covers` returns how many versions are resolved, and `pick` which of those
    /// becomes the durable one; the others of those are dropped.
    fn resolve_versions(
        &mut self,
        sectors: Range<u64>,
        covers: impl Fn(&[Version]) -> usize,
        mut pick: impl FnMut(&[Version]) -> usize,
    ) {
        if self.pending.range(sectors.clone()).next().is_none() {
            return;
        }
        let durable = &mut self.durable;
        let pending = Arc::make_mut(&mut self.pending);
        let mut emptied = Vec::new();
        for (sector, versions) in pending.range_mut(sectors) {
            let covered = covers(versions);
            if let Some(kept) = pick(&versions[..covered]).checked_sub(1) {
                durable.set_sector(*sector, &versions[kept].bytes);
            }
            versions.drain(..covered);
            if versions.is_empty() {
                emptied.push(*sector);
            }
        }
        if emptied.len() == pending.len() {
            pending.clear();
        } else {
            emptied.iter().for_each(|sector| drop(pending.remove(sector)));
        }
    }

    /// Makes durable the last length up to `cutoff`.
    fn persist_len(&mut self, cutoff: Seq) {
        let covered = self.pending_lens.partition_point(|(seq, _)| *seq <= cutoff);
        if let Some((_, len)) = self.pending_lens.drain(..covered).next_back() {
            self.durable_len = len;
        }
    }

    /// The file after a power cut, all of it durable.
    pub(super) fn power_cut(&self, fate: &mut Fate, power_safe: bool) -> Inode {
        let mut content = self.durable.clone();
        for (sector, versions) in self.pending.iter() {
            if let Some(kept) = pick(versions, fate, power_safe).checked_sub(1) {
                content.set_sector(*sector, &versions[kept].bytes);
            }
        }
        let (_, len) = self.pick_len(fate);
        content.clear_from(len);
        let hole_from = self.durable_hole_from.filter(|from| *from < len);
        Inode { hole_from, durable_hole_from: hole_from, ..Inode::durable(content, len) }
    }

    /// The file after a crash of the operating system: the page cache is lost, and all that is left is in the device.
    /// Until a sync, a power cut may leave any state from before the crash instead.
    pub(super) fn os_crash(&self, fate: &mut Fate, seq: Seq) -> Inode {
        let mut cache = self.durable.clone();
        let mut pending = BTreeMap::new();
        for (sector, versions) in self.pending.iter() {
            let kept = &versions[..pick(versions, fate, true)];
            let Some(newest) = kept.last() else { continue };
            cache.set_sector(*sector, &newest.bytes);
            let version = |version: &Version| Version { reach: Reach::Device, ..version.clone() };
            pending.insert(*sector, kept.iter().map(version).collect());
        }
        let (kept, cache_len) = self.pick_len(fate);
        let mut image = Inode {
            cache,
            cache_len,
            durable: self.durable.clone(),
            durable_len: self.durable_len,
            pending: Arc::new(pending),
            pending_lens: self.pending_lens[..kept].to_vec(),
            hole_from: self.durable_hole_from.filter(|from| *from < cache_len),
            durable_hole_from: self.durable_hole_from.filter(|from| *from < cache_len),
            ..Inode::default()
        };
        image.clear_from(cache_len, seq);
        image
    }

    /// Which length survives: how many of the pending ones are kept, and the last of them.
    fn pick_len(&self, fate: &mut Fate) -> (usize, u64) {
        let kept = fate.pick(self.pending_lens.iter().map(|(seq, _)| *seq));
        (kept, kept.checked_sub(1).map_or(self.durable_len, |kept| self.pending_lens[kept].1))
    }

    /// Changes one byte of every state of the file: cached, durable and pending.
    pub(super) fn corrupt(&mut self, offset: u64, change: impl FnOnce(&mut u8)) {
        if let Some(memory) = &mut self.memory {
            return memory.corrupt(offset, change);
        }
        let mut byte = [0];
        self.cache.read(&mut byte, offset);
        change(&mut byte[0]);
        self.cache.write(&byte, offset);
        self.durable.write(&byte, offset);
        let inside = (offset % SECTOR) as usize;
        let versions = Arc::make_mut(&mut self.pending).get_mut(&(offset / SECTOR));
        for version in versions.into_iter().flatten() {
            let mut bytes = version.bytes.as_deref().copied().unwrap_or([0; SECTOR as usize]);
            bytes[inside] = byte[0];
            version.bytes = Some(Arc::new(bytes));
        }
    }

    /// The durable content: a power cut that keeps no pending version leaves this.
    pub(super) fn durable_bytes(&self, power_safe: bool) -> Vec<u8> {
        if let Some(memory) = &self.memory {
            return memory.durable_bytes();
        }
        let mut flushed = self.clone();
        if power_safe {
            flushed.flush_device();
        }
        Inode::durable(flushed.durable, self.durable_len).bytes()
    }

    /// The whole content as reads see it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.cache_len).unwrap_or(0)];
        self.read(&mut bytes, 0);
        bytes
    }
}
