//! The keys that a transaction has read, in little memory. Each takes its own bytes, which are stored one after
//! another, four bytes for table and length, and five to ten for the hash index.

use std::sync::Arc;

use fulgurite_types::{TableId, hash_key, limits};
use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::Result;
use crate::catalog::TableState;
use crate::write_set::Budget;

/// Records begin in the first this many bytes of a page.
const PAGE_BYTES: usize = 1 << 16;
const HEADER_BYTES: usize = 4;
/// A bit of a record's table number: commit validates the key whatever the isolation.
const VALIDATED: u16 = 1 << 15;
const TABLES_MAX: usize = VALIDATED as usize;
/// Up to this many keys are searched one by one, without the hash index.
const FEW: usize = 16;

/// Memory for so many keys as long as the first one is allocated with that, ...
const FIRST_KEYS: usize = 8;

/// ... but no more than that if it is longer: it is not counted before.
const FIRST_BYTES_MAX: usize = 512;

const _: () = assert!(limits::KEY_BYTES_MAX <= u16::MAX as usize);

/// The position of a record: its page and the offset in it.
#[derive(Clone, Copy)]
struct Position(u32);

impl Position {
    fn new(page: usize, offset: usize) -> Option<Position> {
        debug_assert!(offset < PAGE_BYTES);
        Some(Position(u32::from(u16::try_from(page).ok()?) << 16 | offset as u32))
    }

    fn page(self) -> usize {
        (self.0 >> 16) as usize
    }

    fn offset(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// A key that was read.
#[derive(Clone, Copy)]
pub(crate) struct ReadKey<'r> {
    pub table: &'r Arc<TableState>,
    pub key: &'r [u8],
    /// Whether commit validates it whatever the isolation.
    pub is_validated: bool,
}

impl ReadKey<'_> {
    pub fn hash(&self) -> u64 {
        hash_key(self.table.id, self.key)
    }
}

#[derive(Default)]
pub(crate) struct ReadKeys {
    /// Records name tables by their indices here; mostly there is one.
    tables: SmallVec<[Arc<TableState>; 2]>,
    pages: Vec<Vec<u8>>,
    /// The first records, each with half of its key's hash.
    few: SmallVec<[(u32, Position); FEW]>,
    /// The positions of all records; empty while there are at most [`FEW`].
    index: HashTable<Position>,
    count: usize,
    /// The memory of the full pages, in bytes.
    full_bytes: usize,
}

impl ReadKeys {
    /// How many bytes of memory they take.
    pub fn bytes(&self) -> usize {
        let last = self.pages.last().map_or(0, Vec::capacity);
        self.full_bytes + last + self.index.allocation_size()
    }

    /// Records a key, once. Fails, changing nothing, if the keys would exceed the budget.
    pub fn note(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        hash: u64,
        is_validated: bool,
        budget: Budget,
    ) -> Result<()> {
        if let Some(position) = self.find(table.id, key, hash) {
            if is_validated {
                self.validate(position);
            }
            return Ok(());
        }
        self.reserve(HEADER_BYTES + key.len(), budget)?;
        let position = self.push(table, key, is_validated, budget)?;
        self.count += 1;
        let Self { index, pages, tables, .. } = self;
        let hash_of = |position: &Position| record(pages, tables, *position).hash();
        if self.count <= FEW {
            self.few.push((hash as u32, position));
        } else if self.count == FEW + 1 {
            index.reserve(self.count, hash_of);
            for position in positions(pages) {
                index.insert_unique(hash_of(&position), position, hash_of);
            }
        } else {
            index.insert_unique(hash, position, hash_of);
        }
        Ok(())
    }

    /// Fails if `bytes` more would exceed the budget. While the index grows, it takes its old and its new memory.
    fn reserve(&self, bytes: usize, budget: Budget) -> Result<()> {
        let grows = self.count >= FEW && self.index.len() == self.index.capacity();
        let growth = if grows { 2 * self.index.allocation_size().max(128) } else { 0 };
        budget.check(self.bytes() + bytes + growth)
    }

