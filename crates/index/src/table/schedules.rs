//! Explores schedules of the lock-free code with shuttle: `cargo test -p fulgurite-index --features shuttle`.

use std::sync::Arc;

use fulgurite_types::{Csn, KeySpan, Lsn, TableId, hash_key};
use shuttle::thread;

use super::map_base::MapBase;
use super::*;
use crate::memtables::{BlockBuilder, BlockOp, Memtables};
use crate::version::VersionFlags;

const TABLE: TableId = TableId(1);

fn block(keys: &[u8], value: u8) -> Block {
    let mut builder = BlockBuilder::new(TABLE, keys.len(), 0);
    for key in keys {
        let (key, payload) = (std::slice::from_ref(key), std::slice::from_ref(&value));
        builder.push(BlockOp {
            key,
            hash: hash_key(TABLE, key),
            flags: VersionFlags(0),
            expires_at_ms: 0,
            payload,
            value_offset: None,
            checksum: 0,
        });
    }
    builder.finish()
}

fn contents(memtables: &Memtables, at: Csn) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    let mut cursor = memtables.cursor(at);
    memtables.order();
    memtables.seek(&mut cursor, &[]);
    while let Some(key) = cursor.key() {
        found.push((key[0], cursor.version().payload[0]));
        cursor.step().unwrap();
    }
    found
}

#[test]
fn insertions_at_the_same_position_lose_nothing() {
    shuttle::check_random(
        || {
            let memtables = Arc::new(Memtables::new());
            let blocks = [(block(b"bdf", 1), 1), (block(b"bcfg", 2), 2), (block(b"fdba", 3), 3)];
            let writers = blocks.map(|(block, csn)| {
                let memtables = memtables.clone();
                thread::spawn(move || {
                    memtables.apply(block, Csn(csn), Lsn::NULL);
                    let newest = memtables.newest_csn(b"b", hash_key(TABLE, b"b"));
                    assert!(newest >= Some(Csn(csn)), "every applied commit is seen");
                    let walked = contents(&memtables, Csn(csn));
                    assert!(
                        walked.contains(&(b'b', csn as u8)),
                        "INV-IDX-17: a walk misses a version: {walked:?}"
                    );
                })
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            assert_eq!(contents(&memtables, Csn(1)), [(b'b', 1), (b'd', 1), (b'f', 1)]);
            let at_two = [(b'b', 2), (b'c', 2), (b'd', 1), (b'f', 2), (b'g', 2)];
            assert_eq!(contents(&memtables, Csn(2)), at_two);
            let all = [(b'a', 3), (b'b', 3), (b'c', 2), (b'd', 3), (b'f', 3), (b'g', 2)];
            assert_eq!(contents(&memtables, Csn::MAX), all);
            for (key, value) in all {
                let found = memtables.get(&[key], hash_key(TABLE, &[key]), Csn::MAX).unwrap();
                assert_eq!((found.payload[0], found.csn.0), (value, value.into()));
            }
        },
        10_000,
    );
}

#[test]
fn a_version_is_always_in_the_list_or_in_the_base() {
    shuttle::check_random(
        || {
            let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 9 }));
            table.apply(block(b"ac", 1), Csn(1), Lsn::NULL);
            table.apply(block(b"a", 2), Csn(2), Lsn::NULL);
            let maintainer = {
                let table = table.clone();
                thread::spawn(move || {
                    let rules = PruneRules {
                        horizon: Csn(2),
                        snapshots: vec![Csn(1)],
                        expired_until_ms: 0,
                        range_deletes: table.range_deletes().clone(),
                    };
                    table.freeze(Csn(2));
                    table.apply(block(b"ac", 3), Csn(3), Lsn::NULL);
                    assert!(table.merge_oldest(&rules).unwrap());
                })
            };
            let mut cursor = table.cursor(ReadPoint { csn: Csn(1), now_ms: 0 });
            cursor.seek(&[]).unwrap();
            for key in [b"a", b"c"] {
                let hash = hash_key(TABLE, key);
                let found =
                    table.get(key, hash, ReadPoint { csn: Csn(1), now_ms: 0 }, Io::Allowed).unwrap().unwrap();
                assert_eq!(found.payload[0], 1);
                assert_eq!((cursor.key(), cursor.version().payload[0]), (Some(&key[..]), 1));
                cursor.next().unwrap();
                assert!(table.get_newest(key, hash, Csn(2), 0, Io::Allowed).unwrap().is_some());
            }
            assert!(
                table.newest_csn(b"a", hash_key(TABLE, b"a"), Csn(1), Io::Allowed).unwrap() >= Some(Csn(2))
            );
            maintainer.join().unwrap();
            let newest =
                table.get_newest(b"c", hash_key(TABLE, b"c"), Csn(3), 0, Io::Allowed).unwrap().unwrap();
            assert_eq!(newest.csn, Csn(3));
        },
        10_000,
    );
}

