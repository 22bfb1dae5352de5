//! A node of a cluster: its log and its terms, and what it may say. It sends nothing: each call is a message that has come, and returns the
//! reply.
//!
//! An operator, or a program that holds elections, appoints leaders. It fences nodes in a new term, without a nominee, to learn which has
//! the highest last entry; then a majority in the next term with that one as nominee ([`Node::fence`]), and appoints it ([`Node::appoint`]). The
//! rules are those of Raft (Ongaro and Ousterhout, 2014), with the vote asked for from outside: a node is fenced once in a term, for one
//! nominee, so two nominees of one term cannot both have a majority. A nominee leads only in the life in which it was fenced:
//! a former life may have sent entries of the term that this one does not have.
//!
//! The log's callbacks (its observers and its completer) may run while a call of the node does: they must not call the node, and may wake a
//! thread that does.
//!
//! - **INV-REP-4**: a term is durable in the node's file before the node says anything in it. Numbering ends first: between the two, the old
//!   leader numbers nothing.
//! - **INV-REP-5**: a follower acknowledges an entry once it is durable there with all before it, and only as far as its log is known to be
//!   the leader's: after that it may have entries of an older leader.

mod lives;

use crate::error::{NodeError, TermError};
use crate::identity::{Cluster, Life, Lived};
use crate::message::{Append, Appended, Envelope, Fenced, ReadBarrier, SentUpTo};
use crate::term_file::TermFile;
use fulgurite_log::{
    ChunkRef, CommitLog, Entry, EntryMatch, EntryPositions, EntryReader, Log, LogError, Role, SentChunk,
};
use fulgurite_types::EntryId;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A message has about so many bytes of entries and chunks.
pub(crate) const APPEND_BYTES_MAX: usize = 1 << 20;

const DAMAGED: &str = "reading an entry for another node: the log is damaged";

/// A node.
#[derive(Debug)]
pub struct Node {
    number: u32,
    log: Arc<Log>,
    append_bytes_max: AtomicUsize,
    /// The last entry of which a message had only chunks.
    begun: Mutex<Option<Arc<NextEntry>>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    terms: TermFile,
    /// While it leads.
    leading: Option<Leading>,
    /// The term in which it was fenced as the nominee, in this life, until it is appointed.
    nominee_in: Option<u64>,
    /// Why the log has to be opened again. From then on the node does nothing: what it would say may not be true after the cut.
    must_reopen: Option<Option<u64>>,
    /// A later life of this node, or one of another directory, of which another node has heard.
    is_old: Option<(Life, u32)>,
    /// The lives of others from which it has heard since it was started.
    lived: BTreeMap<u32, Lived>,
    /// Whether its log was opened again, with another node.
    is_retired: bool,
}

/// An entry of the log that is being sent, and the chunks to which it refers.
#[derive(Debug)]
struct NextEntry {
    entry: Entry,
    chunks: Vec<ChunkRef>,
}

/// What a leader knows of the others.
#[derive(Debug)]
struct Leading {
    term: u64,
    /// With the members with which it was appointed.
    cluster: Arc<Cluster>,
    /// The index up to which the log of each other node is this one's.
    matched: BTreeMap<u32, u64>,
    /// The last agreed entry of its term.
    agreed: EntryId,
    /// The newest round of questions whether the term still holds, and whether a message with it was made.
    round: u64,
    is_asked: bool,
    /// The newest round to which each other node replied.
    held: BTreeMap<u32, u64>,
    /// The newest lives of the others that it has heard of.
    lives: BTreeMap<u32, Life>,
}

