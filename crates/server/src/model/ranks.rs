//! Sorted sets in the order of scores, and how many members come before one of them.
//!
//! Beside the rows by score there are blocks, ranges of that order with the number of their members: a rank is the sum of the blocks
//! before the one of the member, and what is counted in that one. With blocks of up to twice the square root of the members, both are
//! about as many rows.
//!
//! Each change of a score has to count in two blocks, so a set that is never asked for ranks has none, and no row is written for them. A read
//! that has to pass many rows notes that, and the worker that ran it divides the set afterwards ([`crate::divide`]). What writes to a set counts in the
//! blocks that there are, and makes none.
//!
//! A block's row says where the block ends, too, so it can be looked up by a start that is remembered ([`BlockStarts`]), and need not
//! be searched for.
//!
//! **INV-ZSET-1.** A sorted set has as many rows of blocks as its head says (`Collection::first`). If it has any, the first begins
//! before every member; a member is counted in the last block that begins at it or before it, and in no other. So their numbers add up
//! to the head's count. No block but the first is empty. A row that says where its block ends names the start of the next one, or says
//! that there is none.

use std::ops::Bound;

use fulgurite::Value;
use fulgurite::limits::KEY_BYTES_MAX;

use smallvec::SmallVec;

use super::content::{
    Bounds, NAME_BYTES_MAX, Section, encode_score, score_key, section_bounds, section_key, split_score_key,
};
use super::head::Collection;
use super::tables::TableKey;
use super::view::{Order, Source, View, damaged_row};
use super::write::Write;
use crate::stop::Result;

/// A set with as many members is not divided, and one that shrinks to half of that has no blocks any more.
const UNDIVIDED_MAX: u64 = 128;

/// As far from an end as this, a member is found by its rank without the blocks.
const NEAR_END: u64 = 256;

/// A block with more members is split when the set is divided.
fn block_members_max(count: u64) -> u64 {
    UNDIVIDED_MAX.max(2 * count.isqrt())
}

/// A read that passes more rows would pass fewer if the set were divided.
fn passed_rows_max(count: u64) -> u64 {
    2 * block_members_max(count)
}

/// A position in the order of scores that is no member's: between two, or at an end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Edge<'n> {
    BeforeScore(f64),
    AfterScore(f64),
    Before(f64, &'n [u8]),
    After(f64, &'n [u8]),
}

/// The members between two edges: rows of the section of scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The lowest key that a row may have.
    from: TableKey,
    /// The lowest key above that no row has.
    to: TableKey,
}

impl Span {
    pub fn new(zset: &Collection, from: Edge<'_>, to: Edge<'_>) -> Span {
        Span { from: edge_key(zset.id, from), to: edge_key(zset.id, to) }
    }

    /// All members.
    pub fn all(zset: &Collection) -> Span {
        Span::new(zset, Edge::BeforeScore(f64::NEG_INFINITY), Edge::AfterScore(f64::INFINITY))
    }

    fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    fn bounds(&self) -> Bounds {
        (Bound::Included(self.from.clone()), Bound::Excluded(self.to.clone()))
    }
}

/// The lowest key of a row after an edge.
fn edge_key(id: u64, edge: Edge<'_>) -> TableKey {
    match edge {
        Edge::BeforeScore(score) => score_key(id, Section::Scores, score, b""),
        Edge::AfterScore(score) => {
            let mut key = section_key(id, Section::Scores);
            let next = u64::from_be_bytes(encode_score(score)) + 1;
            key.extend_from_slice(&next.to_be_bytes());
            key
        }
        // No member has so long a name: one above has a name above the beginning.
        Edge::Before(score, name) if name.len() > NAME_BYTES_MAX => {
            edge_key(id, Edge::After(score, &name[..NAME_BYTES_MAX]))
        }
        Edge::Before(score, name) => score_key(id, Section::Scores, score, name),
        Edge::After(score, name) => {
            let mut key = score_key(id, Section::Scores, score, &name[..name.len().min(NAME_BYTES_MAX)]);
            if key.len() < KEY_BYTES_MAX {
                key.push(0);
                return key;
            }
            while key.last() == Some(&0xFF) {
                key.pop();
            }
            *key.last_mut().expect("a score has bytes below 255") += 1;
            key
        }
    }
}

