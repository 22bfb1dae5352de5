//! Tests of whole requests and replies.

mod double;
mod encoder;
mod limits;
mod number;
mod properties;
mod reply;
mod request;
mod speed;
