//! Clusters of replicas in one process, on one thread, from one seed: databases on simulated disks, and a network that loses, doubles, delays and
//! reorders messages. [`run`] takes a cluster through a life of random steps, with a checker after each of them, and heals it. A
//! [`Canary`] breaks one rule, and a checker has to catch it.
//!
//! Machines crash in the middle of any operation, also of an opening, and lose what they had not synced; disks fail; clocks drift apart;
//! leaders do not know that they are deposed; two operators want different leaders in one term. Meanwhile the databases merge, write
//! checkpoints, evict all that can be evicted, and free segments.
//!
//! Nothing here runs in another thread, and nothing depends on time or addresses: the same seed is the same run ([`Summary::trace`]).

mod checkers;
mod client;
mod cluster;
mod heal;
mod machine;
mod members;
mod network;
mod operator;
mod random;

pub use cluster::{Canary, Summary, run};
