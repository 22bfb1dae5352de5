//! A node with its database: opening both, opening them again where the log has to be cut or led before, and the calls of [`Node`] with
//! what follows from them for the database.

use crate::error::NodeError;
use crate::message::{Append, Appended, Fenced};
use crate::node::Node;
use crate::term_file::TermFile;
use fulgurite::{Csn, Database, Options};
use fulgurite_env::Env;
use fulgurite_log::EntryPositions;
use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A replica: one node of a cluster, with its database.
///
/// Its database follows until the node is appointed, and all commits in its log are applied: before, and after it was deposed, a commit fails
/// with [`fulgurite::Error::NotLeader`]. Reads see what is agreed, and durable on this node.
///
/// Whoever runs the cluster carries messages between the replicas, and opens this one again when a call says [`NodeError::MustReopen`].
pub struct Replica {
    number: u32,
    env: Arc<dyn Env>,
    path: PathBuf,
    options: Options,
    open: RwLock<Open>,
}

/// One opening.
struct Open {
    node: Arc<Node>,
    database: Database,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replica({}, {})", self.number, self.path.display())
    }
}

/// How far a replica has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaPositions {
    /// The entries that it has, has durably, and knows to be agreed.
    pub entries: EntryPositions,
    /// The newest commit that its readers see.
    pub applied: Csn,
}

impl Replica {
    /// Makes a node of a new cluster, or a new node: creates its database, or takes one that is a copy of the others', and its file of terms.
    /// Nodes are numbered from 1.
    ///
    /// # Errors
    /// [`NodeError::Term`] if the directory has a file of terms already; [`NodeError::Used`] if it has entries, but no such file: then it may
    /// have voted. [`NodeError::Database`].
    pub fn create(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        options: Options,
        number: u32,
    ) -> Result<Replica, NodeError> {
        let path = path.as_ref();
        let database = open_database(&env, path, &options, None)?;
        let last = database.log().entry_positions().map_or_else(Default::default, |at| at.last);
        if last.index > 0 {
            return Err(NodeError::Used { node: number, last });
        }
        let dir = open_dir(&env, path)?;
        TermFile::create(&dir, database.log().database(), number)?;
        Replica::with(env, path, options, number, database)
    }

    /// Opens a node after a crash or a close.
    ///
    /// # Errors
    /// [`NodeError::Term`] if its file of terms is missing, damaged, or another node's. [`NodeError::Database`], and those of [`Node::new`].
    pub fn open(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        options: Options,
        number: u32,
    ) -> Result<Replica, NodeError> {
        Replica::open_cut(env, path, options, number, None)
    }

    /// The same, with the log cut after an entry, as [`NodeError::MustReopen`] said before the crash.
    ///
    /// # Errors
    /// Those of [`Replica::open`].
    pub fn open_cut(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        options: Options,
        number: u32,
        up_to_entry: Option<u64>,
    ) -> Result<Replica, NodeError> {
        let options = Options { create: false, ..options };
        let database = open_database(&env, path.as_ref(), &options, up_to_entry)?;
        Replica::with(env, path.as_ref(), options, number, database)
    }

    fn with(
        env: Arc<dyn Env>,
        path: &Path,
        options: Options,
        number: u32,
        database: Database,
    ) -> Result<Replica, NodeError> {
        let open = RwLock::new(begin(&env, path, number, database)?);
        let options = Options { create: false, ..options };
        Ok(Replica { number, env, path: path.to_path_buf(), options, open })
    }

