//! A library of C as an engine: the only file that calls through `c/peer.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Arc;

use crate::common::{durability_number, not_offered, retried};
use fulgurite_bench::engine::{
    Direction, Ended, Engine, Level, Mode, Needs, Opening, Range, Session, Statements, Store, Transaction,
    Verdict, Visit,
};
use fulgurite_bench::{Error, Result};
use parking_lot::Mutex;

/// `enum peer_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
struct Code(c_int);

impl Code {
    const OK: Code = Code(0);
    const NOT_FOUND: Code = Code(1);
    const CONFLICT: Code = Code(2);

    /// Whether the call found something.
    fn check(self, what: &'static str) -> Result<bool> {
        match self {
            Code::OK => Ok(true),
            Code::NOT_FOUND => Ok(false),
            Code::CONFLICT => Err(Error::Conflict),
            _ => Err(Error::engine(what, message())),
        }
    }
}

/// `struct peer_bytes`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Bytes {
    data: *const c_void,
    size: usize,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Bytes {
        Bytes { data: bytes.as_ptr().cast(), size: bytes.len() }
    }

    /// # Safety
    /// The bytes must be valid and unchanged for as long as the result is used.
    unsafe fn get<'a>(self) -> &'a [u8] {
        match self.size {
            0 => &[],
            // SAFETY: the caller vouches for the bytes, and `peer.h` for the pointer of those that are not empty.
            size => unsafe { std::slice::from_raw_parts(self.data.cast(), size) },
        }
    }
}

/// `struct peer_opening`.
#[repr(C)]
struct COpening {
    dir: *const c_char,
    tables: *const *const c_char,
    table_count: usize,
    cache_bytes: u64,
    durability: c_int,
    variant: c_int,
}

/// `struct peer_store`.
#[repr(C)]
struct CStore {
    opaque: [u8; 0],
}

/// `struct peer_session`.
#[repr(C)]
struct CSession {
    opaque: [u8; 0],
}

type CVisit = unsafe extern "C" fn(*mut c_void, Bytes, Bytes) -> c_int;

/// `struct peer_library`: the functions of a file of C.
#[repr(C)]
pub(crate) struct Library {
    version: unsafe extern "C" fn() -> *const c_char,
    open: unsafe extern "C" fn(*const COpening, *mut *mut CStore) -> Code,
    settle: unsafe extern "C" fn(*mut CStore) -> Code,
    close: unsafe extern "C" fn(*mut CStore) -> Code,
    session: unsafe extern "C" fn(*mut CStore, *mut *mut CSession) -> Code,
    end_session: unsafe extern "C" fn(*mut CSession),
    begin: unsafe extern "C" fn(*mut CSession, c_int) -> Code,
    commit: unsafe extern "C" fn(*mut CSession) -> Code,
    rollback: unsafe extern "C" fn(*mut CSession),
    get: unsafe extern "C" fn(*mut CSession, usize, Bytes, c_int, *mut Bytes) -> Code,
    put: unsafe extern "C" fn(*mut CSession, usize, Bytes, Bytes) -> Code,
    remove: unsafe extern "C" fn(*mut CSession, usize, Bytes) -> Code,
    scan: unsafe extern "C" fn(*mut CSession, usize, *const Bytes, c_int, c_int, CVisit, *mut c_void) -> Code,
}

unsafe extern "C" {
    safe fn peer_message() -> *const c_char;
}

fn message() -> String {
    // SAFETY: the message is a string that ends in 0 and is this thread's until the next failure.
    unsafe { CStr::from_ptr(peer_message()) }.to_string_lossy().into_owned()
}

/// A library with one of its variants.
#[derive(Clone, Copy)]
pub(crate) struct CEngine {
    /// The engine's name in reports.
    pub name: &'static str,
    /// The library, or the package that was missing when this crate was built.
    pub library: Result<&'static Library, &'static str>,
    /// The variant's number in the library's file of C.
    pub variant: c_int,
    /// Settings that are not the library's own defaults.
    pub settings: &'static str,
    /// The levels that it supports.
    pub levels: &'static [Level],
    /// How transactions are isolated.
    pub isolation: &'static str,
    /// Why it has no isolated transactions that write; `None` if it has them.
    pub no_transactions: Option<&'static str>,
}

