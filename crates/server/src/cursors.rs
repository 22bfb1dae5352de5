//! The cursors of `SCAN`: numbers that stand for how far a scan has come. A client gets a number, because clients take it for one; the key
//! up to which it has come stays here, in bounded memory. What is forgotten is an error for the client, never a second beginning.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

/// So many bytes of keys are kept, and what it takes to keep them.
const BYTES_MAX: usize = 16 << 20;

/// What it takes beside the key.
const ENTRY_BYTES: usize = 160;

/// How far a scan of a keyspace has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanState {
    pub keyspace: u32,
    /// The scan goes on after this key.
    pub after: Box<[u8]>,
}

/// The cursors that clients may come back with. One may be used again, so it stays until it is the one that was used longest ago
/// and there is no room.
#[derive(Debug)]
pub(crate) struct Cursors(Mutex<State>);

#[derive(Debug)]
struct State {
    next: u64,
    uses: u64,
    bytes: usize,
    /// With when each was used last.
    scans: HashMap<u64, (ScanState, u64)>,
    by_use: BTreeMap<u64, u64>,
}

impl Cursors {
    /// Those of a former server are none of this one: it begins with a number that is not likely theirs.
    pub fn new(random: u64) -> Cursors {
        // Half of what a number of 64 bits may be: some clients take a cursor for a signed one.
        let next = random >> 2 | 1;
        Cursors(Mutex::new(State { next, uses: 0, bytes: 0, scans: HashMap::new(), by_use: BTreeMap::new() }))
    }

    /// A number for a scan.
    pub fn keep(&self, scan: ScanState) -> u64 {
        let mut state = self.0.lock();
        let (cursor, used) = (state.next, state.uses);
        state.next += 1;
        state.uses += 1;
        state.bytes += ENTRY_BYTES + scan.after.len();
        state.scans.insert(cursor, (scan, used));
        state.by_use.insert(used, cursor);
        while state.bytes > BYTES_MAX {
            let (_, oldest) = state.by_use.pop_first().expect("bytes are those of scans");
            let (scan, _) = state.scans.remove(&oldest).expect("each use is that of a scan");
            state.bytes -= ENTRY_BYTES + scan.after.len();
        }
        cursor
    }

    /// The scan of a number, if it is known.
    pub fn find(&self, cursor: u64) -> Option<ScanState> {
        let mut state = self.0.lock();
        let now = state.uses;
        let (scan, used) = state.scans.get_mut(&cursor)?;
        let before = std::mem::replace(used, now);
        let scan = scan.clone();
        state.uses += 1;
        state.by_use.remove(&before);
        state.by_use.insert(now, cursor);
        Some(scan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_found_until_there_is_no_room_and_those_in_use_stay() {
        let cursors = Cursors::new(u64::MAX);
        let scan = |n: usize| ScanState { keyspace: 7, after: vec![n as u8; 60_000].into() };
        let first = cursors.keep(scan(1));
        let second = cursors.keep(scan(2));
        for n in 0..1_000 {
            cursors.keep(scan(n));
            assert_eq!(cursors.find(first), Some(scan(1)));
        }
        assert_eq!(cursors.find(second), None, "it was used longest ago");
        let state = cursors.0.lock();
        assert!(state.bytes <= BYTES_MAX && state.scans.len() == state.by_use.len());
        assert!(state.scans.len() > 250);
    }
}
