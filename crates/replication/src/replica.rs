//! A node with its database: opening both, opening them again where the log has to be cut or led before, and the calls of [`Node`] with
//! what follows from them for the database.

use crate::error::{NodeError, TermError};
use crate::identity::Cluster;
use crate::message::{Append, Appended, Fenced, SentUpTo};
use crate::network::Sent;
use crate::node::{APPEND_BYTES_MAX, Node};
use crate::term_file::TermFile;
use fulgurite::{Csn, Database, Options};
use fulgurite_env::{Dir, Env, Lock, LockMode, Locking, OpenOptions};
use fulgurite_log::EntryPositions;
use fulgurite_types::EntryId;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A replica: one node of a cluster, with its database.
///
/// Its database follows until the node is appointed, and all commits in its log are applied: before, and after it was deposed, a commit fails
/// with [`fulgurite::Error::NotLeader`]. Reads see what is agreed, and durable on this node.
///
/// The program that runs the cluster carries messages between the replicas, and opens this one again when a call says
/// [`NodeError::MustReopen`].
pub struct Replica {
    number: u32,
    env: Arc<dyn Env>,
    path: PathBuf,
    options: ReplicaOptions,
    open: RwLock<Arc<Open>>,
    /// Held while it is opened again.
    opening: Mutex<()>,
}

/// How a replica is opened.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// Those of its database.
    pub database: Options,
    /// So many bytes of commits may wait for a quorum, and at most a sixteenth of the memory budget. Default 16 MiB.
    pub unagreed_bytes_max: u64,
    /// How long a commit waits beyond that, before it fails with [`fulgurite::Error::NoQuorum`]; and how long one that asks for all replicas waits for these once
    /// a quorum has it, before [`fulgurite::Error::ReplicasBehind`]. Default 5 s.
    pub quorum_wait: Duration,
    /// About how many bytes of entries and chunks a message has. Default 1 MiB.
    pub append_bytes_max: usize,
}

impl From<Options> for ReplicaOptions {
    fn from(database: Options) -> ReplicaOptions {
        ReplicaOptions {
            database,
            unagreed_bytes_max: 16 << 20,
            quorum_wait: Duration::from_secs(5),
            append_bytes_max: APPEND_BYTES_MAX,
        }
    }
}

/// One opening.
pub(crate) struct Open {
    pub node: Arc<Node>,
    database: Database,
    /// How far each other node was sent the log, if this one leads.
    pub sent: Mutex<BTreeMap<u32, Sent>>,
}

impl Open {
    /// The index of the last entry.
    pub fn last(&self) -> u64 {
        last_entry(&self.database).index
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replica({}, {})", self.number, self.path.display())
    }
}

/// How far a replica has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPositions {
    /// The entries that it has, has durably, and knows to be agreed.
    pub entries: EntryPositions,
    /// The newest commit that its readers see.
    pub applied: Csn,
    /// At a leader: the other nodes, and the newest commit that each is known to have durably.
    pub others: Vec<(u32, Csn)>,
}

impl Replica {
    /// Makes a node of a new cluster, or a new node: creates its database, or takes one that is a copy of the others', and its file of terms.
    /// All nodes are made for the same cluster, and each keeps that.
    ///
    /// # Errors
    /// [`NodeError::Term`] if the directory has a file of terms already, or the members are not a set with this node; [`NodeError::Used`] if it has entries, but no such file: then it may
    /// have voted. [`NodeError::Database`].
    pub fn create(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        options: impl Into<ReplicaOptions>,
        cluster: &Cluster,
        number: u32,
    ) -> Result<Replica, NodeError> {
        let (path, options) = (path.as_ref(), options.into());
        cluster.checked_with(number)?;
        let database = open_database(&env, path, number, &options, None)?;
        let last = last_entry(&database);
        if last.index > 0 {
            return Err(NodeError::Used { node: number, last });
        }
        let dir = open_dir(&env, path)?;
        let id = database.log().database();
        TermFile::create(&dir, id, cluster, number, env.random_u64(), last.term)?;
        Replica::with(env, path, options, number, database)
    }