/// A row of the section of scores as one of the section of blocks, or the other way round.
fn in_section(row: &[u8], section: Section) -> TableKey {
    let mut key = TableKey::from_slice(row);
    key[8] = section as u8;
    key
}

/// A row of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    /// Its key, which says where it begins.
    key: TableKey,
    members: u64,
    end: BlockEnd,
}

/// Where a block ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BlockEnd {
    /// Where the next one begins, which has to be looked up: the row is of a version that did not write it.
    Unknown,
    /// It is the last one.
    Last,
    /// Where the next one begins: its score and name, of which a long one is cut.
    Next(TableKey),
}

/// So much of the next one's score and name is written.
const END_BYTES_MAX: usize = 64;

const LAST: u8 = 0;
const NEXT: u8 = 1;

/// Bytes of the key of a block before the score: the id and the section.
const SECTION_BYTES: usize = 9;

impl Block {
    fn decode(key: &[u8], value: &[u8]) -> Result<Block> {
        let (members, end) = value.split_first_chunk().ok_or_else(|| damaged_row(key))?;
        let end = match end {
            [] => BlockEnd::Unknown,
            [LAST] => BlockEnd::Last,
            [NEXT, next @ ..] => BlockEnd::Next(TableKey::from_slice(next)),
            _ => return Err(damaged_row(key)),
        };
        Ok(Block { key: TableKey::from_slice(key), members: u64::from_le_bytes(*members), end })
    }

    fn encode(&self) -> SmallVec<[u8; 64]> {
        let mut value = SmallVec::from_slice(&self.members.to_le_bytes());
        match &self.end {
            BlockEnd::Unknown => {}
            BlockEnd::Last => value.push(LAST),
            BlockEnd::Next(next) => {
                value.push(NEXT);
                value.extend_from_slice(next);
            }
        }
        value
    }

    /// Whether its row says that a row of its collection, at or above its start, is in it. If not, it may be in it nevertheless.
    fn ends_after(&self, row: &[u8]) -> bool {
        match &self.end {
            BlockEnd::Unknown => false,
            BlockEnd::Last => true,
            BlockEnd::Next(next) => row[SECTION_BYTES..] < next[..],
        }
    }

    /// The end of a block after which one with this key begins.
    fn end_before(key: &[u8]) -> BlockEnd {
        let next = &key[SECTION_BYTES..];
        BlockEnd::Next(TableKey::from_slice(&next[..next.len().min(END_BYTES_MAX)]))
    }

    /// The lowest key of the rows of its members.
    fn start(&self) -> TableKey {
        in_section(&self.key, Section::Scores)
    }
}

/// The key of the first block.
fn first_block_key(id: u64) -> TableKey {
    score_key(id, Section::Blocks, f64::NEG_INFINITY, b"")
}

fn has_blocks(zset: &Collection) -> bool {
    zset.first != 0
}

/// The score of a member, from its record.
pub(crate) fn decode_member(record: &[u8]) -> Option<f64> {
    record.try_into().ok().map(f64::from_le_bytes)
}

