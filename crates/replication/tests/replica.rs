//! Replicas with their databases, on simulated disks and on one thread: what follows from leading, following, and opening again.

mod trio;

use fulgurite::{Acks, Database, Error, Options};
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_replication::{NodeError, Replica, ReplicaOptions};
use std::sync::Arc;
use std::time::Duration;
use trio::{Trio, cluster, get, led, make_table, options, put, shared, while_replicating};

#[test]
fn what_a_quorum_has_is_applied_everywhere() {
    let mut trio = Trio::new(options().into());
    assert!(matches!(put_first(&trio.db(1)), Err(Error::NotLeader { leader: None })));
    trio.appoint(1, &[1, 2]);
    trio.replicate(1, &[2, 3]);
    make_table(&trio, &[2, 3]);
    let csn = put(&trio.db(1), "k", "v").unwrap();
    assert_eq!(get(&trio.db(1), "k"), None, "a read shows what no quorum has");
    let ticket_is_open =
        trio.db(1).visible_csn() == csn && trio.replica(1).positions().entries.agreed.csn < csn;
    assert!(ticket_is_open);
    trio.replica(1).flush().unwrap();
    assert_eq!(get(&trio.db(1), "k"), None, "a read shows what one node has");
    trio.replicate(1, &[3]);
    for number in [1, 3] {
        assert_eq!(get(&trio.db(number), "k").as_deref(), Some("v"), "node {number}");
    }
    assert_eq!(get(&trio.db(2), "k"), None);
    trio.replicate(1, &[2]);
    assert_eq!(get(&trio.db(2), "k").as_deref(), Some("v"));
    let error = put(&trio.db(2), "k", "w").unwrap_err();
    assert!(matches!(error, Error::NotLeader { leader: Some(1) }), "{error:?}");
    assert!(error.to_string().contains("commit on node 1"), "{error}");
}

fn put_first(db: &Database) -> fulgurite::Result<()> {
    db.create_table("t").map(|_| ())
}

#[test]
fn followers_apply_definitions_deletes_and_range_deletes_beside_snapshots() {
    let trio = led();
    for n in 0..20 {
        put(&trio.db(1), &format!("k{n:02}"), "v").unwrap();
    }
    trio.replicate(1, &[2, 3]);
    let before = trio.db(2).snapshot();
    let table = trio.db(1).open_table("t").unwrap();
    let mut txn = trio.db(1).begin();
    txn.delete_range(&table, "k05".."k15").unwrap();
    txn.put(&table, "k07", "again").unwrap();
    txn.delete(&table, "k19").unwrap();
    let ticket = txn.commit_deferred().unwrap();
    while_replicating(&trio, &[2, 3], |db| {
        db.create_table("other").unwrap();
        db.rename_table("other", "renamed").unwrap();
        db.create_table("gone").unwrap();
        db.drop_table("gone").unwrap();
    });
    assert!(ticket.try_wait().unwrap().is_ok());
    for number in [1, 2, 3] {
        let db = trio.db(number);
        let names: Vec<_> = db.tables().unwrap().iter().map(|table| table.name()).collect();
        assert_eq!(names, ["renamed", "t"], "node {number}");
        assert_eq!(db.open_table("t").unwrap().range(..).unwrap().count(), 10, "node {number}");
        assert_eq!(get(&db, "k07").as_deref(), Some("again"));
        db.checkpoint().unwrap();
    }
    let table = trio.db(2).open_table("t").unwrap();
    assert_eq!(before.range(&table, ..).unwrap().count(), 20, "a snapshot changed");
    drop(before);
    for number in [1, 2, 3] {
        let report = trio.db(number).check(|_| {}).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
    }
}

#[test]
fn values_of_all_lengths_come_back_from_a_follower_that_crashed() {
    let mut trio = led();
    // Of a leaf, of the log, and as long as a frame takes.
    let lens = [0, 1000, 1100, 20_000, 60_000];
    for len in lens {
        put(&trio.db(1), &format!("k{len}"), &"v".repeat(len)).unwrap();
    }
    trio.replicate(1, &[2, 3]);
    trio.db(2).checkpoint().unwrap();
    for number in [2, 3] {
        for kind in [CrashKind::Kill, CrashKind::PowerCut] {
            trio.crash(number, kind);
            // The crash may have taken what it knew to be agreed.
            trio.replicate(1, &[number]);
            for len in lens {
                assert_eq!(get(&trio.db(number), &format!("k{len}")).map(|value| value.len()), Some(len));
            }
        }
    }
}

