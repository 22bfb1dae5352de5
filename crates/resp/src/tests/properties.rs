//! Properties: the outcome of a connection does not depend on how its bytes arrive, and replies are read as written.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::fuzzing::{Received, receive, request, request_seeds};
use crate::{
    Encoder, Limits, Parser, Protocol, Reply, encode_command, format_double, parse_f64, parse_reply,
};

fn received(limits: Limits, input: &[u8], cuts: &[usize]) -> Received {
    let mut parser = Parser::new(limits);
    parser.set_authenticated(true);
    receive(&mut parser, input, cuts)
}

fn ascending(cuts: Vec<prop::sample::Index>, len: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(len + 1)).collect();
    cuts.sort_unstable();
    cuts
}

/// Bytes that are often those of a request.
fn almost_requests() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        (-2..12i64).prop_map(|count| format!("*{count}\r\n").into_bytes()),
        (-1..40i64).prop_map(|length| format!("${length}\r\n").into_bytes()),
        vec(any::<u8>(), 0..30),
        Just(b"\r\n".to_vec()),
        Just(b"$3\r\nabc\r\n".to_vec()),
        Just(b"set \"a b\" 'c'\n".to_vec()),
        prop::sample::select(&b"*$\r\n0123456789-\"' "[..]).prop_map(|byte| vec![byte]),
    ];
    vec(fragment, 0..20).prop_map(|fragments| fragments.concat())
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>().prop_filter("of one line", |byte| !b"\r\n".contains(byte)), 0..12)
}

fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        any::<u64>().prop_map(f64::from_bits),
        (-1e6..1e6),
        (-1000..1000i32).prop_map(f64::from)
    ]
}

fn double_reply(value: f64) -> Reply {
    let mut text = Vec::new();
    format_double(value, &mut text);
    Reply::Double(String::from_utf8(text).expect("it is ASCII"))
}

fn reply() -> impl Strategy<Value = Reply> {
    let leaf = prop_oneof![
        line().prop_map(Reply::Simple),
        line().prop_map(Reply::Error),
        any::<i64>().prop_map(Reply::Integer),
        vec(any::<u8>(), 0..20).prop_map(Reply::Bulk),
        Just(Reply::Null),
        double().prop_map(double_reply),
        any::<bool>().prop_map(Reply::Boolean),
        "-?[0-9]{1,30}".prop_map(|digits| Reply::BigNumber(digits.into_bytes())),
        (any::<[u8; 3]>(), vec(any::<u8>(), 0..20)).prop_map(|(format, text)| Reply::Verbatim(format, text)),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Reply::Array),
            vec(inner.clone(), 0..5).prop_map(Reply::Set),
            vec(inner.clone(), 0..5).prop_map(Reply::Push),
            vec(pair.clone(), 0..4).prop_map(Reply::Map),
            (vec(pair, 0..3), inner)
                .prop_map(|(attributes, reply)| Reply::Attributed(attributes, Box::new(reply))),
        ]
    })
}

/// The reply as a client of RESP2 reads it.
fn in_resp2(reply: &Reply) -> Reply {
    let all = |replies: &[Reply]| Reply::Array(replies.iter().map(in_resp2).collect());
    match reply {
        Reply::Null | Reply::NullBulk => Reply::NullBulk,
        Reply::Array(elements) | Reply::Set(elements) | Reply::Push(elements) => all(elements),
        Reply::Map(pairs) => {
            Reply::Array(pairs.iter().flat_map(|(key, value)| [in_resp2(key), in_resp2(value)]).collect())
        }
        Reply::Attributed(_, reply) => in_resp2(reply),
        Reply::Double(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Reply::Boolean(value) => Reply::Integer(i64::from(*value)),
        Reply::BigNumber(digits) => Reply::Bulk(digits.clone()),
        Reply::Verbatim(_, text) => Reply::Bulk(text.clone()),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_arrive_as_they_were_sent(
        commands in vec(vec(vec(any::<u8>(), 0..40), 1..8), 0..6),
        cuts in vec(any::<prop::sample::Index>(), 0..20),
        pieces_from_bytes in prop_oneof![Just(usize::MAX), 0..40usize],
    ) {
        let mut input = Vec::new();
        commands.iter().for_each(|arguments| encode_command(&mut input, arguments));
        let cuts = ascending(cuts, input.len());
        let limits = Limits { pieces_from_bytes, ..Limits::default() };
        let expected = Received { commands, consumed_bytes: Some(input.len()), ..Received::default() };
        prop_assert_eq!(received(limits, &input, &cuts), expected);
    }

    #[test]
    fn cuts_change_no_outcome(
        input in almost_requests(),
        cuts in vec(any::<prop::sample::Index>(), 0..20),
        pieces_from_bytes in prop_oneof![Just(usize::MAX), 0..40usize],
    ) {
        let cuts = ascending(cuts, input.len());
        let limits = Limits { pieces_from_bytes, ..Limits::default() };
        prop_assert_eq!(received(limits, &input, &cuts), received(limits, &input, &[]));
    }

    #[test]
    fn any_bytes_are_requests_or_errors(input in vec(any::<u8>(), 0..200)) {
        request(&input);
    }

    #[test]
    fn replies_are_read_as_they_were_written(reply in reply()) {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut bytes = Vec::new();
            reply.encode(&mut Encoder::new(&mut bytes, protocol));
            let expected = if protocol == Protocol::Resp2 { in_resp2(&reply) } else { reply.clone() };
            prop_assert_eq!(parse_reply(&bytes), Ok(Some((expected, bytes.len()))));
            for len in 0..bytes.len() {
                prop_assert_eq!(parse_reply(&bytes[..len]), Ok(None));
            }
        }
    }

    #[test]
    fn any_bytes_are_replies_or_errors(input in vec(any::<u8>(), 0..100)) {
        crate::fuzzing::reply(&input);
    }

    #[test]
    fn doubles_are_read_as_they_were_written(value in double()) {
        let mut text = Vec::new();
        format_double(value, &mut text);
        prop_assert!(text.len() <= 25);
        if !value.is_nan() {
            prop_assert_eq!(parse_f64(&text).map(f64::to_bits), Some(value.to_bits()));
        }
    }

    #[test]
    fn hexadecimal_numbers_are_exact(bits in any::<u64>()) {
        let value = f64::from_bits(bits & !(1 << 63));
        prop_assume!(value.is_finite());
        let fraction = bits & ((1 << 52) - 1);
        let exponent = (bits >> 52 & 0x7ff) as i64;
        let (whole, exponent) = if exponent == 0 { (0, -1022) } else { (1, exponent - 1023) };
        let text = format!("0x{whole}.{fraction:013x}p{exponent}");
        prop_assert_eq!(parse_f64(text.as_bytes()).map(f64::to_bits), Some(value.to_bits()));
    }
}

#[test]
fn seeds_are_received_alike_in_all_cuts() {
    request_seeds().iter().for_each(|seed| request(seed));
}
