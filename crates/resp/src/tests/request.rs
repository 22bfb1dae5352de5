//! Requests: golden bytes and the events they give, pieces, memory and work.

use crate::fuzzing::receive;
use crate::{Event, Limits, Parser, encode_command};

fn parser(limits: Limits) -> Parser {
    let mut parser = Parser::new(limits);
    parser.set_authenticated(true);
    parser
}

/// A name for each event until the input has none, and how many bytes they consumed.
fn events(parser: &mut Parser, input: &[u8]) -> (Vec<String>, usize) {
    let (mut found, mut consumed) = (Vec::new(), 0);
    loop {
        let parsed = parser.parse(&input[consumed..]).expect("the requests are well formed");
        consumed += parsed.consumed_bytes;
        found.push(match parsed.event {
            Event::Incomplete { missing_bytes } => {
                found.push(format!("missing {missing_bytes}"));
                return (found, consumed);
            }
            Event::Command(arguments) => format!("command {arguments:?}"),
            Event::Arguments(arguments) => {
                format!("{} of {}: {arguments:?}", arguments.first_index(), arguments.command_len())
            }
            Event::Piece(piece) => format!(
                "piece {}+{}/{} {}",
                piece.argument,
                piece.offset_bytes,
                piece.total_bytes,
                piece.bytes.escape_ascii()
            ),
            Event::End => "end".to_string(),
        });
    }
}

#[test]
fn pipelined_commands_of_all_forms() {
    let input = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n\r\n*0\r\n*-1\r\n*-10\r\n  \nset k \"a b\"\r\nPING\n*1\r\n$0\r\n\r\n*3\r\n";
    let (found, consumed) = events(&mut parser(Limits::default()), input);
    assert_eq!(
        found,
        [
            r#"command ["GET", "key"]"#,
            r#"command ["set", "k", "a b"]"#,
            r#"command ["PING"]"#,
            r#"command [""]"#,
            "missing 2",
        ]
    );
    assert_eq!(consumed, input.len() - 4, "a count without arguments is not consumed");
}

#[test]
fn arguments_are_slices_of_the_input() {
    let mut input = Vec::new();
    encode_command(&mut input, &[&b"SET"[..], b"\r\n*1", b"\0\xff"]);
    let mut parser = parser(Limits::default());
    let parsed = parser.parse(&input).expect("it is well formed");
    let Event::Command(arguments) = parsed.event else { panic!("a command") };
    assert_eq!(parsed.consumed_bytes, input.len());
    assert_eq!((arguments.len(), arguments.is_empty(), arguments.first_index()), (3, false, 0));
    assert_eq!(&arguments[1], b"\r\n*1");
    assert_eq!(arguments.iter().next_back(), Some(&b"\0\xff"[..]));
    assert!(input.as_ptr_range().contains(&arguments[2].as_ptr()));
}

#[test]
fn missing_bytes_are_those_of_the_line_or_argument() {
    let cases: [(&[u8], usize); 9] = [
        (b"", 1),
        (b"PIN", 1),
        (b"*", 2),
        (b"*1\r", 1),
        (b"*1\r\n", 2),
        (b"*1\r\n$100\r", 1),
        (b"*1\r\n$100\r\n", 102),
        (b"*2\r\n$100\r\nabc", 99),
        (b"*1\r\n$4\r\nPING\r", 1),
    ];
    for (input, missing) in cases {
        let (found, consumed) = events(&mut parser(Limits::default()), input);
        assert_eq!(
            (&found[..], consumed),
            (&[format!("missing {missing}")][..], 0),
            "{}",
            input.escape_ascii()
        );
    }
}

#[test]
fn large_arguments_come_in_pieces() {
    let limits = Limits { pieces_from_bytes: 3, ..Limits::default() };
    let input =
        b"*6\r\n$3\r\nfoo\r\n$4\r\nabcd\r\n$5\r\nefghi\r\n$1\r\nx\r\n$1\r\ny\r\n$4\r\njklm\r\nPING\r\n";
    let (found, consumed) = events(&mut parser(limits), input);
    assert_eq!(
        found,
        [
            r#"0 of 6: ["foo"]"#,
            "piece 1+0/4 abcd",
            "piece 2+0/5 efghi",
            r#"3 of 6: ["x", "y"]"#,
            "piece 5+0/4 jklm",
            "end",
            r#"command ["PING"]"#,
            "missing 1",
        ]
    );
    assert_eq!(consumed, input.len());
}

