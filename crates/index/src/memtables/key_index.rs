//! The keys of a memtable by their hashes: a look-up, and a new version of a key that is there, read a cache line and a node, where
//! a search of the ordered list reads a node at each step.
//!
//! A slot holds a key's newest version, with sixteen bits of a hash, so that other keys are rarely looked at; each version links to the
//! one before it. A key is in the first slot that was free, from the line on that its hash says. Slots and links are only added to, by
//! compare-and-exchange, so a reader needs no lock.
//!
//! The index starts at the size that its memtable is expected to need. One that has taken its keys continues in a level four times as
//! large; a key stays in the level that it came into. A secret multiplier chooses the lines: keys whose hashes differ come into one by
//! chance only.

use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use fulgurite_types::Csn;

use super::node::{Node, NodeRef};
use super::{LINE_BYTES, PREFETCHED_MAX};
use fulgurite_types::sync::{AtomicBool, AtomicPtr, Ordering};
use smallvec::SmallVec;

const LINE_SLOTS: usize = 8;
/// Keys are expected to take half of the slots, ...
const KEYS_PER_LINE: u64 = 4;
/// ... and a level takes so many of them.
const KEYS_PER_LINE_MAX: u64 = 5;
/// Schedules fill the lines.
const FIRST_LINES_MIN: usize = if cfg!(feature = "shuttle") { 1 } else { 4096 / LINE_BYTES };
/// The expected number is a guess, and its memory counts at once.
const FIRST_LINES_MAX: usize = (2 << 20) / LINE_BYTES;
const GROWTH: usize = 4;
/// So many slots are looked at for each key of a sample.
const SAMPLED_SLOTS_A_KEY: usize = 8;
/// A key is in one of so many lines from its own on. With five keys a line nearly all are in the first two; that 64 lines have more keys
/// than slots happens once in 10^21.
const PROBES: usize = 64;

/// Addresses of programs have no more bits on the processors that this is built for; the others hold part of the hash.
const ADDRESS_BITS: u32 = 48;

/// A version of a key, with sixteen bits of the key's hash above the address; null: free.
type Slot = AtomicPtr<Node>;

/// An empty memtable's index takes no memory.
pub(super) struct KeyIndex {
    first: OnceLock<Box<Level>>,
    first_lines: usize,
    /// Odd, and secret.
    multiplier: u64,
    /// A version was left out, as memory was short: only the ordered list has all.
    is_incomplete: AtomicBool,
}

/// What a look-up found.
pub(super) enum Found<'g> {
    Version(NodeRef<'g>),
    Absent,
    /// It is so far behind the newest one that the ordered list finds it faster.
    FarBehind,
    /// Only the ordered list knows.
    Unknown,
}

impl KeyIndex {
    /// One for about `keys` keys, whose lines depend on a secret.
    pub fn new(keys: u64, secret: u64) -> KeyIndex {
        let lines = usize::try_from(keys.div_ceil(KEYS_PER_LINE)).unwrap_or(usize::MAX);
        KeyIndex {
            first: OnceLock::new(),
            first_lines: lines.clamp(FIRST_LINES_MIN, FIRST_LINES_MAX),
            multiplier: secret | 1,
            is_incomplete: AtomicBool::new(false),
        }
    }

    #[inline]
    fn levels(&self) -> impl Iterator<Item = &Level> {
        std::iter::successors(self.first.get(), |level| level.next.get()).map(|level| &**level)
    }

    /// About how many keys it has.
    pub fn keys(&self) -> u64 {
        self.levels().map(|level| level.keys.load(Ordering::Relaxed) as u64).sum()
    }

