//! Berkeley DB Java Edition, a B-tree whose nodes are appended to a log.
//!
//! It runs in a Java virtual machine within this process. `java/Peer.java` has a method for each operation, so that
//! each costs one call; keys and values go through shared memory. Its jar is not part of the build: fetch it with
//!
//! ```text
//! mvn dependency:copy -Dartifact=com.sleepycat:je:18.3.12 -DoutputDirectory=target/peers
//! ```
//!
//! in the repository, or set `FULGURITE_JE_JAR` to its path, and build again. A Java development kit is needed, too
//! (`apt-get install default-jdk-headless`). If one of them is missing, the engine reports that.

mod jvm;
mod memory;

use std::sync::Arc;

use fulgurite_bench::engine::{
    Direction, Ended, Engine, Level, Mode, Needs, Opening, Range, Session, Statements, Store, Transaction,
    Visit, copied,
};
use fulgurite_bench::{Error, Result};
use jni::signature::Primitive;
use jni::sys::jvalue;

use self::jvm::{Jvm, Object, heap_bytes, jar, library};
use self::memory::Shared;
use crate::common::{ALL_LEVELS, Held, durability_number, not_offered, retried, undone};

/// The result of the methods of `PeerSession` for an entry that is not there.
const ABSENT: i32 = -1;
/// Their result if another transaction is in the way.
const CONFLICT: i32 = -2;
/// The lengths of key and value before an entry of a scan, bytes.
const HEAD_BYTES: usize = 8;
/// The shared memory of a new session, bytes.
const SHARED_BYTES: usize = 64 << 10;
/// Most entries of a scan that are fetched with one call. A scan begins with one and doubles that each time: entries
/// that are fetched and not used would be locked for nothing.
const BATCH_MAX: i32 = 256;

/// Berkeley DB Java Edition.
pub struct BdbJe;

impl BdbJe {
    fn missing() -> Option<String> {
        jar().and(library()).err()
    }
}

impl Engine for BdbJe {
    fn name(&self) -> &str {
        "bdb-je"
    }

    fn about(&self) -> String {
        let jar = jar().unwrap_or_default();
        let version = jar.file_stem().map_or("not here".into(), |stem| stem.to_string_lossy());
        format!(
            "Berkeley DB Java Edition ({version}) in a Java virtual machine within the process, its cache as given, the \
             heap (-Xmx) one and a half times that and {} MiB, setSerializableIsolation; sync: COMMIT_SYNC, unsynced: \
             COMMIT_WRITE_NO_SYNC, memory: COMMIT_NO_SYNC",
            heap_bytes(0) >> 20
        )
    }

    fn isolation(&self) -> &str {
        "serializable: locks on what was read and written, and on the gaps between; a transaction that only reads is \
         read committed"
    }

    fn cannot(&self, needs: Needs, level: Level) -> Option<String> {
        let no_snapshots = "its readers lock what they read, and see no snapshot".to_string();
        let cannot = BdbJe::missing().map(|missing| format!("bdb-je: {missing}"));
        cannot.or(not_offered(needs, level, ALL_LEVELS)).or(needs.snapshots.then_some(no_snapshots))
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        let Opening { dir, tables, cache_bytes, level } = *opening;
        let jvm = Jvm::running(cache_bytes)?;
        let dir =
            dir.to_str().ok_or_else(|| Error::engine("opening an environment", "its path is not UTF-8"))?;
        let peer = jvm.open(dir, &tables.join(","), cache_bytes, durability_number(level))?;
        Ok(Arc::new(JeStore { jvm, peer: Held::new(peer) }))
    }
}

struct JeStore {
    jvm: &'static Jvm,
    peer: Held<Object>,
}

impl Store for JeStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let peer = self.peer.get()?;
        let java = self.jvm.object(&peer, self.jvm.methods.new_session, "making a session")?;
        let mut session = JeSession { jvm: self.jvm, java, shared: Shared::new(0), _peer: peer };
        session.grow(SHARED_BYTES)?;
        Ok(Box::new(session))
    }

    fn settle(&self) -> Result<()> {
        let sync = self.jvm.methods.sync;
        self.jvm.call(&*self.peer.get()?, sync, Primitive::Void, &[], "syncing the log").map(|_| ())
    }

    fn close(&self) -> Result<()> {
        let Some(peer) = self.peer.take()? else { return Ok(()) };
        let close = self.jvm.methods.close;
        self.jvm.call(&peer, close, Primitive::Void, &[], "closing the environment").map(|_| ())
    }
}

struct JeSession {
    jvm: &'static Jvm,
    java: Object,
    shared: Shared,
    /// Keeps the store from being closed.
    _peer: Arc<Object>,
}

impl JeSession {
    /// Grows the shared memory to at least `bytes`.
    fn grow(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.shared.bytes() {
            return Ok(());
        }
        let larger = Shared::new(bytes.next_power_of_two());
        // SAFETY: the session keeps the memory until the next `share`, or until its drop, after which no method is
        // called.
        unsafe { self.jvm.share(&self.java, larger.at(), larger.bytes()) }?;
        self.shared = larger;
        Ok(())
    }

    /// Puts a key into the shared memory, and a value after it.
    fn write_shared(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.grow(key.len() + value.len())?;
        let (start, rest) = self.shared.content_mut().split_at_mut(key.len());
        start.copy_from_slice(key);
        rest[..value.len()].copy_from_slice(value);
        Ok(())
    }

    fn run(&self, method: jvm::Method, arguments: &[jvalue], what: &'static str) -> Result<()> {
        self.jvm.call(&self.java, method, Primitive::Void, arguments, what).map(|_| ())
    }

