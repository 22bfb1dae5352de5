//! Values and operation lists that are written ahead in chunks: followers get the chunks before the entry that refers to them.

mod trio;

use fulgurite::{Csn, Database, Error, Options};
use fulgurite_env::sim::CrashKind;
use fulgurite_replication::{Append, NodeError, ReplicaOptions, SentUpTo};
use std::time::Duration;
use trio::{Trio, get, led, led_with, options, put};

/// Messages end after the first chunk, or the first entry.
fn short_messages() -> ReplicaOptions {
    ReplicaOptions { append_bytes_max: 1, ..options().into() }
}

fn long(seed: u8, len: usize) -> String {
    (0..len).map(|at| char::from(b'a' + (at as u64 * 31 % 23) as u8 + seed % 3)).collect()
}

/// A commit whose operations are in chunks, and refer to more values in chunks than a local record has room for.
fn put_many(db: &Database, seed: u8) -> Csn {
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    for n in 0..700 {
        txn.put(&table, format!("many{n}"), long(seed, 1100 + n % 7)).unwrap();
    }
    for n in 0..40_000 {
        txn.put(&table, format!("small{n:05}"), format!("{seed}")).unwrap();
    }
    txn.commit_deferred().unwrap().csn()
}

fn check_many(db: &Database, seed: u8) {
    for n in [0, 1, 350, 698, 699] {
        assert_eq!(get(db, &format!("many{n}")), Some(long(seed, 1100 + n % 7)), "{n}");
    }
    assert_eq!(get(db, "small39999"), Some(format!("{seed}")));
}

/// What node 1 sends to node 2 next.
fn next(trio: &Trio, leader: u32, after: impl Into<SentUpTo>) -> Append {
    trio.replica(leader).append_after(2, after).unwrap().expect("it leads")
}

fn next_for(trio: &Trio, to: u32, after: SentUpTo) -> Append {
    trio.replica(1).append_after(to, after).unwrap().expect("it leads")
}

fn last(trio: &Trio, number: u32) -> u64 {
    trio.replica(number).positions().entries.last.index
}

#[test]
fn values_and_transactions_of_all_lengths_come_back_from_followers() {
    for messages in [options().into(), short_messages()] {
        let mut trio = led_with(messages);
        let lens = [130_000, 131_072, 300_000, 520_192, 520_193, 1_700_000];
        for (seed, len) in lens.into_iter().enumerate() {
            put(&trio.db(1), &format!("k{len}"), &long(seed as u8, len)).unwrap();
        }
        put_many(&trio.db(1), 1);
        let check = |db: &Database| {
            for (seed, len) in lens.into_iter().enumerate() {
                assert!(get(db, &format!("k{len}")) == Some(long(seed as u8, len)), "{len} bytes");
            }
            check_many(db, 1);
        };
        trio.replicate(1, &[2, 3]);
        // From memtables, from a log that was recovered, from leaves.
        (1..=3).for_each(|number| check(&trio.db(number)));
        for (number, kind) in [(2, CrashKind::PowerCut), (3, CrashKind::Kill)] {
            trio.crash(number, kind);
            trio.replicate(1, &[number]);
            check(&trio.db(number));
        }
        for number in [1, 2, 3] {
            trio.db(number).checkpoint().unwrap();
            trio.db(number).checkpoint().unwrap();
            while trio.db(number).maintain().unwrap() {}
            check(&trio.db(number));
            let report = trio.db(number).check(|_| {}).unwrap();
            assert!(report.problems.is_empty(), "node {number}: {report:?}");
        }
        // One that was opened since leads, and has its own chunks to send.
        trio.appoint(2, &[2, 3]);
        trio.replicate(2, &[3]);
        put(&trio.db(2), "k", &long(9, 200_000)).unwrap();
        put_many(&trio.db(2), 2);
        trio.replicate(2, &[1, 3]);
        for number in [1, 3] {
            assert!(get(&trio.db(number), "k") == Some(long(9, 200_000)));
            check_many(&trio.db(number), 2);
        }
    }
}

