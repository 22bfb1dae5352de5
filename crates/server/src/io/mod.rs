//! The I/O threads: each has an event loop and connections of its own.

mod activity;
mod arriving;
mod batch;
mod connection;
mod deadlines;
mod event_loop;
mod inbox;
mod output;
mod patience;
mod waiting;
mod whole;

pub(crate) use arriving::Storing;
pub(crate) use event_loop::IoThread;
pub(crate) use inbox::{Inbox, Message};
pub(crate) use patience::IDLE_POLL_MAX;
