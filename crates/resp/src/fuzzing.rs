//! What the fuzz targets and the property tests run: a connection whose bytes arrive in any cuts.

use crate::encoder::{Encoder, Protocol};
use crate::event::{Arguments, Event, Parsed, Piece};
use crate::limits::Limits;
use crate::reply::Reply;
use crate::reply_parser::parse_reply;
use crate::request::Parser;

/// What a connection received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The arguments of each command.
    pub commands: Vec<Vec<Vec<u8>>>,
    /// Those of a command that is not complete, as far as they were handed on.
    pub open: Vec<Vec<u8>>,
    /// The text of the error that ended the connection.
    pub error: Option<String>,
    /// How many bytes the parser consumed, unless there was an error.
    pub consumed_bytes: Option<usize>,
}

/// Lets a connection receive `input`, of which the bytes up to each of the ascending `cuts` arrive together, and
/// checks the order of the events.
///
/// # Panics
/// If the parser breaks its contract.
pub fn receive(parser: &mut Parser, input: &[u8], cuts: &[usize]) -> Received {
    let mut received = Received::default();
    let mut consumed = 0;
    for &arrived in cuts.iter().chain([&input.len()]) {
        loop {
            match parser.parse(&input[consumed..arrived]) {
                Ok(Parsed { consumed_bytes, event }) => {
                    consumed += consumed_bytes;
                    assert!(consumed <= arrived, "it consumes bytes that did not arrive");
                    if let Event::Incomplete { missing_bytes } = event {
                        assert!(missing_bytes > 0, "it needs more");
                        break;
                    }
                    received.add(&event);
                }
                Err(error) => {
                    received.error = Some(error.to_string());
                    assert_eq!(parser.parse(&[]).err(), Some(error), "an error lasts");
                    return received;
                }
            }
        }
    }
    received.consumed_bytes = Some(consumed);
    received
}

impl Received {
    fn add(&mut self, event: &Event<'_>) {
        match event {
            Event::Command(arguments) => {
                assert!(self.open.is_empty() && arguments.len() == arguments.command_len());
                self.add_arguments(arguments);
                self.commands.push(std::mem::take(&mut self.open));
            }
            Event::Arguments(arguments) => self.add_arguments(arguments),
            Event::Piece(piece) => self.add_piece(piece),
            Event::End => self.commands.push(std::mem::take(&mut self.open)),
            Event::Incomplete { .. } => {}
        }
    }

    fn add_arguments(&mut self, arguments: &Arguments<'_>) {
        assert_eq!(arguments.first_index(), self.open.len(), "the arguments continue the command");
        assert!(arguments.first_index() + arguments.len() <= arguments.command_len());
        assert_eq!(arguments.get(arguments.len()), None);
        self.open.extend(arguments.iter().map(<[u8]>::to_vec));
    }

    fn add_piece(&mut self, piece: &Piece<'_>) {
        assert!(!piece.bytes.is_empty(), "a piece has bytes");
        if piece.offset_bytes == 0 {
            self.open.push(Vec::new());
        }
        assert_eq!(piece.argument + 1, self.open.len(), "the piece continues the command");
        let argument = self.open.last_mut().expect("it was added");
        assert_eq!(argument.len(), piece.offset_bytes, "the piece continues the argument");
        argument.extend_from_slice(piece.bytes);
        assert_eq!(piece.is_last(), argument.len() == piece.total_bytes);
    }
}

/// Requests: the first byte selects limits, the second the cuts; the rest arrives whole, cut, and byte by byte.
///
/// # Panics
/// If what is received depends on the cuts.
pub fn request(bytes: &[u8]) {
    let [selector, cut, input @ ..] = bytes else { return };
    let pieces_from_bytes = if selector & 2 == 0 { usize::from(selector >> 2) } else { 64 << 10 };
    let limits = Limits { arguments_max: 1000, argument_bytes_max: 1 << 20, pieces_from_bytes };
    let received = |limits: Limits, cuts: &[usize]| {
        let mut parser = Parser::new(limits);
        parser.set_authenticated(selector & 1 == 1);
        receive(&mut parser, input, cuts)
    };
    let whole = received(limits, &[]);
    let step = usize::from(*cut) + 1;
    for step in [step, 1] {
        let cuts: Vec<usize> = (0..input.len()).step_by(step).skip(1).collect();
        assert_eq!(received(limits, &cuts), whole, "cut at each multiple of {step}");
    }
    let undivided = received(Limits { pieces_from_bytes: usize::MAX, ..limits }, &[]);
    assert_eq!((undivided.commands, undivided.error), (whole.commands, whole.error), "without pieces");
}

/// Replies: what the client reads is the same after it was written and read again.
///
/// # Panics
/// If it is not.
pub fn reply(bytes: &[u8]) {
    let Ok(Some((reply, len))) = parse_reply(bytes) else { return };
    assert!(len <= bytes.len());
    assert_eq!(parse_reply(&bytes[..len]), Ok(Some((reply.clone(), len))), "it ends at its end");
    assert_eq!(parse_reply(&bytes[..len - 1]), Ok(None), "without its last byte it is not complete");
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let written = rewritten(&reply, protocol);
        assert_eq!(rewritten(&written, protocol), written);
    }
}

fn rewritten(reply: &Reply, protocol: Protocol) -> Reply {
    let mut bytes = Vec::new();
    reply.encode(&mut Encoder::new(&mut bytes, protocol));
    let (reply, len) = parse_reply(&bytes).expect("it is valid").expect("it is complete");
    assert_eq!(len, bytes.len());
    reply
}

/// Valid requests of each form, and invalid ones, for [`request`].
pub fn request_seeds() -> Vec<Vec<u8>> {
    let streams: [&[u8]; 9] = [
        b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
        b"*1\r\n$4\r\nPING\r\n*0\r\n*-1\r\n\r\nPING\r\n",
        b"*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$20\r\n01234567890123456789\r\n$1\r\nb\r\n$30\r\n012345678901234567890123456789\r\n",
        b"set key \"a\\x20\\n\\\"b\" 'c\\'d'\r\nget key\n",
        b"*12\r\n$3\r\nDEL\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n$1\r\nf\r\n$1\r\ng\r\n$1\r\nh\r\n$1\r\ni\r\n$1\r\nj\r\n$1\r\nk\r\n",
        b"*2\r\n$0\r\n\r\n$0\r\n\r\n",
        b"*1\r\n$20000\r\nabc",
        b"*1\r\nPING\r\n",
        b"get \"key\r\n",
    ];
    let modes = [[0, 3], [1, 0], [1 | 4 << 2, 6], [3, 9]];
    streams.iter().flat_map(|stream| modes.map(|mode| [&mode[..], stream].concat())).collect()
}

/// Valid replies of each type, for [`reply`].
pub fn reply_seeds() -> Vec<Vec<u8>> {
    let replies: [&[u8]; 12] = [
        b"+OK\r\n",
        b"-ERR unknown command\r\n",
        b":-12\r\n",
        b"$5\r\nhello\r\n",
        b"$-1\r\n",
        b"*3\r\n:1\r\n*-1\r\n*1\r\n_\r\n",
        b"%2\r\n+a\r\n,1.5\r\n+b\r\n,-inf\r\n",
        b"~3\r\n#t\r\n#f\r\n,nan\r\n",
        b">2\r\n$7\r\nmessage\r\n(-123456789012345678901234567890\r\n",
        b"|1\r\n+ttl\r\n:3600\r\n*1\r\n:1\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"!8\r\nERR a\r\nb\r\n",
    ];
    replies.map(<[u8]>::to_vec).into()
}
