//! Follows one operation through a table.

use std::sync::Arc;

use fulgurite_types::{Csn, Lsn, TableId, hash_key, seal_checksum};

use super::map_base::MapBase;
use super::*;
use crate::memtables::{BlockBuilder, BlockOp, RecoveredBuilder, RecoveredOp};
use crate::version::{OutOfLine, VersionFlags};

const TABLE: TableId = TableId(7);

fn one_op(flags: u8, payload: &[u8], value_offset: Option<u32>) -> Block {
    put(b"k", hash_key(TABLE, b"k"), flags, payload, value_offset)
}

fn put(key: &[u8], hash: u64, flags: u8, payload: &[u8], value_offset: Option<u32>) -> Block {
    let mut builder = BlockBuilder::new(TABLE, 1, key.len() + payload.len());
    let flags = VersionFlags(flags);
    builder.push(BlockOp { key, hash, flags, expires_at_ms: 0, payload, value_offset, checksum: 99 });
    builder.finish()
}

fn rules_at(horizon: Csn, table: &Table<MapBase>) -> PruneRules {
    let range_deletes = table.range_deletes().clone();
    PruneRules { horizon, snapshots: Vec::new(), expired_until_ms: 0, range_deletes }
}

#[test]
fn long_inline_values_merge_into_references_to_the_log() {
    let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 3 }));
    table.apply(one_op(0, b"long", Some(10)), Csn(5), Lsn::new(3, 100));
    assert!(table.freeze(Csn(5)));
    assert!(!table.merge_oldest(&rules_at(Csn(4), &table)).unwrap());
    assert!(table.merge_oldest(&rules_at(Csn(5), &table)).unwrap());
    assert_eq!((table.memtables().entries(), table.memtables().merged()), (0, Csn(5)));
    let version = table.get_newest(b"k", hash_key(TABLE, b"k"), Csn(5), 0, Io::Allowed).unwrap().unwrap();
    assert!(version.flags.is_out_of_line());
    let stored = OutOfLine::decode(&version.payload).unwrap();
    assert_eq!((stored.len, stored.checksum), (4, seal_checksum(99, Csn(5))));
    assert_eq!((stored.extents[0].lsn, stored.extents[0].len), (Lsn::new(3, 110), 4));
}

#[test]
fn the_checksum_of_a_spilled_value_is_sealed_when_it_is_applied() {
    let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 3 }));
    let mut payload = Vec::new();
    OutOfLine { len: 0, checksum: 99, extents: Vec::new() }.encode(&mut payload);
    table.apply(one_op(VersionFlags::OUT_OF_LINE, &payload, None), Csn(6), Lsn::new(3, 100));
    let version = table.get_newest(b"k", hash_key(TABLE, b"k"), Csn(6), 0, Io::Allowed).unwrap().unwrap();
    assert_eq!(OutOfLine::decode(&version.payload).unwrap().checksum, seal_checksum(99, Csn(6)));
}

#[test]
fn a_version_outlives_its_memtable() {
    let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 1 << 20 }));
    table.apply(one_op(0, b"value", None), Csn(1), Lsn::NULL);
    let version = table.get_newest(b"k", hash_key(TABLE, b"k"), Csn(1), 0, Io::Allowed).unwrap().unwrap();
    table.freeze(Csn(1));
    table.merge_oldest(&rules_at(Csn(1), &table)).unwrap();
    drop(table);
    assert_eq!(&version.payload[..], b"value");
}

