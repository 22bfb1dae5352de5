//! The file with a node's term and vote. `docs/format/term.md` is its grammar.
//!
//! **INV-REP-4.** A term or a vote is durable before anything is said in it. [`TermFile::save`] writes the first copy and syncs it, then
//! the second and syncs that, and returns. So what it returned for is in both copies, and damage to one of them loses nothing; and if a crash
//! cuts it off, at most one copy is torn, and the other is the old record or the new one, of which the caller has said neither.

use crate::error::TermError;
use fulgurite_env::{Dir, File, OpenOptions};
use fulgurite_types::{DatabaseId, DecodeError, Reader, Writer, crc32c};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The name of the file in the directory of a database.
pub const TERM_FILE_NAME: &str = "TERM";
/// Its name until it is complete.
const NEW_NAME: &str = "TERM.new";

const MAGIC: u64 = u64::from_le_bytes(*b"FulgTerm");
const VERSION: u16 = 1;
/// A copy has a block of its own, so that a torn write damages one.
const COPY_BYTES: usize = 4096;
/// Where the copies are.
const COPIES: [usize; 2] = [0, COPY_BYTES];
const CHECKED_BYTES: usize = 56;

/// A copy in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    database: DatabaseId,
    node: u32,
    /// The node that it voted for in `term`; nodes are numbered from 1.
    vote: Option<u32>,
    term: u64,
    /// How often the node was started.
    starts: u64,
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(COPY_BYTES);
        block.put_u64(MAGIC);
        block.put_u16(VERSION);
        block.put_u16(0);
        block.put_u32(self.node);
        block.put_u128(self.database.0);
        block.put_u64(self.term);
        block.put_u64(self.starts);
        block.put_u32(self.vote.unwrap_or(0));
        block.put_u32(0);
        block.put_u32(crc32c(&block));
        block.resize(COPY_BYTES, 0);
        block
    }

    fn decode(block: &[u8]) -> Result<Record, DecodeError> {
        let wrong = |field, offset| Err(DecodeError { field, offset });
        let mut reader = Reader::new(block);
        if reader.u64("magic")? != MAGIC {
            return wrong("magic", 0);
        }
        if reader.u16("format version")? != VERSION {
            return wrong("format version", 8);
        }
        if reader.u16("reserved")? != 0 {
            return wrong("reserved", 10);
        }
        let node = reader.u32("node")?;
        let database = DatabaseId(reader.u128("database id")?);
        let term = reader.u64("term")?;
        let starts = reader.u64("starts")?;
        let vote = Some(reader.u32("vote")?).filter(|vote| *vote != 0);
        if reader.u32("reserved")? != 0 {
            return wrong("reserved", 52);
        }
        if reader.u32("checksum")? != crc32c(&block[..CHECKED_BYTES]) {
            return wrong("checksum", CHECKED_BYTES);
        }
        Ok(Record { database, node, vote, term, starts })
    }

    /// What rises with each save.
    fn order(&self) -> (u64, bool, u64) {
        (self.term, self.vote.is_some(), self.starts)
    }
}

/// A node's term, vote and number of starts, on disk and here.
#[derive(Debug)]
pub struct TermFile {
    file: Arc<dyn File>,
    path: PathBuf,
    /// The newest that is durable.
    record: Record,
    /// A save failed: on disk may be a newer one.
    has_failed: bool,
}

impl TermFile {
    /// Makes the file of a node that has voted in no term, durably. Nodes are numbered from 1.
    ///
    /// # Errors
    /// [`TermError::Io`], also if there is a file already: nothing was changed.
    pub fn create(dir: &Arc<dyn Dir>, database: DatabaseId, node: u32) -> Result<(), TermError> {
        assert!(node > 0, "nodes are numbered from 1");
        let path = dir.path().join(TERM_FILE_NAME);
        let io = |action| {
            let path = path.clone();
            move |source| TermError::Io { action, path, source }
        };
        let entries = dir.list().map_err(io("list the directory of"))?;
        if entries.iter().any(|entry| entry.name == TERM_FILE_NAME) {
            return Err(io("create")(io::ErrorKind::AlreadyExists.into()));
        }
        if entries.iter().any(|entry| entry.name == NEW_NAME) {
            dir.remove(NEW_NAME).map_err(io("begin again to create"))?;
        }
        let block = Record { database, node, vote: None, term: 0, starts: 0 }.encode();
        let file = dir.open(NEW_NAME, OpenOptions::CreateNew).map_err(io("create"))?;
        let written = file.write_at(&block, 0).and_then(|()| file.write_at(&block, COPY_BYTES as u64));
        written.and_then(|()| file.sync_data()).map_err(io("write"))?;
        dir.rename(NEW_NAME, TERM_FILE_NAME).map_err(io("name"))?;
        dir.sync().map_err(io("make the name durable of"))
    }