    /// At most `count` versions, whose keys are as if drawn at random: those of slots that are far from each other.
    pub fn sample(&self, count: usize) -> impl Iterator<Item = NodeRef<'_>> {
        let level = self.levels().max_by_key(|level| level.keys.load(Ordering::Relaxed));
        level.into_iter().flat_map(move |level| level.sample(count)).take(count)
    }

    /// Starts loading the lines of a key.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.levels().for_each(|level| super::prefetch(level.line(level.position(hash).line).as_ptr()));
    }

    /// Whether a version of the key may be there; `false` is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.is_incomplete.load(Ordering::Acquire) || self.may_be(hash).is_some()
    }

    /// Starts loading the node that [`KeyIndex::find`] would look at; returns whether there is one. Its line was prefetched before.
    #[inline]
    pub fn prefetch_node(&self, hash: u64) -> bool {
        let found = self.may_be(hash);
        found.inspect(|node| node.prefetch_entry());
        found.is_some()
    }

    #[inline]
    fn may_be(&self, hash: u64) -> Option<NodeRef<'_>> {
        self.levels().find_map(|level| level.by_hash(hash).next())
    }

    /// The newest version of `key` at or below `at`, if it is at most so many versions behind the newest one.
    #[inline]
    pub fn find(&self, key: &[u8], hash: u64, at: Csn, behind_max: usize) -> Found<'_> {
        let mut best: Option<NodeRef<'_>> = None;
        for level in self.levels() {
            let Some(newest) = level.by_hash(hash).find(|node| node.key() == key) else { continue };
            let mut older = Some(newest);
            let mut left = behind_max;
            while let Some(version) = older
                && version.csn() > at
            {
                if left == 0 {
                    return Found::FarBehind;
                }
                left -= 1;
                older = version.older();
            }
            // A key is in two levels only if two threads added it at once, while one of them added the level.
            if let Some(version) = older
                && best.is_none_or(|best| best.csn() < version.csn())
            {
                best = Some(version);
            }
        }
        match best {
            _ if self.is_incomplete.load(Ordering::Acquire) => Found::Unknown,
            Some(version) => Found::Version(version),
            None => Found::Absent,
        }
    }

    /// Adds versions, `count` of them, which are written and not linked yet. Several threads may add at once, in any order. What finds no
    /// slot is left out: look-ups search the ordered list then. Levels that are allocated are added to `memory`.
    pub fn add<'a>(&self, count: usize, mut nodes: impl Iterator<Item = NodeRef<'a>>, memory: &AtomicUsize) {
        let level = self.reserve(count, memory);
        let mut new_keys = 0;
        loop {
            // What this reads is loaded for several at once.
            let some: SmallVec<[NodeRef<'_>; PREFETCHED_MAX]> = nodes.by_ref().take(PREFETCHED_MAX).collect();
            if some.len() > 1 {
                some.iter().for_each(|node| self.prefetch(node.hash_before_linking()));
                some.iter().for_each(|node| _ = self.prefetch_node(node.hash_before_linking()));
            }
            new_keys += some.iter().filter(|node| self.add_one(**node, level)).count();
            if some.len() < PREFETCHED_MAX {
                break;
            }
        }
        if let Some(level) = level {
            level.keys.fetch_sub(count - new_keys, Ordering::Relaxed);
        }
    }

    /// The level that takes so many new keys, which count as its own; `None` if there is no memory for it.
    fn reserve(&self, keys: usize, memory: &AtomicUsize) -> Option<&Level> {
        let lines = (keys as u64).div_ceil(KEYS_PER_LINE) as usize;
        let add_level = |level: &OnceLock<Box<Level>>, lines: usize| {
            let made = Level::new(lines, self.multiplier)?;
            let bytes = made.bytes();
            // Another thread may have been faster.
            if level.set(Box::new(made)).is_ok() {
                memory.fetch_add(bytes, Ordering::Relaxed);
            }
            Some(())
        };
        loop {
            match self.levels().last() {
                Some(level) if level.reserve(keys) => return Some(level),
                Some(level) => add_level(&level.next, level.lines.saturating_mul(GROWTH).max(lines))?,
                None => add_level(&self.first, self.first_lines.max(lines))?,
            };
        }
    }

    /// Adds a version; returns whether it took a slot of the level, for a new key.
    #[inline]
    fn add_one(&self, node: NodeRef<'_>, level: Option<&Level>) -> bool {
        let hash = node.hash_before_linking();
        if self.levels().any(|level| level.add_to_known(node, hash)) {
            return false;
        }
        let added = level.map_or(Added::Full, |level| level.add(node, hash));
        if added == Added::Full {
            self.is_incomplete.store(true, Ordering::Release);
        }
        added == Added::NewKey
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.levels().map(Level::bytes).sum()
    }
}