    /// Makes a new node of a cluster, with a number that no node of it had before, of a copy of another node's directory: of one that is closed, or of one moment of
    /// its disk. `cluster` has the members that the others are changed to, as [`Node::change_members`] returns them. From then on it gets what it lacks from the leader. What was copied is made durable, and the other node's
    /// file of terms is replaced.
    ///
    /// # Errors
    /// [`NodeError::Term`] with [`TermError::NotACopy`](crate::TermError::NotACopy) if it is no copy of another node's directory of that cluster, or the members are not a set with this node.
    /// [`NodeError::Database`].
    pub fn join(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        options: impl Into<ReplicaOptions>,
        cluster: &Cluster,
        number: u32,
    ) -> Result<Replica, NodeError> {
        cluster.checked_with(number)?;
        let (path, mut options) = (path.as_ref(), options.into());
        options.database.create = false;
        let dir = open_dir(&env, path)?;
        make_durable(&env, path)?;
        let database = open_copy(&env, path, number, &options)?;
        let (id, last) = (database.log().database(), last_entry(&database));
        TermFile::create_in_copy(&dir, id, cluster, number, env.random_u64(), last.term)?;
        Replica::with(env, path, options, number, database)
    }

    /// Fills a node that lacks more than the log of the others still has ([`fulgurite_log::LogError::TooOld`]), or has another history, from `copy`, a copy of another node's directory as for
    /// [`Replica::join`]: makes it durable, and moves the file of terms from `path`, the node's closed directory, to it. From then on
    /// `copy` is its directory, and the former one, which is refused, can be removed. The node keeps its number, its promises and its lives, so the members stay as they are. If this is
    /// cut off, the same call goes on with it; once the move has begun only this copy can be the node's directory.
    ///
    /// **INV-REP-11**: the copy's last entry is not before the node's own. Then all that this node acknowledged, and that is agreed or may still be, is in the copy, as it is in the
    /// log of a leader for which the node may promise.
    ///
    /// # Errors
    /// [`NodeError::OldCopy`] if the copy ends before what the node has: copy the leader. [`NodeError::Damaged`] if the node's own database is:
    /// then what it acknowledged is not known, and a new node has to take its place. [`NodeError::Term`] with [`TermError::NotACopy`](crate::TermError::NotACopy), or
    /// [`TermError::Moved`](crate::TermError::Moved) if it was moved to another copy. [`NodeError::OldDirectory`]; [`NodeError::Database`], also if the copy is damaged.
    pub fn refill(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        copy: impl AsRef<Path>,
        options: impl Into<ReplicaOptions>,
        number: u32,
    ) -> Result<Replica, NodeError> {
        let mut options = options.into();
        options.database.create = false;
        let (path, copy) = (path.as_ref(), copy.as_ref());
        let (from, to) = (open_dir(&env, path)?, open_dir(&env, copy)?);
        let was_begun = {
            let _locks = (lock(&from)?, lock(&to)?);
            TermFile::end_move(&from, &to, number)?
        };
        if was_begun {
            return Replica::open(env, copy, options, number);
        }
        make_durable(&env, copy)?;
        let own = open_database(&env, path, number, &options, None)?;
        let last = last_entry(&own);
        let terms = TermFile::open(&from, own.log().database(), number, env.random_u64())?;
        if let Some((known, by)) = terms.condemned() {
            return Err(NodeError::OldDirectory { own: terms.life(), known, by });
        }
        own.close()?;
        // Nothing opens it from here on until it has said that it was moved; that nothing did since it was closed, the move finds.
        let _lock = lock(&from)?;
        let database = open_copy(&env, copy, number, &options)?;
        let (id, copied) = (database.log().database(), last_entry(&database));
        if copied < last {
            return Err(NodeError::OldCopy { node: number, last, copied });
        }
        terms.move_to(&from, &to, id, copied.term, env.random_u64())?;
        Replica::with(env, copy, options, number, database)
    }

    /// Opens a node after a crash or a close.
    ///
    /// # Errors
    /// [`NodeError::Term`] if its file of terms is missing, damaged, or another node's. [`NodeError::Damaged`], [`NodeError::Database`], and those of
    /// [`Node::new`].
    pub fn open(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        options: impl Into<ReplicaOptions>,
        number: u32,
    ) -> Result<Replica, NodeError> {
        let mut options = options.into();
        options.database.create = false;
        let database = open_database(&env, path.as_ref(), number, &options, None)?;
        Replica::with(env, path.as_ref(), options, number, database)
    }

