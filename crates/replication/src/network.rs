//! What carries messages between replicas, and how a replica sends and takes them.
//!
//! A leader sends each of the others what follows the last that it has sent it, without waiting for replies: messages may be on their way when the next one
//! is made. A follower that lacks what comes before a message, because another one was lost or overtaken, says where the leader is to begin
//! ([`Rejected`]). So a message may be lost, doubled, late, or come in another order.

use crate::error::NodeError;
use crate::message::{Append, Appended, Envelope, SentUpTo};
use crate::replica::Replica;
use fulgurite_log::LogError;
use std::collections::VecDeque;

/// Carries messages from a node to others: sockets, or a queue of a simulation.
pub trait Network: Send + Sync {
    /// Sends a message to the node to which it is ([`Message::to`]), or loses it. It must not call a replica before it returns, and does not wait for a reply.
    fn send(&self, message: Message);
}

/// A message of one node to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Entries of a leader, or none.
    Append(Box<Append>),
    /// A follower has them durably.
    Appended(Appended),
    /// A follower lacks what comes before them.
    Rejected(Rejected),
}

/// A follower lacks what comes before a leader's message, or has something else there. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The follower, and the leader.
    pub envelope: Envelope,
    /// The leader's term.
    pub term: u64,
    /// Where the leader is to begin.
    pub begin_after: SentUpTo,
}

impl Message {
    /// The number of the node to which it is.
    pub fn to(&self) -> u32 {
        self.envelope().to
    }

    /// The number of the node that sends it.
    pub fn from(&self) -> u32 {
        self.envelope().from.node
    }

    /// From whom it is, and to whom.
    pub fn envelope(&self) -> &Envelope {
        match self {
            Message::Append(append) => &append.envelope,
            Message::Appended(appended) => &appended.envelope,
            Message::Rejected(rejected) => &rejected.envelope,
        }
    }
}

/// How far a leader has sent another node its log (the progress of a follower in etcd's Raft, which probes or replicates).
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    up_to: SentUpTo,
    /// The ends of the messages with something of the log which the node has not acknowledged.
    in_flight: VecDeque<SentUpTo>,
    /// Whether the node has not taken one since it rejected one: until then it gets one at a time.
    is_probed: bool,
}

/// So many messages are on their way to a node, at most.
const IN_FLIGHT_MAX: usize = 8;

impl Sent {
    fn new(up_to: SentUpTo) -> Sent {
        Sent { up_to, in_flight: VecDeque::new(), is_probed: true }
    }

    fn is_full(&self) -> bool {
        self.in_flight.len() >= if self.is_probed { 1 } else { IN_FLIGHT_MAX }
    }
}

impl Replica {
    /// Sends a node what follows the last that it was sent; or an empty message, which says what is agreed and asks whether the term still holds, if there is nothing,
    /// or eight messages are on their way. Call it after each flush of entries, after a reply while the last call had something, and now and then while nothing happens: what was lost
    /// is sent again after a reply to the next one. Returns whether it had something of the log. It sends nothing if this node does not lead.
    ///
    /// # Errors
    /// [`NodeError::Log`] with [`TooOld`](fulgurite_log::LogError::TooOld) if the log does not reach back to what the node lacks, as far as this one has heard: if it says so again after
    /// the node has replied, it has to be filled ([`Replica::refill`]). An empty message was sent. Others of [`Node::append_after`](crate::Node::append_after).
    pub fn send(&self, to: u32, network: &dyn Network) -> Result<bool, NodeError> {
        let open = self.open_now();
        let last = SentUpTo::from(open.last());
        let (after, is_full) = {
            let mut sent = open.sent.lock();
            let sent = sent.entry(to).or_insert_with(|| Sent::new(last));
            (sent.up_to, sent.is_full())
        };
        let (append, error) = match open.node.append_after(to, after) {
            // It has what this leader had sent before it was opened again, and does not have any more; or it lacks what is gone, and may be filled.
            Err(error @ (NodeError::Gap { .. } | NodeError::Log(LogError::TooOld { .. }))) => {
                open.sent.lock().insert(to, Sent::new(last));
                (open.node.append_after(to, last)?, Some(error))
            }
            append => (append?, None),
        };
        let Some(mut append) = append else { return Ok(false) };
        if is_full && error.is_none() {
            // The reply says what has come.
            append.empty();
        }
        let (end, has_some) = (append.end(), !append.is_empty());
        if has_some && let Some(now) = open.sent.lock().get_mut(&to) {
            now.in_flight.push_back(end);
            // A rejection that came meanwhile goes before.
            if now.up_to == after {
                now.up_to = end;
            }
        }
        network.send(Message::Append(Box::new(append)));
        match error {
            Some(error @ NodeError::Log(_)) => Err(error),
            _ => Ok(has_some),
        }
    }

    /// Takes a message that has come, and sends the reply, if there is one.
    ///
    /// # Errors
    /// [`NodeError::MustReopen`]: call [`Replica::reopen`]; the leader begins again when it hears from this node. Else those of
    /// [`Replica::append`] and [`Replica::acknowledged`], but for what a [`Rejected`] says.
    pub fn receive(&self, message: &Message, network: &dyn Network) -> Result<(), NodeError> {
        match message {
            Message::Append(append) => {
                let reply = match self.append(append) {
                    Ok(appended) => Message::Appended(appended),
                    Err(error) => {
                        let begin_after = error.begin_after().ok_or(error)?;
                        let envelope = self.node().envelope(append.envelope.from.node);
                        Message::Rejected(Rejected { envelope, term: append.term, begin_after })
                    }
                };
                network.send(reply);
            }
            Message::Appended(appended) => {
                self.acknowledged(appended)?;
                if let Some(sent) = self.open_now().sent.lock().get_mut(&appended.envelope.from.node) {
                    let up_to = appended.up_to();
                    sent.in_flight.retain(|end| *end > up_to);
                    sent.is_probed = false;
                }
            }
            Message::Rejected(rejected) => {
                let open = self.open_now();
                if let Some(matched) = open.node.rejected(&rejected.envelope, rejected.term)? {
                    // One that is late says less than the node has said since.
                    let begin_after = rejected.begin_after.max(matched.into());
                    open.sent.lock().insert(rejected.envelope.from.node, Sent::new(begin_after));
                }
            }
        }
        Ok(())
    }
}