/// Messages are lost, doubled and late, and the follower is opened again between two chunks.
#[test]
fn chunks_that_are_missing_are_sent_again_and_others_are_passed_over() {
    let mut trio = led_with(short_messages());
    put(&trio.db(1), "k", &long(1, 1_700_000)).unwrap();
    trio.replica(1).flush().unwrap();
    let after = last(&trio, 2);
    let first = next(&trio, 1, after);
    assert!(first.entries.is_empty() && first.chunks.len() == 1 && first.begun.is_some());
    let second = next(&trio, 1, first.end());
    let third = next(&trio, 1, second.end());
    assert_eq!((third.chunks_before, third.end()), (2, SentUpTo { index: after, chunks: 3 }));
    let append = |message: &Append| trio.replica(2).append(message);
    // The second before the first, and the first one twice.
    let error = append(&second).unwrap_err();
    assert!(matches!(error, NodeError::ChunkGap { node: 2, sent: 1, have: 0, .. }), "{error}");
    assert_eq!(error.begin_after(), Some(after.into()));
    for message in [&first, &first, &second, &first, &third] {
        append(message).unwrap();
    }
    assert_eq!(append(&third).unwrap().up_to(), third.end());
    let whole = next(&trio, 1, third.end());
    assert_eq!((whole.chunks.len(), whole.entries.len(), whole.chunks_before), (1, 1, 3));
    trio.crash(2, CrashKind::PowerCut);
    let error = trio.replica(2).append(&whole).unwrap_err();
    assert!(matches!(error, NodeError::ChunkGap { sent: 3, have: 0, .. }), "{error}");
    trio.replicate(1, &[2]);
    assert!(get(&trio.db(2), "k") == Some(long(1, 1_700_000)));
    // All of it once more: it is there, and the reply to the first chunk says so.
    for message in [&first, &second, &whole] {
        assert_eq!(trio.replica(2).append(message).unwrap().up_to(), (after + 1).into());
    }
}

#[test]
fn a_chunk_that_changed_on_the_way_is_refused() {
    let trio = led();
    put(&trio.db(1), "k", &long(1, 600_000)).unwrap();
    trio.replica(1).flush().unwrap();
    let message = next(&trio, 1, last(&trio, 2));
    let spoil = |work: &dyn Fn(&mut Append)| {
        let mut spoiled = message.clone();
        work(&mut spoiled);
        trio.replica(2).append(&spoiled).unwrap_err().to_string()
    };
    let error = spoil(&|message| message.chunks[0].body[4000] ^= 1);
    assert!(error.contains("does not have its checksum"), "{error}");
    let spoils: [&dyn Fn(&mut Append); 6] = [
        &|message| drop(message.chunks.pop()),
        &|message| message.entries[0].chunks[0].count = 1,
        &|message| message.entries[0].chunks.clear(),
        &|message| message.chunks_before = 3,
        &|message| message.begun = Some(message.entries[0].id),
        &|message| {
            message.entries.clear();
            (message.chunks_before, message.begun) = (u32::MAX, Some(message.previous));
        },
    ];
    for work in spoils {
        let error = spoil(work);
        assert!(error.contains("does not have the chunks to which its entries refer"), "{error}");
    }
    let error = spoil(&|message| message.entries[0].chunks[0].csn = Csn(1));
    assert!(error.contains("commits that it does not have"), "{error}");
    trio.replicate(1, &[2]);
    assert!(get(&trio.db(2), "k") == Some(long(1, 600_000)));
}