impl CEngine {
    fn library(&self) -> Result<&'static Library, String> {
        self.library.map_err(|package| {
            format!("bench-peers was built without {package}: `apt-get install {package}` and build it again")
        })
    }
}

impl Engine for CEngine {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> String {
        let library = match self.library() {
            Ok(library) => library,
            Err(missing) => return missing,
        };
        // SAFETY: the version is a string that ends in 0 and stays as it is until this thread's next call.
        let version = unsafe { CStr::from_ptr((library.version)()) }.to_string_lossy();
        // Some versions have a release date: `Berkeley DB 5.3.28: (September  9, 2013)`.
        let version = version.split(':').next().unwrap_or_default();
        format!("{version}, {}", self.settings)
    }

    fn isolation(&self) -> &str {
        self.isolation
    }

    fn cannot(&self, needs: Needs, level: Level) -> Option<String> {
        if let Err(missing) = self.library() {
            return Some(missing);
        }
        let transactions = self.no_transactions.filter(|_| needs.transactions);
        not_offered(needs, level, self.levels).or(transactions.map(str::to_string))
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        let what = || format!("opening a database in {}", opening.dir.display());
        let library = self.library().map_err(|missing| Error::engine(what(), missing))?;
        let c_string = |bytes: &[u8]| CString::new(bytes).map_err(|source| Error::engine(what(), source));
        let dir = c_string(opening.dir.as_os_str().as_bytes())?;
        let tables =
            opening.tables.iter().map(|name| c_string(name.as_bytes())).collect::<Result<Vec<_>>>()?;
        let tables: Vec<*const c_char> = tables.iter().map(|name| name.as_ptr()).collect();
        let c_opening = COpening {
            dir: dir.as_ptr(),
            tables: tables.as_ptr(),
            table_count: tables.len(),
            cache_bytes: opening.cache_bytes,
            durability: durability_number(opening.level),
            variant: self.variant,
        };
        let mut store = ptr::null_mut();
        // SAFETY: the strings and the array that `c_opening` points to outlive the call.
        let opened = unsafe { (library.open)(&c_opening, &mut store) };
        opened.check("opening").map_err(|error| Error::engine(what(), error))?;
        let open = Some(OpenStore { handle: store, sessions: 0 });
        Ok(Arc::new(CStoreOf { library, tables: opening.tables.len(), open: Mutex::new(open) }))
    }
}

/// A store of C, and how many sessions it has.
struct OpenStore {
    handle: *mut CStore,
    sessions: usize,
}

// SAFETY: by `peer.h` all threads may use a store at once.
unsafe impl Send for OpenStore {}

/// A store that is dropped without a close leaves the store of C open: closing it would make unsynced commits durable.
struct CStoreOf {
    library: &'static Library,
    tables: usize,
    /// `None` when it is closed.
    open: Mutex<Option<OpenStore>>,
}

impl Store for CStoreOf {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let mut open = self.open.lock();
        let store = open.as_mut().ok_or_else(closed)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the store is open, and stays open while it has sessions.
        unsafe { (self.library.session)(store.handle, &mut handle) }.check("opening a session")?;
        store.sessions += 1;
        Ok(Box::new(CSessionOf { store: self, handle }))
    }

    fn settle(&self) -> Result<()> {
        let open = self.open.lock();
        let store = open.as_ref().ok_or_else(closed)?;
        // SAFETY: the store is open, and the lock keeps it open.
        unsafe { (self.library.settle)(store.handle) }.check("settling").map(|_| ())
    }

    fn close(&self) -> Result<()> {
        let mut open = self.open.lock();
        if open.as_ref().is_some_and(|store| store.sessions > 0) {
            return Err(Error::engine("closing a store", "it still has sessions: drop them first"));
        }
        let store = open.take().ok_or_else(closed)?;
        // SAFETY: the store was open, `take` removed it from the lock, and no session is left.
        unsafe { (self.library.close)(store.handle) }.check("closing").map(|_| ())
    }
}