#[test]
fn a_deposed_leader_says_so_and_follows_once_it_is_opened_again() {
    let mut trio = led();
    put(&trio.db(1), "k", "old").unwrap();
    trio.replicate(1, &[2, 3]);
    let table = trio.db(1).open_table("t").unwrap();
    let mut begun = trio.db(1).begin();
    assert!(begun.get(&table, "k").unwrap().is_some());
    begun.put(&table, "k", "begun").unwrap();
    let snapshot = trio.db(1).snapshot();
    // One that was numbered and sent to no node, one that has no number.
    let mut txn = trio.db(1).begin();
    txn.put(&table, "k", "numbered").unwrap();
    let numbered = txn.commit_deferred().unwrap();
    trio.replica(1).flush().unwrap();
    let mut txn = trio.db(1).begin();
    txn.put(&table, "other", "v").unwrap();
    let unnumbered = txn.commit_deferred().unwrap();
    trio.appoint(2, &[2, 3]);
    trio.replicate(2, &[3]);
    let after = trio.replica(2).positions().entries.last.index;
    let message = trio.replica(2).append_after(1, after).unwrap().unwrap();
    let error = trio.replica(1).append(&message).unwrap_err();
    assert!(matches!(error, NodeError::MustReopen { node: 1, .. }), "{error}");
    assert!(matches!(begun.commit().unwrap_err(), Error::NotLeader { .. }));
    assert!(matches!(put(&trio.db(1), "k", "late").unwrap_err(), Error::NotLeader { .. }));
    while trio.db(1).maintain().unwrap() {}
    assert!(numbered.try_wait().is_none(), "it may be agreed yet");
    assert!(matches!(unnumbered.try_wait(), Some(Err(Error::NotLeader { .. }))));
    assert_eq!(get(&trio.db(1), "k").as_deref(), Some("old"));
    assert_eq!(snapshot.get(&table, "k").unwrap().unwrap(), "old");
    trio.replicate(2, &[1, 3]);
    assert!(matches!(numbered.try_wait(), Some(Err(Error::OutcomeUnknown { .. }))));
    assert_eq!(get(&trio.db(1), "k").as_deref(), Some("old"));
    put(&trio.db(2), "k", "new").unwrap();
    trio.replicate(2, &[1, 3]);
    assert_eq!(get(&trio.db(1), "k").as_deref(), Some("new"));
    assert_eq!(get(&trio.db(1), "other"), None);
}

#[test]
fn a_new_leader_takes_no_commit_before_it_has_applied_what_may_conflict() {
    let mut trio = led();
    put(&trio.db(1), "k", "1").unwrap();
    trio.replica(1).flush().unwrap();
    let after = trio.replica(2).positions().entries.last.index;
    let message = trio.replica(1).append_after(2, after).unwrap().unwrap();
    trio.replica(2).append(&message).unwrap();
    // Node 2 has it, and knows only of what was agreed before.
    trio.appoint(2, &[2, 3]);
    while trio.db(2).maintain().unwrap() {}
    assert!(matches!(put(&trio.db(2), "k", "2").unwrap_err(), Error::NotLeader { leader: Some(2) }));
    trio.replicate(2, &[3]);
    assert_eq!(get(&trio.db(2), "k").as_deref(), Some("1"));
    put(&trio.db(2), "k", "2").unwrap();
    trio.replicate(2, &[3]);
    assert_eq!(get(&trio.db(3), "k").as_deref(), Some("2"));
}

#[test]
fn a_follower_that_was_away_gets_what_checkpoints_cover() {
    let mut trio = led();
    for round in 0..3 {
        for n in 0..200 {
            put(&trio.db(1), &format!("k{n}"), &format!("{round}").repeat(500)).unwrap();
        }
        trio.replicate(1, &[2]);
        for number in [1, 2] {
            trio.db(number).checkpoint().unwrap();
            trio.db(number).checkpoint().unwrap();
            while trio.db(number).maintain().unwrap() {}
        }
        trio.crash(2, CrashKind::PowerCut);
    }
    // The one that leads now was opened since.
    trio.appoint(2, &[2, 3]);
    trio.replicate(2, &[3]);
    assert_eq!(get(&trio.db(3), "k199").unwrap(), "2".repeat(500));
    assert_eq!(trio.db(3).open_table("t").unwrap().range(..).unwrap().count(), 200);
}

