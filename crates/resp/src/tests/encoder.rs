//! Replies: golden bytes in both protocols.

use crate::{Encoder, Protocol, Reply, encode_command};

/// The bytes in RESP2 and in RESP3.
fn bytes(encode: impl Fn(&mut Encoder<'_>)) -> (String, String) {
    let in_protocol = |protocol| {
        let mut out = Vec::new();
        encode(&mut Encoder::new(&mut out, protocol));
        String::from_utf8(out).expect("it is ASCII")
    };
    (in_protocol(Protocol::Resp2), in_protocol(Protocol::Resp3))
}

fn assert_same(encode: impl Fn(&mut Encoder<'_>), expected: &str) {
    assert_differ(encode, expected, expected);
}

fn assert_differ(encode: impl Fn(&mut Encoder<'_>), resp2: &str, resp3: &str) {
    assert_eq!(bytes(encode), (resp2.to_string(), resp3.to_string()));
}

#[test]
fn what_both_protocols_have() {
    assert_same(|e| e.simple(b"OK"), "+OK\r\n");
    assert_same(|e| e.simple(b"a\r\nb"), "+a  b\r\n");
    assert_same(|e| e.error("ERR", "no such key"), "-ERR no such key\r\n");
    assert_same(|e| e.error("ERR", "a\nb\r"), "-ERR a b \r\n");
    assert_same(|e| e.integer(0), ":0\r\n");
    assert_same(|e| e.integer(9), ":9\r\n");
    assert_same(|e| e.integer(10), ":10\r\n");
    assert_same(|e| e.integer(-1), ":-1\r\n");
    assert_same(|e| e.integer(i64::MIN), ":-9223372036854775808\r\n");
    assert_same(|e| e.integer(i64::MAX), ":9223372036854775807\r\n");
    assert_same(|e| e.bulk(b""), "$0\r\n\r\n");
    assert_same(|e| e.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n");
    assert_same(|e| e.array(0), "*0\r\n");
    assert_same(|e| e.array(1_048_576), "*1048576\r\n");
}

#[test]
fn what_resp3_alone_has() {
    assert_differ(|e| e.null(), "$-1\r\n", "_\r\n");
    assert_differ(|e| e.null_array(), "*-1\r\n", "_\r\n");
    assert_differ(|e| e.map(12), "*24\r\n", "%12\r\n");
    assert_differ(|e| e.set(2), "*2\r\n", "~2\r\n");
    assert_differ(|e| e.push(3), "*3\r\n", ">3\r\n");
    assert_differ(|e| assert_eq!(e.attribute(1), e.protocol() == Protocol::Resp3), "", "|1\r\n");
    assert_differ(|e| e.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
    assert_differ(|e| e.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
    assert_differ(|e| e.double(f64::NAN), "$3\r\nnan\r\n", ",nan\r\n");
    assert_differ(|e| e.boolean(true), ":1\r\n", "#t\r\n");
    assert_differ(|e| e.boolean(false), ":0\r\n", "#f\r\n");
    assert_differ(
        |e| e.big_number(b"-12345678901234567890"),
        "$21\r\n-12345678901234567890\r\n",
        "(-12345678901234567890\r\n",
    );
    assert_differ(
        |e| e.verbatim(*b"txt", b"Some string"),
        "$11\r\nSome string\r\n",
        "=15\r\ntxt:Some string\r\n",
    );
}

#[test]
fn a_bulk_string_in_pieces() {
    let mut out = Vec::new();
    Encoder::new(&mut out, Protocol::Resp3).bulk_header(10);
    out.extend_from_slice(b"01234");
    out.extend_from_slice(b"56789");
    Encoder::new(&mut out, Protocol::Resp3).crlf();
    assert_eq!(out, b"$10\r\n0123456789\r\n");
}

#[test]
fn a_command_is_an_array_of_bulk_strings() {
    let mut out = Vec::new();
    encode_command(&mut out, &["GET", "key"]);
    assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
}

#[test]
fn attributes_are_left_out_in_resp2() {
    let attributes = vec![(Reply::Simple(b"ttl".to_vec()), Reply::Integer(60))];
    let reply = Reply::Attributed(attributes, Box::new(Reply::Boolean(true)));
    assert_differ(|e| reply.encode(e), ":1\r\n", "|1\r\n+ttl\r\n:60\r\n#t\r\n");
}
