//! Expiry and isolation: what was read while it was live is live when its reader commits.

mod common;

use std::sync::Arc;
use std::time::Duration;

use fulgurite::env::{Env, SimEnv};
use fulgurite::{Database, Error, Isolation, Table, Transaction};

use common::open;

fn database() -> (Arc<SimEnv>, Database, Table) {
    let env = SimEnv::new(1);
    let db = open(env.clone()).unwrap();
    let table = db.table("t").unwrap();
    (env, db, table)
}

/// Writes a lease that expires in a second.
fn lease(env: &SimEnv, table: &Table) {
    let _ = table.put_expiring(b"lease", b"mine", env.clock().wall_ms() + 1000).unwrap();
}

fn is_live(txn: &Transaction, table: &Table) -> bool {
    txn.get(table, b"lease").unwrap().is_some()
}

fn is_live_in_range(txn: &Transaction, table: &Table) -> bool {
    txn.range(table, "l".."m").unwrap().map(Result::unwrap).any(|(key, _)| &*key == b"lease")
}

fn is_live_in_range_back(txn: &Transaction, table: &Table) -> bool {
    let mut range = txn.prefix(table, b"l").unwrap();
    range.next_entry_back().unwrap().is_some()
}

fn is_expired(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. }) && error.to_string().contains("lease")
}

/// One reads the lease live and writes `a`; another, when it has expired, reads `a` and writes `b`. In no order of the
/// two would both see what they saw.
#[test]
fn two_holders_of_one_lease_do_not_both_commit() {
    for read in [is_live, is_live_in_range, is_live_in_range_back] {
        let (env, db, table) = database();
        lease(&env, &table);
        let mut holder = db.begin_with(Isolation::Serializable);
        assert!(read(&holder, &table));
        env.advance(Duration::from_secs(2));
        let mut next = db.begin_with(Isolation::Serializable);
        assert!(!read(&next, &table));
        assert!(next.get(&table, b"a").unwrap().is_none());
        next.put(&table, b"b", b"the lease was free, and a not written").unwrap();
        let _ = next.commit().unwrap();
        holder.put(&table, b"a", b"the lease was mine").unwrap();
        let error = holder.commit().unwrap_err();
        assert!(is_expired(&error), "{error}");
        assert!(table.get(b"a").unwrap().is_none());
    }
}

/// A holder that is alone has to be in time, too: whoever reads the lease after it must see it live.
#[test]
fn a_holder_commits_while_its_lease_is_live_and_not_later() {
    let (env, db, table) = database();
    lease(&env, &table);
    let mut early = db.begin_with(Isolation::Serializable);
    let mut late = db.begin_with(Isolation::Serializable);
    for txn in [&mut early, &mut late] {
        assert!(is_live(txn, &table));
    }
    early.put(&table, b"early", b"").unwrap();
    late.put(&table, b"late", b"").unwrap();
    env.advance(Duration::from_millis(900));
    let _ = early.commit().unwrap();
    env.advance(Duration::from_millis(100));
    assert!(is_expired(&late.commit().unwrap_err()));
}

#[test]
fn what_counts_as_read_is_what_is_validated() {
    // Under snapshot isolation reads do not count, but for those for an update.
    let (env, db, table) = database();
    lease(&env, &table);
    let mut reads = db.begin();
    assert!(is_live(&reads, &table) && is_live_in_range(&reads, &table));
    let mut updates = db.begin();
    assert!(updates.get_for_update(&table, b"lease").unwrap().is_some());
    let mut swaps = db.begin();
    assert!(swaps.compare_and_swap(&table, b"lease", Some(b"mine"), Some(b"still mine")).unwrap());
    env.advance(Duration::from_secs(2));
    reads.put(&table, b"a", b"").unwrap();
    let _ = reads.commit().unwrap();
    updates.put(&table, b"b", b"").unwrap();
    assert!(is_expired(&updates.commit().unwrap_err()));
    assert!(is_expired(&swaps.commit().unwrap_err()));
    assert!(table.get(b"lease").unwrap().is_none(), "a lease that has expired is not swapped back to life");
}

/// A retry reads it gone.
#[test]
fn a_retry_sees_that_it_has_expired() {
    let (env, db, table) = database();
    lease(&env, &table);
    let mut seen = Vec::new();
    let ((), _) = db
        .transact_with(Isolation::Serializable, |txn| -> fulgurite::Result<()> {
            seen.push(is_live(txn, &table));
            if seen.len() == 1 {
                env.advance(Duration::from_secs(2));
            }
            txn.put(&table, b"a", b"")
        })
        .unwrap();
    assert_eq!(seen, [true, false]);
}

/// A wall clock that runs back between two commits does not take the log's times with it; nor do threads that are
/// overtaken between the clock and the number.
#[test]
fn commit_times_rise_with_numbers() {
    let (env, db, table) = database();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (env, table) = (&env, &table);
            scope.spawn(move || {
                for n in 0..200u8 {
                    let _ = table.put([thread, n], b"v").unwrap();
                    env.jump_wall_clock(if n % 2 == 0 { 700 } else { -690 });
                }
            });
        }
    });
    drop(table);
    let times = commit_times(&env);
    assert!(times.len() > 800);
    assert!(times.is_sorted(), "{times:?}");
    drop(db);
}

/// The times of all commits in the log, by number.
fn commit_times(env: &Arc<SimEnv>) -> Vec<u64> {
    use fulgurite::dump::{Item, segment};
    let mut frames = Vec::new();
    let log = std::path::Path::new(common::PATH).join("log");
    for entry in env.disk().list(&log).unwrap() {
        for item in segment(env.disk(), &log.join(&entry.name)).unwrap().items {
            if let Item::Frame(frame) = item {
                frames.push((frame.header.csn, frame.header.commit_time_ms));
            }
        }
    }
    frames.sort_unstable();
    frames.into_iter().map(|(_, time_ms)| time_ms).collect()
}