/// Lines of slots.
struct Level {
    slots: Box<[Slot]>,
    /// The first slot of a cache line.
    first: usize,
    lines: usize,
    /// Odd, and secret.
    multiplier: u64,
    /// How many keys it has, and those that threads are about to add.
    keys: AtomicUsize,
    /// A larger one.
    next: OnceLock<Box<Level>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Added {
    NewKey,
    /// Another thread has added the key meanwhile.
    ToKnown,
    /// There is no free slot for it.
    Full,
}

/// Where a key is looked for in a level.
#[derive(Clone, Copy)]
struct Position {
    line: usize,
    /// The bits of a slot above the address.
    tag: usize,
}

impl Level {
    fn new(lines: usize, multiplier: u64) -> Option<Level> {
        // Room to begin with a cache line, which the allocator does not promise for memory that it need not clear.
        let slots = free_slots(lines.checked_mul(LINE_SLOTS)?.checked_add(LINE_SLOTS)?)?;
        let first = slots.as_ptr().align_offset(LINE_BYTES).min(LINE_SLOTS);
        Some(Level { slots, first, lines, multiplier, keys: AtomicUsize::new(0), next: OnceLock::new() })
    }

    fn bytes(&self) -> usize {
        size_of::<Level>() + size_of_val(&self.slots[..])
    }

    /// Versions of about `count` slots, or of fewer if most slots are free.
    fn sample(&self, count: usize) -> impl Iterator<Item = NodeRef<'_>> {
        let keys = self.keys.load(Ordering::Relaxed).max(1);
        let looked_at = (count * self.slots.len() / keys).min(SAMPLED_SLOTS_A_KEY * count);
        let step = (self.slots.len() / looked_at.max(1)).max(1);
        self.slots.iter().step_by(step).filter_map(|slot| node_of(slot.load(Ordering::Acquire)))
    }

    /// Counts so many keys as its own, if it has room for them.
    fn reserve(&self, keys: usize) -> bool {
        let keys_max = self.lines as u64 * KEYS_PER_LINE_MAX;
        let add = |before: usize| Some(before + keys).filter(|all| *all as u64 <= keys_max);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    #[inline]
    fn line(&self, index: usize) -> &[Slot; LINE_SLOTS] {
        let from = self.first + index * LINE_SLOTS;
        self.slots[from..from + LINE_SLOTS].as_array().expect("a line has so many slots")
    }

    #[inline]
    fn position(&self, hash: u64) -> Position {
        // The high bits of a product depend on all bits of its factors.
        let mixed = hash.wrapping_mul(self.multiplier);
        let line = (((mixed >> 32) * self.lines as u64) >> 32) as usize;
        Position { line, tag: (mixed as usize >> 16 & 0xFFFF) << ADDRESS_BITS }
    }

    /// The slots that a key may be in, in the order in which they are filled.
    #[inline]
    fn slots_of(&self, position: Position) -> impl Iterator<Item = &Slot> {
        (0..PROBES).flat_map(move |probe| {
            let line = position.line + probe;
            self.line(if line < self.lines { line } else { line % self.lines })
        })
    }

    /// The newest version of each key that may be the one with this hash.
    #[inline]
    fn by_hash(&self, hash: u64) -> impl Iterator<Item = NodeRef<'_>> {
        let position = self.position(hash);
        self.slots_of(position)
            .map(|slot| slot.load(Ordering::Acquire))
            .take_while(|tagged| !tagged.is_null())
            .filter(move |tagged| position.has_tag(*tagged))
            .map(|tagged| node_of(tagged).expect("it is not null"))
    }

    /// Adds a version of a key that is there; `false` if it is not.
    #[inline]
    fn add_to_known(&self, node: NodeRef<'_>, hash: u64) -> bool {
        let position = self.position(hash);
        for slot in self.slots_of(position) {
            let held = slot.load(Ordering::Acquire);
            if held.is_null() {
                return false;
            }
            if position.has_tag(held) && node_of(held).is_some_and(|held| held.has_key_of(node)) {
                add_version(slot, node, position);
                return true;
            }
        }
        false
    }

    /// Adds a version, for whose key a slot was reserved.
    fn add(&self, node: NodeRef<'_>, hash: u64) -> Added {
        let position = self.position(hash);
        for slot in self.slots_of(position) {
            let new = position.tagged(node);
            let free = slot.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Acquire);
            let Err(held) = free else { return Added::NewKey };
            if position.has_tag(held) && node_of(held).is_some_and(|held| held.has_key_of(node)) {
                add_version(slot, node, position);
                return Added::ToKnown;
            }
        }
        Added::Full
    }
}