/// Chunks of an entry that is replaced are given up, and those of entries that wait for agreement stay.
#[test]
fn chunks_stay_while_their_commit_may_be_agreed_and_no_longer() {
    let mut trio = led();
    for n in 0..12 {
        put(&trio.db(1), &format!("k{n}"), &long(n, 300_000)).unwrap();
    }
    trio.replica(1).flush().unwrap();
    // Node 2 has it all and knows nothing of agreement, through openings, checkpoints and collection.
    let mut message = next(&trio, 1, last(&trio, 2));
    while !message.is_empty() {
        trio.replica(2).append(&message).unwrap();
        message = next(&trio, 1, message.end());
    }
    for _ in 0..2 {
        trio.crash(2, CrashKind::PowerCut);
        trio.db(2).checkpoint().unwrap();
        trio.db(2).checkpoint().unwrap();
        while trio.db(2).maintain().unwrap() {}
    }
    trio.appoint(2, &[2, 3]);
    trio.replicate(2, &[3]);
    for n in 0..12 {
        assert!(get(&trio.db(3), &format!("k{n}")) == Some(long(n, 300_000)), "k{n}");
    }
    // Node 1 has the same, and node 2 leads.
    let table = trio.db(2).open_table("t").unwrap();
    let count = table.range(..).unwrap().count();
    put(&trio.db(2), "new", &long(3, 700_000)).unwrap();
    trio.replicate(2, &[1, 3]);
    for number in [1, 2, 3] {
        assert!(get(&trio.db(number), "new") == Some(long(3, 700_000)), "node {number}");
        assert_eq!(trio.db(number).open_table("t").unwrap().range(..).unwrap().count(), count + 1);
        for _ in 0..3 {
            trio.db(number).checkpoint().unwrap();
            while trio.db(number).maintain().unwrap() {}
        }
        let report = trio.db(number).check(|_| {}).unwrap();
        assert!(report.problems.is_empty(), "node {number}: {report:?}");
    }
}

/// The values were overwritten, and nothing but the log refers to their chunks.
#[test]
fn a_follower_that_was_away_gets_chunks_of_values_that_are_gone() {
    let mut trio = led();
    for round in 0..6 {
        for n in 0..4 {
            put(&trio.db(1), &format!("k{n}"), &long(round, 400_000)).unwrap();
        }
        put_many(&trio.db(1), round);
        trio.replicate(1, &[2]);
        for number in [1, 2] {
            for _ in 0..2 {
                trio.db(number).checkpoint().unwrap();
                while trio.db(number).maintain().unwrap() {}
            }
            trio.db(number).collect(1.02, |_| {}).unwrap();
        }
        if round % 2 == 1 {
            trio.crash(2, CrashKind::PowerCut);
        }
    }
    trio.appoint(2, &[2, 3]);
    trio.replicate(2, &[3]);
    assert!(get(&trio.db(3), "k3") == Some(long(5, 400_000)));
    check_many(&trio.db(3), 5);
    trio.replicate(2, &[1]);
}

/// One transaction has more chunks than the log keeps for others: it is kept all the same until the next one, so that a node to which it is
/// being sent gets it.
#[test]
fn a_transaction_that_is_longer_than_the_log_that_is_kept_is_kept_until_the_next_one() {
    let database = Options { checkpoint_log_bytes: 1 << 20, ..options() };
    let mut trio = led_with(ReplicaOptions { append_bytes_max: 1, ..database.into() });
    let table = trio.db(1).open_table("t").unwrap();
    let mut txn = trio.db(1).begin();
    for n in 0..24 {
        txn.put(&table, format!("k{n}"), long(n, 400_000)).unwrap();
    }
    let _ticket = txn.commit_deferred().unwrap();
    trio.replica(1).flush().unwrap();
    let message = next_for(&trio, 3, last(&trio, 3).into());
    let first = trio.replica(3).append(&message).unwrap();
    trio.replicate(1, &[2]);
    // What refers to the chunks is gone, but for the log.
    let mut txn = trio.db(1).begin();
    txn.delete_range(&table, "k"..).unwrap();
    let _ticket = txn.commit_deferred().unwrap();
    trio.replicate(1, &[2]);
    for _ in 0..3 {
        trio.db(1).checkpoint().unwrap();
        while trio.db(1).maintain().unwrap() {}
    }
    let mut after = first.up_to();
    while after.index < trio.replica(1).positions().entries.last.index {
        after = trio.replica(3).append(&next_for(&trio, 3, after)).unwrap().up_to();
    }
    trio.replicate(1, &[3]);
    assert_eq!(trio.db(3).open_table("t").unwrap().range(..).unwrap().count(), 0);
    // The next ones take its place.
    for n in 0..8 {
        put(&trio.db(1), "k", &long(n, 400_000)).unwrap();
    }
    trio.replicate(1, &[2, 3]);
    let bytes = |trio: &Trio| trio.db(1).stats().segment_bytes;
    let before = bytes(&trio);
    for _ in 0..3 {
        trio.db(1).checkpoint().unwrap();
        while trio.db(1).maintain().unwrap() {}
    }
    assert!(bytes(&trio) + (8 << 20) < before, "{} of {before} bytes", bytes(&trio));
    trio.crash(1, CrashKind::Kill);
}

