use std::ops::RangeBounds;

use super::*;
use proptest::prelude::*;

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..3, 0..4)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![key().prop_map(Bound::Included), key().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

/// Every key over three letters of up to six bytes: any two overlapping ranges with shorter ends have one of these in
/// common.
fn all_keys() -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new()];
    for i in 0.. {
        if keys.get(i).is_none_or(|key: &Vec<u8>| key.len() == 6) {
            return keys;
        }
        for byte in 0..3 {
            let longer = keys[i].iter().copied().chain([byte]).collect();
            keys.push(longer);
        }
    }
    unreachable!()
}

/// That their bytes were counted with each change, and that neighbours share the key between them.
fn assert_counted(deletes: &RangeDeletes) {
    let ranges = deletes.ranges.read();
    let bytes = ranges.bytes_around(&KeySpan::new(Key::from([]), None));
    assert_eq!((deletes.bytes.load(Ordering::Relaxed), deletes.memory.tombstone_bytes()), (bytes, bytes));
    for (fragment, (start, _)) in ranges.fragments.values().zip(ranges.fragments.iter().skip(1)) {
        let end = fragment.end.as_ref().expect("another one follows");
        assert!(end < start || Arc::ptr_eq(end, start));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every reader gets the same result as from a list of all range deletes.
    #[test]
    fn they_cover_what_a_list_of_ranges_covers(
        ranges in prop::collection::vec((key(), prop::option::of(key()), 0u64..3, 0u64..12), 0..12),
        snapshots in prop::collection::btree_set(0u64..12, 0..4),
        kept_at in 0u64..12,
        dropped in 0u64..6,
        looks in prop::collection::vec((bound(), bound(), 0u64..13), 8),
    ) {
        let deletes = RangeDeletes::new();
        let snapshots: Vec<Csn> = snapshots.into_iter().map(Csn).collect();
        let mut from = Csn::ZERO;
        let mut all: Vec<RangeDelete> = Vec::new();
        for (i, (start, end, late, visible)) in ranges.iter().enumerate() {
            // Sometimes two of them are applied in the other order.
            let csn = Csn(i as u64 * 2 + 2 - late);
            let newest = Csn(i as u64 * 2);
            deletes.keep_at(Csn(kept_at.min(newest.0)));
            from = from.max(Csn(*visible).min(newest));
            let readers = Readers { from, snapshots: snapshots.clone() };
            let keys = KeySpan::new(start.as_slice(), end.as_deref());
            deletes.insert(keys, csn, &readers);
            if end.as_ref().is_none_or(|end| start < end) {
                all.push(RangeDelete { csn, keys: keys.owned() });
            }
        }
        let kept_at = Csn(kept_at.min(ranges.len() as u64 * 2));
        let covers = |range: &RangeDelete, key: &[u8]| {
            *range.keys.start <= *key && range.keys.end.as_ref().is_none_or(|end| *key < **end)
        };
        let newest = |key: &[u8], at: Csn| {
            all.iter().filter(|r| r.csn <= at && covers(r, key)).map(|r| r.csn).max()
        };
        let keys = all_keys();
        let listed = deletes.list(Csn(dropped), kept_at);
        for key in keys.iter().filter(|key| key.len() < 5) {
            let listed: Vec<Csn> = listed.iter().filter(|r| covers(r, key)).map(|r| r.csn).collect();
            let expected = newest(key, kept_at).filter(|csn| csn.0 > dropped);
            prop_assert_eq!(listed, Vec::from_iter(expected));
        }
        assert_counted(&deletes);
        deletes.drop_up_to(Csn(dropped));
        assert_counted(&deletes);
        all.retain(|range| range.csn.0 > dropped);
        let newest = |key: &[u8], at: Csn| {
            all.iter().filter(|r| r.csn <= at && covers(r, key)).map(|r| r.csn).max()
        };
        prop_assert_eq!(deletes.is_empty(), keys.iter().all(|key| newest(key, Csn::MAX).is_none()));
        for (start, end, csn) in looks {
            let at = Csn(csn);
            for key in keys.iter().filter(|key| key.len() < 5) {
                if at >= from || snapshots.contains(&at) {
                    prop_assert_eq!(deletes.covering(key, at), newest(key, at));
                }
                prop_assert!(deletes.covering(key, at) <= newest(key, at));
                let (later, deleted) = deletes.covering_at_or_after(key, at);
                prop_assert!(later == at || (at < later && later <= from));
                prop_assert_eq!(deleted, newest(key, later));
            }
            let range = (start, end);
            let newer = keys
                .iter()
                .any(|key| RangeBounds::<Vec<u8>>::contains(&range, key) && all.iter().any(|r| r.csn > at && covers(r, key)));
            let span = KeySpan::of_bounds(range.0.as_ref().map(|k| &k[..]), range.1.as_ref().map(|k| &k[..]));
            prop_assert_eq!(deletes.any_newer_in_range(span.borrowed(), at), newer, "{:?} than {}", range, at);
        }
    }
}

/// A queue whose head advances: each range delete covers all keys that those before it covered.
#[test]
fn deletes_up_to_a_rising_key_take_no_more_room_than_the_readers_need() {
    let deletes = RangeDeletes::new();
    let snapshots = [Csn(100), Csn(5_000), Csn(90_000)];
    for i in 1..200_000u32 {
        let known = snapshots.partition_point(|snapshot| snapshot.0 < u64::from(i));
        let readers = Readers { from: Csn(u64::from(i) - 1), snapshots: snapshots[..known].to_vec() };
        deletes.insert(KeySpan::new(&[], Some(&i.to_be_bytes())), Csn(i.into()), &readers);
        assert!(deletes.len() <= 2 + known, "{} fragments after {i}", deletes.len());
        assert!(deletes.links() <= 20, "{} links after {i}", deletes.links());
    }
    assert_eq!(deletes.covering(&4_000u32.to_be_bytes(), Csn(5_000)), Some(Csn(5_000)));
    assert_eq!(deletes.covering(&5_000u32.to_be_bytes(), Csn(5_000)), None);
    assert_eq!(deletes.newest_covering(&150_000u32.to_be_bytes()), Some(Csn(199_999)));
    deletes.drop_up_to(Csn(199_999));
    assert_eq!((deletes.is_empty(), deletes.links()), (true, 0));
}

/// A retention window, whose range deletes touch and do not overlap: they are dropped in parts.
#[test]
fn many_fragments_are_dropped_up_to_a_commit() {
    let deletes = RangeDeletes::new();
    let key = |i: u32| i.to_be_bytes();
    for i in 0..10_000 {
        let (start, end) = (key(i), key(i + 1));
        let keys = KeySpan::new(&start[..], Some(&end));
        deletes.insert(keys, Csn(u64::from(i) + 1), &Readers::NONE_YET);
    }
    assert_counted(&deletes);
    deletes.drop_up_to(Csn(9_000));
    assert_counted(&deletes);
    assert_eq!((deletes.len(), deletes.links()), (1_000, 1_000));
    assert_eq!(deletes.newest_covering(&key(8_999)), None);
    assert_eq!(deletes.newest_covering(&key(9_000)), Some(Csn(9_001)));
    let before = deletes.state();
    deletes.drop_up_to(Csn(9_000));
    assert!(deletes.state() == before, "nothing was removed");
    deletes.drop_up_to(Csn::MAX);
    assert!(deletes.is_empty() && !deletes.state().same_removals(before));
}