#[test]
fn a_piece_is_handed_on_as_soon_as_it_arrives() {
    let limits = Limits { pieces_from_bytes: 3, ..Limits::default() };
    let mut parser = parser(limits);
    assert_eq!(events(&mut parser, b"*2\r\n$4\r\n"), (vec!["0 of 2: []".into(), "missing 6".into()], 8));
    assert_eq!(events(&mut parser, b"a"), (vec!["piece 0+0/4 a".into(), "missing 5".into()], 1));
    assert_eq!(events(&mut parser, b"bcd\r"), (vec!["piece 0+1/4 bcd".into(), "missing 1".into()], 3));
    assert_eq!(events(&mut parser, b"\r\n$1\r\n"), (vec!["missing 3".into()], 2));
    let expected = vec![r#"1 of 2: ["z"]"#.into(), "end".into(), "missing 1".into()];
    assert_eq!(events(&mut parser, b"$1\r\nz\r\n"), (expected, 7));
}

#[test]
fn as_in_redis_line_ends_are_not_checked() {
    let (found, _) = events(&mut parser(Limits::default()), b"*2\rx$1\r_aXY$1\r\nbZZ");
    assert_eq!(found, [r#"command ["a", "b"]"#, "missing 1"]);
}

#[test]
fn authentication_counts_for_the_next_command() {
    let mut input = Vec::new();
    encode_command(&mut input, &["AUTH", "password"]);
    let auth_len = input.len();
    encode_command(&mut input, &["DEL"; 11]);
    let mut parser = Parser::new(Limits::default());
    let parsed = parser.parse(&input).expect("two arguments are allowed");
    assert_eq!(parsed.consumed_bytes, auth_len);
    parser.set_authenticated(true);
    let parsed = parser.parse(&input[auth_len..]).expect("eleven are allowed now");
    assert_eq!(parsed.consumed_bytes, input.len() - auth_len);
}

/// Work is linear in the length, however the input arrives.
#[test]
fn a_command_that_arrives_byte_by_byte_is_parsed_once() {
    let mut input = Vec::new();
    let arguments: Vec<String> = (0..100_000).map(|nth| format!("argument {nth}")).collect();
    encode_command(&mut input, &arguments);
    let inline_from = input.len();
    input.extend(std::iter::repeat_n(b'x', 60_000));
    input.push(b'\n');
    let invalid_from = input.len();
    input.push(b'*');
    input.extend(std::iter::repeat_n(b'1', 60_000));
    for pieces_from_bytes in [1 << 20, 2] {
        let mut parser = parser(Limits { pieces_from_bytes, ..Limits::default() });
        let cuts: Vec<usize> = (1..input.len()).collect();
        let received = receive(&mut parser, &input, &cuts);
        assert_eq!(received.commands.len(), 2);
        assert!(received.commands[0].iter().map(Vec::as_slice).eq(arguments.iter().map(String::as_bytes)));
        assert_eq!(received.commands[1][0].len(), invalid_from - inline_from - 1);
        assert!(parser.steps() < 4 * input.len(), "{} steps for {} bytes", parser.steps(), input.len());
    }
}

/// Neither the count nor the length reserves memory.
#[test]
fn memory_grows_with_the_arguments_that_arrived() {
    let mut parser = parser(Limits { argument_bytes_max: usize::MAX, ..Limits::default() });
    events(&mut parser, b"*1048576\r\n$9223372036854775\r\n");
    assert_eq!(parser.memory_bytes(), 0);
    let mut parser = Parser::new(Limits::default());
    let mut input = Vec::new();
    encode_command(&mut input, &["x"; 10]);
    for _ in 0..10 {
        parser.parse(&input).expect("it is well formed");
        let before = parser.memory_bytes();
        parser.parse(&input).expect("it is well formed");
        assert_eq!(parser.memory_bytes(), before, "the memory is used again");
    }
    parser.set_authenticated(true);
    let mut large = Vec::new();
    encode_command(&mut large, &["x"; 100_000]);
    parser.parse(&large).expect("it is well formed");
    assert!(parser.memory_bytes() >= 1_600_000);
    parser.parse(&input).expect("it is well formed");
    assert!(parser.memory_bytes() <= 4096 * 16, "a large command's memory is given back");
}

/// What a command took is given back before the next one, but not while one is arriving, whose arguments are not looked for again.
#[test]
fn memory_is_released_between_commands() {
    let mut parser = Parser::new(Limits::default());
    parser.set_authenticated(true);
    let (mut large, mut small) = (Vec::new(), Vec::new());
    encode_command(&mut large, &["x"; 100_000]);
    encode_command(&mut small, &["x"; 10]);
    for input in [&small, &large, &[b"ECHO ", &[b'x'; 9_000][..], b"\r\n"].concat()] {
        parser.parse(input).expect("it is well formed");
        parser.release();
        assert!(parser.memory_bytes() <= 1 << 10, "{}", parser.memory_bytes());
    }
    parser.parse(&small).expect("it is well formed");
    let before = parser.memory_bytes();
    parser.release();
    assert_eq!(parser.memory_bytes(), before, "a few arguments are not given back each time");
    for at in [large.len() / 2, large.len() - 1] {
        assert!(matches!(parser.parse(&large[..at]).unwrap().event, Event::Incomplete { .. }));
        parser.release();
        assert!(parser.memory_bytes() >= 16 * 50_000 - 16 * 10);
    }
    let Event::Command(arguments) = parser.parse(&large).unwrap().event else { panic!("it is whole") };
    assert_eq!(arguments.len(), 100_000);
}
