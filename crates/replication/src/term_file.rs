//! The file with a node's term and vote, its cluster, and the lives of other nodes. `docs/format/term.md` is its grammar.
//!
//! **INV-REP-4.** A term or a vote is durable before anything is said in it. [`TermFile::save`] writes the first copy and syncs it, then
//! the second and syncs that, and returns. So what it returned for is in both copies, and damage to one of them loses nothing; and if a crash
//! cuts it off, at most one copy is torn, and the other is the old record or the new one, of which the caller has said neither.

mod record;

use self::record::Record;
use crate::error::TermError;
use crate::identity::{Cluster, ClusterId, Life, STARTS_KEPT};
use fulgurite_env::{Dir, File, OpenOptions};
use fulgurite_types::DatabaseId;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The name of the file in the directory of a database.
pub const TERM_FILE_NAME: &str = "TERM";
/// Its name until it is complete.
const NEW_NAME: &str = "TERM.new";
/// That of a file which is moved here, until it is gone where it comes from.
const MOVED_NAME: &str = "TERM.moved";

const COPY_BYTES: usize = record::COPY_BYTES;
/// Where the copies are.
const COPIES: [usize; 2] = [0, COPY_BYTES];

/// A node's term and vote, its lives, and those of others, on disk and here.
#[derive(Debug)]
pub struct TermFile {
    file: Arc<dyn File>,
    path: PathBuf,
    /// The newest that is durable.
    record: Record,
    /// Of that.
    cluster: Arc<Cluster>,
    nonces: Arc<[u64]>,
    /// A save failed: on disk may be a newer one.
    has_failed: bool,
}

impl TermFile {
    /// Makes the file of a node that has voted in no term, durably. `directory` is a number that was drawn for this one, `term` that of the last entry
    /// that its log has.
    ///
    /// # Errors
    /// [`TermError::Members`]; [`TermError::Io`], also if there is a file already: nothing was changed.
    pub fn create(
        dir: &Arc<dyn Dir>,
        database: DatabaseId,
        cluster: &Cluster,
        node: u32,
        directory: u64,
        term: u64,
    ) -> Result<(), TermError> {
        TermFile::check_none(dir)?;
        let record = Record::new(database, cluster, node, directory, term)?;
        prepare(dir, NEW_NAME, &record)?;
        name(dir, NEW_NAME)
    }

    /// Makes the file of a new node, in a copy of the directory of another one of the cluster, in place of that one's file.
    ///
    /// # Errors
    /// [`TermError::Members`], [`TermError::NotACopy`], [`TermError::UsedNumber`], [`TermError::Io`].
    pub(crate) fn create_in_copy(
        dir: &Arc<dyn Dir>,
        database: DatabaseId,
        cluster: &Cluster,
        node: u32,
        directory: u64,
        term: u64,
    ) -> Result<(), TermError> {
        let mut record = Record::new(database, cluster, node, directory, term)?;
        let is_the_same = |new: &Record| {
            let (directory, members, removed) = (new.directory, new.members.clone(), new.removed);
            new.cluster() == record.cluster()
                && *new == Record { directory, members, removed, ..record.clone() }
        };
        if !has(dir, TERM_FILE_NAME)? && read(dir, NEW_NAME).is_ok_and(|(new, _)| is_the_same(&new)) {
            // An earlier attempt was cut off between these two.
            return name(dir, NEW_NAME);
        }
        let source = check_source(dir, cluster.id, node, database)?;
        if source.known(node).is_some() {
            return Err(TermError::UsedNumber { path: dir.path().join(TERM_FILE_NAME), node });
        }
        record.remember(&source.lives());
        prepare(dir, NEW_NAME, &record)?;
        remove(dir, TERM_FILE_NAME)?;
        name(dir, NEW_NAME)
    }

