//! The state of a connection that commands read and change. It travels with a command that goes to a worker.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite::{Csn, Durability};
use fulgurite_resp::Protocol;

use crate::args::OwnedArgs;
use crate::clients::Client;
use crate::command::{Command, find};
use crate::long_reply::LongReply;

/// How many databases there are: `SELECT` takes 0 to 15.
pub(crate) const DATABASES: usize = 16;

/// Which replies a client gets: `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    /// Not that of this command, ...
    SkipNext,
    /// ... nor that of the next one.
    Skip,
}

/// A transaction that is being queued.
#[derive(Clone, Debug, Default)]
pub(crate) struct Multi {
    pub commands: Vec<OwnedArgs>,
    /// How many arguments they have, and how many bytes these take.
    pub arguments: usize,
    pub bytes: usize,
    /// A command was not well formed: `EXEC` discards all.
    pub is_broken: bool,
}

impl Multi {
    /// Whether its commands read keys, and do nothing else.
    pub fn only_reads(&self) -> bool {
        // `DBSIZE` counts those of a transaction.
        let reads = |command: &Command| command.has_flag("readonly") && command.name != "dbsize";
        self.commands.iter().all(|args| args.get(0).and_then(find).is_some_and(reads))
    }

    /// Whether one of its commands gives databases other keyspaces.
    pub fn changes_keyspaces(&self) -> bool {
        let changes = |command: &Command| ["flushdb", "flushall", "swapdb"].contains(&command.name);
        self.commands.iter().any(|args| args.get(0).and_then(find).is_some_and(changes))
    }

    /// Whether one of its commands writes.
    pub fn writes(&self) -> bool {
        self.commands
            .iter()
            .any(|args| find(&args.args()[0]).is_some_and(|command| command.has_flag("write")))
    }
}

/// The state of a key when `WATCH` named it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// The last write to it then.
    pub csn: Csn,
    /// The newest commit that was visible then.
    pub at: Csn,
    /// When it expires, in milliseconds; 0 if it does not, or did not exist.
    pub expires_at_ms: u64,
    /// The keyspace that its database had.
    pub keyspace: u32,
    /// The version of the keyspaces.
    pub version: u64,
    /// Whether it existed.
    pub exists: bool,
}

/// The keys that a connection watches, by database and key.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedKeys {
    by_key: BTreeMap<(usize, Box<[u8]>), Watched>,
    /// About how many bytes of memory they take.
    pub bytes: usize,
}

/// What a key takes beside its bytes, about: its place in the map, and the allocation of its bytes.
const WATCHED_BYTES: usize = 160;

impl WatchedKeys {
    /// Adds a key. One that is there stays as it was then.
    pub fn add(&mut self, database: usize, key: &[u8], state: Watched) {
        if let Entry::Vacant(vacant) = self.by_key.entry((database, key.into())) {
            vacant.insert(state);
            self.bytes += WATCHED_BYTES + key.len();
        }
    }

    pub fn clear(&mut self) {
        *self = WatchedKeys::default();
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u8], Watched)> {
        self.by_key.iter().map(|((database, key), state)| (*database, &**key, *state))
    }
}

/// The state of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Its number and its names, and what other threads see of it.
    pub client: Arc<Client>,
    pub protocol: Protocol,
    pub database: usize,
    pub is_authenticated: bool,
    pub replies: Replies,
    /// The level of its commits.
    pub durability: Durability,
    /// The newest commit that it made or may have been shown, which its next command sees.
    pub own: Csn,
    /// The connection is closed once its replies are sent.
    pub has_quit: bool,
    /// It sent `SHUTDOWN`.
    pub has_shut_down: bool,
    pub multi: Option<Multi>,
    /// What is left of its last reply.
    pub long_reply: Option<Box<LongReply>>,
    pub watched: WatchedKeys,
    /// A sorted set of which a command has passed many rows: its database and its key.
    pub walked: Option<(usize, Box<[u8]>)>,
}

impl Session {
    pub fn new(client: Arc<Client>, is_authenticated: bool, durability: Durability) -> Session {
        Session {
            client,
            protocol: Protocol::Resp2,
            database: 0,
            is_authenticated,
            replies: Replies::On,
            durability,
            own: Csn::ZERO,
            has_quit: false,
            has_shut_down: false,
            multi: None,
            long_reply: None,
            watched: WatchedKeys::default(),
            walked: None,
        }
    }

    /// Puts all back but the connection's number, its library and its newest commit: `RESET`.
    pub fn reset(&mut self, is_authenticated: bool, durability: Durability) {
        let own = self.own;
        self.client.change_names(|names| names.name = Vec::new());
        self.client.is_kept.store(false, Relaxed);
        *self = Session::new(self.client.clone(), is_authenticated, durability);
        self.own = own;
    }
}