    /// Opens a node's file, and counts a start of the node, durably.
    ///
    /// # Errors
    /// [`TermError::Damaged`], [`TermError::NotOwn`]: nothing was changed. [`TermError::Io`].
    pub fn open(dir: &Arc<dyn Dir>, database: DatabaseId, node: u32) -> Result<TermFile, TermError> {
        let path = dir.path().join(TERM_FILE_NAME);
        let io = |action, source| TermError::Io { action, path: path.clone(), source };
        let file = dir.open(TERM_FILE_NAME, OpenOptions::Write).map_err(|source| io("open", source))?;
        let mut block = vec![0; COPY_BYTES];
        let mut newest: Option<Record> = None;
        // The other copy is written first: this one may be the only valid one.
        let mut valid = 0;
        for copy in COPIES {
            let got = file.read_at_direct(&mut block, copy as u64).map_err(|source| io("read", source))?;
            match Record::decode(&block[..got]) {
                Ok(found) if newest.is_none_or(|newest| newest.order() < found.order()) => {
                    (newest, valid) = (Some(found), copy);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), copy, %error, "a copy is torn or damaged; the other one is used");
                }
            }
        }
        let Some(record) = newest else { return Err(TermError::Damaged { path }) };
        let (found, wanted) = ((record.node, record.database), (node, database));
        if found != wanted {
            return Err(TermError::NotOwn { path, found, wanted });
        }
        let mut terms = TermFile { file, path, record, has_failed: false };
        // A killed process may have left the newer copy, or the name, in a cache only.
        terms.write(Record { starts: record.starts + 1, ..record }, COPY_BYTES - valid)?;
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

    /// How often the node was started, this time included: an older directory in its place has a smaller number.
    pub fn starts(&self) -> u64 {
        self.record.starts
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
        let kept = self.record;
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
        let block = record.encode();
        for copy in [first, COPY_BYTES - first] {
            let written = self.file.write_at(&block, copy as u64).and_then(|()| self.file.sync_data());
            let path = || self.path.clone();
            written.map_err(|source| TermError::Io { action: "write", path: path(), source })?;
        }
        (self.record, self.has_failed) = (record, false);
        Ok(())
    }
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
        TermFile::create(&dir(&env), ID, 3).unwrap();
        env
    }

    fn open(env: &SimEnv) -> Result<TermFile, TermError> {
        TermFile::open(&dir(env), ID, 3)
    }

    #[test]
    fn golden_record() {
        let record = Record { database: ID, node: 3, vote: Some(2), term: 0x1122, starts: 9 };
        let block = record.encode();
        let hex: String = block[..60].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "46756c675465726d01000000030000000001020304050607\
             08090a0b0c0d0e0f22110000000000000900000000000000\
             0200000000000000afd83af1"
        );
        assert_eq!((block.len(), Record::decode(&block)), (COPY_BYTES, Ok(record)));
        for at in 0..60 {
            let mut other = block.clone();
            other[at] ^= 1;
            assert!(Record::decode(&other).is_err(), "byte {at} is checked");
        }
    }

    #[test]
    fn terms_rise_and_a_vote_stays() {
        let env = created(1);
        let mut terms = open(&env).unwrap();
        assert_eq!((terms.term(), terms.vote(), terms.starts()), (0, None, 1));
        terms.save(4, None).unwrap();
        terms.save(4, Some(2)).unwrap();
        terms.save(4, Some(2)).unwrap();
        for (term, vote) in [(4, Some(1)), (4, None), (3, Some(2)), (5, Some(0))] {
            assert!(matches!(terms.save(term, vote), Err(TermError::Stale { kept: (4, Some(2)), .. })));
        }
        let terms = open(&env.crash(CrashKind::PowerCut, 1)).unwrap();
        assert_eq!((terms.term(), terms.vote(), terms.starts()), (4, Some(2), 2));
    }

    #[test]
    fn a_file_of_another_node_is_refused() {
        let env = created(1);
        for (database, node, named) in [(ID, 4, "not to node 4"), (DatabaseId(1), 3, "of database 0000")] {
            let error = TermFile::open(&dir(&env), database, node).unwrap_err().to_string();
            assert!(error.contains("belongs to node 3") && error.contains(named), "{error}");
        }
        assert!(matches!(TermFile::create(&dir(&env), ID, 3), Err(TermError::Io { action: "create", .. })));
        assert_eq!(open(&env).unwrap().starts(), 1, "nothing was written");
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
            assert_eq!((terms.term(), terms.vote(), terms.starts()), (7, Some(1), 2));
            // Both are whole again.
            env.corrupt(path(), COPY_BYTES as u64 - copy + 20, |byte| *byte ^= 1).unwrap();
            assert_eq!(open(&env).unwrap().starts(), 3);
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
                    TermFile::create(&dir(&env), ID, 3)?;
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
                        TermFile::create(&dir(&env), ID, 3).unwrap();
                    }
                    Err(error) => panic!("seed {seed}, operation {nth}: {error}"),
                }
                if ended.is_ok() {
                    break;
                }
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