#[test]
fn recovered_operations_are_found_once_each() {
    let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 1 << 20 }));
    let value = vec![7; 5000];
    for _ in 0..2 {
        let mut builder = RecoveredBuilder::new(TABLE);
        for i in (0..2000u64).rev() {
            let key = (i / 2 * 7919 % 1000).to_be_bytes();
            builder.push(RecoveredOp {
                key: &key,
                hash: hash_key(TABLE, &key),
                csn: Csn(i + 1),
                flags: VersionFlags(0),
                expires_at_ms: 0,
                payload: &value[..i as usize],
                value_lsn: None,
                checksum: 0,
            });
        }
        table.apply_recovered(builder.finish());
    }
    let mut cursor = table.cursor(ReadPoint { csn: Csn(1500), now_ms: 0 });
    cursor.seek(&[]).unwrap();
    let mut keys = 0;
    while let Some(key) = cursor.key() {
        let key = key.to_vec();
        let version = cursor.version();
        assert_eq!(version.payload.len() as u64 + 1, version.csn.0);
        assert!(version.csn <= Csn(1500) && version.csn.0.is_multiple_of(2));
        keys += 1;
        cursor.next().unwrap();
        assert!(cursor.key().is_none_or(|next| next > &key[..]));
    }
    assert_eq!(keys, 750);
    let mut source = table.memtables().oldest_immutable();
    assert!(source.is_none() && table.freeze(Csn(2000)));
    source = table.memtables().oldest_immutable();
    let memtable = source.unwrap();
    let mut batch = memtable.merge_source(1 << 20);
    let mut versions = 0;
    while crate::MergeSource::peek_key(&mut batch).is_some() {
        let mut out = Vec::new();
        crate::MergeSource::take_versions(&mut batch, &mut out);
        assert_eq!(out[0].csn, out[1].csn.next());
        versions += out.len();
    }
    assert_eq!(versions, 2000);
}

fn number(csn: u64, keys: impl Iterator<Item = u64>) -> Block {
    let mut builder = BlockBuilder::new(TABLE, 0, 0);
    for key in keys {
        let key = key.to_be_bytes();
        builder.push(BlockOp {
            key: &key,
            hash: hash_key(TABLE, &key),
            flags: VersionFlags(0),
            expires_at_ms: 0,
            payload: &csn.to_be_bytes(),
            value_offset: None,
            checksum: 0,
        });
    }
    builder.finish()
}

/// An idle cursor at any position, in either direction: memtables merged meanwhile leave memory.
#[test]
fn an_idle_cursor_keeps_no_memtable_that_was_merged() {
    for (forward, rows) in [true, false].into_iter().flat_map(|f| [0, 1, 2, 3, 40, 99].map(|rows| (f, rows)))
    {
        let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 1 << 20 }));
        // A third of the keys is in the base, a third in the memtables, a third in both.
        let merge = |csn| {
            let rules = PruneRules { snapshots: vec![Csn(2)], ..rules_at(Csn(csn), &table) };
            table.freeze(Csn(csn));
            assert!(table.merge_oldest(&rules).unwrap());
        };
        table.apply(number(1, (0..100).filter(|i| i % 3 != 0)), Csn(1), Lsn::NULL);
        merge(1);
        table.apply(number(2, (0..100).filter(|i| i % 3 != 1)), Csn(2), Lsn::NULL);
        let mut keys: Vec<u64> = (0..100).collect();
        let mut cursor = table.cursor(ReadPoint { csn: Csn(2), now_ms: 0 });
        if forward {
            cursor.seek(&[]).unwrap();
        } else {
            keys.reverse();
            cursor.seek_back(None).unwrap();
        }
        for (row, key) in keys.into_iter().enumerate() {
            if row == rows {
                for csn in 3..6 {
                    table.apply(number(csn, (0..200).filter(|i| i % 2 == csn % 2)), Csn(csn), Lsn::NULL);
                    merge(csn);
                }
                // Threads of other tests may have pinned an epoch.
                let mut held = (0..20_000).map(|_| {
                    std::thread::park_timeout(std::time::Duration::from_micros(200));
                    table.memtables().reclaim()
                });
                assert!(held.any(|held| held == 0), "{forward}, {rows}");
            }
            assert_eq!(cursor.key(), Some(&key.to_be_bytes()[..]), "{forward}, {rows}");
            let csn: u64 = if key % 3 == 1 { 1 } else { 2 };
            assert_eq!(cursor.version().payload, csn.to_be_bytes(), "{forward}, {rows}");
            assert_eq!(&cursor.pinned_key()[..], key.to_be_bytes());
            if forward { cursor.next() } else { cursor.prev() }.unwrap();
        }
        assert_eq!(cursor.key(), None);
    }
}

