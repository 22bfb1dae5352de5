//! Readers beside a commit that read a lease live, has its number, and is not visible yet when the lease expires
//! (INV-TIME-3).

use std::sync::Arc;
use std::time::Duration;

use fulgurite_env::{Env, SimEnv};

use super::support::*;
use crate::{Contended, Database, Error, Expiry, Isolation, Options, Table};

/// A database whose clock is the test's, with a lease that expires in a second.
fn leased() -> (Arc<SimEnv>, Database, Table) {
    let env = SimEnv::new(1);
    let db = open(&env, Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    table.put_expiring(b"lease", b"mine", Expiry::at_unix_ms(env.clock().wall_ms() + 1000)).unwrap();
    (env, db, table)
}

/// The holder of the lease writes `a`. Its commit stops when it has a number, the lease expires, `beside` runs, and
/// then the commit continues.
fn beside_a_commit_in_time<T>(
    (env, db, table): &(Arc<SimEnv>, Database, Table),
    isolation: Isolation,
    beside: impl FnOnce() -> T,
) -> T {
    let meeting = hold_first_at(db, "numbered");
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let mut holder = db.begin_with(isolation);
            assert!(holder.get_for_update(table, b"lease").unwrap().is_some());
            holder.put(table, b"a", b"the lease is mine").unwrap();
            holder.commit().unwrap()
        });
        meeting.wait_for(1);
        env.advance(Duration::from_secs(2));
        let found = beside();
        meeting.open();
        holder.join().unwrap();
        found
    })
}

/// Whether a reader sees the lease, and whether it sees the holder's write.
fn seen(reads: &impl Reads, table: &Table) -> (bool, bool) {
    (reads.read(table, b"lease").is_some(), reads.read(table, b"a").is_some())
}

#[test]
fn a_transaction_that_only_reads_does_not_see_a_lease_expired_without_what_its_holder_wrote_in_time() {
    for isolation in LEVELS {
        let world = leased();
        let (_, db, table) = &world;
        let found = beside_a_commit_in_time(&world, isolation, || {
            let reader = db.begin_with(Isolation::Serializable);
            let found = seen(&reader, table);
            reader.commit().unwrap();
            found
        });
        assert_eq!(found, (true, false), "it comes before the holder, who had the lease");
        assert_eq!(seen(&db.begin_with(Isolation::Serializable), table), (false, true));
    }
}

#[test]
fn a_snapshot_a_range_and_single_operations_do_not_see_it_expired_either() {
    let world = leased();
    let (_, db, table) = &world;
    let (snapshot, range, got, tried, expiry) =
        beside_a_commit_in_time(&world, Isolation::Serializable, || {
            let range = rows(table.range(..).unwrap());
            (
                seen(&db.snapshot(), table),
                range,
                table.get(b"lease").unwrap(),
                table.try_get(b"lease").unwrap(),
                table.expiry(b"lease").unwrap(),
            )
        });
    assert_eq!(snapshot, (true, false));
    assert_eq!(range, pairs(&[("lease", "mine")]));
    assert!(got.is_some() && tried.is_some() && expiry.is_some());
    assert_eq!(seen(&db.snapshot(), table), (false, true));
    assert_eq!(table.range(..).unwrap().count(), 1);
    assert_eq!((table.get(b"lease").unwrap(), table.expiry(b"lease").unwrap()), (None, None));
}

/// Nor does merging prune the lease before all new snapshots see the holder's commit.
#[test]
fn a_lease_is_not_pruned_under_a_snapshot_that_begins_before_it_expired() {
    let (env, db, table) = leased();
    db.engine().log.at_reserved(|csn| table.state.index.freeze(csn));
    db.engine().pipeline.wait_horizon(db.engine().pipeline.visible()).unwrap();
    let mut holder = db.begin_with(Isolation::Serializable);
    assert!(holder.read(&table, b"lease").is_some());
    holder.put(&table, b"a", b"the lease is mine").unwrap();
    // Visible and not durable: no snapshot shows it.
    let ticket = holder.commit_deferred().unwrap();
    env.advance(Duration::from_secs(2));
    assert!(db.engine().merge_all().unwrap(), "the lease is merged");
    assert_eq!(seen(&db.snapshot(), &table), (true, false));
    assert_eq!(seen(&db.begin(), &table), (false, true));
    ticket.wait().unwrap();
    assert_eq!(seen(&db.snapshot(), &table), (false, true));
}