    /// Moves the file to a directory with a copy of that of another node of the cluster, in place of that one's file. `last_term` is that of the last entry
    /// that is there. The file here says so before it is there, and no other directory gets it then: [`TermFile::end_move`] goes on where this was cut off.
    ///
    /// # Errors
    /// [`TermError::NotACopy`], [`TermError::Io`].
    pub(crate) fn move_to(
        mut self,
        from: &Arc<dyn Dir>,
        to: &Arc<dyn Dir>,
        database: DatabaseId,
        last_term: u64,
        number: u64,
    ) -> Result<(), TermError> {
        let node = self.record.node;
        check_source(to, self.record.cluster, node, database)?;
        // It may have been started since it was opened here.
        let (now, _) = read(from, TERM_FILE_NAME)?;
        if now != self.record {
            return Err(TermError::Unknown);
        }
        let number = number.max(1);
        let mut record = Record { database, came: number, writes: now.writes + 2, ..now.clone() };
        if last_term > record.term {
            (record.term, record.vote) = (last_term, None);
        }
        prepare(to, MOVED_NAME, &record)?;
        self.write(Record { moved: number, ..now }, 0)?;
        TermFile::end_move(from, to, node).map(|_| ())
    }

    /// Goes on with a move of a node's file that was begun, or ended; returns whether one was. Both directories are locked.
    ///
    /// # Errors
    /// [`TermError::Moved`] if it was to another directory, or is another node's. [`TermError::Io`], [`TermError::Damaged`].
    pub(crate) fn end_move(from: &Arc<dyn Dir>, to: &Arc<dyn Dir>, node: u32) -> Result<bool, TermError> {
        let here = |name| read(to, name).ok().map(|(record, _)| record).filter(|record| record.node == node);
        let is_here = |came: u64| here(TERM_FILE_NAME).is_some_and(|record| record.came == came);
        if !has(from, TERM_FILE_NAME)? {
            return Ok(here(TERM_FILE_NAME).is_some_and(|record| record.came > 0));
        }
        let (old, _) = read(from, TERM_FILE_NAME)?;
        if old.moved == 0 {
            return Ok(false);
        }
        let is_prepared = here(MOVED_NAME).is_some_and(|prepared| prepared.came == old.moved);
        if old.node != node || (!is_prepared && !is_here(old.moved)) {
            return Err(TermError::Moved { path: from.path().join(TERM_FILE_NAME), node: old.node });
        }
        // What a process that was killed wrote may be in a cache only: what follows relies on it.
        rewrite(from, &old)?;
        if is_prepared {
            if has(to, TERM_FILE_NAME)? {
                remove(to, TERM_FILE_NAME)?;
            }
            name(to, MOVED_NAME)?;
        }
        to.sync().map_err(of(to, TERM_FILE_NAME, "make the name durable of"))?;
        remove(from, TERM_FILE_NAME)?;
        Ok(true)
    }

    /// Fails if there is a file in a directory.
    pub(crate) fn check_none(dir: &Arc<dyn Dir>) -> Result<(), TermError> {
        match has(dir, TERM_FILE_NAME)? {
            true => Err(of(dir, TERM_FILE_NAME, "create")(io::ErrorKind::AlreadyExists.into())),
            false => Ok(()),
        }
    }

    /// Opens a node's file, and counts a start of the node, durably. `nonce` is a number that was drawn for this start.
    ///
    /// # Errors
    /// [`TermError::Damaged`], [`TermError::NotOwn`]: nothing was changed. [`TermError::Io`].
    pub fn open(
        dir: &Arc<dyn Dir>,
        database: DatabaseId,
        node: u32,
        nonce: u64,
    ) -> Result<TermFile, TermError> {
        let path = dir.path().join(TERM_FILE_NAME);
        let io = |action, source| TermError::Io { action, path: path.clone(), source };
        let file = dir.open(TERM_FILE_NAME, OpenOptions::Write).map_err(|source| io("open", source))?;
        // A killed process may have left a copy, whole or torn, in a cache only: what is read below has to be on the device before the other copy
        // is written.
        file.sync_data().map_err(|source| io("make durable", source))?;
        let (record, valid) = read(dir, TERM_FILE_NAME)?;
        let (found, wanted) = ((record.node, record.database), (node, database));
        if found != wanted {
            return Err(TermError::NotOwn { path, found, wanted });
        }
        if record.moved > 0 {
            return Err(TermError::Moved { path, node });
        }
        let (cluster, none) = (record.cluster().into(), Vec::new().into());
        let mut terms =
            TermFile { file, path, record: record.clone(), cluster, nonces: none, has_failed: false };
        let mut nonces = record.nonces.clone();
        nonces.push(nonce);
        nonces.drain(..nonces.len().saturating_sub(STARTS_KEPT));
        terms.write(Record { starts: record.starts + 1, nonces, ..record }, COPY_BYTES - valid)?;
        // The name may be in a cache only.
        dir.sync().map_err(|source| TermError::Io {
            action: "make the name durable of",
            path: terms.path.clone(),
            source,
        })?;
        Ok(terms)
    }