#[test]
fn a_checkpoint_without_a_quorum_says_so_and_holds_nothing() {
    let trio = led();
    put(&trio.db(1), "k", "v").unwrap();
    let error = trio.db(1).checkpoint().unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error:?}");
    assert!(error.to_string().contains("no quorum of the cluster"), "{error}");
    trio.replicate(1, &[3]);
    trio.db(1).checkpoint().unwrap();
}

#[test]
fn a_replica_that_closes_without_a_quorum_keeps_what_it_has() {
    let mut trio = led();
    put(&trio.db(1), "k", "v").unwrap();
    trio.replica(1).flush().unwrap();
    let Trio { envs, replicas, .. } = &mut trio;
    let last = replicas[0].positions().entries.last;
    replicas.remove(0).close().unwrap();
    replicas.insert(0, Replica::open(shared(&envs[0]), "/db", options(), 1).unwrap());
    assert_eq!(trio.replica(1).positions().entries.last, last);
    assert_eq!(get(&trio.db(1), "k"), None, "it shows what no quorum is known to have");
    trio.appoint(1, &[1, 3]);
    trio.replicate(1, &[3]);
    assert_eq!(get(&trio.db(3), "k").as_deref(), Some("v"));
}

/// A key expires on a follower no sooner than it has applied what was committed before.
#[test]
fn keys_expire_on_followers_as_commits_come() {
    let trio = led();
    let table = trio.db(1).open_table("t").unwrap();
    let mut txn = trio.db(1).begin();
    let expiry = fulgurite::Expiry::After(Duration::from_secs(5));
    txn.put_expiring(&table, "lease", "v", expiry).unwrap();
    let lease = txn.commit_deferred().unwrap();
    trio.replicate(1, &[2, 3]);
    assert!(lease.try_wait().unwrap().is_ok());
    trio.envs.iter().for_each(|env| env.advance(Duration::from_secs(6)));
    assert_eq!(get(&trio.db(1), "lease"), None);
    assert_eq!(get(&trio.db(2), "lease").as_deref(), Some("v"), "no commit came since");
    put(&trio.db(1), "k", "v").unwrap();
    trio.replicate(1, &[2, 3]);
    assert_eq!(get(&trio.db(2), "lease"), None);
}

#[test]
fn a_database_of_a_cluster_is_only_read_when_it_is_opened_alone() {
    let mut trio = led();
    put(&trio.db(1), "k", "v").unwrap();
    trio.replicate(1, &[2, 3]);
    let Trio { envs, replicas, .. } = &mut trio;
    replicas.remove(0).close().unwrap();
    let open = |options| Database::open_with(shared(&envs[0]), "/db", options, |_| {});
    let error = open(options()).unwrap_err();
    assert!(
        matches!(error, Error::Refused { .. }) && error.to_string().contains("one of a cluster"),
        "{error}"
    );
    let db = open(Options { read_only: true, ..options() }).unwrap();
    assert_eq!(get(&db, "k").as_deref(), Some("v"));
    assert!(matches!(put(&db, "k", "w").unwrap_err(), Error::ReadOnly { .. }));
    drop(db);
    replicas.insert(0, Replica::open(shared(&envs[0]), "/db", options(), 1).unwrap());
    trio.appoint(3, &[2, 3]);
    trio.replicate(3, &[1, 2]);
    put(&trio.db(3), "k", "w").unwrap();
    trio.replicate(3, &[1, 2]);
    assert_eq!(get(&trio.db(1), "k").as_deref(), Some("w"));
}

#[test]
fn a_node_is_made_once_and_not_of_a_directory_that_has_entries() {
    let mut trio = led();
    let Trio { envs, replicas, .. } = &mut trio;
    replicas.remove(0).close().unwrap();
    let again = Replica::create(shared(&envs[0]), "/db", options(), &cluster(), 1).unwrap_err();
    assert!(matches!(again, NodeError::Used { node: 1, .. }), "{again}");
    let other = Replica::open(shared(&envs[0]), "/db", options(), 2).unwrap_err();
    assert!(matches!(other, NodeError::Term(_)), "{other}");
    let env = SimEnv::new(9);
    Replica::create(shared(&env), "/db", options(), &cluster(), 1).unwrap().close().unwrap();
    let again = Replica::create(shared(&env), "/db", options(), &cluster(), 1).unwrap_err();
    assert!(matches!(again, NodeError::Term(_)), "{again}");
    let none = Replica::open(shared(&SimEnv::new(10)), "/db", options(), 1).unwrap_err();
    assert!(matches!(none, NodeError::Database(Error::NotADatabase { .. })), "{none}");
}

