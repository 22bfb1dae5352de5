//! Nodes of a cluster that keep one log: which of them numbers entries, when an entry is agreed, and what a node keeps for that beside its
//! log, its term and its vote. `docs/replication.md` has the whole of which this is a part; the log itself is `fulgurite_log`'s.
//!
//! ```
//! use fulgurite_env::{Disk, Env, sim::SimEnv};
//! use fulgurite_replication::{Cluster, ClusterId, TermFile};
//! use fulgurite_types::DatabaseId;
//! use std::path::Path;
//!
//! let env = SimEnv::new(1);
//! env.disk().create_dir_all(Path::new("/db"))?;
//! let dir = env.disk().open_dir(Path::new("/db"))?;
//! let cluster = Cluster::new(ClusterId(3), [1, 2, 3]);
//! TermFile::create(&dir, DatabaseId(7), &cluster, 1, env.random_u64(), 0)?;
//!
//! let mut terms = TermFile::open(&dir, DatabaseId(7), 1, env.random_u64())?;
//! terms.save(3, Some(2))?;                // durable when it returns
//! assert!(terms.save(2, None).is_err());  // a term never falls
//! assert_eq!((terms.term(), terms.vote()), (3, Some(2)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod identity;
mod message;
mod network;
mod node;
mod replica;
mod term_file;

pub use error::{NodeError, TermError};
pub use identity::{Cluster, ClusterId, Life, Lived, MEMBERS_MAX};
pub use message::{Append, Appended, Envelope, Fenced, ReadBarrier, SentUpTo};
pub use network::{Message, Network, Rejected};
pub use node::Node;
pub use replica::{Replica, ReplicaOptions, ReplicaPositions};
pub use term_file::{TERM_FILE_NAME, TermFile};
