//! The entries of a replicated log: their numbers, and how far they are agreed.
//!
//! An entry is a group with frames, a blank one, or one of members. A leader numbers its groups when a flush takes them, in log order, and
//! stamps them before it writes them, so that a shipper reads them from memory while they are written. A follower appends groups
//! that have numbers. The log does not know the other nodes: its caller tells what a quorum has.
//!
//! - INV-REP-1: in a replicated log no group with frames is written, or read by a shipper, without a number. Indexes are dense, terms
//!   never fall along the log, and a leader numbers in its own term alone: `number` and `fence` take one lock.
//! - INV-REP-3: `agreed` never falls, and is an entry that this log has. A leader raises it only to an entry of its own term: one of an
//!   older term, though a quorum has it, may still be replaced (Ongaro and Ousterhout, 2014, section 5.4.2).

use super::groups::Group;
use super::watermarks::Tip;
use crate::error::LogError;
use crate::format::Agreed;
use fulgurite_types::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, RwLock};
use fulgurite_types::{Csn, EntryId, Lsn};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// What a node does with the entries of a replicated log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It appends the entries of a leader. Each opening begins as one.
    Follower,
    /// It numbers groups in this term.
    Leader {
        /// Its term.
        term: u64,
    },
    /// It led and was fenced. Its memory may have commits that have no number, or that no quorum gets: the log has to be opened
    /// again before it follows another leader.
    Deposed,
}

/// What a log has in the place of an entry of another node's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryMatch {
    /// That entry: it is agreed here, so it is the same everywhere.
    Agreed,
    /// That entry, not agreed yet.
    Same,
    /// Another one, which is not agreed.
    Other,
    /// Nothing: the log ends before.
    Missing,
}

/// How far the entries of a replicated log have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPositions {
    /// The last entry that has a number.
    pub last: EntryId,
    /// The last entry that is durable on this node.
    pub durable: EntryId,
    /// What a quorum has.
    pub agreed: Agreed,
}

/// What recovery found of entries; nothing in a log that is not replicated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundEntries {
    pub last: EntryId,
    pub agreed: Agreed,
    /// Those after the agreed one, each with the last commit at or before it.
    pub pending: VecDeque<(EntryId, Csn)>,
}

pub(crate) type EntryObserver = Arc<dyn Fn(EntryPositions) + Send + Sync>;

struct State {
    role: Role,
    /// The last entry with a number, and the last commit at or before it.
    last: EntryId,
    last_csn: Csn,
    /// The last entry that a flush took, and the last commit at or before it.
    taken: EntryId,
    taken_csn: Csn,
    pending: VecDeque<Pending>,
    /// Bytes of the payloads of all entries that this opening noted.
    noted_bytes: u64,
    agreed: Agreed,
}

/// An entry after the agreed one.
struct Pending {
    id: EntryId,
    /// The last commit at or before it.
    csn: Csn,
    /// `noted_bytes` up to its end.
    bytes: u64,
    /// When that commit happened; 0 if it is not known.
    time_ms: u64,
}

pub(crate) struct Entries {
    state: Mutex<State>,
    /// Of `state`, for readers without its lock.
    agreed_csn: AtomicU64,
    agreed_index: AtomicU64,
    /// When the newest commit that this opening knows to be agreed happened, or an earlier time.
    agreed_time_ms: AtomicU64,
    /// Bytes of entries that are not agreed, beside those that recovery found.
    unagreed_bytes: AtomicU64,
    /// Bytes of the chunks to which such entries refer, by commit.
    chunks: Mutex<BTreeMap<Csn, u64>>,
    unagreed_chunk_bytes: AtomicU64,
    /// Bytes of chunks that this opening had written when `agreed` rose last.
    chunk_bytes_at_agreed: AtomicU64,
    leads: AtomicBool,
    /// The end of the last group that is stamped: up to here a shipper reads.
    stamped: AtomicU64,
    pub observer: RwLock<Option<EntryObserver>>,
    /// The newest stable commit that was announced.
    pub announced: Mutex<Csn>,
}

impl Entries {
    /// With all that recovery found durable, up to `tip`, and `stable` announced.
    pub fn new(found: FoundEntries, stable: Csn, tip: Tip) -> Entries {
        let FoundEntries { last, agreed, pending } = found;
        Entries {
            agreed_csn: AtomicU64::new(agreed.csn.0),
            agreed_index: AtomicU64::new(agreed.index),
            agreed_time_ms: AtomicU64::new(0),
            unagreed_bytes: AtomicU64::new(0),
            chunks: Mutex::default(),
            unagreed_chunk_bytes: AtomicU64::new(0),
            chunk_bytes_at_agreed: AtomicU64::new(0),
            leads: AtomicBool::new(false),
            stamped: AtomicU64::new(tip.lsn.0),
            observer: RwLock::new(None),
            announced: Mutex::new(stable),
            state: Mutex::new(State {
                role: Role::Follower,
                last,
                last_csn: tip.csn,
                taken: last,
                taken_csn: tip.csn,
                pending: pending
                    .into_iter()
                    .map(|(id, csn)| Pending { id, csn, bytes: 0, time_ms: 0 })
                    .collect(),
                noted_bytes: 0,
                agreed,
            }),
        }
    }