#[test]
fn chunks_stop_at_a_limit_without_a_quorum() {
    let limited = ReplicaOptions {
        unagreed_bytes_max: 100_000,
        quorum_wait: Duration::from_millis(20),
        ..options().into()
    };
    let trio = led_with(limited);
    let table = trio.db(1).open_table("t").unwrap();
    let before = trio.db(1).log_stats().chunk_bytes;
    let mut count = 0;
    let error = loop {
        assert!(count < 100);
        let mut txn = trio.db(1).begin();
        match txn.put(&table, format!("k{count}"), long(1, 200_000)) {
            Ok(()) => drop(txn.commit_deferred().unwrap()),
            Err(error) => break error,
        }
        count += 1;
    };
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    assert!((8..=10).contains(&count), "{count} commits");
    for _ in 0..20 {
        assert!(trio.db(1).begin().put(&table, "k", long(1, 200_000)).is_err());
    }
    let written = trio.db(1).log_stats().chunk_bytes - before;
    assert!(written < 11 * 200_000, "{written} bytes, also of what was refused");
    trio.replicate(1, &[2]);
    // Transactions that are given up beside one commit that waits.
    put(&trio.db(1), "k", "short").unwrap();
    let given_up = || trio.db(1).begin().put(&table, "k", long(1, 200_000));
    let count = (0..100).find(|_| given_up().is_err()).unwrap();
    assert!((7..=10).contains(&count), "{count} transactions");
    trio.replicate(1, &[2]);
    given_up().unwrap();
    put(&trio.db(1), "k", &long(1, 200_000)).unwrap();
    trio.replicate(1, &[2]);
    // Where another node commits nothing is written ahead.
    let table = trio.db(2).open_table("t").unwrap();
    let error = trio.db(2).begin().put(&table, "k", long(1, 200_000)).unwrap_err();
    assert!(matches!(error, Error::NotLeader { leader: Some(1) }), "{error}");
}

/// The disk of a follower is nearly full with log that is kept for others, and chunks: checkpoints make room before more are appended.
#[test]
fn a_follower_whose_disk_is_nearly_full_gives_up_what_it_keeps_for_others() {
    let trio = led();
    let overwrite = |round: u8| {
        for n in 0..30 {
            put(&trio.db(1), &format!("k{n}"), &long(round, 300_000)).unwrap();
        }
        trio.replicate(1, &[2, 3]);
    };
    (0..3).for_each(overwrite);
    for _ in 0..2 {
        trio.db(2).checkpoint().unwrap();
        while trio.db(2).maintain().unwrap() {}
    }
    let used = trio.db(2).stats().segment_bytes;
    trio.envs[1].faults().space_bytes(Some(used + (24 << 20)));
    for round in 3..9 {
        overwrite(round);
        assert!(get(&trio.db(2), "k29") == Some(long(round, 300_000)), "round {round}");
    }
    let report = trio.db(2).check(|_| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    assert!(trio.db(2).stats().segment_bytes <= used + (24 << 20));
}
