//! Expiry and isolation: a key that a transaction read live is live when the transaction commits.

use crate::common;

use std::sync::Arc;
use std::time::Duration;

use fulgurite::env::{Env, SimEnv};
use fulgurite::{Contended, Database, Error, Expiry, Isolation, Table, Transaction};

use crate::common::open;

fn database() -> (Arc<SimEnv>, Database, Table) {
    let env = SimEnv::new(1);
    let db = open(env.clone()).unwrap();
    let table = db.table("t").unwrap();
    (env, db, table)
}

/// Writes a lease that expires in a second.
fn lease(env: &SimEnv, table: &Table) {
    let _ = table.put_expiring(b"lease", b"mine", Expiry::at_unix_ms(env.clock().wall_ms() + 1000)).unwrap();
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
    matches!(error, Error::Conflict(conflict) if matches!(&conflict.on, Contended::Expired(key) if **key == *b"lease"))
}

/// One transaction reads the lease live and writes `a`; another, after the lease has expired, reads `a` and writes `b`.
/// In no order of the two do both read the values that they did.
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

/// A single holder has to commit in time, too: a later reader of the lease must find it live.
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
fn only_reads_that_are_validated_count() {
    // Under snapshot isolation only reads for an update count.
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

/// Of several values that a transaction read live, the first to expire sets its deadline, in whatever order it read
/// them.
#[test]
fn the_first_of_several_leases_to_expire_counts() {
    for keys in [[b"early", b"later"], [b"later", b"early"]] {
        let (env, db, table) = database();
        for (key, in_ms) in [(b"early", 1000), (b"later", 3000)] {
            let _ =
                table.put_expiring(key, b"mine", Expiry::at_unix_ms(env.clock().wall_ms() + in_ms)).unwrap();
        }
        let mut txn = db.begin_with(Isolation::Serializable);
        for key in keys {
            assert!(txn.get(&table, key).unwrap().is_some());
        }
        txn.put(&table, b"a", b"both leases were mine").unwrap();
        env.advance(Duration::from_secs(2));
        let error = txn.commit().unwrap_err();
        assert!(
            matches!(&error, Error::Conflict(conflict) if conflict.on == Contended::Expired((*b"early").into())),
            "{error}"
        );
    }
}

/// A retry finds the key expired.
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

/// Commit times rise even if the wall clock goes back between two commits, or if threads are overtaken between reading
/// the clock and getting the CSN.
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

const HOUR: Duration = Duration::from_secs(3600);

fn at(ms: u64) -> Option<Expiry> {
    Some(Expiry::at_unix_ms(ms))
}

/// An expiry is set, read, moved and removed, on each kind of handle, for small values and large ones.
#[test]
fn an_expiry_is_read_set_moved_and_removed_alone() {
    let (env, db, table) = database();
    for value in [vec![1; 3], vec![2; 5000], vec![3; 200_000]] {
        let now_ms = env.clock().wall_ms();
        let (at_1, at_2) = (now_ms + 600_000, now_ms + 900_000);
        assert_eq!(table.expiry("k").unwrap(), None);
        assert!(!table.expire_at("k", HOUR).unwrap() && !table.persist("k").unwrap());
        let _ = table.put("k", &value).unwrap();
        assert_eq!(table.expiry("k").unwrap(), Some(Expiry::Never));
        assert!(!table.persist("k").unwrap(), "it had none");
        assert!(table.expire_at("k", Expiry::at_unix_ms(at_1)).unwrap());
        assert_eq!(table.expiry("k").unwrap(), at(at_1));
        let snapshot = db.snapshot();
        let mut txn = db.begin();
        assert_eq!(txn.expiry(&table, "k").unwrap(), at(at_1));
        assert!(txn.expire_at(&table, "k", Expiry::at_unix_ms(at_2)).unwrap());
        assert_eq!(txn.expiry(&table, "k").unwrap(), at(at_2), "own writes are seen");
        assert_eq!(&*txn.get(&table, "k").unwrap().unwrap(), &*value);
        assert_eq!(table.expiry("k").unwrap(), at(at_1));
        let _ = txn.commit().unwrap();
        assert_eq!(table.expiry("k").unwrap(), at(at_2));
        assert_eq!(snapshot.expiry(&table, "k").unwrap(), at(at_1));
        assert_eq!(&*table.get("k").unwrap().unwrap(), &*value);
        assert!(table.persist("k").unwrap());
        assert_eq!(table.expiry("k").unwrap(), Some(Expiry::Never));
        env.advance(HOUR);
        assert_eq!(&*table.get("k").unwrap().unwrap(), &*value);
        assert!(table.expire_at("k", std::time::UNIX_EPOCH).unwrap(), "a time that has passed deletes");
        assert_eq!((table.get("k").unwrap(), table.expiry("k").unwrap()), (None, None));
        assert!(!table.expire_at("k", HOUR).unwrap(), "an expired key is not brought back");
        let mut txn = db.begin();
        assert!(!txn.persist(&table, "k").unwrap() && txn.expiry(&table, "k").unwrap().is_none());
    }
}

#[test]
fn puts_and_swaps_clear_an_expiry_and_their_expiring_forms_set_it() {
    let (env, db, table) = database();
    let expiring = |key: &str| matches!(table.expiry(key).unwrap(), Some(Expiry::At(_)));
    let _ = table.put_expiring("k", "1", HOUR).unwrap();
    assert!(expiring("k"));
    let _ = table.put("k", "2").unwrap();
    assert!(!expiring("k"));
    assert!(table.compare_and_swap_expiring("k", Some(b"2"), "3", HOUR).unwrap());
    assert!(expiring("k"));
    assert!(!table.compare_and_swap_expiring("k", Some(b"2"), "4", Expiry::Never).unwrap());
    assert!(expiring("k"));
    assert!(table.compare_and_swap("k", Some(b"3"), Some(b"4")).unwrap());
    assert!(!expiring("k"));
    let _ = table.insert_expiring("new", "1", HOUR).unwrap();
    assert!(matches!(table.insert_expiring("new", "2", HOUR), Err(Error::KeyExists { .. })));
    env.advance(HOUR);
    let _ = table.insert_expiring("new", "2", Expiry::Never).unwrap();
    assert!(!expiring("new"));
    let mut txn = db.begin();
    txn.insert_expiring(&table, "own", "1", Some(std::time::SystemTime::UNIX_EPOCH + 100 * 366 * 24 * HOUR))
        .unwrap();
    assert!(txn.compare_and_swap_expiring(&table, "own", Some(b"1"), "2", HOUR).unwrap());
    assert!(txn.persist(&table, "own").unwrap());
    let _ = txn.commit().unwrap();
    assert!(table.get("own").unwrap().is_some() && !expiring("own"));
}

/// Two holders extend one lease: the second to commit conflicts.
#[test]
fn an_expiry_that_others_changed_is_not_overwritten() {
    let (_env, db, table) = database();
    let _ = table.put_expiring("lease", "mine", HOUR).unwrap();
    let (mut first, mut second) = (db.begin(), db.begin());
    assert!(first.expire_at(&table, "lease", 2 * HOUR).unwrap());
    assert!(second.persist(&table, "lease").unwrap());
    let _ = first.commit().unwrap();
    assert!(matches!(second.commit(), Err(Error::Conflict { .. })));
}

/// A transaction and a snapshot keep the time of their beginning; single operations read the clock each time.
#[test]
fn a_transaction_that_began_before_the_expiry_sees_the_key_until_its_end() {
    let (env, db, table) = database();
    let _ = table.put_expiring("k", "v", HOUR).unwrap();
    let (txn, snapshot, range) = (db.begin(), db.snapshot(), table.range(..).unwrap());
    env.advance(HOUR);
    assert!(txn.get(&table, "k").unwrap().is_some() && snapshot.get(&table, "k").unwrap().is_some());
    assert!(txn.expiry(&table, "k").unwrap().is_some() && snapshot.expiry(&table, "k").unwrap().is_some());
    assert_eq!(range.count(), 1);
    assert_eq!((table.get("k").unwrap(), table.range(..).unwrap().count()), (None, 0));
    assert!(
        db.begin().get(&table, "k").unwrap().is_none() && db.snapshot().get(&table, "k").unwrap().is_none()
    );
}