impl View<'_> {
    /// The score of a member.
    pub fn score(&self, zset: &Collection, name: &[u8]) -> Result<Option<f64>> {
        if name.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        let Some(record) = self.member(zset, name)? else { return Ok(None) };
        decode_member(&record).map(Some).ok_or_else(|| damaged_row(name))
    }

    /// How many members are in a span.
    pub fn count_span(&self, zset: &Collection, span: &Span) -> Result<u64> {
        let all = Span::all(zset);
        if span.is_empty() || *span == all {
            return Ok(if span.is_empty() { 0 } else { zset.count });
        }
        if !has_blocks(zset) {
            return self.count_rows(zset, span);
        }
        let low = self.block_at(zset, &span.from)?;
        let high = self.block_at(zset, &span.to)?;
        if low.key == high.key {
            return self.count_rows(zset, span);
        }
        let (mut count, mut next) = (0, None);
        let between = (Bound::Excluded(low.key.clone()), Bound::Excluded(high.key.clone()));
        self.each_row(between, Order::Forward, usize::MAX, |key, value| {
            let block = Block::decode(&key, &value)?;
            count += block.members;
            next.get_or_insert(block.start());
            Ok(true)
        })?;
        let next = next.unwrap_or_else(|| high.start());
        count += match span.from == all.from {
            true => low.members,
            false => self.count_rows(zset, &Span { from: span.from.clone(), to: next })?,
        };
        count += match span.to == all.to {
            true => high.members,
            false => self.count_rows(zset, &Span { from: high.start(), to: span.to.clone() })?,
        };
        Ok(count)
    }

    fn count_rows(&self, zset: &Collection, span: &Span) -> Result<u64> {
        let mut count = 0;
        self.each_in_span(span, Order::Forward, |_| {
            count += 1;
            Ok(true)
        })?;
        self.note_passed(zset, count);
        Ok(count)
    }

    /// Notes that a read passes many rows, for which blocks would have their number.
    fn note_passed(&self, zset: &Collection, rows: u64) {
        if let Some(has_walked) = self.has_walked.filter(|_| rows > passed_rows_max(zset.count)) {
            has_walked.set(true);
        }
    }

    /// How many members come before this one.
    pub fn rank(&self, zset: &Collection, score: f64, name: &[u8]) -> Result<u64> {
        let from = Edge::BeforeScore(f64::NEG_INFINITY);
        self.count_span(zset, &Span::new(zset, from, Edge::Before(score, name)))
    }

    /// Calls `row` with each row of a span, from either end, until that returns false.
    pub fn each_in_span(
        &self,
        span: &Span,
        order: Order,
        mut row: impl FnMut(Value) -> Result<bool>,
    ) -> Result<()> {
        if span.is_empty() {
            return Ok(());
        }
        self.each_row(span.bounds(), order, usize::MAX, |key, _| row(key))
    }

    /// The rows of a span from either end, without the first `skip` of them, and at most `take`.
    pub fn span_rows(&self, span: &Span, order: Order, skip: u64, take: u64) -> Result<Vec<Value>> {
        let mut rows = Vec::new();
        if take == 0 || span.is_empty() {
            return Ok(rows);
        }
        let max = usize::try_from(skip.saturating_add(take)).unwrap_or(usize::MAX);
        let mut passed = 0;
        self.each_row(span.bounds(), order, max, |key, _| {
            passed += 1;
            if passed > skip {
                rows.push(key);
            }
            Ok(true)
        })?;
        Ok(rows)
    }

    /// The bounds of the rows of a span without the first `skip` of them from either end, and how many of these are wanted: at most `take`.
    pub fn span_bounds(
        &self,
        zset: &Collection,
        span: &Span,
        order: Order,
        (skip, take): (u64, u64),
    ) -> Result<(Bounds, u64)> {
        let (mut bounds, count) = (span.bounds(), self.count_span(zset, span)?);
        let wanted = count.saturating_sub(skip).min(take);
        if wanted == 0 || skip == 0 {
            return Ok((bounds, wanted));
        }
        let Span { from, to } = Span::all(zset);
        let before = match order {
            Order::Forward => Span { from, to: span.from.clone() },
            Order::Backward => Span { from: span.to.clone(), to },
        };
        let rank = self.count_span(zset, &before)? + skip;
        let found = self.ranked_rows(zset, order, rank, 1)?;
        let first = found.first().ok_or_else(|| damaged_row(&span.from))?;
        let first = Bound::Included(TableKey::from_slice(first));
        match order {
            Order::Forward => bounds.0 = first,
            Order::Backward => bounds.1 = first,
        }
        Ok((bounds, wanted))
    }

    /// The rows of all members from either end, without the first `skip` of them, and at most `take`.
    pub fn ranked_rows(&self, zset: &Collection, order: Order, skip: u64, take: u64) -> Result<Vec<Value>> {
        let take = take.min(zset.count.saturating_sub(skip));
        self.check_rows(take)?;
        let mut span = Span::all(zset);
        if !has_blocks(zset) || skip <= NEAR_END || take == 0 {
            self.note_passed(zset, skip);
            return self.span_rows(&span, order, skip, take);
        }
        if order == Order::Forward {
            let (block, before) = self.block_of_rank(zset, skip)?;
            self.note_passed(zset, skip - before);
            span.from = block.start();
            return self.span_rows(&span, order, skip - before, take);
        }
        let rank = zset.count - 1 - skip;
        let (block, before) = self.block_of_rank(zset, rank)?;
        self.note_passed(zset, rank - before);
        let mut head = span.clone();
        head.from = block.start();
        let found = self.span_rows(&head, Order::Forward, rank - before, 1)?;
        let last = found.first().ok_or_else(|| damaged_row(&block.key))?;
        let (score, name) = split_score_key(last).ok_or_else(|| damaged_row(last))?;
        span.to = edge_key(zset.id, Edge::After(score, name));
        self.span_rows(&span, order, 0, take)
    }

    /// The block with the member of this rank, which is below the count, and how many members come before the block.
    fn block_of_rank(&self, zset: &Collection, rank: u64) -> Result<(Block, u64)> {
        let order = if rank < zset.count / 2 { Order::Forward } else { Order::Backward };
        let mut passed = if order == Order::Forward { 0 } else { zset.count };
        let mut found = None;
        self.each_row(section_bounds(zset.id, Section::Blocks), order, usize::MAX, |key, value| {
            let block = Block::decode(&key, &value)?;
            let before = match order {
                Order::Forward => passed,
                Order::Backward => passed.checked_sub(block.members).ok_or_else(|| damaged_row(&key))?,
            };
            if (before..before + block.members).contains(&rank) {
                found = Some((block, before));
                return Ok(false);
            }
            passed = if order == Order::Forward { before + block.members } else { before };
            Ok(true)
        })?;
        found.ok_or_else(|| damaged_row(&first_block_key(zset.id)))
    }

    /// The block of a row of the section of scores, of a set that has blocks.
    fn block_at(&self, zset: &Collection, row: &[u8]) -> Result<Block> {
        let at = in_section(row, Section::Blocks);
        let starts = &self.model.block_starts;
        let start = starts.at_or_before(&at);
        if let Some(start) = &start {
            match self.row(start)? {
                Some(value) => {
                    let block = Block::decode(start, &value)?;
                    if block.ends_after(row) {
                        return Ok(block);
                    }
                }
                // At an older commit it may not be there yet.
                None if matches!(self.source, Source::Transaction(_)) => starts.forget(start),
                None => {}
            }
        }
        let block = self.last_block(zset, Bound::Included(at))?.ok_or_else(|| damaged_row(row))?;
        if start.as_ref() != Some(&block.key) {
            starts.learn(&block.key);
        }
        Ok(block)
    }

    /// The block before another one; `None` before the first.
    fn block_before(&self, zset: &Collection, block: &Block) -> Result<Option<Block>> {
        if block.key == first_block_key(zset.id) {
            return Ok(None);
        }
        let starts = &self.model.block_starts;
        let start = starts.before(&block.key);
        let is_whole = block.key.len() <= SECTION_BYTES + END_BYTES_MAX;
        if let Some(start) = start.as_ref().filter(|_| is_whole)
            && let Some(value) = self.row(start)?
        {
            let before = Block::decode(start, &value)?;
            if before.end == Block::end_before(&block.key) {
                return Ok(Some(before));
            }
        }
        let before = self.last_block(zset, Bound::Excluded(block.key.clone()))?;
        if let Some(before) = before.as_ref().filter(|before| start.as_ref() != Some(&before.key)) {
            starts.learn(&before.key);
        }
        Ok(before)
    }

    fn last_block(&self, zset: &Collection, to: Bound<TableKey>) -> Result<Option<Block>> {
        let from = Bound::Included(first_block_key(zset.id));
        let rows = self.rows((from, to), Order::Backward, 1)?;
        rows.first().map(|(key, value)| Block::decode(key, value)).transpose()
    }
}