    fn with(
        env: Arc<dyn Env>,
        path: &Path,
        mut options: ReplicaOptions,
        number: u32,
        database: Database,
    ) -> Result<Replica, NodeError> {
        let open = RwLock::new(Arc::new(begin(&env, path, number, &options, database)?));
        options.database.create = false;
        Ok(Replica { number, env, path: path.to_path_buf(), options, open, opening: Mutex::new(()) })
    }

    /// Closes its database and opens it again, if it has to be ([`NodeError::MustReopen`]), if it leads or led, or if its disk failed: cut after the last entry that
    /// it has in common with the leader, if that has others from there on. Transactions and snapshots of the former opening end with
    /// [`fulgurite::Error::Closed`], commits on their way with [`fulgurite::Error::OutcomeUnknown`]; [`Replica::database`] returns the new one.
    /// Which entry that is, only the node knows, and once: a cut that was right a moment ago may lose what was acknowledged since.
    ///
    /// # Errors
    /// [`NodeError::Database`], and those of [`Node::new`]: the replica is closed, and its calls fail from then on ([`NodeError::Retired`]). Open it
    /// with [`Replica::open`]; the leader will ask for the cut again.
    pub fn reopen(&self) -> Result<(), NodeError> {
        let _opening = self.opening.lock();
        let old = self.open_now();
        let Some(up_to_entry) = old.node.retire() else {
            // An opening that failed left it.
            let node = self.number;
            return if old.node.is_retired() { Err(NodeError::Retired { node }) } else { Ok(()) };
        };
        // No lock of this replica is held that callbacks of tickets might need.
        if let Err(error) = old.database.clone().close() {
            tracing::warn!(%error, path = %self.path.display(), "closing a database to open it again");
        }
        let database = open_database(&self.env, &self.path, self.number, &self.options, up_to_entry)?;
        *self.open.write() = Arc::new(begin(&self.env, &self.path, self.number, &self.options, database)?);
        Ok(())
    }