fn closed() -> Error {
    Error::engine("using a store", "it is closed: open it again")
}

/// A session of C. The pointer keeps it on its thread.
struct CSessionOf<'a> {
    store: &'a CStoreOf,
    handle: *mut CSession,
}

impl CSessionOf<'_> {
    fn library(&self) -> &'static Library {
        self.store.library
    }

    fn check(&self, table: usize) {
        assert!(table < self.store.tables, "the workload uses a table that it did not open");
    }

    fn begin(&mut self, writes: bool) -> Result<CTransaction<'_>> {
        // SAFETY: the session is open and has no transaction.
        unsafe { (self.library().begin)(self.handle, writes.into()) }.check("beginning a transaction")?;
        Ok(CTransaction { session: self, writes })
    }

    fn transact_once(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        let mut transaction = self.begin(mode == Mode::Write)?;
        match statements(&mut transaction)? {
            _ if mode == Mode::Read => Ok(Ended::Committed),
            Verdict::Rollback => Ok(Ended::RolledBack),
            Verdict::Commit => transaction.commit().map(|()| Ended::Committed),
        }
    }

    /// Reads a key of a table, in the transaction of the session if it has one.
    fn read(&self, table: usize, key: &[u8], for_update: bool, value: &mut Vec<u8>) -> Result<bool> {
        self.check(table);
        value.clear();
        let (key, mut found) = (Bytes::of(key), Bytes { data: ptr::null(), size: 0 });
        // SAFETY: the session is open and this thread's, and the key is there during the call.
        let code = unsafe { (self.library().get)(self.handle, table, key, for_update.into(), &mut found) };
        let is_found = code.check("reading")?;
        if is_found {
            // SAFETY: the value is valid until the next call of the session, which comes after this.
            value.extend_from_slice(unsafe { found.get() });
        }
        Ok(is_found)
    }
}

impl Session for CSessionOf<'_> {
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        match self.transact_once(mode, statements) {
            Err(Error::Conflict) => Ok(Ended::Conflict),
            ended => ended,
        }
    }

    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        retried(|| self.read(table, key, false, value))
    }
}

impl Drop for CSessionOf<'_> {
    fn drop(&mut self) {
        // SAFETY: the session is open, and this was its last use.
        unsafe { (self.library().end_session)(self.handle) };
        if let Some(store) = self.store.open.lock().as_mut() {
            store.sessions -= 1;
        }
    }
}

/// An open transaction of a session; dropped without being committed it is undone.
struct CTransaction<'a> {
    session: &'a CSessionOf<'a>,
    writes: bool,
}

impl CTransaction<'_> {
    fn commit(self) -> Result<()> {
        let session = ManuallyDrop::new(self).session;
        // SAFETY: the transaction is open; it is over after this call, whatever it returns.
        unsafe { (session.library().commit)(session.handle) }.check("committing").map(|_| ())
    }

    fn check_write(&self, table: usize) -> Result<()> {
        self.session.check(table);
        if self.writes { Ok(()) } else { Err(Error::READ_ONLY) }
    }
}

impl Drop for CTransaction<'_> {
    fn drop(&mut self) {
        // SAFETY: the transaction is open.
        unsafe { (self.session.library().rollback)(self.session.handle) };
    }
}

