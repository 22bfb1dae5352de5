//! What carries messages between replicas, and how a replica sends and takes them.
//!
//! A leader sends each of the others what follows the last that it has sent it, without waiting for replies: messages may be on their way when the next one
//! is made. A follower that lacks what comes before a message, because another one was lost or overtaken, says where the leader is to begin
//! ([`Rejected`]). So a message may be lost, doubled, late, or come in another order.

use crate::error::NodeError;
use crate::message::{Append, Appended, Envelope, SentUpTo};
use crate::replica::Replica;

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

impl Replica {
    /// Sends a node what follows the last that it was sent, or an empty message, which says what is agreed and asks whether the term still holds: after each
    /// flush of entries, after each reply, and now and then while nothing happens. Returns whether it had something of the log: then there may be
    /// more. It sends nothing if this node does not lead.
    ///
    /// # Errors
    /// [`NodeError::Log`] with [`TooOld`](fulgurite_log::LogError::TooOld) if the log does not reach back to what the node lacks: it has to be filled ([`Replica::refill`]).
    /// Others of [`Node::append_after`](crate::Node::append_after).
    pub fn send(&self, to: u32, network: &dyn Network) -> Result<bool, NodeError> {
        let open = self.open_now();
        let last = || SentUpTo::from(open.last());
        let after = *open.sent.lock().entry(to).or_insert_with(last);
        let append = match open.node.append_after(to, after) {
            // It has what this leader had sent before it was opened again, and does not have any more.
            Err(NodeError::Gap { last, .. }) => {
                open.sent.lock().insert(to, last.index.into());
                open.node.append_after(to, last.index)?
            }
            append => append?,
        };
        let Some(append) = append else { return Ok(false) };
        // A rejection that came meanwhile goes before.
        if let Some(sent) = open.sent.lock().get_mut(&to).filter(|sent| **sent == after) {
            *sent = append.end();
        }
        let has_some = !append.is_empty();
        network.send(Message::Append(Box::new(append)));
        Ok(has_some)
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
            Message::Appended(appended) => _ = self.acknowledged(appended)?,
            Message::Rejected(rejected) => {
                let open = self.open_now();
                if open.node.is_rejected(&rejected.envelope, rejected.term)? {
                    open.sent.lock().insert(rejected.envelope.from.node, rejected.begin_after);
                }
            }
        }
        Ok(())
    }
}