    pub(crate) fn open_now(&self) -> Arc<Open> {
        self.open.read().clone()
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its database, until the node is opened again.
    pub fn database(&self) -> Database {
        self.open_now().database.clone()
    }

    /// Its node, until it is opened again.
    pub fn node(&self) -> Arc<Node> {
        self.open_now().node.clone()
    }

    /// How far it has come.
    pub fn positions(&self) -> ReplicaPositions {
        let open = self.open_now();
        // Read first: it is never above what is agreed.
        let applied = open.database.visible_csn();
        let entries = open.database.log().entry_positions().expect("the log is replicated");
        ReplicaPositions { entries, applied, others: open.database.others() }
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
    pub fn appoint(&self, term: u64, fenced: &[Fenced]) -> Result<(), NodeError> {
        let open = self.open_now();
        open.node.appoint_after(term, fenced, |cluster| {
            // Before a commit can ask whether all have it.
            let members = cluster.members.iter().copied();
            let others: Vec<u32> = members.filter(|member| *member != self.number).collect();
            open.database.set_others(&others);
        })?;
        open.sent.lock().clear();
        open.database.note_leader(self.number);
        Ok(())
    }

    /// [`Node::append_after`].
    ///
    /// # Errors
    /// Those of [`Node::append_after`].
    pub fn append_after(&self, to: u32, after: impl Into<SentUpTo>) -> Result<Option<Append>, NodeError> {
        self.node().append_after(to, after)
    }

    /// [`Node::acknowledged`].
    ///
    /// # Errors
    /// Those of [`Node::acknowledged`].
    pub fn acknowledged(&self, appended: &Appended) -> Result<bool, NodeError> {
        let open = self.open_now();
        let Some(rose) = open.node.count(appended)? else { return Ok(false) };
        open.database.note_other(appended.envelope.from.node, appended.csn);
        Ok(rose)
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
        let open = self.open_now();
        if !message.is_empty() && !open.node.is_retired() {
            let entry_bytes = message.entries.iter().map(|entry| entry.payload.len()).sum();
            let chunk_bytes = message.chunks.iter().map(|chunk| chunk.body.len()).sum();
            open.database.admit_entries(entry_bytes, chunk_bytes)?;
        }
        let appended = open.node.append(message)?;
        open.database.note_leader(message.envelope.from.node);
        Ok(appended)
    }

    /// Closes its database.
    ///
    /// # Errors
    /// [`NodeError::Database`], those of [`Database::close`].
    pub fn close(self) -> Result<(), NodeError> {
        Ok(self.open_now().database.clone().close()?)
    }
}

fn open_database(
    env: &Arc<dyn Env>,
    path: &Path,
    node: u32,
    options: &ReplicaOptions,
    up_to_entry: Option<u64>,
) -> Result<Database, NodeError> {
    open_as(env, path, node, options, up_to_entry).map_err(|error| match error {
        fulgurite::Error::Damaged(damage) => NodeError::Damaged { node, damage },
        other => other.into(),
    })
}

/// Opens a copy of another node's database. If that is damaged, the node is not.
fn open_copy(
    env: &Arc<dyn Env>,
    path: &Path,
    node: u32,
    options: &ReplicaOptions,
) -> Result<Database, NodeError> {
    Ok(open_as(env, path, node, options, None)?)
}

fn open_as(
    env: &Arc<dyn Env>,
    path: &Path,
    node: u32,
    options: &ReplicaOptions,
    up_to_entry: Option<u64>,
) -> fulgurite::Result<Database> {
    let ReplicaOptions { database, unagreed_bytes_max, quorum_wait, .. } = options.clone();
    let replica = fulgurite::Replica { node, up_to_entry, unagreed_bytes_max, quorum_wait };
    Database::open_replica(env.clone(), path, database, replica, |_| {})
}

/// Makes a directory durable, with all that is in it and its name: whatever copied it may have left it in a cache.
fn make_durable(env: &Arc<dyn Env>, path: &Path) -> Result<(), NodeError> {
    let io = |path: &Path, source| {
        let (action, path) = ("make durable", path.to_path_buf());
        TermError::Io { action, path, source }
    };
    fn sync_all(dir: &Arc<dyn Dir>) -> io::Result<()> {
        for entry in dir.list()? {
            if entry.is_dir {
                sync_all(&dir.open_dir(&entry.name)?)?;
            } else {
                dir.open(&entry.name, OpenOptions::Read)?.sync_data()?;
            }
        }
        dir.sync()
    }
    sync_all(&open_dir(env, path)?).map_err(|source| io(path, source))?;
    let Some(parent) = path.parent() else { return Ok(()) };
    let parent = if parent == Path::new("") { Path::new(".") } else { parent };
    Ok(env.disk().sync_dir(parent).map_err(|source| io(parent, source))?)
}

fn last_entry(database: &Database) -> EntryId {
    database.log().entry_positions().map_or_else(Default::default, |at| at.last)
}

/// Locks a directory as a database does.
fn lock(dir: &Arc<dyn Dir>) -> Result<Box<dyn Lock>, NodeError> {
    let path = dir.path().to_path_buf();
    match dir.lock("LOCK", LockMode::Exclusive) {
        Ok(Locking::Taken(lock)) => Ok(lock),
        Ok(Locking::Held(holder)) => Err(fulgurite::Error::Locked { path, holder }.into()),
        Err(source) => Err(TermError::Io { action: "lock the directory of", path, source }.into()),
    }
}

fn open_dir(env: &Arc<dyn Env>, path: &Path) -> Result<Arc<dyn fulgurite_env::Dir>, NodeError> {
    env.disk().open_dir(path).map_err(|source| {
        let path = path.to_path_buf();
        crate::TermError::Io { action: "open the directory of", path, source }.into()
    })
}

fn begin(
    env: &Arc<dyn Env>,
    path: &Path,
    number: u32,
    options: &ReplicaOptions,
    database: Database,
) -> Result<Open, NodeError> {
    let dir = open_dir(env, path)?;
    let terms = TermFile::open(&dir, database.log().database(), number, env.random_u64())?;
    let node = Arc::new(Node::new(number, database.log().clone(), terms)?);
    node.set_append_bytes_max(options.append_bytes_max);
    Ok(Open { node, database, sent: Mutex::default() })
}