#[test]
fn a_read_behind_a_barrier_ends_where_the_term_is_over() {
    let mut trio = led();
    let node = trio.replica(1).node();
    let first = node.begin_read().unwrap();
    assert!(!node.holds(&first).unwrap(), "no node was asked");
    assert_eq!(node.begin_read().unwrap().round, first.round, "one question serves both");
    trio.send(1, 3);
    assert!(node.holds(&first).unwrap());
    assert!(trio.db(1).wait_applied(first.csn, Duration::ZERO).unwrap());
    let second = node.begin_read().unwrap();
    assert!(second.round > first.round && !node.holds(&second).unwrap(), "the question was sent before");
    trio.appoint(2, &[2, 3]);
    assert!(!node.holds(&second).unwrap());
    trio.replicate(2, &[3]);
    let message = trio.replica(2).append_after(1, 0).unwrap().unwrap();
    trio.replica(1).append(&message).unwrap_err();
    assert!(matches!(node.holds(&second), Err(NodeError::NotLeading { node: 1 })));
    let early = trio.replica(3).node().begin_read().unwrap_err();
    assert!(matches!(early, NodeError::NotLeading { node: 3 }), "{early}");
}

#[test]
fn a_client_waits_at_a_follower_for_its_own_commit() {
    let trio = led();
    let csn = put(&trio.db(1), "k", "v").unwrap();
    assert!(!trio.db(2).wait_applied(csn, Duration::from_millis(3)).unwrap());
    trio.replicate(1, &[2]);
    assert!(trio.db(2).wait_applied(csn, Duration::ZERO).unwrap());
    assert_eq!(get(&trio.db(2), "k").as_deref(), Some("v"));
}

#[test]
fn commits_stop_at_a_limit_without_a_quorum_and_go_on_with_one() {
    let mut trio = Trio::new(options().into());
    let limited = ReplicaOptions {
        unagreed_bytes_max: 100_000,
        quorum_wait: Duration::from_millis(20),
        ..options().into()
    };
    let env = SimEnv::new(11);
    trio.replicas[0] = Replica::create(shared(&env), "/db", limited, &cluster(), 1).unwrap();
    trio.appoint(1, &[1, 2]);
    trio.replicate(1, &[2, 3]);
    make_table(&trio, &[2, 3]);
    let value = "v".repeat(1000);
    let mut count = 0;
    let error = loop {
        match put(&trio.db(1), &format!("k{count}"), &value) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        trio.replica(1).flush().unwrap();
        assert!(count < 200);
    };
    assert!((80..=100).contains(&count), "{count} commits");
    assert!(matches!(error, Error::NoQuorum { waited } if waited == Duration::from_millis(20)), "{error:?}");
    let table = trio.db(1).open_table("t").unwrap();
    let mut attempt = trio.db(1).begin();
    attempt.put(&table, "k", "v").unwrap();
    let error = attempt.try_commit().unwrap_err();
    assert!(matches!(error, Error::NoQuorum { waited: Duration::ZERO }), "{error:?}");
    assert_eq!(get(&trio.db(1), "k0"), None);
    trio.replicate(1, &[3]);
    put(&trio.db(1), "k", "v").unwrap();
    trio.replicate(1, &[3]);
    assert_eq!(trio.db(3).open_table("t").unwrap().range(..).unwrap().count(), count + 1);
}