impl Transaction for CTransaction<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.session.read(table, key, false, value)
    }

    fn get_for_update(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.session.read(table, key, true, value)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_write(table)?;
        // SAFETY: the session has a transaction that writes, and the table exists.
        let code = unsafe {
            (self.session.library().put)(self.session.handle, table, Bytes::of(key), Bytes::of(value))
        };
        code.check("writing").map(|_| ())
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.check_write(table)?;
        // SAFETY: the session has a transaction that writes, and the table exists.
        let code = unsafe { (self.session.library().remove)(self.session.handle, table, Bytes::of(key)) };
        code.check("deleting").map(|_| ())
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        match range.for_update {
            true => self.check_write(range.table)?,
            false => self.session.check(range.table),
        }
        let from = range.from.map(Bytes::of);
        let from = from.as_ref().map_or(ptr::null(), ptr::from_ref);
        let reverse = (range.direction == Direction::Reverse).into();
        let mut shown = Shown { visit, outcome: Ok(()) };
        let state = ptr::from_mut(&mut shown).cast();
        // SAFETY: the session has a transaction, the table exists, and `from` and `shown` outlive the call.
        let code = unsafe {
            (self.session.library().scan)(
                self.session.handle,
                range.table,
                from,
                reverse,
                range.for_update.into(),
                show,
                state,
            )
        };
        shown.outcome.and(code.check("scanning").map(|_| ()))
    }
}

/// The visitor of a scan, and the error that it returned.
struct Shown<'a> {
    visit: Visit<'a>,
    outcome: Result<()>,
}

/// Shows an entry; returns 0 to end the scan. A panic of `visit` aborts the process, as it must not unwind through C.
///
/// # Safety
/// `state` must be the [`Shown`] of the scan, and `key` and `value` valid during the call.
unsafe extern "C" fn show(state: *mut c_void, key: Bytes, value: Bytes) -> c_int {
    // SAFETY: `state` is the scan's argument, and only this function uses it during the scan.
    let shown = unsafe { &mut *state.cast::<Shown<'_>>() };
    // SAFETY: the caller shows bytes that are valid during the call.
    let (key, value) = unsafe { (key.get(), value.get()) };
    match (shown.visit)(key, value) {
        Ok(should_continue) => should_continue.into(),
        Err(error) => {
            shown.outcome = Err(error);
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::common::ALL_LEVELS;

    fn missing() -> CEngine {
        CEngine {
            name: "some",
            library: Err("libsome-dev"),
            variant: 0,
            settings: "",
            levels: ALL_LEVELS,
            isolation: "",
            no_transactions: None,
        }
    }

    #[test]
    fn a_missing_library_is_named() {
        let sentence =
            "bench-peers was built without libsome-dev: `apt-get install libsome-dev` and build it again";
        assert_eq!(missing().cannot(Needs::default(), Level::Sync).as_deref(), Some(sentence));
        assert_eq!(missing().about(), sentence);
        let opening = Opening { dir: Path::new("dir"), tables: &[], cache_bytes: 0, level: Level::Sync };
        let error = missing().open(&opening).err().map(|error| error.to_string());
        assert_eq!(error, Some(format!("opening a database in dir: {sentence}")));
    }

    #[test]
    fn unsupported_needs_are_named() {
        let tickets = Needs { tickets: true, ..Needs::default() };
        let transactions = Needs { transactions: true, ..Needs::default() };
        let others = Needs { snapshots: true, bounded_memory: true, ..Needs::default() };
        for engine in crate::c_engines::c_engines().into_iter().filter(|engine| engine.library.is_ok()) {
            let about = engine.about();
            assert!(about.starts_with(|letter: char| letter.is_ascii_uppercase()), "{about}");
            assert_eq!(engine.cannot(others, Level::Sync), None);
            assert_eq!(engine.cannot(others, Level::Unsynced), None);
            assert_eq!(engine.cannot(others, Level::Memory).is_some(), engine.name == "leveldb");
            assert!(engine.cannot(others, Level::NoBarrier).is_some());
            assert!(engine.cannot(others, Level::Async(Duration::from_millis(1))).is_some());
            assert!(engine.cannot(tickets, Level::Sync).is_some());
            let is_plain = ["rocksdb", "rocksdb-blob", "leveldb"].contains(&engine.name);
            assert_eq!(engine.cannot(transactions, Level::Sync).is_some(), is_plain, "{}", engine.name);
        }
    }
}