    // Roles.

    pub fn role(&self) -> Role {
        self.state.lock().role
    }

    /// Whether committers may commit.
    pub fn leads(&self) -> bool {
        self.leads.load(SeqCst)
    }

    /// Begins to number in `term`. `append_blank` appends the first entry of the term, before any commit.
    pub fn lead(
        &self,
        term: u64,
        append_blank: impl FnOnce() -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let mut state = self.state.lock();
        if state.role != Role::Follower {
            return Err(LogError::Usage(format!("a node in the role {:?} cannot begin to lead", state.role)));
        }
        if term <= state.last.term {
            let last = state.last;
            return Err(LogError::Usage(format!("a leader of term {term} cannot follow entry {last}")));
        }
        append_blank()?;
        state.role = Role::Leader { term };
        self.leads.store(true, SeqCst);
        Ok(())
    }

    /// Ends numbering for good, if the node leads. Returns the last entry that has a number.
    pub fn fence(&self) -> EntryId {
        let mut state = self.state.lock();
        self.leads.store(false, SeqCst);
        if state.role != Role::Follower {
            state.role = Role::Deposed;
        }
        state.last
    }

    // Numbers.

    /// Numbers the groups that a flush took, in log order, and returns how many may be written: not those with frames that have no
    /// number, nor what follows them (INV-REP-1). And what their headers say of agreement: nothing after the entries that come before them,
    /// for a follower may hear that an entry is agreed before it has it on disk.
    pub fn number(&self, groups: &mut [Group]) -> (usize, Agreed) {
        let mut state = self.state.lock();
        let before = Agreed { index: state.taken.index, csn: state.taken_csn };
        let agreed = state.agreed.min(before);
        for (nth, group) in groups.iter_mut().enumerate() {
            group.before = state.taken;
            if !group.kind.is_entry() {
                continue;
            }
            let next = match (group.entry, state.role) {
                (Some(given), _) => given,
                (None, Role::Leader { term }) => EntryId { term, index: state.taken.index + 1 },
                (None, _) => return (nth, agreed),
            };
            assert!(
                next.index == state.taken.index + 1 && next.term >= state.taken.term,
                "INV-REP-1: entry {next} follows entry {}",
                state.taken
            );
            if group.entry.is_none() {
                assert_eq!(state.last, state.taken, "INV-REP-1: a leader's groups follow what it appended");
                self.note(&mut state, next, group.last_csn(), (group.len.into(), group.time_ms));
            }
            group.entry = Some(next);
            (state.taken, state.taken_csn) = (next, group.last_csn());
        }
        (groups.len(), agreed)
    }

    /// Appends a group of the leader that has no commits.
    pub fn propose(&self, append: impl FnOnce() -> Result<(), LogError>) -> Result<(), LogError> {
        let state = self.state.lock();
        match state.role {
            Role::Leader { .. } => append(),
            _ => Err(LogError::NotLeader),
        }
    }

    /// Takes an entry of a leader, which `append` appends to the log.
    pub fn append(
        &self,
        id: EntryId,
        last_csn: Csn,
        (bytes, time_ms): (u64, u64),
        append: impl FnOnce() -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let mut state = self.state.lock();
        if state.role != Role::Follower {
            return Err(LogError::Usage(format!("a node in the role {:?} appends no entries", state.role)));
        }
        if id.index != state.last.index + 1 || id.term < state.last.term {
            return Err(LogError::Usage(format!("entry {id} cannot follow entry {}", state.last)));
        }
        append()?;
        self.note(&mut state, id, last_csn, (bytes, time_ms));
        Ok(())
    }

    /// Groups up to `end` are stamped.
    pub fn raise_stamped(&self, end: Lsn) {
        self.stamped.store(end.0, SeqCst);
    }

    pub fn stamped(&self) -> Lsn {
        Lsn(self.stamped.load(SeqCst))
    }

    pub fn last(&self) -> EntryId {
        self.state.lock().last
    }

    /// The entry of an index after the agreed one; `None` for others.
    pub fn pending(&self, index: u64) -> Option<EntryId> {
        let state = self.state.lock();
        let first = state.pending.front()?.id.index;
        let nth = usize::try_from(index.checked_sub(first)?).ok()?;
        Some(state.pending.get(nth)?.id)
    }

    /// What this log has in the place of an entry. Under one lock: agreement may rise meanwhile.
    pub fn match_entry(&self, id: EntryId) -> EntryMatch {
        let state = self.state.lock();
        let Some(nth) = id.index.checked_sub(state.agreed.index + 1) else { return EntryMatch::Agreed };
        match usize::try_from(nth).ok().and_then(|nth| state.pending.get(nth)) {
            Some(found) if found.id == id => EntryMatch::Same,
            Some(_) => EntryMatch::Other,
            None => EntryMatch::Missing,
        }
    }