fn tombstones(keys: &[u8]) -> Block {
    let mut builder = BlockBuilder::new(TABLE, keys.len(), 0);
    for key in keys {
        let key = std::slice::from_ref(key);
        builder.push(BlockOp {
            key,
            hash: hash_key(TABLE, key),
            flags: VersionFlags(VersionFlags::TOMBSTONE),
            expires_at_ms: 0,
            payload: &[],
            value_offset: None,
            checksum: 0,
        });
    }
    builder.finish()
}

/// A reader records a run of tombstones as empty while a key in it is written, and maybe merged: no reader skips the
/// write.
#[test]
fn a_write_into_a_run_that_is_being_recorded_is_seen() {
    for merges in [false, true] {
        shuttle::check_pct(move || write_into_a_run(merges), 5_000, 3);
    }
}

fn write_into_a_run(merges: bool) {
    let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 9 }));
    table.apply(block(b"z", 1), Csn(1), Lsn::NULL);
    table.apply(tombstones(b"abcdef"), Csn(2), Lsn::NULL);
    let writer = {
        let table = table.clone();
        thread::spawn(move || {
            table.apply(block(b"d", 3), Csn(3), Lsn::NULL);
            if merges {
                table.freeze(Csn(3));
                let (snapshots, range_deletes) = (vec![Csn(2)], table.range_deletes().clone());
                let rules = PruneRules { horizon: Csn(3), snapshots, expired_until_ms: 0, range_deletes };
                assert!(table.merge_oldest(&rules).unwrap());
            }
        })
    };
    let seen = |csn| {
        let mut cursor = table.cursor(ReadPoint { csn: Csn(csn), now_ms: 0 });
        let mut seen = Vec::new();
        cursor.seek(&[]).unwrap();
        while let Some(key) = cursor.key() {
            seen.push(key[0]);
            cursor.next().unwrap();
        }
        seen
    };
    assert_eq!(seen(2), b"z");
    writer.join().unwrap();
    // A cursor looks up empty ranges when it meets a tombstone.
    table.apply(tombstones(b"ac"), Csn(4), Lsn::NULL);
    assert_eq!((seen(2), seen(3), seen(4)), (b"z".to_vec(), b"dz".to_vec(), b"dz".to_vec()));
}

/// Maintenance takes a cursor's list of memtables back between any two of its steps, also more than once.
#[test]
fn a_cursor_continues_where_its_memtables_are_taken_back() {
    for forward in [true, false] {
        shuttle::check_pct(move || step_while_merging(forward), 5_000, 3);
        shuttle::check_random(move || step_while_merging(forward), 5_000);
    }
}