    /// The newest term that the node has noted; 0 before the first.
    pub fn term(&self) -> u64 {
        self.record.term
    }

    /// The node that it voted for in that term.
    pub fn vote(&self) -> Option<u32> {
        self.record.vote
    }

    /// The cluster.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Whether it is on record that an entry of a leader was agreed with these members.
    pub fn is_in_force(&self) -> bool {
        self.record.in_force == Some(self.record.version)
    }

    /// The newest version of the members of which that is on record.
    pub fn in_force(&self) -> Option<u64> {
        self.record.in_force
    }

    /// Whether an earlier save failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Notes that one was, with `cluster`: if that has a later set of members with this node in it, that is the one from now on.
    ///
    /// # Errors
    /// [`TermError::Members`]: nothing was written. [`TermError::Io`], [`TermError::Unknown`].
    pub fn note_in_force(&mut self, cluster: &Cluster) -> Result<(), TermError> {
        let is_first_time = *cluster == *self.cluster && !self.is_in_force();
        if !is_first_time && !self.goes_before(cluster) {
            return Ok(());
        }
        self.save_members(cluster, Some(cluster.version), true)
    }

    /// Whether members that are in force go before those of this node: later ones, or others of the same version, of which only one set can be.
    fn goes_before(&self, cluster: &Cluster) -> bool {
        let is_later = cluster.version > self.cluster.version;
        let is_other =
            cluster.version == self.cluster.version && *cluster != *self.cluster && !self.is_in_force();
        cluster.id == self.cluster.id && cluster.members.contains(&self.record.node) && (is_later || is_other)
    }

    /// Whether a leader was appointed with the members, as this node has heard.
    pub fn is_settled(&self) -> bool {
        self.record.is_settled || self.is_in_force() || self.record.previous.is_empty()
    }

    /// Notes that one was.
    ///
    /// # Errors
    /// [`TermError::Io`], [`TermError::Unknown`].
    pub fn note_settled(&mut self, cluster: &Cluster) -> Result<(), TermError> {
        if *cluster != *self.cluster || self.is_settled() {
            return Ok(());
        }
        self.save_record(Record { is_settled: true, ..self.record.clone() })
    }

    fn save_record(&mut self, record: Record) -> Result<(), TermError> {
        if self.has_failed { Err(TermError::Unknown) } else { self.write(record, 0) }
    }

    fn save_members(
        &mut self,
        cluster: &Cluster,
        in_force: Option<u64>,
        is_settled: bool,
    ) -> Result<(), TermError> {
        let record = self.record.with_members(cluster.checked(self.record.node)?);
        self.save_record(Record { in_force, is_settled, ..record })
    }

    /// Takes the members that another node has, if these are later ones, and what that one has heard of `in_force`, as if this node had heard it and gone to them itself.
    ///
    /// # Errors
    /// [`TermError::NotInForce`] if that one has not heard that the members before them were in force: it was made for them. [`TermError::Members`].
    /// Nothing was written. [`TermError::Io`], [`TermError::Unknown`].
    pub fn adopt_members(
        &mut self,
        cluster: &Cluster,
        in_force: Option<u64>,
        is_settled: bool,
    ) -> Result<(), TermError> {
        if in_force.is_none_or(|version| version.saturating_add(1) < cluster.version) {
            return Err(TermError::NotInForce { members: cluster.members.clone(), version: cluster.version });
        }
        let has_more = in_force > self.record.in_force || (is_settled && !self.is_settled());
        let is_news = *cluster == *self.cluster && has_more;
        let is_in_force = in_force >= Some(cluster.version);
        let is_settled = is_settled || (*cluster == *self.cluster && self.record.is_settled);
        if is_news || cluster.version > self.cluster.version || (is_in_force && self.goes_before(cluster)) {
            return self.save_members(cluster, in_force.max(self.record.in_force), is_settled);
        }
        Ok(())
    }

