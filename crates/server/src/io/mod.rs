//! The I/O threads: each has an event loop and connections of its own.

mod activity;
mod connection;
mod event_loop;
mod inbox;
mod output;
mod waiting;

pub(crate) use event_loop::IoThread;
pub(crate) use inbox::{Inbox, Message};
