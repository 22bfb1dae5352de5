//! Commits in destructors, while their thread unwinds from a panic of its own.

use fulgurite_log::CommitLog;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite_env::SimEnv;

use super::support::*;
use crate::{Durability, FlushScheme, Options, Result};

/// Calls `commit` when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The result of `commit` in a destructor that runs while its thread unwinds.
fn while_unwinding<T>(mut commit: impl FnMut() -> T) -> T {
    let mut outcome = None;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _guard = OnDrop(|| outcome = Some(commit()));
        panic!("on purpose: of an application, not of the database");
    }));
    assert!(unwound.is_err());
    outcome.expect("the destructor ran")
}

/// Databases of each scheme, with the log's threads and without, each with a table.
fn databases() -> impl Iterator<Item = (String, crate::Database, crate::Table)> {
    let cases = FlushScheme::ALL.into_iter().flat_map(|scheme| [(scheme, true), (scheme, false)]);
    cases.map(|(flush_scheme, background)| {
        let options = Options {
            research: crate::ResearchOptions { flush_scheme, ..Default::default() },
            background,
            ..Options::default()
        };
        let db = open(&SimEnv::new(1), options);
        let table = db.table("t").unwrap();
        (format!("{} background {background}", flush_scheme.name()), db, table)
    })
}

#[test]
fn a_commit_in_a_destructor_of_an_unwinding_thread_does_not_poison_the_database() {
    for (name, db, table) in databases() {
        while_unwinding(|| table.put(b"session", b"closed"))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(db.engine().log.poisoned().is_none(), "{name}");
        table.put(b"next", b"1").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(text(table.get(b"session").unwrap().unwrap()), "closed");
        while_unwinding(|| db.checkpoint()).unwrap_or_else(|error| panic!("{name}: {error}"));
        db.close().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_ticket_in_a_destructor_of_an_unwinding_thread_does_not_poison_the_database() {
    for (name, db, table) in databases() {
        let deferred = || -> Result<crate::Ticket> {
            let mut txn = db.begin();
            txn.put(&table, b"session", b"closed")?;
            txn.commit_deferred()
        };
        let ticket = while_unwinding(|| {
            let ticket = deferred()?;
            ticket.wait()?;
            deferred()
        });
        ticket.and_then(|ticket| ticket.wait()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let asynchronous = while_unwinding(|| {
            let mut txn = db.begin();
            txn.set_durability(Durability::None)?;
            txn.put(&table, b"k", b"v")?;
            let commit = txn.commit_deferred()?.wait()?;
            db.wait_durable(commit.csn)
        });
        asynchronous.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(db.engine().log.poisoned().is_none(), "{name}");
        db.close().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
