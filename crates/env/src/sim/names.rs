//! Directories: cached names, durable names, and the changes between.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};

use super::fate::{Fate, Seq};

/// The number of a file.
pub(super) type Ino = u64;

/// The file or directory that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(Ino),
}

impl Node {
    /// The file, if it is one.
    pub(super) fn file(self) -> Option<Ino> {
        match self {
            Node::Dir => None,
            Node::File(ino) => Some(ino),
        }
    }
}

/// An atomic change of directories.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Bind { name: PathBuf, node: Node },
    Unbind { name: PathBuf },
    Rename { from: PathBuf, to: PathBuf, node: Node },
}

impl Change {
    fn names(&self) -> impl Iterator<Item = &PathBuf> {
        let (first, second) = match self {
            Change::Bind { name, .. } | Change::Unbind { name } => (name, None),
            Change::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Change::Bind { name, node } => drop(names.insert(name.clone(), *node)),
            Change::Unbind { name } => drop(names.remove(name)),
            Change::Rename { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }

    fn node(&self) -> Option<Node> {
        match self {
            Change::Bind { node, .. } | Change::Rename { node, .. } => Some(*node),
            Change::Unbind { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Pending {
    seq: Seq,
    change: Change,
    /// The directories of its names that have not been synced since.
    unsynced: BTreeSet<PathBuf>,
}

/// The names of the whole disk, as absolute paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    cache: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<Pending>,
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        if path.parent().is_none() {
            return Some(Node::Dir);
        }
        self.cache.get(path).copied()
    }

    /// Every cached name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&PathBuf, Node)> {
        self.cache.iter().map(|(name, node)| (name, *node))
    }

    /// The names directly below a directory, ascending.
    pub(super) fn children<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = (&'a PathBuf, Node)> + 'a {
        self.cache
            .range::<Path, _>((Bound::Excluded(dir), Bound::Unbounded))
            .take_while(move |(name, _)| name.starts_with(dir))
            .filter(move |(name, _)| name.parent() == Some(dir))
            .map(|(name, node)| (name, *node))
    }

    /// Moves a directory with everything below it; pending changes in it stay pending under its new name.
    pub(super) fn move_dir(&mut self, from: &Path, to: &Path) {
        let moved =
            |path: &PathBuf| path.strip_prefix(from).map_or_else(|_| path.clone(), |below| join(to, below));
        for names in [&mut self.cache, &mut self.durable] {
            *names = std::mem::take(names).into_iter().map(|(name, node)| (moved(&name), node)).collect();
        }
        for pending in &mut self.pending {
            match &mut pending.change {
                Change::Bind { name, .. } | Change::Unbind { name } => *name = moved(name),
                Change::Rename { from, to, .. } => (*from, *to) = (moved(from), moved(to)),
            }
            pending.unsynced = pending.unsynced.iter().map(moved).collect();
        }
    }

    /// Only what is in a directory is left, in the cache, on the medium, and pending.
    pub(super) fn keep_below(&mut self, dir: &Path) {
        for names in [&mut self.cache, &mut self.durable] {
            names.retain(|name, _| name.starts_with(dir) || dir.starts_with(name));
        }
        self.pending.retain(|pending| pending.change.names().all(|name| name.starts_with(dir)));
    }

    /// Applies a complete change to the cached names; it stays pending for the medium.
    pub(super) fn change(&mut self, change: Change, seq: Seq) {
        change.apply(&mut self.cache);
        let unsynced = change.names().filter_map(|name| name.parent()).map(Path::to_path_buf).collect();
        self.pending.push(Pending { seq, change, unsynced });
    }

    /// Changes the cached and the durable names at once.
    pub(super) fn change_durably(&mut self, change: &Change) {
        let touched: Vec<&PathBuf> = change.names().collect();
        self.pending.retain(|pending| !pending.change.names().any(|name| touched.contains(&name)));
        change.apply(&mut self.cache);
        change.apply(&mut self.durable);
    }

    /// Makes durable the changes of one directory, and those that they build on. A rename between two directories needs
    /// both synced.
    pub(super) fn sync(&mut self, dir: &Path) {
        for pending in &mut self.pending {
            pending.unsynced.remove(dir);
        }
        let mut needed: BTreeSet<PathBuf> = BTreeSet::new();
        let mut due = vec![false; self.pending.len()];
        for (due, pending) in due.iter_mut().zip(&self.pending).rev() {
            let synced = pending.unsynced.is_empty();
            if synced || pending.change.names().any(|name| needed.contains(name)) {
                *due = true;
                needed.extend(pending.change.names().cloned());
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for (due, pending) in due.into_iter().zip(pending) {
            if due {
                pending.change.apply(&mut self.durable);
            } else {
                self.pending.push(pending);
            }
        }
    }

    /// A failed sync of a directory: its changes will not be tried again, durable or not.
    pub(super) fn fail_sync(&mut self, dir: &Path, fate: &mut Fate) {
        let touches = |pending: &Pending| pending.change.names().any(|name| name.parent() == Some(dir));
        let (tried, untried) = std::mem::take(&mut self.pending).into_iter().partition(touches);
        self.pending = untried;
        keep_some(&tried, &mut self.durable, fate);
    }

    /// The names after a power cut. Of the changes of each name a prefix survives, and a rename is one change of two
    /// names; changes of different names survive in any combination.
    pub(super) fn power_cut(&self, fate: &mut Fate) -> Names {
        let mut durable = self.durable.clone();
        keep_some(&self.pending, &mut durable, fate);
        add_parents(&mut durable);
        Names { cache: durable.clone(), durable, pending: Vec::new() }
    }

    /// The names after a crash of the operating system: those of a power cut, not yet durable.
    pub(super) fn os_crash(&self, fate: &mut Fate) -> Names {
        let mut cache = self.durable.clone();
        let pending = keep_some(&self.pending, &mut cache, fate).into_iter().cloned().collect();
        let mut durable = self.durable.clone();
        for parent in add_parents(&mut cache) {
            durable.entry(parent).or_insert(Node::Dir);
        }
        Names { cache, durable, pending }
    }

    /// A file is gone under all of its names.
    pub(super) fn forget(&mut self, ino: Ino) {
        for names in [&mut self.cache, &mut self.durable] {
            names.retain(|_, node| *node != Node::File(ino));
        }
        self.pending.retain(|pending| pending.change.node() != Some(Node::File(ino)));
    }

    /// The files that have a cached name.
    pub(super) fn files(&self) -> impl Iterator<Item = Ino> + '_ {
        self.cache.values().filter_map(|node| node.file())
    }

    /// The files that have a name, or may have one after a crash.
    pub(super) fn reachable(&self) -> BTreeSet<Ino> {
        let pending = self.pending.iter().filter_map(|pending| pending.change.node());
        let named = self.cache.values().chain(self.durable.values()).copied();
        named.chain(pending).filter_map(Node::file).collect()
    }
}

/// Adds missing parents: a directory exists whenever something in it does. Returns all directories needed for that.
fn add_parents(names: &mut BTreeMap<PathBuf, Node>) -> BTreeSet<PathBuf> {
    let parents: BTreeSet<PathBuf> = names
        .keys()
        .flat_map(|name| name.ancestors().skip(1))
        .filter(|parent| parent.parent().is_some())
        .map(Path::to_path_buf)
        .collect();
    names.extend(parents.iter().map(|parent| (parent.clone(), Node::Dir)));
    parents
}

/// Applies a prefix of the changes of each name; returns the applied changes.
fn keep_some<'p>(
    pending: &'p [Pending],
    names: &mut BTreeMap<PathBuf, Node>,
    fate: &mut Fate,
) -> Vec<&'p Pending> {
    let mut kept = Vec::new();
    let mut lost: BTreeSet<&PathBuf> = BTreeSet::new();
    for pending in pending {
        let blocked = pending.change.names().any(|name| lost.contains(name));
        if !blocked && fate.keeps(pending.seq) {
            pending.change.apply(names);
            kept.push(pending);
        } else {
            lost.extend(pending.change.names());
        }
    }
    kept
}

/// `below` in the directory `dir`, which may be empty.
pub(super) fn join(dir: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { dir.to_path_buf() } else { dir.join(below) }
}

/// An absolute path without `.` and `..`; a relative one starts at the root.
pub(super) fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => drop(clean.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean
}