#[test]
fn a_transaction_says_how_many_replicas_it_waits_for() {
    let trio = led();
    let commit = |acks| {
        let db = trio.db(1);
        let table = db.open_table("t").unwrap();
        let mut txn = db.begin();
        txn.put(&table, "k", format!("{acks:?}")).unwrap();
        txn.set_acks(acks);
        txn
    };
    let error = commit(Acks::Local).commit_numbered().map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("not by Local: use `commit` or"), "{error}");
    // No other node is there.
    let local = commit(Acks::Local).commit().unwrap().csn;
    let positions = trio.replica(1).positions().entries;
    assert!(positions.agreed.csn < local && positions.durable == positions.last);
    assert_eq!(get(&trio.db(1), "k").as_deref(), Some("Local"), "what was acknowledged is shown");
    assert_eq!(get(&trio.db(2), "k"), None);
    // What it depends on waits for it.
    let mut txn = trio.db(1).begin();
    let table = trio.db(1).open_table("t").unwrap();
    assert!(txn.get(&table, "k").unwrap().is_some());
    txn.put(&table, "other", "v").unwrap();
    let ticket = txn.commit_deferred().unwrap();
    trio.replica(1).flush().unwrap();
    assert!(ticket.try_wait().is_none());
    trio.replicate(1, &[2]);
    assert!(ticket.try_wait().unwrap().is_ok());
    let all = |to: &[u32]| {
        std::thread::scope(|scope| {
            let txn = commit(Acks::All);
            let working = scope.spawn(move || txn.commit());
            while !working.is_finished() {
                trio.replicate(1, to);
            }
            working.join().unwrap()
        })
    };
    let error = all(&[2]).unwrap_err();
    assert!(matches!(error, Error::ReplicasBehind { have: 2, want: 3, .. }), "{error:?}");
    let csn = all(&[2, 3]).unwrap().csn;
    assert_eq!(trio.replica(1).positions().others, [(2, csn), (3, csn)]);
    // Also at a level that waits for no disk: all of them synced it.
    std::thread::scope(|scope| {
        let mut txn = commit(Acks::All);
        txn.set_durability(fulgurite::Durability::None).unwrap();
        let working = scope.spawn(move || txn.commit());
        while !working.is_finished() {
            trio.replicate(1, &[2, 3]);
        }
        let csn = working.join().unwrap().unwrap().csn;
        assert!(trio.replica(1).positions().entries.agreed.csn >= csn);
    });
    assert_eq!(get(&trio.db(3), "k").as_deref(), Some("All"));
}

/// `Local` is what the word says: another node may lead without it.
#[test]
fn a_commit_at_local_is_lost_with_its_leader() {
    let mut trio = led();
    let table = trio.db(1).open_table("t").unwrap();
    let mut txn = trio.db(1).begin();
    txn.put(&table, "k", "v").unwrap();
    txn.set_acks(Acks::Local);
    txn.commit().unwrap();
    trio.appoint(2, &[2, 3]);
    trio.replicate(2, &[1, 3]);
    assert_eq!(get(&trio.db(1), "k"), None);
}

/// The threads of the databases apply, and begin to take commits, without a call of anyone: also of an idle leader, which gets no commit
/// before.
#[test]
fn threads_apply_what_is_agreed_and_an_idle_leader_takes_commits() {
    let envs: Vec<_> = (21..=23).map(SimEnv::new).collect();
    let make = |(env, number): (&Arc<SimEnv>, u32)| {
        Replica::create(shared(env), "/db", Options::default(), &cluster(), number).unwrap()
    };
    let trio = Trio {
        replicas: envs.iter().zip(1..).map(make).collect(),
        envs,
        term: 0,
        options: Options::default().into(),
    };
    let promises: Vec<_> = [1, 2].map(|number| trio.replica(number).fence(1, Some(1)).unwrap()).into();
    trio.replica(1).appoint(1, &promises).unwrap();
    let send = || {
        trio.replica(1).flush().unwrap();
        [2, 3].into_iter().for_each(|number| trio.send(1, number));
    };
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let db = trio.db(1);
            let table = loop {
                match db.table("t") {
                    Err(Error::NotLeader { .. }) => std::thread::yield_now(),
                    table => break table.unwrap(),
                }
            };
            let put = |n: u32| table.put(n.to_be_bytes(), "v").unwrap().csn;
            (0..50).map(put).max().unwrap()
        });
        while !writing.is_finished() {
            send();
        }
        let newest = writing.join().unwrap();
        send();
        for number in [1, 2, 3] {
            while trio.db(number).visible_csn() < newest {
                std::thread::yield_now();
            }
            assert_eq!(trio.db(number).open_table("t").unwrap().range(..).unwrap().count(), 50);
        }
    });
}

#[test]
fn a_node_whose_log_was_opened_again_promises_nothing_and_no_cut_is_made_twice() {
    let mut trio = led();
    put(&trio.db(1), "k", "v").unwrap();
    trio.replica(1).flush().unwrap();
    let old = trio.replica(1).node();
    trio.appoint(2, &[2, 3]);
    trio.replicate(2, &[3]);
    // Two messages find the same: the first one has it opened again, the second one comes late.
    trio.replicate(2, &[1, 3]);
    let last = trio.replica(1).positions().entries.last;
    assert_eq!(last.term, 2);
    trio.replica(1).reopen().unwrap();
    assert_eq!(trio.replica(1).positions().entries.last, last, "it was cut again");
    let error = old.fence(9, Some(3)).unwrap_err();
    assert!(matches!(error, NodeError::Retired { node: 1 }), "{error}");
    let message = trio.replica(2).append_after(1, last.index).unwrap().unwrap();
    assert!(matches!(old.append(&message), Err(NodeError::Retired { node: 1 })));
    assert!(old.append_after(2, 0).unwrap().is_none() && old.retire().is_none());
    assert!(trio.replica(1).fence(9, Some(2)).is_ok());
}