    /// Closes its database, and opens it again: cut after an entry, if the leader has others from there on. Transactions and snapshots of
    /// the former opening end with [`fulgurite::Error::Closed`], commits on their way with
    /// [`fulgurite::Error::OutcomeUnknown`]; [`Replica::database`] returns the new one.
    ///
    /// # Errors
    /// [`NodeError::Database`], and those of [`Node::new`]: the replica is closed, open it with [`Replica::open_cut`].
    pub fn reopen(&self, up_to_entry: Option<u64>) -> Result<(), NodeError> {
        let mut open = self.open.write();
        if let Err(error) = open.database.clone().close() {
            tracing::warn!(%error, path = %self.path.display(), "closing a database to open it again");
        }
        let database = open_database(&self.env, &self.path, &self.options, up_to_entry)?;
        *open = begin(&self.env, &self.path, self.number, database)?;
        Ok(())
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its database, until the node is opened again.
    pub fn database(&self) -> Database {
        self.open.read().database.clone()
    }

    /// Its node, until it is opened again.
    pub fn node(&self) -> Arc<Node> {
        self.open.read().node.clone()
    }

    /// How far it has come.
    pub fn positions(&self) -> ReplicaPositions {
        let open = self.open.read();
        // Read first: it is never above what is agreed.
        let applied = open.database.visible_csn();
        let entries = open.database.log().entry_positions().expect("the log is replicated");
        ReplicaPositions { entries, applied }
    }

    /// [`Node::fence`].
    ///
    /// # Errors
    /// Those of [`Node::fence`].
    pub fn fence(&self, term: u64, nominee: Option<u32>) -> Result<Fenced, NodeError> {
        self.node().fence(term, nominee)
    }

    /// [`Node::appoint`].
    ///
    /// # Errors
    /// Those of [`Node::appoint`].
    pub fn appoint(&self, term: u64, members: &[u32], fenced: &[Fenced]) -> Result<(), NodeError> {
        let open = self.open.read();
        open.node.appoint(term, members, fenced)?;
        open.database.note_leader(self.number);
        Ok(())
    }

    /// [`Node::append_after`].
    ///
    /// # Errors
    /// Those of [`Node::append_after`].
    pub fn append_after(&self, after: u64) -> Result<Option<Append>, NodeError> {
        self.node().append_after(after)
    }

    /// [`Node::acknowledged`].
    ///
    /// # Errors
    /// Those of [`Node::acknowledged`].
    pub fn acknowledged(&self, appended: &Appended) -> Result<bool, NodeError> {
        self.node().acknowledged(appended)
    }

    /// Writes what was appended, as a leader, and returns whether more is agreed now ([`Node::flushed`]).
    ///
    /// # Errors
    /// Those of [`Node::flushed`].
    pub fn flush(&self) -> Result<bool, NodeError> {
        let node = self.node();
        node.log().flush_entries()?;
        node.flushed()
    }

    /// [`Node::append`]. What is agreed by then is applied by a thread of the database; without threads, by [`Database::maintain`].
    ///
    /// # Errors
    /// Those of [`Node::append`].
    pub fn append(&self, message: &Append) -> Result<Appended, NodeError> {
        let open = self.open.read();
        let appended = open.node.append(message)?;
        open.database.note_leader(message.leader);
        Ok(appended)
    }

    /// Closes its database.
    ///
    /// # Errors
    /// [`NodeError::Database`], those of [`Database::close`].
    pub fn close(self) -> Result<(), NodeError> {
        Ok(self.open.into_inner().database.close()?)
    }
}

fn open_database(
    env: &Arc<dyn Env>,
    path: &Path,
    options: &Options,
    up_to_entry: Option<u64>,
) -> Result<Database, NodeError> {
    let replica = fulgurite::Replica { up_to_entry };
    Ok(Database::open_replica(env.clone(), path, options.clone(), replica, |_| {})?)
}

fn open_dir(env: &Arc<dyn Env>, path: &Path) -> Result<Arc<dyn fulgurite_env::Dir>, NodeError> {
    env.disk().open_dir(path).map_err(|source| {
        let path = path.to_path_buf();
        crate::TermError::Io { action: "open the directory of", path, source }.into()
    })
}

fn begin(env: &Arc<dyn Env>, path: &Path, number: u32, database: Database) -> Result<Open, NodeError> {
    let dir = open_dir(env, path)?;
    let terms = TermFile::open(&dir, database.log().database(), number)?;
    let node = Arc::new(Node::new(number, database.log().clone(), terms)?);
    Ok(Open { node, database })
}
