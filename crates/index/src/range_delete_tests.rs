use super::*;
use proptest::prelude::*;

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..3, 0..4)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![key().prop_map(Bound::Included), key().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

fn is_inside(key: &[u8], range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    use std::ops::RangeBounds;
    range.contains(&key.to_vec())
}

/// Every key over three letters of up to six bytes: with these, any two ranges of shorter ends that meet have one in
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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn they_cover_what_a_list_of_ranges_covers(
        ranges in prop::collection::vec((key(), prop::option::of(key()), 1u64..12), 0..12),
        removed in prop::collection::vec(any::<bool>(), 12),
        looks in prop::collection::vec((bound(), bound(), 0u64..13), 8),
    ) {
        let deletes = RangeDeletes::new();
        for (start, end, csn) in &ranges {
            deletes.insert(start, end.as_deref(), Csn(*csn));
        }
        let (gone, kept): (Vec<_>, Vec<_>) =
            deletes.list(Csn::MAX).into_iter().zip(removed).partition(|(_, removed)| *removed);
        let gone: Vec<_> = gone.into_iter().map(|(range, _)| range).collect();
        let kept: Vec<_> = kept.into_iter().map(|(range, _)| range).collect();
        deletes.remove(&gone);
        prop_assert_eq!(deletes.list(Csn::MAX), kept.clone());
        prop_assert_eq!(deletes.is_empty(), kept.is_empty());
        let covers = |range: &RangeDelete, key: &[u8]| {
            *range.start <= *key && range.end.as_ref().is_none_or(|end| *key < **end)
        };
        let keys = all_keys();
        for (from, to, csn) in looks {
            let at = Csn(csn);
            for key in keys.iter().filter(|key| key.len() < 5) {
                let newest = kept.iter().filter(|r| r.csn <= at && covers(r, key)).map(|r| r.csn).max();
                prop_assert_eq!(deletes.covering(key, at), newest);
            }
            let range = (from, to);
            let newer = keys
                .iter()
                .any(|key| is_inside(key, &range) && kept.iter().any(|r| r.csn > at && covers(r, key)));
            let bounds = (range.0.as_ref().map(|k| &k[..]), range.1.as_ref().map(|k| &k[..]));
            prop_assert_eq!(deletes.any_newer_in_range(bounds, at), newer, "{:?} than {}", range, at);
        }
    }
}

#[test]
fn many_open_ended_ranges_share_their_past() {
    let deletes = RangeDeletes::new();
    for i in 0..200_000u32 {
        deletes.insert(&i.to_be_bytes(), None, Csn(u64::from(i) + 1));
    }
    assert_eq!(deletes.newest_covering(&150_000u32.to_be_bytes()), Some(Csn(150_001)));
    assert_eq!(deletes.covering(&200_000u32.to_be_bytes(), Csn(199_990)), Some(Csn(199_990)));
    let all = deletes.list(Csn::MAX);
    deletes.remove(&all);
    assert!(deletes.is_empty());
}
