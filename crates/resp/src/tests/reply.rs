//! Replies, as a client reads them.

use crate::fuzzing::{reply, reply_seeds};
use crate::{REPLY_DEPTH_MAX, Reply, ReplyError, parse_reply};

fn parsed(input: &[u8]) -> Reply {
    let (reply, len) = parse_reply(input).expect("it is valid").expect("it is complete");
    assert_eq!(len, input.len());
    for len in 0..input.len() {
        assert_eq!(parse_reply(&input[..len]), Ok(None), "{}", input[..len].escape_ascii());
    }
    reply
}

#[test]
fn every_type() {
    let simple = |text: &str| Reply::Simple(text.into());
    assert_eq!(parsed(b"+OK\r\n"), simple("OK"));
    assert_eq!(parsed(b"-ERR x\r\n"), Reply::Error(b"ERR x".to_vec()));
    assert_eq!(parsed(b"!3\r\na\r\n\r\n"), Reply::BulkError(b"a\r\n".to_vec()));
    assert_eq!(parsed(b":-7\r\n"), Reply::Integer(-7));
    assert_eq!(parsed(b"$4\r\n\r\n\r\n\r\n"), Reply::Bulk(b"\r\n\r\n".to_vec()));
    assert_eq!(
        [parsed(b"$-1\r\n"), parsed(b"*-1\r\n"), parsed(b"_\r\n")],
        [Reply::NullBulk, Reply::NullArray, Reply::Null]
    );
    assert_eq!(parsed(b"*2\r\n*0\r\n+a\r\n"), Reply::Array(vec![Reply::Array(vec![]), simple("a")]));
    assert_eq!(parsed(b"%1\r\n+a\r\n:1\r\n"), Reply::Map(vec![(simple("a"), Reply::Integer(1))]));
    assert_eq!(parsed(b"~1\r\n#t\r\n"), Reply::Set(vec![Reply::Boolean(true)]));
    assert_eq!(parsed(b">1\r\n#f\r\n"), Reply::Push(vec![Reply::Boolean(false)]));
    let attributes = vec![(simple("k"), simple("v"))];
    assert_eq!(
        parsed(b"|1\r\n+k\r\n+v\r\n:1\r\n"),
        Reply::Attributed(attributes, Box::new(Reply::Integer(1)))
    );
    assert_eq!(parsed(b",1.50\r\n"), Reply::Double("1.50".to_string()));
    assert_eq!(parsed(b",1.50\r\n").as_f64(), Some(1.5));
    assert!(parsed(b",nan\r\n").as_f64().is_some_and(f64::is_nan));
    assert_eq!(parsed(b"(-12\r\n"), Reply::BigNumber(b"-12".to_vec()));
    assert_eq!(parsed(b"=5\r\nmkd:#\r\n"), Reply::Verbatim(*b"mkd", b"#".to_vec()));
}

#[test]
fn what_breaks_the_protocol() {
    let cases: [(&[u8], ReplyError); 20] = [
        (b"?", ReplyError::UnknownType(b'?')),
        (b"\r\n", ReplyError::UnknownType(b'\r')),
        (b"+a\n", ReplyError::MissingLineEnd),
        (b"+a\rb", ReplyError::MissingLineEnd),
        (b"$1\r\nabc", ReplyError::MissingLineEnd),
        (b"$1\r\na\rb", ReplyError::MissingLineEnd),
        (b":\r\n", ReplyError::InvalidValue),
        (b":+1\r\n", ReplyError::InvalidValue),
        (b"_x\r\n", ReplyError::InvalidValue),
        (b"#x\r\n", ReplyError::InvalidValue),
        (b",\r\n", ReplyError::InvalidValue),
        (b",1.5x\r\n", ReplyError::InvalidValue),
        (b"(1.5\r\n", ReplyError::InvalidValue),
        (b"(\r\n", ReplyError::InvalidValue),
        (b"=3\r\ntxt\r\n", ReplyError::InvalidValue),
        (b"$-2\r\n", ReplyError::InvalidLength),
        (b"$?\r\n", ReplyError::InvalidLength),
        (b"*x\r\n", ReplyError::InvalidLength),
        (b"%-1\r\n", ReplyError::InvalidLength),
        (b"*1\r\n~-1\r\n", ReplyError::InvalidLength),
    ];
    for (input, error) in cases {
        assert_eq!(parse_reply(input), Err(error), "{}", input.escape_ascii());
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn depth_is_limited() {
    let nested = |depth: usize| ["*1\r\n".repeat(depth), ":1\r\n".to_string()].concat();
    assert!(parse_reply(nested(REPLY_DEPTH_MAX).as_bytes()).is_ok_and(|reply| reply.is_some()));
    assert_eq!(parse_reply(nested(REPLY_DEPTH_MAX + 1).as_bytes()), Err(ReplyError::TooDeep));
    assert_eq!(parse_reply("|0\r\n".repeat(1000).as_bytes()), Err(ReplyError::TooDeep));
}

#[test]
fn announced_elements_reserve_no_memory() {
    assert_eq!(parse_reply(b"*9223372036854775807\r\n"), Ok(None));
    assert_eq!(parse_reply(b"$9223372036854775807\r\n"), Ok(None));
}

#[test]
fn seeds_are_valid() {
    for seed in reply_seeds() {
        parsed(&seed);
        reply(&seed);
    }
}