impl Node {
    /// A node of this number, with its log, which is replicated and was just opened, and its terms.
    ///
    /// # Errors
    /// [`NodeError::Log`] if the log is not replicated; [`NodeError::TermBehind`] if it has entries of a term that the file does not know.
    pub fn new(number: u32, log: Arc<Log>, terms: TermFile) -> Result<Node, NodeError> {
        if log.role().is_none() {
            return Err(LogError::Usage("the log of a node has to be a replicated one".into()).into());
        }
        let is_old = terms.condemned();
        let node = Node {
            number,
            log,
            append_bytes_max: AtomicUsize::new(APPEND_BYTES_MAX),
            begun: Mutex::default(),
            state: Mutex::new(State {
                terms,
                leading: None,
                nominee_in: None,
                must_reopen: None,
                is_old,
                lived: BTreeMap::new(),
                is_retired: false,
            }),
        };
        let (noted, last) = (node.term(), node.positions().last);
        if last.term > noted {
            return Err(NodeError::TermBehind { node: number, noted, last });
        }
        Ok(node)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The newest term that it noted.
    pub fn term(&self) -> u64 {
        self.state.lock().terms.term()
    }

    /// The term in which it leads.
    pub fn leads(&self) -> Option<u64> {
        match self.log.role() {
            Some(Role::Leader { term }) => Some(term),
            _ => None,
        }
    }

    fn positions(&self) -> EntryPositions {
        self.log.entry_positions().expect("the log is replicated")
    }

    // Leaders come and go.

    /// Takes nothing from leaders of older terms any more, numbers nothing in them, and says how far its log reaches. In this term only
    /// `nominee` may lead.
    ///
    /// # Errors
    /// [`NodeError::StaleTerm`] if the node noted this term, or a newer one; [`NodeError::MustReopen`] if it is the nominee, and led
    /// before: nothing was changed. [`NodeError::Term`], [`NodeError::Log`].
    pub fn fence(&self, term: u64, nominee: Option<u32>) -> Result<Fenced, NodeError> {
        let mut state = self.state.lock();
        self.check_usable(&state)?;
        let noted = state.terms.term();
        if term <= noted {
            return Err(NodeError::StaleTerm { node: self.number, term, noted });
        }
        let is_nominee = nominee == Some(self.number);
        if is_nominee && self.log.role() != Some(Role::Follower) {
            return Err(NodeError::MustReopen { node: self.number, up_to: None });
        }
        self.note(&mut state, term, nominee)?;
        state.nominee_in = is_nominee.then_some(term);
        match self.log.flush_entries() {
            // Commits without a number are none.
            Ok(()) | Err(LogError::NotLeader) => {}
            Err(error) => return Err(error.into()),
        }
        let terms = &state.terms;
        let (cluster, nonces) = (Arc::clone(terms.cluster()), Arc::clone(terms.nonces()));
        let (in_force, life, lives) = (terms.in_force(), terms.life(), terms.lives());
        Ok(Fenced {
            cluster,
            in_force,
            is_settled: terms.is_settled(),
            life,
            nonces,
            term,
            nominee,
            last: self.positions().last,
            lives,
        })
    }

    /// Ends older terms, and notes a new one (INV-REP-4).
    fn note(&self, state: &mut State, term: u64, nominee: Option<u32>) -> Result<(), NodeError> {
        self.log.fence()?;
        (state.leading, state.nominee_in) = (None, None);
        Ok(state.terms.save(term, nominee)?)
    }

    fn check_usable(&self, state: &State) -> Result<(), NodeError> {
        if state.is_retired {
            return Err(NodeError::Retired { node: self.number });
        }
        if let Some((known, by)) = state.is_old {
            return Err(NodeError::OldDirectory { own: state.terms.life(), known, by });
        }
        if self.log.is_closed() {
            return Err(NodeError::Retired { node: self.number });
        }
        if let Some(cause) = self.log.poisoned() {
            return Err(LogError::Poisoned(cause).into());
        }
        match state.must_reopen {
            Some(up_to) => Err(NodeError::MustReopen { node: self.number, up_to }),
            None => Ok(()),
        }
    }

    /// Begins to lead in a term in which this node was fenced as the nominee, in this life, and a majority of the cluster's members with it.
    ///
    /// # Errors
    /// [`NodeError::StaleTerm`] if this node noted another term, or was started since; [`NodeError::OtherCluster`], [`NodeError::OtherMembers`],
    /// [`NodeError::PastLife`], [`NodeError::NoMajority`], [`NodeError::NoMajorityBefore`], [`NodeError::Behind`] if the others do not allow it: fence more, or another nominee.
    /// [`NodeError::OldDirectory`], [`NodeError::Term`], [`NodeError::Log`].
    pub fn appoint(&self, term: u64, fenced: &[Fenced]) -> Result<(), NodeError> {
        self.appoint_after(term, fenced, |_| {})
    }

    /// The same. `prepare` runs right before it leads, with the members with which it does.
    pub(crate) fn appoint_after(
        &self,
        term: u64,
        fenced: &[Fenced],
        prepare: impl FnOnce(&Cluster),
    ) -> Result<(), NodeError> {
        let mut state = self.state.lock();
        self.check_usable(&state)?;
        let noted = state.terms.term();
        if state.nominee_in != Some(term) {
            return Err(NodeError::StaleTerm { node: self.number, term, noted });
        }
        let cluster = Arc::clone(state.terms.cluster());
        cluster.checked_with(self.number)?;
        let set: BTreeSet<u32> = cluster.members.iter().copied().collect();
        let own = state.terms.life();
        let counts = |fenced: &&Fenced| {
            let is_of_this_life = fenced.life.node != self.number || fenced.life == own;
            fenced.term == term && fenced.nominee == Some(self.number) && is_of_this_life
        };
        let promises: Vec<&Fenced> = fenced.iter().filter(counts).collect();
        self.check_promises(&mut state, &promises)?;
        let promised: BTreeSet<u32> = promises.iter().map(|fenced| fenced.life.node).collect();
        let count = set.intersection(&promised).count();
        if 2 * count <= set.len() {
            return Err(NodeError::NoMajority { term, fenced: count, members: set.len() });
        }
        if !state.terms.is_settled() && !promises.iter().any(|promise| promise.is_settled) {
            // Other members before may have changed to another set.
            let count = cluster.previous.iter().filter(|member| promised.contains(member)).count();
            if 2 * count <= cluster.previous.len() {
                let previous = cluster.previous.clone();
                return Err(NodeError::NoMajorityBefore { term, fenced: count, previous });
            }
        }
        let last = self.positions().last;
        // One that is removed cannot lead, and need not be asked: what a majority with it has is on one of this majority, too.
        let is_ahead = |fenced: &&&Fenced| fenced.last > last && set.contains(&fenced.life.node);
        if let Some(ahead) = promises.iter().find(is_ahead) {
            return Err(NodeError::Behind { last, ahead: (ahead.life.node, ahead.last) });
        }
        state.terms.note_settled(&cluster)?;
        state.nominee_in = None;
        prepare(&cluster);
        self.log.lead(term)?;
        let matched =
            set.into_iter().filter(|member| *member != self.number).map(|member| (member, 0)).collect();
        state.leading = Some(Leading {
            term,
            cluster,
            matched,
            agreed: EntryId::default(),
            round: 0,
            is_asked: false,
            held: BTreeMap::new(),
            lives: state.terms.lives().into_iter().map(|life| (life.node, life)).collect(),
        });
        Ok(())
    }

    /// Ends what this node does for good, because its log is about to be opened again: it promises and acknowledges nothing any more, for its
    /// terms are not the file's then. Returns the entry after which the log is to be cut, if it is; `None` if the log need not be opened again:
    /// then nothing was changed.
    pub fn retire(&self) -> Option<Option<u64>> {
        let mut state = self.state.lock();
        let led = || {
            let has_failed =
                state.terms.has_failed() || self.log.poisoned().is_some() || self.log.is_closed();
            (has_failed || self.log.role() != Some(Role::Follower)).then_some(None)
        };
        let up_to = state.must_reopen.or_else(led).filter(|_| !state.is_retired)?;
        state.is_retired = true;
        (state.leading, state.nominee_in) = (None, None);
        Some(up_to)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.state.lock().is_retired
    }

    /// Ends what this node does until its log is opened again.
    fn end(&self, state: &mut State, up_to: Option<u64>) -> NodeError {
        state.must_reopen = Some(up_to);
        NodeError::MustReopen { node: self.number, up_to }
    }

    // The leader.

    /// What follower `to` gets next, if it has this node's log up to `after`: some entries, each with the chunks to which it refers before it,
    /// and what is agreed. A message has [`Node::set_append_bytes_max`] bytes, about. `None` if this node does not lead.
    ///
    /// # Errors
    /// [`NodeError::Gap`] if this log does not reach so far. [`NodeError::Log`] with [`LogError::TooOld`] if it does not reach back that far:
    /// the follower has to be filled from a copy.
    pub fn append_after(&self, to: u32, after: impl Into<SentUpTo>) -> Result<Option<Append>, NodeError> {
        let SentUpTo { index: after, chunks: chunks_before } = after.into();
        let mut state = self.state.lock();
        let Some(leading) = &mut state.leading else { return Ok(None) };
        let Leading { term, agreed, round, .. } = *leading;
        let cluster = Arc::clone(&leading.cluster);
        // Asked from here on: a read that begins later waits for the next round.
        leading.is_asked = true;
        let (envelope, lives) = (self.envelope_in(&state, to), state.lived.values().cloned().collect());
        drop(state);
        // A follower that has nearly all gets what follows in memory. For one that is behind, the entry before is read from the log, too.
        let known = match after {
            0 => Some(EntryId::default()),
            _ => Some(agreed).filter(|id| id.index == after).or_else(|| self.log.pending_entry(after)),
        };
        let mut reader = self.log.entries(if known.is_some() { after } else { after - 1 })?;
        let previous = match known {
            Some(id) => id,
            None => {
                reader.next_id().map_err(|error| self.unreadable(error))?.ok_or_else(|| NodeError::Gap {
                    node: self.number,
                    previous: EntryId { term: 0, index: after },
                    last: self.positions().last,
                })?
            }
        };
        let (chunks, entries, begun) = (Vec::new(), Vec::new(), None);
        let mut append = Append {
            envelope,
            term,
            previous,
            chunks_before,
            chunks,
            entries,
            begun,
            agreed,
            round,
            lives,
            cluster,
        };
        self.fill(&mut append, &mut reader)?;
        Ok(Some(append))
    }

    /// The error for what this log has and cannot be read: it is damaged, so the node says nothing any more.
    fn unreadable(&self, error: LogError) -> NodeError {
        if matches!(error, LogError::Damaged(_)) {
            self.log.poison(DAMAGED);
        }
        error.into()
    }

    /// Fills a message with what comes next in the log.
    fn fill(&self, append: &mut Append, reader: &mut EntryReader<'_>) -> Result<(), NodeError> {
        let (mut bytes, bytes_max) = (0, self.append_bytes_max.load(Relaxed));
        while bytes < bytes_max {
            let first = append.entries.is_empty();
            let sent = if first { append.chunks_before } else { 0 };
            let Some(next) = self.next_entry(append, sent, reader)? else { break };
            if sent as usize > next.chunks.len() {
                append.chunks_before = 0;
            }
            for chunk in next.chunks.get(sent as usize..).unwrap_or(&next.chunks) {
                if bytes >= bytes_max {
                    append.begun = Some(next.entry.id);
                    *self.begun.lock() = Some(next);
                    return Ok(());
                }
                let chunk = self.log.chunk_to_send(chunk)?;
                bytes += chunk.body.len();
                append.chunks.push(chunk);
            }
            let entry = Arc::try_unwrap(next).map_or_else(|next| next.entry.clone(), |next| next.entry);
            bytes += entry.payload.len();
            append.entries.push(entry);
        }
        if append.entries.is_empty() {
            append.chunks_before = 0;
        }
        Ok(())
    }

    /// The entry that comes next in a message, of which `sent` chunks were sent before. One with many chunks takes many messages, and is read once.
    fn next_entry(
        &self,
        append: &Append,
        sent: u32,
        reader: &mut EntryReader<'_>,
    ) -> Result<Option<Arc<NextEntry>>, NodeError> {
        let begun = self.begun.lock().clone();
        let is_next = |next: &Arc<NextEntry>| sent > 0 && next.entry.id.index == append.previous.index + 1;
        if let Some(next) = begun.filter(is_next) {
            reader.next_id().map_err(|error| self.unreadable(error))?;
            return Ok(Some(next));
        }
        let Some(entry) = reader.next().map_err(|error| self.unreadable(error))? else { return Ok(None) };
        Ok(Some(Arc::new(NextEntry { entry, chunks: reader.take_chunks() })))
    }

    /// Sets how many bytes of entries and chunks a message has, about: it ends after the first that reaches so many. Default 1 MiB.
    pub fn set_append_bytes_max(&self, bytes: usize) {
        self.append_bytes_max.store(bytes.max(1), Relaxed);
    }

    /// A follower has acknowledged. Returns whether more is agreed now; nothing is if this node does not lead in that term.
    ///
    /// # Errors
    /// [`NodeError::OtherCluster`], [`NodeError::Misdirected`], [`NodeError::PastLife`]: it does not count. [`NodeError::OldDirectory`], [`NodeError::Term`],
    /// [`NodeError::Log`].
    pub fn acknowledged(&self, appended: &Appended) -> Result<bool, NodeError> {
        Ok(self.count(appended)?.unwrap_or(false))
    }

    /// The same; `None` if it does not count.
    pub(crate) fn count(&self, appended: &Appended) -> Result<Option<bool>, NodeError> {
        let mut state = self.state.lock();
        if state.is_retired || state.leading.is_none() {
            return Ok(None);
        }
        self.check_envelope(&mut state, &appended.envelope)?;
        if let Err(error) = self.remember(&mut state, &appended.envelope, &[]) {
            return Err(self.stop_leading(&mut state, error));
        }
        let Some(leading) = state.leading.as_mut().filter(|leading| leading.term == appended.term) else {
            return Ok(None);
        };
        let Some(matched) = leading.matched.get_mut(&appended.envelope.from.node) else { return Ok(None) };
        *matched = (*matched).max(appended.matched.index);
        let held = leading.held.entry(appended.envelope.from.node).or_default();
        *held = (*held).max(appended.round);
        self.agree(state).map(Some)
    }

    /// A follower rejected what this node sends, as a leader: up to which index it has this node's log for certain. `None` if this node does not lead in that term.
    ///
    /// # Errors
    /// Those of [`Node::acknowledged`] about the sender.
    pub(crate) fn rejected(&self, envelope: &Envelope, term: u64) -> Result<Option<u64>, NodeError> {
        let mut state = self.state.lock();
        if state.is_retired || state.leading.is_none() {
            return Ok(None);
        }
        self.check_envelope(&mut state, envelope)?;
        let leading = state.leading.as_ref().filter(|leading| leading.term == term);
        Ok(leading.and_then(|leading| leading.matched.get(&envelope.from.node).copied()))
    }

    /// This node has made entries durable. Returns whether more is agreed now.
    ///
    /// # Errors
    /// [`NodeError::Log`].
    pub fn flushed(&self) -> Result<bool, NodeError> {
        self.agree(self.state.lock())
    }

    /// Raises `agreed` to the highest entry that a majority has. Not under the lock: callbacks run meanwhile, and what a majority has of the
    /// leader's own term stays agreed, whatever comes.
    fn agree(&self, mut state: MutexGuard<'_, State>) -> Result<bool, NodeError> {
        let Some(leading) = &mut state.leading else { return Ok(false) };
        let mut indexes: Vec<u64> = leading.matched.values().copied().collect();
        indexes.push(self.positions().durable.index);
        indexes.sort_unstable_by(|a, b| b.cmp(a));
        let Some(id) = self.log.pending_entry(indexes[indexes.len() / 2]) else { return Ok(false) };
        if id.term != leading.term {
            return Ok(false);
        }
        let cluster = Arc::clone(&leading.cluster);
        leading.agreed = leading.agreed.max(id);
        if let Err(error) = state.terms.note_in_force(&cluster) {
            return Err(self.stop_leading(&mut state, error.into()));
        }
        drop(state);
        // Others may still get it: then it is read again.
        self.begun.lock().take_if(|begun| begun.entry.id.index <= id.index);
        Ok(self.log.raise_agreed(id)?)
    }

    /// Its file of terms failed: it could count no life and note no term any more.
    fn stop_leading(&self, state: &mut State, error: NodeError) -> NodeError {
        state.leading = None;
        // It leads, so its log is replicated.
        let _ = self.log.fence();
        error
    }

    // Reads.

    /// Begins a read that shows all that was acknowledged before, by any leader: it waits until a majority says that this node's term still
    /// holds ([`Node::holds`]), which is asked with the next messages to followers; one question serves all reads that begin before it is
    /// sent. This is the read index of Ongaro's thesis (2014, section 6.4).
    ///
    /// # Errors
    /// [`NodeError::NotLeading`], [`NodeError::NothingAgreed`].
    pub fn begin_read(&self) -> Result<ReadBarrier, NodeError> {
        let mut state = self.state.lock();
        let Some(leading) = &mut state.leading else {
            return Err(NodeError::NotLeading { node: self.number });
        };
        let Leading { term, agreed, .. } = *leading;
        if agreed.index == 0 {
            return Err(NodeError::NothingAgreed { node: self.number, term });
        }
        if leading.is_asked || leading.round == 0 {
            (leading.round, leading.is_asked) = (leading.round + 1, false);
        }
        // What is agreed may be news to the log yet.
        let csn = self.log.entry_csn(agreed.index).max(self.positions().agreed.csn);
        Ok(ReadBarrier { term, round: leading.round, csn })
    }

    /// Whether a majority has said, since a read began, that this node's term still holds.
    ///
    /// # Errors
    /// [`NodeError::NotLeading`]: it does not, and the read has to begin at another node.
    pub fn holds(&self, barrier: &ReadBarrier) -> Result<bool, NodeError> {
        let state = self.state.lock();
        let Some(leading) = state.leading.as_ref().filter(|leading| leading.term == barrier.term) else {
            return Err(NodeError::NotLeading { node: self.number });
        };
        let replied = leading.held.values().filter(|round| **round >= barrier.round).count();
        Ok(2 * (replied + 1) > leading.matched.len() + 1)
    }

    // A follower.

    /// Takes what a leader sent: checks that it continues this log, appends it, makes it durable, and acknowledges all of it at once.
    ///
    /// # Errors
    /// [`NodeError::StaleTerm`] if the leader's term is over; [`NodeError::Gap`], [`NodeError::ChunkGap`] and [`NodeError::Differs`] if this log does
    /// not have what comes before these: the leader begins earlier; [`NodeError::MustReopen`] if this log has others in their place, or led before. [`NodeError::TwoLeaders`]; [`NodeError::OtherCluster`],
    /// [`NodeError::Misdirected`], [`NodeError::PastLife`], [`NodeError::OldDirectory`]; [`NodeError::Term`], [`NodeError::Log`].
    pub fn append(&self, message: &Append) -> Result<Appended, NodeError> {
        message.check()?;
        let mut state = self.state.lock();
        self.check_usable(&state)?;
        self.hear_of_members(&mut state, message)?;
        self.check_envelope(&mut state, &message.envelope)?;
        self.remember(&mut state, &message.envelope, &message.lives)?;
        let leader = message.envelope.from.node;
        let (term, noted) = (message.term, state.terms.term());
        if term < noted {
            return Err(NodeError::StaleTerm { node: self.number, term, noted });
        }
        if self.leads() == Some(term) {
            return Err(NodeError::TwoLeaders { term, nodes: (self.number, leader) });
        }
        if term > noted {
            self.note(&mut state, term, Some(leader))?;
        }
        if message.says_in_force() {
            state.terms.note_in_force(&message.cluster)?;
        }
        // Before it acknowledges anything: the leader after this one may hear of it here alone.
        state.terms.note_settled(&message.cluster)?;
        if self.log.role() != Some(Role::Follower) {
            return Err(self.end(&mut state, None));
        }
        self.check_previous(message.previous)?;
        let mut matched = message.previous;
        let mut csn = self.log.entry_csn(matched.index);
        let mut chunks = Chunks { nth: message.chunks_before, rest: &message.chunks };
        for entry in &message.entries {
            self.append_entry(&mut state, matched, entry, &mut chunks)?;
            (matched, csn) = (entry.id, entry.last_csn());
        }
        if let Some(begun) = message.begun {
            if !self.has_next(&mut state, matched, begun)? {
                self.receive(begun, chunks.rest.len(), &mut chunks)?;
            } else {
                // It is there as a whole: no more of its chunks have to come.
                (matched, csn) = (begun, csn.max(self.log.entry_csn(begun.index)));
            }
        }
        self.log.flush_entries()?;
        let envelope = self.envelope_in(&state, leader);
        drop(state);
        // Not beyond what is known to be the leader's.
        if message.agreed.index <= matched.index {
            self.log.raise_agreed(message.agreed)?;
        } else {
            self.log.raise_agreed(matched)?;
        }
        let (of, count) = self.log.received_chunks();
        let chunks = if of.index == matched.index + 1 { count } else { 0 };
        Ok(Appended { envelope, term, matched, chunks, csn, round: message.round })
    }

    /// Takes the next `count` chunks, which are of an entry that is not there. Those that came before are passed over.
    fn receive(&self, entry: EntryId, count: usize, chunks: &mut Chunks<'_>) -> Result<(), NodeError> {
        for (nth, chunk) in chunks.take(count) {
            let have = self.received(entry);
            if nth > have {
                return Err(NodeError::ChunkGap { node: self.number, entry, sent: nth, have });
            }
            if nth == have {
                self.log.receive_chunk(entry, nth, chunk)?;
            }
        }
        Ok(())
    }

    /// How many chunks of an entry came that is not there.
    fn received(&self, entry: EntryId) -> u32 {
        let (of, count) = self.log.received_chunks();
        if of == entry { count } else { 0 }
    }

    /// Whether the entry that follows what both logs have is there. Another one in its place is cut, and only there: what this node has, and does
    /// not know to be agreed, may be agreed.
    fn has_next(&self, state: &mut State, previous: EntryId, next: EntryId) -> Result<bool, NodeError> {
        if next.index != previous.index + 1 {
            return Err(NodeError::Gap { node: self.number, previous: next, last: previous });
        }
        match self.log.match_entry(next)? {
            EntryMatch::Agreed | EntryMatch::Same => Ok(true),
            EntryMatch::Missing => Ok(false),
            EntryMatch::Other => Err(self.end(state, Some(next.index - 1))),
        }
    }

    fn check_previous(&self, previous: EntryId) -> Result<(), NodeError> {
        let EntryPositions { last, agreed, .. } = self.positions();
        match self.log.match_entry(previous)? {
            EntryMatch::Agreed | EntryMatch::Same => Ok(()),
            EntryMatch::Missing => Err(NodeError::Gap { node: self.number, previous, last }),
            EntryMatch::Other => {
                Err(NodeError::Differs { node: self.number, previous, begin_after: agreed.index })
            }
        }
    }

    /// Appends an entry with its chunks, unless it is there.
    fn append_entry(
        &self,
        state: &mut State,
        previous: EntryId,
        entry: &Entry,
        chunks: &mut Chunks<'_>,
    ) -> Result<(), NodeError> {
        let has_entry = self.has_next(state, previous, entry.id)?;
        let count: u64 = entry.chunks.iter().map(|frame| u64::from(frame.count)).sum();
        let coming = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(chunks.nth as usize);
        if !has_entry {
            let (first, next) = (entry.first_csn, self.log.reserved_csn().next());
            if first != next {
                return Err(NodeError::OtherHistory { node: self.number, entry: entry.id, first, next });
            }
            self.receive(entry.id, coming, chunks)?;
            let have = self.received(entry.id);
            if u64::from(have) != count {
                return Err(NodeError::ChunkGap {
                    node: self.number,
                    entry: entry.id,
                    sent: chunks.nth,
                    have,
                });
            }
            self.log.append_entry(entry)?;
        } else {
            chunks.take(coming).for_each(drop);
        }
        chunks.nth = 0;
        Ok(())
    }
}

/// The chunks of a message that were not looked at yet.
struct Chunks<'m> {
    /// Which of its entry the first one is.
    nth: u32,
    rest: &'m [SentChunk],
}

impl<'m> Chunks<'m> {
    /// The next ones, with which of their entry each is.
    fn take(&mut self, count: usize) -> impl Iterator<Item = (u32, &'m SentChunk)> + use<'m> {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        let first = self.nth;
        self.rest = rest;
        self.nth += taken.len() as u32;
        (first..).zip(taken)
    }
}

impl From<LogError> for NodeError {
    fn from(error: LogError) -> NodeError {
        NodeError::Log(error)
    }
}

impl From<TermError> for NodeError {
    fn from(error: TermError) -> NodeError {
        NodeError::Term(error)
    }
}

impl From<fulgurite::Error> for NodeError {
    fn from(error: fulgurite::Error) -> NodeError {
        NodeError::Database(error)
    }
}
