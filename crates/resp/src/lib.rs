//! The Redis serialization protocol, RESP2 and RESP3: requests with inline commands and pipelining, and replies. No
//! I/O, no threads.
//!
//! - [`Parser`] finds commands in the bytes that a client sent. It copies no argument, remembers how far it got, and
//!   hands a large argument on in pieces while it arrives.
//! - [`Encoder`] appends replies to a buffer, in the protocol that the connection negotiated with `HELLO`.
//! - [`parse_reply`] is the client's side, for tests and benchmarks.
//! - [`parse_i64`], [`parse_f64`] and [`format_double`] read and write numbers as Redis does.
//!
//! Specifications: <https://redis.io/docs/latest/develop/reference/protocol-spec/> and RESP3 by Sanfilippo (2018).
//! Texts of errors, limits and formats of numbers are those of Redis 7.2; each difference is documented where it is.
//!
//! ```
//! use fulgurite_resp::{Encoder, Event, Limits, Parser, Protocol};
//!
//! let mut input = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\nPING\r\n".to_vec();
//! let mut output = Vec::new();
//! let mut parser = Parser::new(Limits::default());
//! loop {
//!     let parsed = parser.parse(&input).expect("the requests are well formed");
//!     match parsed.event {
//!         Event::Command(arguments) => match &arguments[0] {
//!             b"GET" => Encoder::new(&mut output, Protocol::Resp2).bulk(b"value"),
//!             b"PING" => Encoder::new(&mut output, Protocol::Resp2).simple(b"PONG"),
//!             _ => Encoder::new(&mut output, Protocol::Resp2).error("ERR", "unknown command"),
//!         },
//!         // A server would read `missing_bytes` or more here.
//!         Event::Incomplete { .. } => break,
//!         event => panic!("no argument is large: {event:?}"),
//!     }
//!     let consumed = parsed.consumed_bytes;
//!     input.drain(..consumed);
//! }
//! assert_eq!(output, b"$5\r\nvalue\r\n+PONG\r\n");
//! ```

mod double;
mod encoder;
mod error;
mod event;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hex_float;
mod inline;
mod limits;
mod number;
mod progress;
mod reply;
mod reply_parser;
mod request;
#[cfg(test)]
mod tests;

pub use double::{format_double, format_human_double};
pub use encoder::{Encoder, Protocol, encode_command};
pub use error::{ProtocolError, ReplyError};
pub use event::{Arguments, Event, Parsed, Piece};
pub use limits::{
    LINE_BYTES_MAX, Limits, REPLY_DEPTH_MAX, UNAUTHENTICATED_ARGUMENT_BYTES_MAX,
    UNAUTHENTICATED_ARGUMENTS_MAX,
};
pub use number::{format_i64, parse_f64, parse_i64, parse_range_i64};
pub use reply::Reply;
pub use reply_parser::parse_reply;
pub use request::Parser;