/// Otherwise each attempt would begin before the first lease expired, and be too late for the second.
#[test]
fn a_commit_that_was_too_late_retries_when_it_sees_the_commit_that_was_in_time() {
    let world = leased();
    let (env, db, table) = &world;
    let expires = Expiry::at_unix_ms(env.clock().wall_ms() + 1500);
    table.put_expiring(b"other", b"mine", expires).unwrap();
    let (sender, ended) = std::sync::mpsc::channel();
    let found = std::thread::scope(|scope| {
        let late = beside_a_commit_in_time(&world, Isolation::Serializable, || {
            let late = scope.spawn(move || {
                let mut late = db.begin_with(Isolation::Serializable);
                assert!(late.read(table, b"other").is_some());
                late.put(table, b"b", b"the other lease is mine").unwrap();
                assert_conflict(late.commit());
                let again = db.begin_with(Isolation::Serializable);
                let _ = sender.send(());
                (seen(&again, table), again.read(table, b"other"))
            });
            let _ = ended.recv_timeout(Duration::from_millis(100));
            late
        });
        late.join().unwrap()
    });
    assert_eq!(found, ((false, true), None));
}

/// The lease is renewed half a second before it expires, and expires for readers that do not see the renewal.
fn renew_in_time((env, db, table): &(Arc<SimEnv>, Database, Table)) {
    env.advance(Duration::from_millis(500));
    let mut holder = db.begin_with(Isolation::Serializable);
    assert!(holder.get_for_update(table, b"lease").unwrap().is_some());
    let expires = Expiry::at_unix_ms(env.clock().wall_ms() + 60_000);
    holder.put_expiring(table, b"lease", b"still mine", expires).unwrap();
    holder.commit().unwrap();
    env.advance(Duration::from_millis(600));
}

/// The results of single operations that stop at the hook `spot` while `meanwhile` runs.
fn found_beside<T: Send>(
    db: &Database,
    spot: &'static str,
    operation: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(),
) -> T {
    let meeting = hold_first_at(db, spot);
    std::thread::scope(|scope| {
        let reader = scope.spawn(operation);
        meeting.wait_for(1);
        meanwhile();
        meeting.open();
        reader.join().unwrap()
    })
}

const SINGLE_OPERATIONS: [fn(&Table, &[u8]) -> bool; 3] = [
    |table, key| table.get(key).unwrap().is_some(),
    |table, key| table.try_get(key).unwrap().is_some(),
    |table, key| table.expiry(key).unwrap().is_some(),
];

/// They found the lease, and read the clock after the holder had renewed it.
#[test]
fn single_operations_find_a_lease_that_is_renewed_in_time_meanwhile() {
    for is_found in SINGLE_OPERATIONS {
        let world = leased();
        let (_, db, table) = &world;
        let found =
            found_beside(db, "newest version found", || is_found(table, b"lease"), || renew_in_time(&world));
        assert!(found, "there was no moment without the lease");
    }
}

/// They began below the renewal, which let the version that they would have found be pruned.
#[test]
fn single_operations_find_a_lease_that_is_renewed_in_time_and_pruned_meanwhile() {
    for is_found in SINGLE_OPERATIONS {
        let world = leased();
        let (_, db, table) = &world;
        db.engine().log.at_reserved(|csn| table.state.index.freeze(csn));
        let renew_and_prune = || {
            renew_in_time(&world);
            assert!(db.engine().merge_all().unwrap());
        };
        let found = found_beside(db, "read CSN taken", || is_found(table, b"lease"), renew_and_prune);
        assert!(found, "there was no moment without the lease");
    }
}

