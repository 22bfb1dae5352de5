//! The connections whose replies wait for commits.

use std::collections::VecDeque;

use fulgurite::Csn;

/// The connections of an I/O thread whose next reply waits for a commit, by that commit. Commits come almost in order, so filing a
/// connection is usually an append. What is filed stays also if its connection is closed.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<(Csn, usize)>,
    /// How many connections wait.
    connections: usize,
}

impl Waiting {
    /// How many connections wait.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Files a connection.
    pub fn add(&mut self, needs: Csn, token: usize) {
        self.connections += 1;
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

    /// A connection that was filed does not wait any more.
    pub fn left(&mut self) {
        self.connections -= 1;
    }

    /// Removes and returns what was filed with a commit at or below `reached`.
    pub fn take(&mut self, reached: Csn) -> Option<(Csn, usize)> {
        self.queue.pop_front_if(|(needs, _)| *needs <= reached)
    }

    /// Removes all.
    pub fn take_all(&mut self) -> Vec<(Csn, usize)> {
        self.connections = 0;
        self.queue.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filed_is_taken_by_its_commit_and_stays_for_connections_that_left() {
        let mut waiting = Waiting::default();
        for (needs, token) in [(5, 0), (7, 1), (6, 2), (7, 3)] {
            waiting.add(Csn(needs), token);
        }
        waiting.left();
        assert_eq!((waiting.connections(), waiting.first()), (3, Some(Csn(5))));
        assert_eq!(waiting.take(Csn(4)), None);
        assert_eq!(waiting.take(Csn(6)), Some((Csn(5), 0)));
        assert_eq!(waiting.take(Csn(6)), Some((Csn(6), 2)));
        assert_eq!(waiting.take(Csn(6)), None);
        assert_eq!(waiting.take_all(), [(Csn(7), 1), (Csn(7), 3)]);
        assert_eq!((waiting.connections(), waiting.first()), (0, None));
    }
}
