//! A reply as a tree, for tests and benchmarks.

use crate::encoder::Encoder;
use crate::number::parse_f64;

/// A reply, of either protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// `+`
    Simple(Vec<u8>),
    /// `-`: code and message.
    Error(Vec<u8>),
    /// `!`: code and message, of any bytes.
    BulkError(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1`
    NullBulk,
    /// `*-1`
    NullArray,
    /// `_`
    Null,
    /// `*`
    Array(Vec<Reply>),
    /// `%`: keys with their values, in the order of the reply.
    Map(Vec<(Reply, Reply)>),
    /// `~`, in the order of the reply.
    Set(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
    /// `|`: a reply with attributes.
    Attributed(Vec<(Reply, Reply)>, Box<Reply>),
    /// `,`: the text as it was sent, so that tests see its format. [`Reply::as_f64`] has the number.
    Double(String),
    /// `#`
    Boolean(bool),
    /// `(`: the digits.
    BigNumber(Vec<u8>),
    /// `=`: format and text.
    Verbatim([u8; 3], Vec<u8>),
}

impl Reply {
    /// The number of a double.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Reply::Double(text) if text == "nan" => Some(f64::NAN),
            Reply::Double(text) => parse_f64(text.as_bytes()),
            _ => None,
        }
    }

    /// Appends the reply in the encoder's protocol, as a server that has these values would. A bulk error is written as
    /// a simple one; attributes are left out in RESP2.
    pub fn encode(&self, encoder: &mut Encoder<'_>) {
        let encode_pairs = |encoder: &mut Encoder<'_>, pairs: &[(Reply, Reply)]| {
            for (key, value) in pairs {
                key.encode(encoder);
                value.encode(encoder);
            }
        };
        match self {
            Reply::Simple(text) => encoder.simple(text),
            Reply::Error(text) | Reply::BulkError(text) => encoder.error_text(text),
            Reply::Integer(value) => encoder.integer(*value),
            Reply::Bulk(bytes) => encoder.bulk(bytes),
            Reply::NullBulk | Reply::Null => encoder.null(),
            Reply::NullArray => encoder.null_array(),
            Reply::Array(elements) => {
                encoder.array(elements.len());
                elements.iter().for_each(|element| element.encode(encoder));
            }
            Reply::Set(elements) => {
                encoder.set(elements.len());
                elements.iter().for_each(|element| element.encode(encoder));
            }
            Reply::Push(elements) => {
                encoder.push(elements.len());
                elements.iter().for_each(|element| element.encode(encoder));
            }
            Reply::Map(pairs) => {
                encoder.map(pairs.len());
                encode_pairs(encoder, pairs);
            }
            Reply::Attributed(attributes, reply) => {
                if encoder.attribute(attributes.len()) {
                    encode_pairs(encoder, attributes);
                }
                reply.encode(encoder);
            }
            Reply::Double(_) => encoder.double(self.as_f64().unwrap_or(f64::NAN)),
            Reply::Boolean(value) => encoder.boolean(*value),
            Reply::BigNumber(digits) => encoder.big_number(digits),
            Reply::Verbatim(format, text) => encoder.verbatim(*format, text),
        }
    }
}