    /// The last commit at or before an entry that is not before the agreed one; for others none.
    pub fn csn_at(&self, index: u64) -> Csn {
        let state = self.state.lock();
        let first = state.agreed.index + 1;
        match index.checked_sub(first) {
            None if index == state.agreed.index => state.agreed.csn,
            None => Csn::ZERO,
            Some(nth) => state.pending.get(nth as usize).map_or(Csn::ZERO, |pending| pending.csn),
        }
    }

    /// The newest commit that has a number, if no other gets one.
    pub fn last_csn_of_deposed(&self) -> Option<Csn> {
        // A leader's commits ask, without the lock.
        if self.leads() {
            return None;
        }
        let state = self.state.lock();
        (state.role == Role::Deposed).then_some(state.last_csn)
    }

    // Agreement.

    /// A quorum has entry `id` durably. Returns `agreed` before and after, if it rises: not if this log does not have the entry, nor on a
    /// leader by an entry of an older term (INV-REP-3).
    pub fn raise_agreed(&self, id: EntryId) -> Option<(Agreed, Agreed)> {
        let mut state: MutexGuard<'_, State> = self.state.lock();
        let before = state.agreed;
        if matches!(state.role, Role::Leader { term } if term != id.term) {
            return None;
        }
        let first = state.pending.front()?.id.index;
        let nth = usize::try_from(id.index.checked_sub(first)?).ok()?;
        let Pending { id: found, csn, bytes, time_ms } = *state.pending.get(nth)?;
        if found != id {
            return None;
        }
        state.pending.drain(..=nth);
        self.unagreed_bytes.store(state.noted_bytes - bytes, SeqCst);
        state.agreed = Agreed { index: id.index, csn };
        self.agreed_csn.store(csn.0, SeqCst);
        self.agreed_index.store(id.index, SeqCst);
        self.agreed_time_ms.fetch_max(time_ms, SeqCst);
        let agreed = state.agreed;
        drop(state);
        self.drop_chunks(csn);
        Some((before, agreed))
    }

    /// Commit `csn` refers to chunks of so many bytes.
    pub fn note_chunks(&self, csn: Csn, bytes: u64) {
        // Added first: a thread that takes it out subtracts it.
        self.unagreed_chunk_bytes.fetch_add(bytes, SeqCst);
        self.chunks.lock().insert(csn, bytes);
        // It may have been agreed before it was noted.
        self.drop_chunks(self.agreed_csn());
    }

    fn drop_chunks(&self, agreed: Csn) {
        if self.unagreed_chunk_bytes() == 0 {
            return;
        }
        let mut chunks = self.chunks.lock();
        let rest = chunks.split_off(&agreed.next());
        let bytes = std::mem::replace(&mut *chunks, rest).into_values().sum();
        self.unagreed_chunk_bytes.fetch_sub(bytes, SeqCst);
    }

    pub fn unagreed_chunk_bytes(&self) -> u64 {
        self.unagreed_chunk_bytes.load(SeqCst)
    }

    /// Agreement has risen when so many bytes of chunks were written.
    pub fn set_chunk_bytes_at_agreed(&self, bytes: u64) {
        self.chunk_bytes_at_agreed.store(bytes, SeqCst);
    }

    /// How many bytes of chunks were written when agreement rose last.
    pub fn chunk_bytes_at_agreed(&self) -> u64 {
        self.chunk_bytes_at_agreed.load(SeqCst)
    }

    pub fn agreed(&self) -> Agreed {
        self.state.lock().agreed
    }

    /// Bytes of the entries that are not agreed, but for those that recovery found.
    pub fn unagreed_bytes(&self) -> u64 {
        self.unagreed_bytes.load(SeqCst)
    }

    pub fn agreed_csn(&self) -> Csn {
        Csn(self.agreed_csn.load(SeqCst))
    }

    pub fn agreed_time_ms(&self) -> u64 {
        self.agreed_time_ms.load(SeqCst)
    }

    pub fn agreed_index(&self) -> u64 {
        self.agreed_index.load(SeqCst)
    }
}

impl Entries {
    /// An entry of so many bytes, up to which the newest commit happened at this time, has its number.
    fn note(&self, state: &mut State, id: EntryId, csn: Csn, (bytes, time_ms): (u64, u64)) {
        let before = state.last_csn;
        assert!(csn >= before, "INV-REP-1: entry {id} ends with commit {csn}, before {before}");
        (state.last, state.last_csn) = (id, csn);
        state.noted_bytes += bytes;
        state.pending.push_back(Pending { id, csn, bytes: state.noted_bytes, time_ms });
        self.unagreed_bytes.fetch_add(bytes, SeqCst);
    }
}