impl Position {
    #[inline]
    fn has_tag(self, tagged: *mut Node) -> bool {
        (tagged.addr() ^ self.tag) >> ADDRESS_BITS == 0
    }

    #[inline]
    fn tagged(self, node: NodeRef<'_>) -> *mut Node {
        node.as_ptr().map_addr(|address| {
            assert!(address >> ADDRESS_BITS == 0, "an address of more than {ADDRESS_BITS} bits");
            address | self.tag
        })
    }
}

#[inline]
fn node_of<'g>(tagged: *mut Node) -> Option<NodeRef<'g>> {
    let node = tagged.map_addr(|address| address & ((1 << ADDRESS_BITS) - 1));
    // SAFETY: a slot holds a node that was written before, in a block that the memtable owns, as it owns the slot; afterwards only
    // its links are written.
    NonNull::new(node).map(|node| unsafe { NodeRef::new(node) })
}

/// Adds a version to those of its key, the newest of which is in the slot. Each links to the one before it by CSN.
fn add_version(slot: &Slot, node: NodeRef<'_>, position: Position) {
    loop {
        let newest = slot.load(Ordering::Acquire);
        let held = node_of(newest).expect("a slot stays taken");
        if held.csn() < node.csn() {
            node.older_link().store(held.as_ptr(), Ordering::Relaxed);
            let new = position.tagged(node);
            if slot.compare_exchange(newest, new, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        } else if add_older(held, node) {
            return;
        }
    }
}

/// Adds a version behind a newer one, or the same; `false` if another thread was faster.
fn add_older(mut newer: NodeRef<'_>, node: NodeRef<'_>) -> bool {
    loop {
        if newer.csn() == node.csn() {
            // Recovery may find a commit twice; the list takes it once, too.
            return true;
        }
        match newer.older() {
            Some(older) if older.csn() >= node.csn() => newer = older,
            older => {
                let older = older.map_or(ptr::null_mut(), NodeRef::as_ptr);
                node.older_link().store(older, Ordering::Relaxed);
                let link = newer.older_link();
                let new = node.as_ptr();
                return link.compare_exchange(older, new, Ordering::Release, Ordering::Relaxed).is_ok();
            }
        }
    }
}

/// So many free slots; `None` if there is no memory for them.
#[cfg(not(feature = "shuttle"))]
fn free_slots(count: usize) -> Option<Box<[Slot]>> {
    use std::alloc::{Layout, alloc_zeroed};

    const { assert!(size_of::<Slot>() * LINE_SLOTS == LINE_BYTES) };
    let layout = Layout::array::<Slot>(count).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout is not empty, and that of a box of so many slots. A null pointer, which is a free slot, is all zeros. The
    // pages of a large level are cleared when they are first touched.
    unsafe {
        let slots = NonNull::new(alloc_zeroed(layout).cast::<Slot>())?;
        Some(Box::from_raw(NonNull::slice_from_raw_parts(slots, count).as_ptr()))
    }
}

#[cfg(feature = "shuttle")]
fn free_slots(count: usize) -> Option<Box<[Slot]>> {
    Some((0..count).map(|_| Slot::new(ptr::null_mut())).collect())
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use fulgurite_types::{TableId, hash_key};
    use proptest::prelude::*;

    use super::*;
    use crate::memtables::block::{self, Block, BlockBuilder, NodeFields};
    use crate::version::VersionFlags;

    const TABLE: TableId = TableId(1);
    const SECRET: u64 = 0x9E37_79B9_7F4A_7C15;

    /// Versions of keys, with their nodes.
    fn versions(of: impl IntoIterator<Item = (u64, u64)>) -> Block {
        let mut builder = BlockBuilder::new(TABLE, 0, 0);
        for (key, csn) in of {
            let key = key.to_be_bytes();
            builder.push_fields(&NodeFields {
                key: &key,
                hash: hash_key(TABLE, &key),
                csn: Csn(csn),
                flags: VersionFlags::default(),
                expires_at_ms: 0,
                payload: &[],
                value_lsn: 0,
                checksum: 0,
            });
        }
        builder.finish()
    }

    fn nodes(block: &Block) -> Vec<NodeRef<'_>> {
        // SAFETY: the block lives as long as the nodes, and is not stamped.
        unsafe { block::nodes(block.as_raw()) }.collect()
    }

    fn found(index: &KeyIndex, key: u64, at: u64, behind_max: usize) -> Found<'_> {
        let key = key.to_be_bytes();
        index.find(&key, hash_key(TABLE, &key), Csn(at), behind_max)
    }

    #[test]
    fn each_key_is_found_while_the_index_grows_and_few_others_may_be_there() {
        for expected in [0, 300_000] {
            let block = versions((0..300_000).map(|key| (key, key + 1)));
            let (index, memory) = (KeyIndex::new(expected, SECRET), AtomicUsize::new(0));
            for (key, node) in nodes(&block).into_iter().enumerate() {
                index.add(1, [node].into_iter(), &memory);
                if [10, 1_000, 30_000, 299_999].contains(&key) {
                    for key in (0..=key as u64).step_by(7) {
                        assert!(
                            matches!(found(&index, key, u64::MAX, 0), Found::Version(node) if node.csn().0 == key + 1)
                        );
                        assert!(matches!(found(&index, key, key, 1), Found::Absent), "not yet written");
                    }
                    let other = |key: u64| index.may_contain(hash_key(TABLE, &key.to_be_bytes()));
                    let wrong = (0..100_000).filter(|key| other(1 << 40 | key)).count();
                    assert!(wrong < 200, "{wrong} of 100,000 may be there, {expected} expected");
                }
            }
            assert_eq!(memory.into_inner(), index.bytes());
        }
    }

    #[test]
    fn an_empty_one_takes_nothing() {
        let index = KeyIndex::new(1_000_000, SECRET);
        assert!(
            index.bytes() == 0 && !index.may_contain(1) && matches!(found(&index, 1, 1, 9), Found::Absent)
        );
    }

    #[test]
    fn a_long_commit_comes_into_one_level() {
        let block = versions((0..50_000).map(|key| (key, 1)));
        let (index, memory) = (KeyIndex::new(0, SECRET), AtomicUsize::new(0));
        index.add(block.entries(), nodes(&block).into_iter(), &memory);
        assert_eq!((index.levels().count(), index.keys()), (1, 50_000));
        // Again, which adds no key.
        index.add(block.entries(), nodes(&block).into_iter(), &memory);
        assert_eq!((index.levels().count(), index.keys()), (2, 50_000));
        let first = index.levels().next().expect("a level was added");
        assert!(
            (0..50_000u64).all(|key| first.by_hash(hash_key(TABLE, &key.to_be_bytes())).next().is_some())
        );
    }

    #[test]
    fn without_memory_for_a_level_only_the_list_knows() {
        let block = versions((0..4_000).map(|key| (key, 1)));
        // No program gets a level of so many lines.
        let index = KeyIndex { first_lines: usize::MAX / 64, ..KeyIndex::new(0, SECRET) };
        let memory = AtomicUsize::new(0);
        index.add(block.entries(), nodes(&block).into_iter(), &memory);
        assert!(matches!(found(&index, 1, 1, 9), Found::Unknown));
        assert!(index.may_contain(hash_key(TABLE, &[9; 8])) && memory.into_inner() == 0);
    }

    proptest! {
        /// Versions come in any order, some twice.
        #[test]
        fn each_reader_finds_its_version(added in proptest::collection::vec((0u64..6, 1u64..40), 1..120)) {
            let block = versions(added.iter().copied());
            let (index, memory) = (KeyIndex::new(0, SECRET), AtomicUsize::new(0));
            let mut known = std::collections::BTreeSet::new();
            for (node, version) in nodes(&block).into_iter().zip(added) {
                index.add(1, [node].into_iter(), &memory);
                known.insert(version);
                for key in 0..6 {
                    for at in [0, 1, 7, 20, 39, u64::MAX] {
                        let newest = known.range((key, 0)..=(key, at)).next_back().map(|(_, csn)| *csn);
                        let behind = known.range((key, 0)..=(key, u64::MAX)).filter(|(_, csn)| *csn > at).count();
                        let csn = match found(&index, key, at, usize::MAX) {
                            Found::Version(node) => Some(node.csn().0),
                            Found::Absent => None,
                            Found::FarBehind | Found::Unknown => panic!("the index knows all"),
                        };
                        prop_assert_eq!(csn, newest);
                        if behind > 0 {
                            prop_assert!(matches!(found(&index, key, at, behind - 1), Found::FarBehind));
                        }
                    }
                }
            }
        }
    }
}