    /// Goes to the next set of members (INV-REP-10), and returns when that is durable.
    ///
    /// # Errors
    /// [`TermError::Members`], [`TermError::ManyMembers`], [`TermError::NotInForce`]: nothing was written. [`TermError::Io`], [`TermError::Unknown`].
    pub fn change_members(&mut self, members: &[u32]) -> Result<(), TermError> {
        let before = Arc::clone(&self.cluster);
        let changed = before.change(members, self.record.node)?;
        if !self.is_in_force() {
            return Err(TermError::NotInForce { members: before.members.clone(), version: before.version });
        }
        self.save_members(&changed, Some(before.version), false)
    }

    /// This life of the node.
    pub fn life(&self) -> Life {
        let Record { node, directory, starts: start, ref nonces, .. } = self.record;
        Life { node, directory, start, nonce: *nonces.last().expect("its opening noted one") }
    }

    /// The nonces of the last starts, the newest last.
    pub fn nonces(&self) -> &Arc<[u64]> {
        &self.nonces
    }

    /// Another life of this node, and the node that knows of it.
    pub fn condemned(&self) -> Option<(Life, u32)> {
        let by = self.record.condemned_by;
        // One that was no member before either remembers no life of itself.
        (by > 0).then(|| (self.known(self.record.node).unwrap_or_else(|| self.life()), by))
    }

    /// Notes that node `by` knows of another life of this one, for good.
    ///
    /// # Errors
    /// [`TermError::Io`], [`TermError::Unknown`].
    pub fn condemn(&mut self, known: Life, by: u32) -> Result<(), TermError> {
        let mut record = Record { condemned_by: by, ..self.record.clone() };
        record.remember(&[known]);
        self.save_record(record)
    }

    /// The newest life of another member that is remembered.
    pub fn known(&self, node: u32) -> Option<Life> {
        self.record.known(node)
    }

    /// All of them; with that of this node if another one knows of it.
    pub fn lives(&self) -> Vec<Life> {
        self.record.all_lives().collect()
    }

    /// Remembers lives of other members, each in place of the one that was known, and returns when that is durable.
    ///
    /// # Errors
    /// [`TermError::Io`], [`TermError::Unknown`].
    pub fn remember(&mut self, lives: &[Life]) -> Result<(), TermError> {
        if lives.iter().all(|life| self.known(life.node) == Some(*life) || !self.remembers(life.node)) {
            return Ok(());
        }
        let mut record = self.record.clone();
        record.remember(lives);
        self.save_record(record)
    }

    /// Whether a node is one whose lives are remembered: a member, or the one that was a member before.
    pub fn remembers(&self, node: u32) -> bool {
        self.has_member(node) || self.record.was_removed(node)
    }

    /// Whether a node is a member.
    pub fn has_member(&self, node: u32) -> bool {
        self.record.members.iter().any(|(number, _)| *number == node)
    }

    /// Notes a term and a vote in it, and returns when they are durable.
    ///
    /// # Errors
    /// [`TermError::Stale`] if the term is older than the noted one, or the same with another vote: nothing was written.
    /// [`TermError::Io`], [`TermError::Unknown`].
    pub fn save(&mut self, term: u64, vote: Option<u32>) -> Result<(), TermError> {
        if self.has_failed {
            return Err(TermError::Unknown);
        }
        let kept = self.record.clone();
        let is_stale = term < kept.term || (term == kept.term && kept.vote.is_some() && vote != kept.vote);
        if is_stale || vote == Some(0) {
            return Err(TermError::Stale { kept: (kept.term, kept.vote), wanted: (term, vote) });
        }
        if (term, vote) == (kept.term, kept.vote) {
            return Ok(());
        }
        self.write(Record { term, vote, ..kept }, 0)
    }