#[test]
fn the_time_of_a_follower_is_that_of_its_newest_commit_also_where_its_own_clock_was_ahead() {
    let mut trio = led();
    // The first leader's clock is a minute ahead, and was shown.
    trio.envs[0].advance(Duration::from_secs(60));
    let table = trio.db(2).open_table("t").unwrap();
    trio.appoint(2, &[2, 3]);
    trio.replicate(2, &[1, 3]);
    let mut txn = trio.db(2).begin();
    txn.put_expiring(&table, "lease", "v", fulgurite::Expiry::After(Duration::from_secs(20))).unwrap();
    let lease = txn.commit_deferred().unwrap();
    trio.replicate(2, &[1, 3]);
    assert!(lease.try_wait().unwrap().is_ok());
    for number in [1, 2, 3] {
        assert_eq!(get(&trio.db(number), "lease").as_deref(), Some("v"), "node {number}");
    }
    // A crash and a checkpoint do not change that.
    trio.db(1).checkpoint().unwrap();
    trio.crash(1, CrashKind::Kill);
    assert_eq!(get(&trio.db(1), "lease").as_deref(), Some("v"));
}

#[test]
fn an_opening_that_fails_leaves_a_replica_that_says_so() {
    let mut trio = led();
    trio.appoint(2, &[2, 3]);
    trio.replicate(2, &[3]);
    let message = trio.replica(2).append_after(1, 0).unwrap().unwrap();
    trio.replica(1).append(&message).unwrap_err();
    trio.envs[0].faults().fail_all_writes(true);
    assert!(trio.replica(1).reopen().is_err());
    trio.envs[0].faults().fail_nothing();
    for error in [trio.replica(1).reopen().unwrap_err(), trio.replica(1).append(&message).unwrap_err()] {
        assert!(matches!(error, NodeError::Retired { node: 1 }), "{error}");
    }
    trio.crash(1, CrashKind::Kill);
    trio.replicate(2, &[1, 3]);
    assert_eq!(trio.replica(1).positions().entries, trio.replica(2).positions().entries);
}

/// The log of a follower is damaged where it has acknowledged: it acknowledges and promises nothing any more, and is not opened again.
#[test]
fn a_follower_whose_log_is_damaged_says_nothing_more_and_has_to_be_filled() {
    let mut trio = led();
    // Longer than what a reader has in memory.
    let marked = |n: usize| format!("<{n:03}>").repeat(4000);
    for n in 0..40 {
        put(&trio.db(1), &format!("k{n}"), &marked(n)).unwrap();
        trio.replica(1).flush().unwrap();
        trio.send(1, 2);
    }
    trio.replica(1).flush().unwrap();
    trio.send(1, 2);
    let env = &trio.envs[1];
    let is_at = |bytes: &[u8]| bytes.windows(10).position(|bytes| bytes == b"<020><020>");
    let segments = env.list_raw().into_iter().map(|(path, _)| path);
    let (path, at) = segments
        .filter_map(|path| Some((path.clone(), is_at(&env.read_raw(&path).ok()?)?)))
        .next()
        .expect("it is written");
    env.corrupt(&path, at as u64 + 100, |byte| *byte ^= 1).unwrap();
    let error = loop {
        match trio.db(2).maintain() {
            Ok(worked) => assert!(worked, "it applies up to the damage"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Damaged(_)), "{error}");
    put(&trio.db(1), "k", "v").unwrap();
    trio.replica(1).flush().unwrap();
    let message = trio.replica(1).append_after(2, 42).unwrap().unwrap();
    let error = trio.replica(2).append(&message).unwrap_err().to_string();
    assert!(error.contains("the log is damaged"), "{error}");
    assert!(trio.replica(2).fence(9, Some(3)).is_err());
    let env = trio.envs[1].crash(CrashKind::Kill, 7);
    let error = Replica::open(shared(&env), "/db", options(), 2).unwrap_err();
    assert!(matches!(error, NodeError::Damaged { node: 2, .. }), "{error}");
    assert!(error.to_string().contains("fill it from another node"), "{error}");
    // The others go on.
    trio.replicate(1, &[3]);
    assert_eq!(get(&trio.db(3), "k").as_deref(), Some("v"));
    trio.crash(3, CrashKind::PowerCut);
}
