//! Transactions that are retried when they conflict.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::handle::Handle;
use crate::transaction::{Commit, Transaction};
use crate::{Conflict, Error, Isolation, Result, Table, Ticket};

/// The conflict in an error of this library, or the error if it is none.
fn as_conflict(error: Error) -> Result<Box<Conflict>> {
    match error {
        Error::Conflict(conflict) => Ok(conflict),
        error => Err(error),
    }
}

impl Table {
    /// Runs a single operation, and retries it when it conflicts.
    pub(crate) fn retry_single<T>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Commit)> {
        self.engine.retry_unless(|| self.begin(), body, as_conflict, Transaction::commit)
    }
}

impl Handle {
    /// Runs a transaction, and retries it when it conflicts.
    pub fn retry<T>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Commit)> {
        self.retry_unless(|| Transaction::begin(self, isolation), body, as_conflict, Transaction::commit)
    }

    /// Like [`Handle::retry`] for an application's error type. An error of `body` is never retried.
    pub fn retry_as<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Commit), E> {
        self.retry_unless(|| Transaction::begin(self, isolation), body, Err, Transaction::commit)
    }

    /// Like [`Handle::retry`], but the commit is deferred: returns its ticket.
    pub fn retry_deferred<T>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Ticket)> {
        self.retry_unless(
            || Transaction::begin(self, isolation),
            body,
            as_conflict,
            Transaction::commit_deferred,
        )
    }

    /// Like [`Handle::retry_deferred`] for an application's error type. An error of `body` is never retried.
    pub fn retry_deferred_as<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Ticket), E> {
        self.retry_unless(|| Transaction::begin(self, isolation), body, Err, Transaction::commit_deferred)
    }

    fn retry_unless<T, E: From<Error>, C>(
        &self,
        begin: impl Fn() -> Transaction,
        mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
        as_conflict: impl Fn(E) -> Result<Box<Conflict>, E>,
        commit: impl Fn(Transaction) -> Result<C>,
    ) -> Result<(T, C), E> {
        let mut attempts = 0;
        loop {
            if attempts > 0 {
                self.counters.retries.fetch_add(1, Ordering::Relaxed);
            }
            let mut txn = begin();
            let conflict = match body(&mut txn) {
                Ok(value) => match commit(txn) {
                    Ok(commit) => return Ok((value, commit)),
                    Err(Error::Conflict(conflict)) => conflict,
                    Err(error) => return Err(error.into()),
                },
                Err(error) => match as_conflict(error) {
                    Ok(conflict) => conflict,
                    Err(error) => {
                        txn.rollback_durable()?;
                        return Err(error);
                    }
                },
            };
            if attempts == self.options.conflict_retries_max {
                return Err(
                    Error::TooManyConflicts { attempts: attempts.saturating_add(1), last: conflict }.into()
                );
            }
            self.back_off(attempts);
            attempts += 1;
        }
    }

    /// Waits a random time after the fourth conflict and each later one; the longest possible time doubles, up to 5 ms.
    fn back_off(&self, attempt: u32) {
        if attempt < 3 {
            return;
        }
        let max_us = 20u64 << attempt.min(8);
        let wait_us = self.env.random_u64() % max_us;
        self.env.clock().sleep(Duration::from_micros(wait_us));
    }
}