/// As above, without an expiry: a commit that deletes all keys and writes this one again hides the old version.
#[test]
fn single_operations_find_a_key_that_is_replaced_with_a_range_delete_and_pruned_meanwhile() {
    for is_found in SINGLE_OPERATIONS {
        let (_, db, table) = leased();
        table.put(b"key", b"old").unwrap();
        db.engine().log.at_reserved(|csn| table.state.index.freeze(csn));
        let replace_and_prune = || {
            let mut txn = db.begin();
            txn.delete_range(&table, ..).unwrap();
            txn.put(&table, b"key", b"new").unwrap();
            txn.commit().unwrap();
            assert!(db.engine().merge_all().unwrap());
        };
        let found = found_beside(&db, "read CSN taken", || is_found(&table, b"key"), replace_and_prune);
        assert!(found, "there was no moment without the key");
    }
}

/// They began below a range delete that hides the newest version, while a snapshot keeps an older one: they find the newest one or
/// none, and never the older one, which was replaced before they began. The merge writes to the leaf, not to the key.
#[test]
fn single_operations_never_find_an_older_version_that_a_snapshot_kept() {
    let (_, db, table) = leased();
    let merge = || {
        db.engine().log.at_reserved(|csn| table.state.index.freeze(csn));
        assert!(db.engine().merge_all().unwrap());
    };
    table.put(b"key", b"old").unwrap();
    let snapshot = db.snapshot();
    table.put(b"key", b"new").unwrap();
    merge();
    table.put(b"neighbour", b"").unwrap();
    let delete_and_prune = || {
        db.engine().log.at_reserved(|csn| table.state.index.freeze(csn));
        table.delete_range(..).unwrap();
        assert!(db.engine().merge_all().unwrap());
    };
    let found = found_beside(&db, "read CSN taken", || table.get(b"key").unwrap(), delete_and_prune);
    assert!(found.is_none_or(|value| &*value == b"new"), "it was replaced before");
    assert_eq!(table.get(b"key").unwrap(), None);
    assert_eq!(snapshot.get(&table, b"key").unwrap().as_deref(), Some(&b"old"[..]));
}

/// An expiry by a rule of the application, of a key that the database does not know to expire.
#[test]
fn a_commit_at_or_after_the_moment_that_it_was_given_is_a_conflict() {
    for (passes_ms, commits) in [(999, true), (1_000, false)] {
        for attempted in [false, true] {
            let (env, db, table) = leased();
            let now_ms = env.clock().wall_ms();
            let mut txn = db.begin();
            txn.commit_before(&table, b"head", Expiry::at_unix_ms(now_ms + 5_000)).unwrap();
            txn.commit_before(&table, b"head", Expiry::at_unix_ms(now_ms + 1_000)).unwrap();
            txn.commit_before(&table, b"other", Expiry::Never).unwrap();
            txn.put(&table, b"field", b"v").unwrap();
            env.advance(Duration::from_millis(passes_ms));
            let outcome =
                if attempted { txn.try_commit().map(|_| ()) } else { txn.commit_numbered().map(|_| ()) };
            match outcome {
                Ok(()) => assert!(commits),
                Err(Error::Conflict(conflict)) => {
                    assert!(!commits);
                    assert_eq!(conflict.on, Contended::Expired(b"head"[..].into()));
                }
                Err(error) => panic!("{error}"),
            }
            assert_eq!(db.begin().read(&table, b"field").is_some(), commits);
        }
    }
}

/// The same for one that writes nothing, whose reads are validated.
#[test]
fn a_validation_at_or_after_the_moment_that_the_transaction_was_given_is_a_conflict() {
    for (passes_ms, commits) in [(999, true), (1_000, false)] {
        let (env, db, table) = leased();
        let now_ms = env.clock().wall_ms();
        let txn = db.begin();
        txn.commit_before(&table, b"head", Expiry::at_unix_ms(now_ms + 1_000)).unwrap();
        env.advance(Duration::from_millis(passes_ms));
        match txn.try_commit_validated() {
            Ok(_) => assert!(commits),
            Err(Error::Conflict(conflict)) => {
                assert!(!commits);
                assert_eq!(conflict.on, Contended::Expired(b"head"[..].into()));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
