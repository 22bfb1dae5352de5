//! The connections whose replies wait for commits.

use std::collections::VecDeque;

use fulgurite::Csn;

/// The connections of an I/O thread whose next reply waits for a commit, by that commit. Commits come almost in order, so filing a
/// connection is usually an append.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<(Csn, usize)>,
}

impl Waiting {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Files a connection.
    pub fn add(&mut self, needs: Csn, token: usize) {
        match self.queue.back() {
            Some((last, _)) if *last > needs => {
                let index = self.queue.partition_point(|(other, _)| *other <= needs);
                self.queue.insert(index, (needs, token));
            }
            _ => self.queue.push_back((needs, token)),
        }
    }

    /// The smallest commit that is awaited.
    pub fn first(&self) -> Option<Csn> {
        self.queue.front().map(|(needs, _)| *needs)
    }

    /// Removes and returns a connection whose commit is at or below `reached`.
    pub fn take(&mut self, reached: Csn) -> Option<usize> {
        self.queue.pop_front_if(|(needs, _)| *needs <= reached).map(|(_, token)| token)
    }

    /// Removes all.
    pub fn take_all(&mut self) -> Vec<usize> {
        self.queue.drain(..).map(|(_, token)| token).collect()
    }
}