    fn push(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        is_validated: bool,
        budget: Budget,
    ) -> Result<Position> {
        let number = match self.tables.iter().rposition(|known| known.id == table.id) {
            Some(number) => number,
            None if self.tables.len() == TABLES_MAX => return Err(budget.exceeded(self.bytes())),
            None => {
                self.tables.push(table.clone());
                self.tables.len() - 1
            }
        };
        let bytes = HEADER_BYTES + key.len();
        if self.pages.last().is_none_or(|last| last.len() + bytes > PAGE_BYTES) {
            let is_first = self.pages.is_empty();
            let capacity = if is_first { (FIRST_KEYS * bytes).min(FIRST_BYTES_MAX) } else { PAGE_BYTES };
            self.full_bytes += self.pages.last().map_or(0, Vec::capacity);
            self.pages.push(Vec::with_capacity(capacity.max(bytes)));
        }
        let number = number as u16 | if is_validated { VALIDATED } else { 0 };
        let page = self.pages.len() - 1;
        let last = &mut self.pages[page];
        let Some(position) = Position::new(page, last.len()) else {
            return Err(budget.exceeded(self.bytes()));
        };
        last.extend_from_slice(&number.to_le_bytes());
        last.extend_from_slice(&(key.len() as u16).to_le_bytes());
        last.extend_from_slice(key);
        Ok(position)
    }

    fn find(&self, table: TableId, key: &[u8], hash: u64) -> Option<Position> {
        let is_it = |position: &Position| {
            let record = self.at(*position);
            record.table.id == table && record.key == key
        };
        if self.count <= FEW {
            let has_hash = |few: &&(u32, Position)| few.0 == hash as u32;
            return self.few.iter().filter(has_hash).map(|few| few.1).find(is_it);
        }
        self.index.find(hash, is_it).copied()
    }

    pub fn contains(&self, table: TableId, key: &[u8], hash: u64) -> bool {
        self.find(table, key, hash).is_some()
    }

    fn validate(&mut self, position: Position) {
        // The second byte of the table number holds its highest bit.
        self.pages[position.page()][position.offset() + 1] |= (VALIDATED >> 8) as u8;
    }

    /// Has commit validate the keys that `select` selects.
    pub fn validate_if(&mut self, select: impl Fn(TableId, &[u8]) -> bool) {
        let selected: Vec<Position> = positions(&self.pages)
            .filter(|position| select(self.at(*position).table.id, self.at(*position).key))
            .collect();
        selected.into_iter().for_each(|position| self.validate(position));
    }

    fn at(&self, position: Position) -> ReadKey<'_> {
        record(&self.pages, &self.tables, position)
    }

    pub fn iter(&self) -> impl Iterator<Item = ReadKey<'_>> {
        positions(&self.pages).map(|position| self.at(position))
    }
}

fn record<'r>(pages: &'r [Vec<u8>], tables: &'r [Arc<TableState>], position: Position) -> ReadKey<'r> {
    let bytes = &pages[position.page()][position.offset()..];
    let number = u16::from_le_bytes([bytes[0], bytes[1]]);
    let len = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
    ReadKey {
        table: &tables[usize::from(number & !VALIDATED)],
        key: &bytes[HEADER_BYTES..HEADER_BYTES + len],
        is_validated: number & VALIDATED != 0,
    }
}

/// The positions of all records, in the order in which they were recorded.
fn positions(pages: &[Vec<u8>]) -> impl Iterator<Item = Position> {
    pages.iter().enumerate().flat_map(|(page, bytes)| {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let header = bytes.get(offset..offset + HEADER_BYTES)?;
            let position = Position::new(page, offset);
            offset += HEADER_BYTES + usize::from(u16::from_le_bytes([header[2], header[3]]));
            position
        })
    })
}