fn step_while_merging(forward: bool) {
    let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 9 }));
    let merge = |table: &Table<MapBase>, csn| {
        let (snapshots, range_deletes) = (vec![Csn(2)], table.range_deletes().clone());
        let rules = PruneRules { horizon: Csn(csn), snapshots, expired_until_ms: 0, range_deletes };
        table.freeze(Csn(csn));
        assert!(table.merge_oldest(&rules).unwrap());
    };
    table.apply(block(b"bcefh", 1), Csn(1), Lsn::NULL);
    merge(&table, 1);
    table.apply(block(b"acdgh", 2), Csn(2), Lsn::NULL);
    let maintainer = {
        let table = table.clone();
        thread::spawn(move || {
            merge(&table, 2);
            table.apply(block(b"abcdefghi", 3), Csn(3), Lsn::NULL);
            merge(&table, 3);
        })
    };
    let mut expected =
        [(b'a', 2), (b'b', 1), (b'c', 2), (b'd', 2), (b'e', 1), (b'f', 1), (b'g', 2), (b'h', 2)];
    if !forward {
        expected.reverse();
    }
    // The second cursor gets the slot that the first one leaves.
    for turn in [4, 1] {
        let mut cursor = table.cursor(ReadPoint { csn: Csn(2), now_ms: 0 });
        if forward {
            cursor.seek(&[]).unwrap();
        } else {
            cursor.seek_back(None).unwrap();
        }
        for (i, &(key, value)) in expected.iter().enumerate() {
            assert_eq!((cursor.key(), cursor.version().payload), (Some(&[key][..]), &[value][..]));
            if i == turn {
                // One step back and forth.
                if forward { cursor.prev() } else { cursor.next() }.unwrap();
                assert_eq!(cursor.key(), Some(&[expected[i - 1].0][..]));
                if forward { cursor.next() } else { cursor.prev() }.unwrap();
                assert_eq!(cursor.key(), Some(&[key][..]));
            }
            if forward { cursor.next() } else { cursor.prev() }.unwrap();
        }
        assert_eq!(cursor.key(), None);
    }
    maintainer.join().unwrap();
}

