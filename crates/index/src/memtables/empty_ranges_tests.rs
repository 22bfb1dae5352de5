use super::*;

const fn at(csn: u64) -> ReadPoint {
    ReadPoint { csn: Csn(csn), now_ms: 0 }
}

fn record(known: &EmptyRanges, start: &[u8], end: &[u8], since: u64, keys: u64) -> bool {
    let range = EmptyRange { start: start.to_vec(), end: end.to_vec(), since: at(since), keys };
    let announced = known.announce(range);
    if announced {
        known.finish(false);
    }
    announced
}

fn pass(known: &EmptyRanges, key: &[u8], csn: u64, forward: bool) -> Option<Vec<u8>> {
    let mut past = Vec::new();
    known.pass(key, at(csn), forward, &mut past).then_some(past)
}

#[test]
fn readers_pass_what_is_empty_for_them() {
    let known = EmptyRanges::default();
    assert!(!known.in_use());
    assert!(record(&known, b"b", b"d", 10, 100) && record(&known, b"d", b"f", 20, 10));
    assert_eq!(known.len(), 2, "a small range does not take a large one from older readers");
    assert_eq!(pass(&known, b"c", 20, true), Some(b"f".to_vec()));
    assert_eq!(pass(&known, b"c", 19, true), Some(b"d".to_vec()));
    assert_eq!(pass(&known, b"c", 9, true), None);
    assert_eq!(pass(&known, b"e", 20, false), Some(b"b".to_vec()));
    assert_eq!(pass(&known, b"e", 19, false), None);
    assert_eq!((pass(&known, b"a", 20, true), pass(&known, b"f", 20, true)), (None, None));
    assert!(!record(&known, b"e", b"g", 30, 1), "it overlaps a recorded one");
    assert!(record(&known, b"f", b"h", 30, 10) && known.len() == 2, "neighbours of one size join");
    assert_eq!(pass(&known, b"b", 29, true), Some(b"d".to_vec()));
    assert!(record(&known, b"h", b"i", 40, 200) && known.len() == 1);
    assert_eq!(pass(&known, b"b", 40, true), Some(b"i".to_vec()));
}

#[test]
fn a_range_with_expired_keys_is_for_readers_after_their_expiry() {
    let known = EmptyRanges::default();
    let since = ReadPoint { csn: Csn(5), now_ms: 1000 };
    assert!(known.announce(EmptyRange { start: b"a".to_vec(), end: b"b".to_vec(), since, keys: 1 }));
    known.finish(false);
    let mut past = Vec::new();
    assert!(!known.pass(b"a", ReadPoint { csn: Csn(9), now_ms: 999 }, true, &mut past));
    assert!(known.pass(b"a", since, true, &mut past));
    assert_eq!(known.outside(KeySpan::ALL, Csn(9)).len(), 1, "it has no time");
}

#[test]
fn a_written_key_cuts_a_range_and_ends_a_recording() {
    let known = EmptyRanges::default();
    record(&known, b"b", b"f", 10, 100);
    known.written([&b"a"[..], b"d", b"f"].into_iter());
    assert_eq!(known.len(), 2);
    assert_eq!(pass(&known, b"b", 10, true), Some(b"d".to_vec()));
    assert_eq!(pass(&known, b"d", 10, true), None);
    assert_eq!(pass(&known, b"d\0", 10, true), Some(b"f".to_vec()));
    known.written([&b"b"[..], b"d\0"].into_iter());
    assert_eq!(pass(&known, b"b", 10, true), None);
    let range = || EmptyRange { start: b"m".to_vec(), end: b"p".to_vec(), since: at(10), keys: 9 };
    for (key, kept) in [(b"l", true), (b"p", true), (b"m", false), (b"o", false)] {
        let known = EmptyRanges::default();
        assert!(known.announce(range()) && !known.announce(range()) && known.asks_for_writes());
        known.written([&key[..]].into_iter());
        known.finish(false);
        assert_eq!((known.len() == 1, known.in_use()), (kept, kept), "{key:?}");
    }
    assert!(known.announce(range()));
    known.finish(true);
    assert_eq!(pass(&known, b"n", 10, true), None, "the recorder found a write");
}

/// A table that was emptied and is filled again in any order soon stops looking up ranges.
#[test]
fn there_are_never_many_ranges() {
    let known = EmptyRanges::default();
    record(&known, &[0], &[200], 10, 1_000_000);
    for i in 0..20_000u32 {
        known.written([&(i.wrapping_mul(2_654_435_761)).to_be_bytes()[..]].into_iter());
        assert!(known.len() <= RANGES_MAX);
    }
    for i in 0..1_000u32 {
        record(
            &known,
            &[&[255], &i.to_be_bytes()[..]].concat(),
            &[&[255], &i.to_be_bytes()[..], &[0]].concat(),
            1,
            1,
        );
        assert!(known.len() <= RANGES_MAX);
    }
}

#[test]
fn outside_is_the_complement_of_the_ranges() {
    let known = EmptyRanges::default();
    for (start, end, since) in [(b"b", b"d", 10), (b"e", b"f", 20), (b"h", b"j", 10)] {
        record(&known, start, end, since, 1);
    }
    let text = |range: KeySpan<&[u8]>, csn| -> String {
        known.outside(range, Csn(csn)).iter().map(|span| format!("{span:?} ")).collect()
    };
    let span = |start: &'static str, end: &'static str| KeySpan::new(start.as_bytes(), Some(end.as_bytes()));
    assert_eq!(text(KeySpan::ALL, 20), "[, b) [d, e) [f, h) [j, end) ");
    assert_eq!(text(KeySpan::ALL, 15), "[, b) [d, h) [j, end) ");
    assert_eq!(text(span("c", "i\0"), 20), "[d, e) [f, h) ");
    assert_eq!(text(span("a\0", "h"), 20), "[a\\x00, b) [d, e) [f, h) ");
    assert_eq!(text(span("b", "c"), 20), "");
    assert_eq!(text(span("c", "b"), 20), "");
    assert_eq!(text(KeySpan::from(b"k"), 20), "[k, end) ");
}