    /// The result of a method, if that is not a conflict.
    fn number(&self, method: jvm::Method, arguments: &[jvalue], what: &'static str) -> Result<i32> {
        match self.jvm.call(&self.java, method, Primitive::Int, arguments, what)? {
            CONFLICT => Err(Error::Conflict),
            number => Ok(number),
        }
    }

    /// Runs statements and commits; if they roll back, the transaction is left open.
    fn attempt(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        let writes = mode == Mode::Write;
        self.run(self.jvm.methods.begin, &[jvalue { z: writes }], "beginning a transaction")?;
        if let Some(ended) = undone(statements(&mut Open { session: self, writes }))? {
            return Ok(ended);
        }
        self.number(self.jvm.methods.commit, &[], "committing")?;
        Ok(Ended::Committed)
    }

    fn look_up(&mut self, table: usize, key: &[u8], update: bool, value: &mut Vec<u8>) -> Result<bool> {
        loop {
            self.write_shared(key, &[])?;
            let arguments = [int(table), int(key.len()), jvalue { z: update }];
            match self.number(self.jvm.methods.get, &arguments, "reading")? {
                ABSENT => return Ok(copied(None, value)),
                bytes if bytes >= 0 => {
                    return Ok(copied(Some(&self.shared.content()[..bytes as usize]), value));
                }
                too_small => self.grow(too_small.unsigned_abs() as usize)?,
            }
        }
    }

    fn show(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        let Range { table, from, direction, for_update } = range;
        self.write_shared(from.unwrap_or_default(), &[])?;
        let key_bytes = from.map_or(jvalue { i: -1 }, |from| int(from.len()));
        let reverse = jvalue { z: direction == Direction::Reverse };
        let arguments = [int(table), key_bytes, reverse, jvalue { z: for_update }];
        let shown =
            self.number(self.jvm.methods.scan, &arguments, "scanning").and_then(|_| self.show_all(visit));
        let ended = self.run(self.jvm.methods.end_scan, &[], "scanning");
        shown.and(ended)
    }

    fn show_all(&mut self, visit: Visit<'_>) -> Result<()> {
        let mut entries_max = 1;
        loop {
            let number = self.number(self.jvm.methods.next, &[jvalue { i: entries_max }], "scanning")?;
            let bytes = number.unsigned_abs() as usize;
            if number < 0 {
                self.grow(bytes)?;
                continue;
            }
            if bytes == 0 || !show_batch(&self.shared.content()[..bytes], visit)? {
                return Ok(());
            }
            entries_max = (2 * entries_max).min(BATCH_MAX);
        }
    }
}

/// Shows entries that a scan put into the shared memory; returns whether to continue.
fn show_batch(mut entries: &[u8], visit: Visit<'_>) -> Result<bool> {
    while let Some((head, rest)) = entries.split_first_chunk::<HEAD_BYTES>() {
        let word = u64::from_be_bytes(*head);
        let (key, rest) = rest.split_at((word >> 32) as usize);
        let (value, rest) = rest.split_at(word as u32 as usize);
        if !visit(key, value)? {
            return Ok(false);
        }
        entries = rest;
    }
    Ok(true)
}

/// A length or the number of a table as Java has it: neither reaches 2^31.
fn int(number: usize) -> jvalue {
    jvalue { i: i32::try_from(number).unwrap_or(i32::MAX) }
}

impl Session for JeSession {
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        let ended = self.attempt(mode, statements);
        if let Ok(Ended::Committed) = ended {
            return ended;
        }
        let aborted = self.run(self.jvm.methods.abort, &[], "rolling back");
        match ended {
            Err(Error::Conflict) => aborted.map(|()| Ended::Conflict),
            ended => ended.and_then(|ended| aborted.map(|()| ended)),
        }
    }

    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        retried(|| self.look_up(table, key, false, value))
    }
}

/// A transaction that was begun.
struct Open<'a> {
    session: &'a mut JeSession,
    writes: bool,
}

impl Open<'_> {
    fn may_write(&self) -> Result<()> {
        if self.writes { Ok(()) } else { Err(Error::READ_ONLY) }
    }
}

impl Transaction for Open<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.session.look_up(table, key, false, value)
    }

    fn get_for_update(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.session.look_up(table, key, self.writes, value)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.may_write()?;
        self.session.write_shared(key, value)?;
        let arguments = [int(table), int(key.len()), int(value.len())];
        self.session.number(self.session.jvm.methods.put, &arguments, "writing").map(|_| ())
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.may_write()?;
        self.session.write_shared(key, &[])?;
        let arguments = [int(table), int(key.len())];
        self.session.number(self.session.jvm.methods.delete, &arguments, "deleting").map(|_| ())
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        self.session.show(Range { for_update: range.for_update && self.writes, ..range }, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_shown_until_enough() {
        let batch = b"\0\0\0\x01\0\0\0\x02kvw\0\0\0\x02\0\0\0\0kk";
        let mut shown = Vec::new();
        let mut show = |most| {
            shown.clear();
            let visit = &mut |key: &[u8], value: &[u8]| {
                shown.push([key, b"=", value].concat());
                Ok(shown.len() < most)
            };
            let more = show_batch(batch, visit).unwrap();
            (more, shown.len())
        };
        assert_eq!(show(1), (false, 1));
        assert_eq!(show(9), (true, 2));
        assert_eq!(shown, [b"k=vw".as_slice(), b"kk="]);
    }

    #[test]
    fn readers_that_need_snapshots_are_refused() {
        let snapshots = Needs { snapshots: true, ..Needs::default() };
        assert!(BdbJe.cannot(snapshots, Level::Sync).is_some());
        assert_eq!(BdbJe.cannot(Needs::default(), Level::Sync).is_some(), BdbJe::missing().is_some());
    }
}
