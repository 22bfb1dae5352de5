//! Guides, a page each, with examples that are compiled and run.
//!
//! | guide | for the question |
//! |---|---|
//! | [`durability`] | which commits are there after which crash, and which level fits |
//! | [`isolation`] | which commits a transaction sees, and when two of them conflict |
//! | [`expiry`] | when a key is gone, and by which clock |
//! | [`async_use`] | how to commit without a thread that waits: tickets, `async`, event loops |
//! | [`errors`] | what holds after an error, and what to do |

#[doc = include_str!("async_use.md")]
pub mod async_use {}

#[doc = include_str!("durability.md")]
pub mod durability {}

#[doc = include_str!("errors.md")]
pub mod errors {}

#[doc = include_str!("expiry.md")]
pub mod expiry {}

#[doc = include_str!("isolation.md")]
pub mod isolation {}
