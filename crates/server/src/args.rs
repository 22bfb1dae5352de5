//! The arguments of a command: slices of the input, or of a copy that goes to a worker.

use std::ops::{Index, RangeInclusive};
use std::sync::Arc;

use fulgurite_resp::{Arguments, parse_i64};
use smallvec::SmallVec;

use crate::arrivals::Arrival;
use crate::model::Fragmented;
use crate::stop::{ErrorReply, Result};

/// The arguments of a command, its name included.
pub(crate) struct Args<'a> {
    slices: SmallVec<[&'a [u8]; 8]>,
    /// One of them that is stored already; its slice is empty.
    arrival: Option<&'a Arrival>,
}

/// A string that a command writes.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Bytes(&'a [u8]),
    /// It is stored in fragments, which nothing refers to yet.
    Stored(Fragmented),
}

impl<'a> Args<'a> {
    pub fn of(arguments: Arguments<'a>) -> Args<'a> {
        Args { slices: arguments.iter().collect(), arrival: None }
    }

    pub fn of_slices(slices: &[&'a [u8]]) -> Args<'a> {
        Args { slices: slices.into(), arrival: None }
    }

    pub fn len(&self) -> usize {
        self.slices.len()
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.slices.get(index).copied()
    }

    /// The value that an argument is.
    ///
    /// # Errors
    /// Why it could not be stored.
    pub fn value(&self, index: usize) -> Result<Value<'a>> {
        match self.arrival.filter(|arrival| arrival.argument == index) {
            Some(arrival) => Ok(Value::Stored(arrival.stored()?)),
            None => Ok(Value::Bytes(self.slices[index])),
        }
    }

    /// The arguments from this index on.
    pub fn from(&self, index: usize) -> &[&'a [u8]] {
        self.slices.get(index..).unwrap_or_default()
    }

    /// Whether an argument is this word, in any case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.slices.get(index).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.slices[index]
    }
}

/// An integer of a range, with Redis's errors.
pub(crate) fn parse_within(argument: &[u8], range: RangeInclusive<i64>) -> Result<i64> {
    let number = parse_i64(argument).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    if range.contains(&number) {
        return Ok(number);
    }
    let (min, max) = range.into_inner();
    let message = format!("value is out of range, value must between {min} and {max}");
    Err(ErrorReply { code: "ERR", message: message.into() }.into())
}

/// A copy of the arguments of a command. It takes about as much memory as they do.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedArgs {
    bytes: Vec<u8>,
    /// Where each argument ends.
    ends: Vec<usize>,
    /// One of them that is stored, and not in `bytes`.
    pub arrival: Option<Arc<Arrival>>,
}

impl OwnedArgs {
    pub fn copy(args: &Args<'_>) -> OwnedArgs {
        let mut copy = OwnedArgs::default();
        copy.bytes.reserve_exact(args.slices.iter().map(|argument| argument.len()).sum());
        copy.ends.reserve_exact(args.len());
        args.slices.iter().for_each(|argument| copy.push(argument));
        copy
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.bytes[start..end])
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        size_of::<OwnedArgs>() + self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Appends an argument.
    pub fn push(&mut self, argument: &[u8]) {
        self.bytes.extend_from_slice(argument);
        self.ends.push(self.bytes.len());
    }

    /// Appends bytes to an argument that is arriving; `is_last` ends it.
    pub fn push_piece(&mut self, bytes: &[u8], is_last: bool) {
        self.bytes.extend_from_slice(bytes);
        if is_last {
            self.ends.push(self.bytes.len());
        }
    }

    pub fn args(&self) -> Args<'_> {
        let mut start = 0;
        let slice = |&end: &usize| &self.bytes[std::mem::replace(&mut start, end)..end];
        Args { slices: self.ends.iter().map(slice).collect(), arrival: self.arrival.as_deref() }
    }
}