    /// Writes both copies, one after the other, that at offset `first` first.
    fn write(&mut self, record: Record, first: usize) -> Result<(), TermError> {
        // Until both are durable: a sync that failed may have written.
        self.has_failed = true;
        let record = Record { writes: record.writes + 1, ..record };
        let block = record.encode();
        for copy in [first, COPY_BYTES - first] {
            let written = self.file.write_at(&block, copy as u64).and_then(|()| self.file.sync_data());
            let path = || self.path.clone();
            written.map_err(|source| TermError::Io { action: "write", path: path(), source })?;
        }
        self.cluster = record.cluster().into();
        self.nonces = record.nonces.clone().into();
        (self.record, self.has_failed) = (record, false);
        Ok(())
    }
}

/// The error of an operation on a file of a directory.
fn of(dir: &Arc<dyn Dir>, name: &str, action: &'static str) -> impl FnOnce(io::Error) -> TermError + use<> {
    let path = dir.path().join(name);
    move |source| TermError::Io { action, path, source }
}

fn has(dir: &Arc<dyn Dir>, name: &str) -> Result<bool, TermError> {
    let entries = dir.list().map_err(of(dir, name, "list the directory of"))?;
    Ok(entries.iter().any(|entry| entry.name == *name))
}

/// Reads a file: its record, and the copy that has it.
fn read(dir: &Arc<dyn Dir>, name: &str) -> Result<(Record, usize), TermError> {
    let path = dir.path().join(name);
    let file = dir.open(name, OpenOptions::Read).map_err(of(dir, name, "open"))?;
    let mut block = vec![0; COPY_BYTES];
    let mut newest: Option<(Record, usize)> = None;
    for copy in COPIES {
        let got = file.read_at_direct(&mut block, copy as u64).map_err(of(dir, name, "read"))?;
        match Record::decode(&block[..got]) {
            Ok(found) if newest.as_ref().is_none_or(|(newest, _)| newest.writes < found.writes) => {
                newest = Some((found, copy));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), copy, %error, "a copy is torn or damaged; the other one is used");
            }
        }
    }
    newest.ok_or(TermError::Damaged { path })
}

/// Writes a file that has no effect until it is named.
fn prepare(dir: &Arc<dyn Dir>, name: &str, record: &Record) -> Result<(), TermError> {
    if has(dir, name)? {
        remove(dir, name)?;
    }
    let block = record.encode();
    let file = dir.open(name, OpenOptions::CreateNew).map_err(of(dir, name, "create"))?;
    let written = file.write_at(&block, 0).and_then(|()| file.write_at(&block, COPY_BYTES as u64));
    written.and_then(|()| file.sync_data()).map_err(of(dir, name, "write"))?;
    dir.sync().map_err(of(dir, name, "make the name durable of"))
}

/// Writes a record again, both copies, durably.
fn rewrite(dir: &Arc<dyn Dir>, record: &Record) -> Result<(), TermError> {
    let block = record.encode();
    let file = dir.open(TERM_FILE_NAME, OpenOptions::Write).map_err(of(dir, TERM_FILE_NAME, "open"))?;
    for copy in COPIES {
        let written = file.write_at(&block, copy as u64).and_then(|()| file.sync_data());
        written.map_err(of(dir, TERM_FILE_NAME, "write"))?;
    }
    Ok(())
}

/// Gives a prepared file its name, durably.
fn name(dir: &Arc<dyn Dir>, prepared: &str) -> Result<(), TermError> {
    dir.rename(prepared, TERM_FILE_NAME).map_err(of(dir, prepared, "name"))?;
    dir.sync().map_err(of(dir, TERM_FILE_NAME, "make the name durable of"))
}

fn remove(dir: &Arc<dyn Dir>, name: &str) -> Result<(), TermError> {
    dir.remove(name).and_then(|()| dir.sync()).map_err(of(dir, name, "remove"))
}

