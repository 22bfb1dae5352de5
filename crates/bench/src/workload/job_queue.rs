//! `job-queue`: many workers at one queue, which put jobs at its end, or take them from its head.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::rows::{Sizes, expect_rows};
use super::sealed::{Seal, check_seals, fill_sealed};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::engine::{Needs, Store, Verdict};
use crate::retrying_session::RetryingSession;
use crate::{Error, Result};

/// The work of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Work {
    /// They fill an empty queue.
    Enqueue,
    /// They empty a full one.
    Take,
}

/// One queue in one table, and a transaction for each job, as in a program that distributes work.
///
/// A job is a row whose key is its number, 8 bytes, the highest first, and whose value has 100. To enqueue, a worker
/// draws the next number and puts the job. To take, it finds the first job that it can have and deletes it, in one
/// transaction: no two workers take the same job, which is checked job by job. The workers end when all jobs are put,
/// or none is left.
#[derive(Clone, Debug)]
pub struct JobQueue {
    jobs: u64,
    work: Work,
    next: Arc<AtomicU64>,
    taken: Arc<[AtomicBool]>,
}

const SIZES: Sizes = Sizes { key_bytes: 8, value_bytes: 100 };

impl JobQueue {
    /// Jobs.
    pub const JOBS: u64 = 100_000;

    /// The workload with this many jobs.
    pub fn new(jobs: u64, work: Work) -> JobQueue {
        let taken = (0..jobs).map(|_| AtomicBool::new(false)).collect();
        JobQueue { jobs, work, next: Arc::default(), taken }
    }

    fn rows_after(&self, done: &Done) -> u64 {
        match self.work {
            Work::Enqueue => done.operations(),
            Work::Take => self.jobs - done.operations(),
        }
    }
}

fn job_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

impl Workload for JobQueue {
    fn shape(&self) -> Shape {
        let about = |work: &str| format!("{} jobs {work} one queue, {SIZES}", self.jobs);
        let shape = Shape { name: "job-queue".into(), tables: &["jobs"], ..Shape::default() };
        match self.work {
            Work::Enqueue => Shape {
                about: about("put into"),
                kinds: &["enqueue"],
                bytes_per_operation: SIZES.row_bytes(),
                ..shape
            },
            Work::Take => Shape {
                about: about("taken from"),
                needs: Needs { transactions: true, ..Needs::default() },
                kinds: &["take"],
                loaded_bytes: self.jobs * SIZES.row_bytes(),
                bytes_per_operation: SIZES.key_bytes as u64,
                ..shape
            },
        }
    }

    fn work(&self, _: u32) -> Option<u64> {
        Some(self.jobs)
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let jobs = if self.work == Work::Take { self.jobs } else { 0 };
        fill_sealed(store, SIZES, 0..jobs, filling, |key, job| key.copy_from_slice(&job.to_be_bytes()))
    }

    fn client(&self, _: u32, _: u32) -> Client {
        let (queue, mut key, mut value) = (self.clone(), Vec::new(), vec![0; SIZES.value_bytes]);
        match self.work {
            Work::Enqueue => Box::new(move |session| queue.enqueue(session, &mut value)),
            Work::Take => Box::new(move |session| queue.take(session, &mut key, &mut value)),
        }
    }

    /// Every job is whole and under its key; there are as many as were put, and none that was taken.
    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        let found = check_seals(store, 0, "jobs", |key, seal| {
            job_of(key) == Some(seal.row)
                && self.taken.get(seal.row as usize).is_some_and(|taken| !taken.load(Ordering::Relaxed))
        })?;
        expect_rows("jobs", found, done.map_or(found, |done| self.rows_after(done)))
    }

    fn live_bytes(&self, done: &Done) -> Option<u64> {
        Some(self.rows_after(done) * SIZES.row_bytes())
    }
}

impl JobQueue {
    fn enqueue(&self, session: &mut RetryingSession<'_>, value: &mut [u8]) -> Result<Step> {
        let job = self.next.fetch_add(1, Ordering::Relaxed);
        if job >= self.jobs {
            return Ok(Step::End);
        }
        Seal { row: job, write: 0 }.write_over(value);
        session.write(|open| open.put(0, &job.to_be_bytes(), value).map(|()| Verdict::Commit))?;
        Ok(Step::Done(0))
    }

    fn take(
        &self,
        session: &mut RetryingSession<'_>,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<Step> {
        let took = session.write(|open| {
            let found = open.take_first(0, key, value)?;
            Ok(if found { Verdict::Commit } else { Verdict::Rollback })
        })?;
        if !took {
            return Ok(Step::End);
        }
        let taken = job_of(key).and_then(|job| self.taken.get(job as usize));
        match taken.map(|taken| taken.swap(true, Ordering::Relaxed)) {
            Some(false) => Ok(Step::Done(0)),
            _ => Err(Error::Wrong(format!("the job {} came twice, or never was", key.escape_ascii()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bed;

    #[test]
    fn all_jobs_are_put_and_each_is_taken_once() {
        for threads in [1, 4] {
            let (bed, done) = Bed::checked(JobQueue::new(500, Work::Enqueue), threads, u64::MAX);
            assert_eq!((done.operations(), bed.workload.live_bytes(&done)), (500, Some(500 * 108)));
            let (bed, done) = Bed::checked(JobQueue::new(500, Work::Take), threads, u64::MAX);
            assert_eq!((done.operations(), bed.workload.live_bytes(&done)), (500, Some(0)));
            bed.tamper(|open| open.put(0, &3u64.to_be_bytes(), &[0; 100]));
            assert!(bed.check(Some(&done)).is_err());
        }
    }

    #[test]
    fn a_run_that_is_cut_leaves_the_rest() {
        let bed = Bed::new(JobQueue::new(100, Work::Take));
        let (mut done, _) = bed.run(2, 10);
        assert_eq!(done.operations(), 20);
        bed.check(Some(&done)).expect("what was taken is gone");
        done.kinds[0] -= 1;
        assert!(bed.check(Some(&done)).is_err(), "a job is lost");
    }
}