impl Write<'_> {
    /// Gives a member a score; `old` is the one that it has.
    pub fn put_score(
        &mut self,
        zset: &mut Collection,
        name: &[u8],
        old: Option<f64>,
        score: f64,
    ) -> Result<()> {
        // -0 is 0.
        let score = score + 0.0;
        self.put_member(zset, name, &score.to_le_bytes())?;
        let row = score_key(zset.id, Section::Scores, score, name);
        let old_row = old.map(|old| score_key(zset.id, Section::Scores, old, name));
        if old_row.as_ref() == Some(&row) {
            return Ok(());
        }
        match &old_row {
            Some(old_row) => self.delete_row(old_row)?,
            None => zset.count += 1,
        }
        self.put_row(&row, b"")?;
        if !has_blocks(zset) {
            return Ok(());
        }
        let mut block = self.view().block_at(zset, &row)?;
        let old_block = old_row.map(|old_row| self.view().block_at(zset, &old_row)).transpose()?;
        if old_block.as_ref().is_some_and(|old_block| old_block.key == block.key) {
            return Ok(());
        }
        block.members += 1;
        self.put_block(&block)?;
        match old_block {
            Some(old_block) => self.subtract(zset, old_block, 1),
            None => Ok(()),
        }
    }

    /// Deletes a member that has this score.
    pub fn remove_score(&mut self, zset: &mut Collection, name: &[u8], score: f64) -> Result<()> {
        let row = score_key(zset.id, Section::Scores, score, name);
        self.remove_rows(zset, &[&row])
    }

    /// Deletes the members of rows of the section of scores, which are in its order or against it.
    pub fn remove_rows(&mut self, zset: &mut Collection, rows: &[impl AsRef<[u8]>]) -> Result<()> {
        for row in rows {
            let row = row.as_ref();
            let (_, name) = split_score_key(row).ok_or_else(|| damaged_row(row))?;
            self.delete_member(zset, name)?;
            self.delete_row(row)?;
        }
        zset.count = zset.count.checked_sub(rows.len() as u64).ok_or_else(|| damaged_row(b""))?;
        if !has_blocks(zset) {
            return Ok(());
        }
        if zset.count <= UNDIVIDED_MAX / 2 {
            return self.delete_blocks(zset);
        }
        if let [row] = rows {
            let block = self.view().block_at(zset, row.as_ref())?;
            return self.subtract(zset, block, 1);
        }
        let mut rest = rows;
        while let Some(row) = rest.first() {
            let block = self.view().block_at(zset, row.as_ref())?;
            let start = block.start();
            let after = (Bound::Excluded(block.key.clone()), section_bounds(zset.id, Section::Blocks).1);
            let next = self.view().rows(after, Order::Forward, 1)?;
            let end = next.first().map(|(key, _)| in_section(key, Section::Scores));
            let is_within = |row: &[u8]| row >= &start[..] && end.as_ref().is_none_or(|end| row < &end[..]);
            let count = rest.iter().take_while(|row| is_within(row.as_ref())).count();
            self.subtract(zset, block, count as u64)?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Deletes all members of a span, and returns how many.
    pub fn remove_span(&mut self, zset: &mut Collection, span: &Span) -> Result<u64> {
        const ROWS: u64 = 256;
        let count = self.view().count_span(zset, span)?;
        if count == zset.count {
            self.leave_all(zset);
            return Ok(count);
        }
        self.view().check_rows(count)?;
        let mut span = span.clone();
        loop {
            let rows = self.view().span_rows(&span, Order::Forward, 0, ROWS)?;
            let Some(last) = rows.last() else { return Ok(count) };
            let (score, name) = split_score_key(last).ok_or_else(|| damaged_row(last))?;
            span.from = edge_key(zset.id, Edge::After(score, name));
            self.remove_rows(zset, &rows)?;
        }
    }

    /// Removes all members at once: the set is nothing from now on, and what was in it is left to be reclaimed. Its key is deleted
    /// by [`Write::finish`], which finds that the id is not the one of before.
    pub fn leave_all(&mut self, zset: &mut Collection) {
        *zset = Collection { id: 0, count: 0, first: 0 };
    }

    /// Writes the members of a new set, which are in the order of scores.
    pub fn fill(&mut self, zset: &mut Collection, members: &[(f64, impl AsRef<[u8]>)]) -> Result<()> {
        self.view().check_rows(members.len() as u64)?;
        for (score, name) in members {
            let (score, name) = (score + 0.0, name.as_ref());
            self.put_member(zset, name, &score.to_le_bytes())?;
            self.put_row(&score_key(zset.id, Section::Scores, score, name), b"")?;
        }
        zset.count = members.len() as u64;
        Ok(())
    }

    fn put_block(&mut self, block: &Block) -> Result<()> {
        if block.end != BlockEnd::Unknown {
            return self.put_row(&block.key, &block.encode());
        }
        let id = u64::from_be_bytes(*block.key.first_chunk().ok_or_else(|| damaged_row(&block.key))?);
        let after = (Bound::Excluded(block.key.clone()), section_bounds(id, Section::Blocks).1);
        let next = self.view().rows(after, Order::Forward, 1)?;
        let end = next.first().map_or(BlockEnd::Last, |(next, _)| Block::end_before(next));
        self.put_row(&block.key, &Block { end, ..block.clone() }.encode())
    }

    /// Splits the first block from a key on that has more members than it should. Returns where the next one to be split may begin; `None` if there
    /// is none.
    pub fn divide(&mut self, zset: &mut Collection, from: Option<TableKey>) -> Result<Option<TableKey>> {
        let (bounds, max) = (section_bounds(zset.id, Section::Blocks), block_members_max(zset.count));
        if zset.count <= UNDIVIDED_MAX {
            return Ok(None);
        }
        if !has_blocks(zset) {
            zset.first = 1;
            let key = first_block_key(zset.id);
            return self.split_block(zset, &Block { key, members: zset.count, end: BlockEnd::Last });
        }
        let bounds = (from.map_or(bounds.0, Bound::Included), bounds.1);
        let mut found = None;
        self.view().each_row(bounds, Order::Forward, usize::MAX, |key, value| {
            let block = Block::decode(&key, &value)?;
            found = (block.members > max).then_some(block);
            Ok(found.is_none())
        })?;
        found.map_or(Ok(None), |block| self.split_block(zset, &block))
    }

    fn delete_blocks(&mut self, zset: &mut Collection) -> Result<()> {
        for (row, _) in
            self.view().rows(section_bounds(zset.id, Section::Blocks), Order::Forward, usize::MAX)?
        {
            self.delete_row(&row)?;
        }
        zset.first = 0;
        Ok(())
    }

    /// Splits a block so that the first of both leaves room for more members. Returns the key of the second.
    fn split_block(&mut self, zset: &mut Collection, block: &Block) -> Result<Option<TableKey>> {
        let members = (block.members / 2).min(block_members_max(zset.count) * 3 / 4);
        let span = Span { from: block.start(), ..Span::all(zset) };
        let found = self.view().span_rows(&span, Order::Forward, members, 1)?;
        let middle = found.first().ok_or_else(|| damaged_row(&block.key))?;
        let key = in_section(middle, Section::Blocks);
        self.model.block_starts.learn(&key);
        let end = Block::end_before(&key);
        self.put_block(&Block {
            key: key.clone(),
            members: block.members - members,
            end: block.end.clone(),
        })?;
        self.put_block(&Block { key: block.key.clone(), members, end })?;
        zset.first += 1;
        Ok(Some(key))
    }

    /// Members of a block are gone. A block that has few left joins the one before it, if both together are small.
    fn subtract(&mut self, zset: &mut Collection, mut block: Block, members: u64) -> Result<()> {
        block.members = block.members.checked_sub(members).ok_or_else(|| damaged_row(&block.key))?;
        let max = block_members_max(zset.count);
        if block.members >= max / 4 {
            return self.put_block(&block);
        }
        let before = self.view().block_before(zset, &block)?;
        match before {
            Some(mut before) if block.members == 0 || before.members + block.members <= max / 2 => {
                before.members += block.members;
                before.end = block.end;
                self.put_block(&before)?;
                self.delete_row(&block.key)?;
                self.model.block_starts.forget(&block.key);
                zset.first -= 1;
                Ok(())
            }
            _ => self.put_block(&block),
        }
    }
}

#[cfg(test)]
mod tests;
