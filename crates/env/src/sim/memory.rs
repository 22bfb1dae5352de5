//! The memory of a mapped file: the words that threads see, the durable ones, and the values between.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use super::fate::{Fate, Seq};
use crate::MemoryMedium;
use crate::mapped::{LINE_BYTES, MAPPED_BYTES, WORD_BYTES};

const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;
const PAGE_WORDS: usize = MAPPED_BYTES / WORD_BYTES;

type Line = [u64; LINE_WORDS];

#[repr(align(4096))]
struct Page([AtomicU64; PAGE_WORDS]);

const _: () = assert!(align_of::<Page>() == MAPPED_BYTES && size_of::<Page>() == MAPPED_BYTES);

/// What the threads of a process see. They store into it by its address, and the simulation learns of that later.
pub(super) struct Words(Box<[Page]>);

impl Words {
    fn new(words: &[u64]) -> Arc<Words> {
        let page = |words: &[u64]| Page(std::array::from_fn(|index| AtomicU64::new(words[index])));
        Arc::new(Words(words.chunks_exact(PAGE_WORDS).map(page).collect()))
    }

    /// In bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len() * MAPPED_BYTES
    }

    pub(super) fn word(&self, index: usize) -> &AtomicU64 {
        &self.0[index / PAGE_WORDS].0[index % PAGE_WORDS]
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }

    fn load(&self) -> Vec<u64> {
        (0..self.len() / WORD_BYTES).map(|index| self.word(index).load(Ordering::Acquire)).collect()
    }

    fn line(&self, line: usize) -> Line {
        std::array::from_fn(|word| self.word(line * LINE_WORDS + word).load(Ordering::Acquire))
    }
}

/// A line that a thread has begun to write back, as it was then.
#[derive(Clone)]
struct Begun {
    thread: ThreadId,
    seq: Seq,
    line: Line,
}

/// A mapped file. A word is kept as the number that it is for this machine.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) words: Arc<Words>,
    pub(super) medium: MemoryMedium,
    /// What the threads saw when the machine crashed.
    frozen: Option<Vec<u64>>,
    durable: Vec<u64>,
    /// For each word the values that it was seen to have since it was durable, ascending.
    versions: BTreeMap<usize, Vec<(Seq, u64)>>,
    begun: BTreeMap<usize, Vec<Begun>>,
    /// As of which moment a line is durable.
    durable_at: BTreeMap<usize, Seq>,
    /// Where a page begins that the memory does not deliver any more. It is noticed at once, not at an access.
    pub(super) lost: Option<usize>,
    /// How many lines were written back although nothing in them had changed.
    pub(super) unneeded: u64,
}

/// The bytes of a word in memory.
fn bytes_of(word: u64) -> [u8; WORD_BYTES] {
    word.to_le().to_le_bytes()
}

impl Memory {
    /// A file with these bytes, all of them durable; its length is a multiple of that of a page.
    pub(super) fn durable(bytes: &[u8], medium: MemoryMedium) -> Memory {
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        assert!(rest.is_empty() && bytes.len().is_multiple_of(MAPPED_BYTES), "whole pages");
        Memory::of(words.iter().map(|word| u64::from_le(u64::from_le_bytes(*word))).collect(), medium)
    }

    fn of(words: Vec<u64>, medium: MemoryMedium) -> Memory {
        Memory {
            words: Words::new(&words),
            medium,
            frozen: None,
            durable: words,
            versions: BTreeMap::new(),
            begun: BTreeMap::new(),
            durable_at: BTreeMap::new(),
            lost: None,
            unneeded: 0,
        }
    }

    /// A word was stored as one.
    pub(super) fn stored(&mut self, index: usize, word: u64, seq: Seq) {
        self.versions.entry(index).or_default().push((seq, word));
    }

    /// A thread begins to write lines back.
    pub(super) fn write_back(&mut self, lines: Range<usize>, seq: Seq) {
        let thread = thread::current().id();
        for number in lines {
            let line = self.words.line(number);
            let last = self.begun.get(&number).and_then(|begun| begun.last());
            let is_known = match last {
                Some(begun) => begun.thread == thread && begun.line == line,
                None => line == self.durable[number * LINE_WORDS..][..LINE_WORDS],
            };
            if is_known {
                self.unneeded += 1;
                continue;
            }
            for (index, word) in (number * LINE_WORDS..).zip(line) {
                let versions = self.versions.entry(index).or_default();
                let newest = versions.last().map_or(self.durable[index], |(_, word)| *word);
                if newest != word {
                    versions.push((seq, word));
                }
            }
            self.begun.entry(number).or_default().push(Begun { thread, seq, line });
        }
    }

