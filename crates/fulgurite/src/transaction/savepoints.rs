//! The savepoints of a transaction.

/// Consecutive savepoints between which nothing was written.
struct Run {
    first: u64,
    last: u64,
    /// The mark to which the write set is rolled back.
    mark: usize,
}

/// Savepoints by number; numbers rise and are used once. A run takes as much memory as one savepoint: nothing bounds
/// the number of savepoints, but the transaction's budget bounds the number of writes, hence of runs.
#[derive(Default)]
pub(super) struct Savepoints {
    runs: Vec<Run>,
    made: u64,
}

impl Savepoints {
    /// How many were made: the number of the newest.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// How many bytes of memory they take.
    pub fn bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }

    /// Makes a savepoint at a mark of the write set; returns its number.
    pub fn make(&mut self, mark: usize) -> u64 {
        let previous = self.made;
        self.made += 1;
        match self.runs.last_mut() {
            Some(run) if run.mark == mark && run.last == previous => run.last = self.made,
            _ => self.runs.push(Run { first: self.made, last: self.made, mark }),
        }
        self.made
    }

    /// Drops the savepoints after `number`, and returns the mark of `number`; `None` if there is no such savepoint.
    pub fn roll_back_to(&mut self, number: u64) -> Option<usize> {
        let index = self.runs.partition_point(|run| run.last < number);
        let run = self.runs.get_mut(index).filter(|run| run.first <= number)?;
        run.last = number;
        let mark = run.mark;
        self.runs.truncate(index + 1);
        Some(mark)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn savepoints_are_those_that_were_made_and_not_rolled_back(
            steps in proptest::collection::vec((0u8..3, 0u64..40), 0..60)
        ) {
            let (mut savepoints, mut model, mut mark) = (Savepoints::default(), Vec::new(), 0);
            for (step, number) in steps {
                match step {
                    0 => mark += 1,
                    1 => model.push((savepoints.make(mark), mark)),
                    _ => {
                        let known = model.iter().position(|(known, _)| *known == number);
                        let expected = known.map(|index| model[index].1);
                        assert_eq!(savepoints.roll_back_to(number), expected);
                        if let Some(index) = known {
                            model.truncate(index + 1);
                            mark = model[index].1;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn savepoints_without_writes_between_take_no_memory() {
        let mut savepoints = Savepoints::default();
        savepoints.make(7);
        let one = savepoints.bytes();
        for _ in 0..1_000_000 {
            savepoints.make(7);
        }
        assert_eq!((savepoints.bytes(), savepoints.roll_back_to(500)), (one, Some(7)));
    }
}