/// Twenty keys of one hash: look-ups begin at the predecessor of one of them, which comes before others, or after them.
#[test]
fn a_predecessor_of_another_key_with_the_same_hash_does_no_harm() {
    const HASH: u64 = 77;
    let keys: Vec<_> = (0..20u8).map(|number| [b'k', number]).collect();
    let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 3 }));
    let mut csn = Csn::ZERO;
    let mut put_all = |other: &[u8]| {
        for key in &keys {
            table.memtables().prefetch(&mut [(other, HASH)].into_iter().collect());
            csn = csn.next();
            table.apply(put(key, HASH, 0, key, None), csn, Lsn::new(3, 100));
        }
        csn
    };
    for other in [[b'k', 0], [b'k', 19], [b'k', 10], [b'a', 0], [b'z', 0]] {
        let last = put_all(&other);
        for at in [last, Csn(last.0 - 20), Csn(last.0 - 7)] {
            for (key, number) in keys.iter().zip(1..) {
                let written =
                    if Csn(last.0 - 20 + number) <= at { last.0 - 20 } else { last.0.saturating_sub(40) };
                let expected = (written + number <= at.0 && at > Csn::ZERO).then_some(Csn(written + number));
                table.memtables().prefetch(&mut [(&other[..], HASH)].into_iter().collect());
                let found = table.memtables().get(key, HASH, at);
                assert_eq!(found.map(|version| version.csn), expected, "{key:?} at {at}, after {other:?}");
            }
        }
    }
}

/// What a reader does not see beyond the keys that it asks for may be much: all that was written since.
#[test]
fn a_cursor_with_limits_does_not_walk_beyond_them() {
    let table = Arc::new(Table::new(TABLE, MapBase::default(), TableOptions { inline_max: 1 << 20 }));
    table.apply(number(1, [0, 50, 99].into_iter()), Csn(1), Lsn::NULL);
    table.apply(number(2, (0..100).filter(|key| ![0, 50, 99].contains(key))), Csn(2), Lsn::NULL);
    let span = |keys: std::ops::Range<u64>| {
        KeySpan::new(keys.start.to_be_bytes()[..].into(), Some(keys.end.to_be_bytes()[..].into()))
    };
    let keys_of = |at: u64, limits: Option<KeySpan>, forward: bool| {
        let mut cursor = table.cursor(ReadPoint { csn: Csn(at), now_ms: 0 });
        if let Some(limits) = limits {
            cursor.set_limits(Arc::new(limits));
        }
        let from = 50_u64.to_be_bytes();
        if forward { cursor.seek(&from) } else { cursor.seek_back(Some(&51_u64.to_be_bytes())) }.unwrap();
        std::iter::from_fn(|| {
            let key = u64::from_be_bytes(cursor.key()?.try_into().unwrap());
            if forward { cursor.next() } else { cursor.prev() }.unwrap();
            Some(key)
        })
        .collect::<Vec<_>>()
    };
    let check = |at| {
        assert_eq!((keys_of(at, None, true), keys_of(at, None, false)), (vec![50, 99], vec![50, 0]));
        let near = [true, false].map(|forward| keys_of(at, Some(span(50..60)), forward));
        assert_eq!(near, [[50], [50]], "the others are behind those that it passes");
        assert_eq!(keys_of(at, Some(span(1..101)), true), [50, 99]);
        assert_eq!(keys_of(at, Some(span(0..51)), false), [50, 0]);
    };
    check(1);
    // The same where what it does not see are tombstones, in the base.
    let mut builder = BlockBuilder::new(TABLE, 0, 0);
    let keys = (0..100_u64).map(u64::to_be_bytes);
    for key in keys.filter(|key| ![0, 50, 99].map(u64::to_be_bytes).contains(key)) {
        builder.push(BlockOp {
            key: &key,
            hash: hash_key(TABLE, &key),
            flags: VersionFlags(VersionFlags::TOMBSTONE),
            expires_at_ms: 0,
            payload: &[],
            value_offset: None,
            checksum: 0,
        });
    }
    table.apply(builder.finish(), Csn(3), Lsn::NULL);
    table.freeze(Csn(3));
    let rules = PruneRules { snapshots: vec![Csn(1)], ..rules_at(Csn(3), &table) };
    assert!(table.merge_oldest(&rules).unwrap());
    check(1);
    check(3);
}