    /// What this thread has begun to write back is durable.
    pub(super) fn fence(&mut self) {
        let thread = thread::current().id();
        let Memory { durable, versions, begun, durable_at, .. } = self;
        begun.retain(|number, of_line| {
            // Another thread's may be newer.
            let newest = of_line.iter().rfind(|begun| begun.thread == thread).cloned();
            of_line.retain(|begun| begun.thread != thread);
            let at = durable_at.get(number).copied().unwrap_or(0);
            let Some(newest) = newest.filter(|newest| newest.seq > at) else { return !of_line.is_empty() };
            for (index, word) in (number * LINE_WORDS..).zip(newest.line) {
                durable[index] = word;
                if let Some(of_word) = versions.get_mut(&index) {
                    of_word.retain(|(seq, _)| *seq > newest.seq);
                }
            }
            durable_at.insert(*number, newest.seq);
            !of_line.is_empty()
        });
        versions.retain(|_, of_word| !of_word.is_empty());
    }

    /// The machine crashes: later stores are in no image.
    pub(super) fn freeze(&mut self) {
        if self.frozen.is_none() {
            self.frozen = Some(self.words.load());
        }
    }

    fn seen(&self) -> Vec<u64> {
        self.frozen.clone().unwrap_or_else(|| self.words.load())
    }

    /// The bytes that the process sees, or saw when the machine crashed.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.seen().into_iter().flat_map(bytes_of).collect()
    }

    pub(super) fn durable_bytes(&self) -> Vec<u8> {
        self.durable.iter().copied().flat_map(bytes_of).collect()
    }

    /// After the process was killed: all that was stored, as durable as before.
    pub(super) fn killed(&self) -> Memory {
        let mut after = Memory { words: Words::new(&self.seen()), frozen: None, ..self.clone() };
        // No thread is left that could fence them.
        after.begun.clear();
        after
    }

    /// After the power failed, or the operating system crashed: `None` if the memory was none that survives it.
    pub(super) fn power_cut(&self, fate: &mut Fate, now: Seq) -> Option<Memory> {
        if self.medium == MemoryMedium::Volatile {
            return None;
        }
        let seen = self.seen();
        let left = |(index, durable): (usize, u64)| {
            let mut values = self.versions.get(&index).cloned().unwrap_or_default();
            if values.last().map_or(durable, |(_, word)| *word) != seen[index] {
                values.push((now, seen[index]));
            }
            let kept = fate.pick(values.iter().map(|(seq, _)| *seq));
            kept.checked_sub(1).map_or(durable, |kept| values[kept].1)
        };
        let words = self.durable.iter().copied().enumerate().map(left).collect();
        Some(Memory { lost: self.lost, ..Memory::of(words, self.medium) })
    }

    /// The memory delivers a page no more: it is one of zeros.
    pub(super) fn lose_page(&mut self, offset: usize) {
        let start = offset / MAPPED_BYTES * MAPPED_BYTES;
        for byte in start..start + MAPPED_BYTES {
            self.corrupt(byte as u64, |byte| *byte = 0);
        }
        self.lost = Some(start);
    }

    /// Changes one byte of every state of the file.
    pub(super) fn corrupt(&mut self, offset: u64, change: impl FnOnce(&mut u8)) {
        let (index, inside) = (offset as usize / WORD_BYTES, offset as usize % WORD_BYTES);
        let word = self.words.word(index);
        let mut byte = bytes_of(word.load(Ordering::Acquire))[inside];
        change(&mut byte);
        let changed = |word: u64| {
            let mut bytes = bytes_of(word);
            bytes[inside] = byte;
            u64::from_le(u64::from_le_bytes(bytes))
        };
        word.store(changed(word.load(Ordering::Acquire)), Ordering::Release);
        self.durable[index] = changed(self.durable[index]);
        for (_, version) in self.versions.get_mut(&index).into_iter().flatten() {
            *version = changed(*version);
        }
        for begun in self.begun.get_mut(&(index / LINE_WORDS)).into_iter().flatten() {
            begun.line[index % LINE_WORDS] = changed(begun.line[index % LINE_WORDS]);
        }
    }
}