/// Checks that a directory is a copy of that of another node of the cluster, with the database that is there.
fn check_source(
    dir: &Arc<dyn Dir>,
    cluster: ClusterId,
    node: u32,
    database: DatabaseId,
) -> Result<Record, TermError> {
    let (source, _) = read(dir, TERM_FILE_NAME)?;
    // Of one that was found to be an older copy the others' lives are older, too.
    if source.condemned_by > 0
        || source.cluster != cluster
        || source.node == node
        || source.database != database
    {
        let (found, wanted) = ((source.node, source.cluster), (node, cluster));
        return Err(TermError::NotACopy { path: dir.path().join(TERM_FILE_NAME), found, wanted });
    }
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_env::Env;
    use fulgurite_env::sim::{CrashKind, SimEnv};
    use std::path::Path;

    const ID: DatabaseId = DatabaseId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);

    fn path() -> &'static Path {
        Path::new("/db/TERM")
    }

    fn dir(env: &SimEnv) -> Arc<dyn Dir> {
        env.disk().open_dir(Path::new("/db")).unwrap()
    }

    fn created(seed: u64) -> Arc<SimEnv> {
        let env = SimEnv::new(seed);
        env.disk().create_dir_all(Path::new("/db")).unwrap();
        env.disk().sync_dir(Path::new("/")).unwrap();
        TermFile::create(&dir(&env), ID, &cluster(), 3, 70, 0).unwrap();
        env
    }

    fn cluster() -> Cluster {
        Cluster::new(ClusterId(0xc1), [1, 2, 3])
    }

    fn open(env: &SimEnv) -> Result<TermFile, TermError> {
        TermFile::open(&dir(env), ID, 3, 80)
    }

    #[test]
    fn lives_of_others_are_remembered() {
        let env = created(1);
        let mut terms = open(&env).unwrap();
        assert_eq!((&**terms.cluster(), terms.known(1)), (&cluster(), None));
        let life = Life { node: 1, directory: 5, start: 2, nonce: 6 };
        terms.remember(&[life]).unwrap();
        terms.save(4, Some(2)).unwrap();
        let mut terms = open(&env.crash(CrashKind::PowerCut, 1)).unwrap();
        assert_eq!((terms.known(1), terms.known(2), terms.lives()), (Some(life), None, vec![life]));
        assert_eq!((terms.term(), terms.vote(), terms.life().start), (4, Some(2), 2));
        for start in 3..40 {
            terms = TermFile::open(&dir(&env), ID, 3, start).unwrap();
        }
        assert!(terms.nonces().iter().copied().eq(8..40));
        let later = Life { start: 3, ..life };
        terms.remember(&[later, Life { node: 9, ..life }]).unwrap();
        assert_eq!(terms.lives(), [later]);
    }

    #[test]
    fn terms_rise_and_a_vote_stays() {
        let env = created(1);
        let mut terms = open(&env).unwrap();
        assert_eq!((terms.term(), terms.vote(), terms.life().start), (0, None, 1));
        terms.save(4, None).unwrap();
        terms.save(4, Some(2)).unwrap();
        terms.save(4, Some(2)).unwrap();
        for (term, vote) in [(4, Some(1)), (4, None), (3, Some(2)), (5, Some(0))] {
            assert!(matches!(terms.save(term, vote), Err(TermError::Stale { kept: (4, Some(2)), .. })));
        }
        let terms = open(&env.crash(CrashKind::PowerCut, 1)).unwrap();
        assert_eq!((terms.term(), terms.vote(), terms.life().start), (4, Some(2), 2));
    }

    #[test]
    fn a_file_of_another_node_is_refused() {
        let env = created(1);
        for (database, node, named) in [(ID, 4, "not to node 4"), (DatabaseId(1), 3, "of database 0000")] {
            let error = TermFile::open(&dir(&env), database, node, 1).unwrap_err().to_string();
            assert!(error.contains("belongs to node 3") && error.contains(named), "{error}");
        }
        assert!(matches!(
            TermFile::create(&dir(&env), ID, &cluster(), 3, 70, 0),
            Err(TermError::Io { action: "create", .. })
        ));
        assert_eq!(open(&env).unwrap().life().start, 1, "nothing was written");
    }

    #[test]
    fn members_change_one_at_a_time_and_once_they_are_in_force() {
        let env = created(1);
        let mut terms = open(&env).unwrap();
        terms.remember(&[Life { node: 1, directory: 5, start: 2, nonce: 6 }]).unwrap();
        assert!(matches!(terms.change_members(&[1, 2, 3, 4]), Err(TermError::NotInForce { version: 0, .. })));
        terms.note_in_force(&cluster()).unwrap();
        for members in [&[1, 2, 3][..], &[1, 3, 4], &[3], &[1, 2, 3, 4, 5]] {
            let error = terms.change_members(members).unwrap_err();
            assert!(matches!(error, TermError::ManyMembers { .. }), "{members:?}: {error}");
        }
        terms.change_members(&[4, 3, 2, 1]).unwrap();
        let mut terms = open(&env.crash(CrashKind::PowerCut, 1)).unwrap();
        let now = Cluster { version: 1, members: vec![1, 2, 3, 4], previous: vec![1, 2, 3], ..cluster() };
        assert_eq!((&**terms.cluster(), terms.is_in_force()), (&now, false));
        let without = Cluster { members: vec![1, 2, 5], ..now.clone() };
        terms.note_in_force(&without).unwrap();
        assert_eq!((&**terms.cluster(), terms.is_in_force()), (&now, false), "this node is none of them");
        // Of sets of one version one can be in force.
        let other = Cluster { members: vec![1, 2, 3, 5], ..now.clone() };
        terms.note_in_force(&other).unwrap();
        assert_eq!((&**terms.cluster(), terms.is_in_force()), (&other, true));
        terms.note_in_force(&now).unwrap();
        assert_eq!(**terms.cluster(), other);
        terms.change_members(&[1, 3, 5]).unwrap();
        assert_eq!((terms.cluster().version, terms.lives().len()), (2, 1));
        // It was away while the members changed again, and again.
        terms.note_in_force(&Cluster { version: 7, members: vec![3, 8], ..cluster() }).unwrap();
        assert_eq!((terms.cluster().version, terms.is_in_force()), (7, true));
        terms.note_in_force(&Cluster { version: 9, members: vec![1, 8], ..cluster() }).unwrap();
        terms.note_in_force(&Cluster { version: 9, ..Cluster::new(ClusterId(1), [3]) }).unwrap();
        for members in [(1..=32).collect(), vec![3, 3], vec![0, 3]] {
            let wrong = Cluster { version: 9, members, ..cluster() };
            assert!(matches!(terms.note_in_force(&wrong), Err(TermError::Members { node: 3, .. })));
        }
        assert_eq!(terms.cluster().version, 7, "none of these is a set with this node, of this cluster");
    }

    /// The word of a node that has heard less takes nothing from what this one has heard.
    #[test]
    fn settled_members_stay_settled() {
        let env = created(1);
        let mut terms = open(&env).unwrap();
        let four = Cluster { version: 1, members: vec![1, 2, 3, 4], previous: vec![1, 2, 3], ..cluster() };
        terms.adopt_members(&four, Some(0), false).unwrap();
        assert!(!terms.is_settled());
        terms.note_settled(&Cluster { members: vec![1, 2, 3, 5], ..four.clone() }).unwrap();
        assert!(!terms.is_settled(), "a leader was appointed with other members");
        terms.note_settled(&four).unwrap();
        terms.record.in_force = None;
        terms.adopt_members(&four, Some(0), false).unwrap();
        assert_eq!((terms.is_settled(), terms.in_force()), (true, Some(0)));
        let terms = open(&env.crash(CrashKind::PowerCut, 1)).unwrap();
        assert!(terms.is_settled() && !terms.is_in_force());
    }

    /// Whatever is damaged in one copy, what was returned for is in the other.
    #[test]
    fn damage_of_one_copy_loses_nothing() {
        let env = created(1);
        open(&env).unwrap().save(7, Some(1)).unwrap();
        for copy in [0, COPY_BYTES as u64] {
            let env = env.crash(CrashKind::PowerCut, 1);
            env.corrupt(path(), copy + 20, |byte| *byte ^= 1).unwrap();
            let terms = open(&env).unwrap();
            assert_eq!((terms.term(), terms.vote(), terms.life().start), (7, Some(1), 2));
            // Both are whole again.
            env.corrupt(path(), COPY_BYTES as u64 - copy + 20, |byte| *byte ^= 1).unwrap();
            assert_eq!(open(&env).unwrap().life().start, 3);
        }
        for copy in [0, COPY_BYTES as u64] {
            env.corrupt(path(), copy + 20, |byte| *byte ^= 1).unwrap();
        }
        assert!(matches!(open(&env), Err(TermError::Damaged { .. })));
    }

    /// Crashes at each operation: what was saved is there, or what was being saved, and a second opening finds the same.
    #[test]
    fn crashes_at_any_operation() {
        for seed in 0..40 {
            for nth in 1.. {
                let env = SimEnv::new(seed);
                env.disk().create_dir_all(Path::new("/db")).unwrap();
                env.disk().sync_dir(Path::new("/")).unwrap();
                env.faults().crash_at(nth + env.faults().op_count());
                let (mut is_created, mut saved) = (false, (0, None));
                let mut run = || -> Result<(), TermError> {
                    TermFile::create(&dir(&env), ID, &cluster(), 3, 70, 0)?;
                    is_created = true;
                    let mut terms = open(&env)?;
                    for term in 1..4 {
                        terms.save(term, None)?;
                        saved = (term, None);
                        terms.save(term, Some(1))?;
                        saved = (term, Some(1));
                    }
                    Ok(())
                };
                let ended = run();
                let kind = if seed % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
                let env = env.crash(kind, seed);
                match open(&env) {
                    Ok(terms) => {
                        let found = (terms.term(), terms.vote());
                        let next = match saved {
                            (term, None) if term > 0 => (term, Some(1)),
                            (term, _) => (term + 1, None),
                        };
                        assert!(found == saved || found == next, "seed {seed}, {nth}: {found:?}, {saved:?}");
                        let again = open(&env.crash(CrashKind::PowerCut, seed + 1)).unwrap();
                        assert_eq!((again.term(), again.vote()), found, "seed {seed}, operation {nth}");
                    }
                    Err(TermError::Io { action: "open", .. }) if !is_created => {
                        TermFile::create(&dir(&env), ID, &cluster(), 3, 70, 0).unwrap();
                    }
                    Err(error) => panic!("seed {seed}, operation {nth}: {error}"),
                }
                if ended.is_ok() {
                    break;
                }
            }
        }
    }

    /// A process is killed in an opening, and a power cut ends the next one: a copy that was in a cache only is not the one that is relied on.
    #[test]
    fn a_power_cut_in_the_opening_after_a_kill_leaves_a_copy() {
        for (seed, killed_at) in (0..30).flat_map(|seed| (1..12).map(move |nth| (seed, nth))) {
            for cut_at in 1..12 {
                let env = created(seed);
                open(&env).unwrap().save(4, Some(1)).unwrap();
                env.faults().crash_at(killed_at + env.faults().op_count());
                let _ = open(&env);
                let env = env.crash(CrashKind::Kill, seed);
                env.faults().crash_at(cut_at + env.faults().op_count());
                let _ = open(&env);
                let env = env.crash(CrashKind::PowerCut, seed);
                let terms =
                    open(&env).unwrap_or_else(|error| panic!("{seed}, {killed_at}, {cut_at}: {error}"));
                assert_eq!((terms.term(), terms.vote()), (4, Some(1)));
            }
        }
    }

    /// After a save that failed nothing is said any more.
    #[test]
    fn a_failed_save_ends_the_file() {
        let env = created(1);
        let mut terms = open(&env).unwrap();
        env.faults().fail_all_writes(true);
        assert!(matches!(terms.save(2, None), Err(TermError::Io { action: "write", .. })));
        env.faults().fail_all_writes(false);
        assert!(matches!(terms.save(2, None), Err(TermError::Unknown)));
        assert!(open(&env).unwrap().term() <= 2);
    }
}