#[test]
fn keys_that_are_added_while_the_index_grows_are_found() {
    let explore = || {
        let memtables = Arc::new(Memtables::new());
        // Eight fill the first level.
        let commits = [(b"abcdefg", 1u8), (b"defghij", 2), (b"ghijklm", 3)];
        let writers = commits.map(|(keys, csn)| {
            let memtables = memtables.clone();
            thread::spawn(move || {
                memtables.apply(block(keys, csn), Csn(csn.into()), Lsn::NULL);
                for key in keys {
                    let newest = memtables.newest_csn(&[*key], hash_key(TABLE, &[*key]));
                    assert!(newest >= Some(Csn(csn.into())), "INV-IDX-7: a look-up misses a key");
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        for at in 0..=3 {
            for key in b'a'..=b'n' {
                let newest = commits.iter().rfind(|(keys, csn)| *csn <= at && keys.contains(&key));
                let found = memtables.get(&[key], hash_key(TABLE, &[key]), Csn(at.into()));
                assert_eq!(found.map(|found| found.csn.0), newest.map(|(_, csn)| u64::from(*csn)));
            }
        }
    };
    shuttle::check_random(explore, 3_000);
    shuttle::check_pct(explore, 3_000, 3);
}

/// A walk does not ask the index of the keys; a look-up does.
#[test]
fn a_look_up_finds_each_version_that_is_linked() {
    let explore = || {
        let memtables = Arc::new(Memtables::new());
        let writer = {
            let memtables = memtables.clone();
            thread::spawn(move || memtables.apply(block(b"abc", 1), Csn(1), Lsn::NULL))
        };
        for _ in 0..3 {
            for (key, _) in contents(&memtables, Csn(1)) {
                let found = memtables.newest_csn(&[key], hash_key(TABLE, &[key]));
                assert_eq!(found, Some(Csn(1)), "INV-IDX-7: the index misses a version");
            }
        }
        writer.join().unwrap();
    };
    shuttle::check_random(explore, 5_000);
}

/// Maintenance drops a range tombstone, when nothing that it hides is left, while a reader looks.
#[test]
fn what_a_dropped_range_tombstone_hid_stays_hidden() {
    for read in [look_up, look_up_newest, walk, walk_back] {
        for merged in 0..=2 {
            shuttle::check_random(move || read_while_dropping(read, merged), 2_000);
            shuttle::check_pct(move || read_while_dropping(read, merged), 2_000, 4);
        }
    }
}

type Read = fn(&Arc<Table<MapBase>>, ReadPoint) -> Vec<(u8, u8)>;

/// `merged`: how many of the commits before the range delete are in the base when the reader begins.
fn read_while_dropping(read: Read, merged: usize) {
    let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 9 }));
    let rules = |horizon| {
        let range_deletes = table.range_deletes().clone();
        PruneRules { horizon, snapshots: Vec::new(), expired_until_ms: 0, range_deletes }
    };
    for (keys, csn) in [(b"aceg", 1), (b"bdfh", 2)] {
        table.apply(block(keys, csn), Csn(csn.into()), Lsn::NULL);
        table.freeze(Csn(csn.into()));
    }
    for _ in 0..merged {
        assert!(table.merge_oldest(&rules(Csn(2))).unwrap());
    }
    let readers = Readers { from: Csn(2), snapshots: Vec::new() };
    for (csn, start, end) in [(3, b"x", b"y"), (4, b"b", b"f")] {
        table.apply_range_delete(KeySpan::new(start, Some(end)), Csn(csn), &readers);
    }
    table.apply(block(b"d", 5), Csn(5), Lsn::NULL);
    let maintainer = {
        let (table, rules) = (table.clone(), rules(Csn(5)));
        thread::spawn(move || {
            // It hides nothing. A reader takes a new view, and has to see that it needs another one.
            table.range_deletes().drop_up_to(Csn(3));
            while table.merge_oldest(&rules).unwrap() {}
            table.purge(KeySpan::ALL, &rules).unwrap();
            table.range_deletes().drop_up_to(Csn(4));
        })
    };
    let expected = [(b'a', 1), (b'd', 5), (b'f', 2), (b'g', 1), (b'h', 2)];
    let at = ReadPoint { csn: Csn(5), now_ms: 0 };
    assert_eq!(read(&table, at), expected, "INV-IDX-6");
    maintainer.join().unwrap();
    assert!(table.range_deletes().is_empty());
    assert_eq!(read(&table, at), expected);
}

fn look_up(table: &Arc<Table<MapBase>>, at: ReadPoint) -> Vec<(u8, u8)> {
    found(|key, hash| table.get(key, hash, at, Io::Allowed).unwrap())
}

fn look_up_newest(table: &Arc<Table<MapBase>>, at: ReadPoint) -> Vec<(u8, u8)> {
    found(|key, hash| table.get_newest(key, hash, at.csn, at.now_ms, Io::Allowed).unwrap())
}

/// The keys from `a` to `h` that `get` finds.
fn found(get: impl Fn(&[u8], u64) -> Option<Version>) -> Vec<(u8, u8)> {
    let find = |key: u8| Some((key, get(&[key], hash_key(TABLE, &[key]))?.payload[0]));
    (b'a'..=b'h').filter_map(find).collect()
}

fn walk(table: &Arc<Table<MapBase>>, at: ReadPoint) -> Vec<(u8, u8)> {
    let mut seen = Vec::new();
    let mut cursor = table.cursor(at);
    cursor.seek(&[]).unwrap();
    while let Some((key, version)) = cursor.entry() {
        seen.push((key[0], version.payload[0]));
        cursor.next().unwrap();
    }
    seen
}

fn walk_back(table: &Arc<Table<MapBase>>, at: ReadPoint) -> Vec<(u8, u8)> {
    let mut seen = Vec::new();
    let mut cursor = table.cursor(at);
    cursor.seek_back(None).unwrap();
    while let Some((key, version)) = cursor.entry() {
        seen.push((key[0], version.payload[0]));
        cursor.prev().unwrap();
    }
    seen.reverse();
    seen
}
