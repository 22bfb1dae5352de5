//! The room on the disk: what has to be kept of it, and what that leaves for writes.
//!
//! INV-SPACE-3: *a full disk is a state that checkpoints end.* While a commit is admitted, the room `R` is at least the
//! need `N`:
//! - `R` is what a checkpoint may write: free space of the disk that the segments are on, files to recycle, the ready
//!   segments but the first, and the reserve but the files for openings ([`fulgurite_log::LogRoom`]);
//! - `N` is what checkpoints from here write at worst ([`Need`]), the costs of the commits that are admitted and not
//!   applied yet, and, while puts are admitted, two of the next segments, of which the streams may have taken one each
//!   without having filled it, and a part of the trees' size, with which deletes go on.
//!
//! So the next checkpoint finds room for all its records, whatever memtables and nodes have become when it writes them.
//! While the room is short it writes the superblock twice (`Checkpointer::write`): both copies name it, and everything is
//! free that was dead at its boundary, without a second set of records. Of one that is being written now the rest fits, and
//! so does all of the next one, even if the first frees nothing. Another program that takes the free space can break
//! this; then deletes are admitted down to what openings need, as long as there is a segment for them.
//!
//! When a write does not fit, a checkpoint begins, and the write waits for it (`waiting.rs`). Only when checkpoints gain
//! nothing is it refused. A commit reads one flag while there is plenty of room; else it takes its cost from the
//! [`Budget`] that the last look left.
//!
//! The data directory may be on another disk than the log: all files in it are written in place, and need no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_env::Env;
use fulgurite_index::Base;
use fulgurite_log::{Log, LogRoom};
use fulgurite_types::{Csn, TableId, limits};
use parking_lot::{Condvar, Mutex};

use crate::catalog::{Catalog, TableState};
use crate::files::Files;
use crate::space::Space;
use crate::space::budget::{Admitted, Budget, Kind};
use crate::space::cleaning::Wanted;
use crate::space::growth::Growth;
use crate::space::need::{INNER_SHARE, Need, TableLoad, WriteCost};
use crate::{Error, Result};

/// Puts leave this much, so that on a full disk deletes have room for their commits and the checkpoints after them, and
/// these for moving live nodes: one part in so many of the trees, ...
const KEPT_SHARE: u64 = 4;
/// ... at least so many bytes, and at most so many.
const KEPT_BYTES_MIN: u64 = 2 << 20;
const KEPT_BYTES_MAX: u64 = 1 << 30;
// Deletes leave half of it, as long as checkpoints gain something.

/// Of leaves that eviction writes on a short disk, this part more is taken of the room: for headers, and the ends of segments.
const EVICTION_MARGIN_SHARE: u64 = 4;

/// When room is refused to eviction, it looks again after this time at the earliest.
const LOOK_AGAIN_NS: u64 = 10_000_000;

/// With so many free bytes an opening leaves enough for the next ones.
const OPENING_BYTES: u64 = 6 << 20;

/// With this much beyond all that may have to be kept, commits are not counted: no load writes as much between two looks.
const PLENTY_BYTES: u64 = 256 << 20;

/// Leaves of the catalog, whatever the options.
const CATALOG_LEAF_BYTES: u64 = 8 << 10;

/// How long a waiting committer sleeps before it looks itself.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// There is no room for a commit that only deletes.
pub(crate) struct RefusedDelete {
    pub error: Error,
    /// Whether the look that says so was one while a checkpoint was written (INV-SPACE-4).
    pub while_writing: bool,
}

/// The room as a look found it, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub log: LogRoom,
    /// What a checkpoint may write.
    for_checkpoints: u64,
    /// [`Need::bytes`].
    need: u64,
    /// With the commits in flight, and segments that the streams have taken.
    needed: u64,
    /// What is kept while puts are admitted.
    pub kept: u64,
    /// The same while commits are admitted that only delete.
    kept_from_deletes: u64,
    /// What is left for puts.
    left: u64,
    /// [`Need::trees`].
    trees: u64,
    /// A checkpoint was being written.
    is_writing: bool,
}

impl Seen {
    /// The log's own files that are free for checkpoints.
    pub fn ready_bytes(&self) -> u64 {
        self.log.spare_bytes + self.log.ready_bytes + self.log.reserve_bytes
    }

    fn describe(&self, path: &str) -> String {
        let (free, ready) = (self.log.reported_bytes, self.ready_bytes());
        let lies = if self.log.free_bytes < free { ", of which the last file got none" } else { "" };
        format!("{path} has {free} free bytes{lies}, and {ready} in files that are ready")
    }
}

/// The puts that were refused last.
struct Refusal {
    cost: u64,
    why: String,
}

pub(crate) struct Room {
    /// Commits need not be counted.
    is_plenty: AtomicBool,
    /// Little is left beside the bytes that are kept: a checkpoint is due, and goes at full speed.
    short: AtomicBool,
    /// Nothing is free, and the log's reserve has no more files than the next openings need: deletes are refused, too.
    full: AtomicBool,
    budget: Budget,
    /// Held over a look, and while a checkpoint begins or ends.
    seen: Mutex<Seen>,
    /// A copy of it: readers do not wait for a look.
    published: Mutex<Seen>,
    /// What checkpoints would free, as it was last counted.
    freeable: AtomicU64,
    /// A checkpoint is being written.
    is_writing: AtomicBool,
    refusal: Mutex<Option<Refusal>>,
    rounds: Rounds,
    /// Committers that wait for room; signalled when a checkpoint ended or room was found.
    waiting: Mutex<()>,
    waiters: AtomicU32,
    /// The highest costs of commits that wait for room: that put, or only delete. Not in bytes: those grow with the trees,
    /// while checkpoints make the room.
    wanted: Mutex<[Option<WriteCost>; 2]>,
    changed: Condvar,
    growth: Growth,
    /// When eviction may look at the room again, in monotonic nanoseconds.
    look_again_ns: Mutex<u64>,
    leaf_bytes: u64,
    owners: Owners,
    env: Arc<dyn Env>,
}

/// What is looked at.
pub(crate) struct Owners {
    pub log: Arc<Log>,
    pub tables: Arc<Catalog>,
    pub files: Arc<Files>,
    pub space: Arc<Mutex<Space>>,
}

impl Owners {
    pub fn of(
        log: &Arc<Log>,
        tables: &Arc<Catalog>,
        files: &Arc<Files>,
        space: &Arc<Mutex<Space>>,
    ) -> Owners {
        Owners { log: log.clone(), tables: tables.clone(), files: files.clone(), space: space.clone() }
    }
}

/// What waiting committers know of the checkpoints that they wait for.
#[derive(Default)]
pub(crate) struct Rounds {
    /// A committer waits for a checkpoint.
    is_wanted: AtomicBool,
    /// How many checkpoints have ended, or failed.
    pub ended: AtomicU64,
    /// The newest commit when a commit was refused last, and when that was, in monotonic nanoseconds: one that puts, and
    /// one that only deletes.
    pub refused: Mutex<[Option<(Csn, u64)>; 2]>,
}

/// While it lives, a checkpoint is being written.
pub(crate) struct Writing<'r>(&'r Room);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let _seen = self.0.seen.lock();
        self.0.is_writing.store(false, Ordering::Release);
    }
}

/// A committer that waits for room.
pub(crate) struct Waiter<'r>(&'r Room);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::AcqRel);
        let mut wanted = self.0.wanted.lock();
        if self.0.waiters.load(Ordering::Acquire) == 0 {
            *wanted = Default::default();
        }
    }
}

impl Room {
    pub fn new(owners: Owners, leaf_bytes: u64, env: Arc<dyn Env>) -> Room {
        Room {
            is_plenty: AtomicBool::new(false),
            short: AtomicBool::new(false),
            full: AtomicBool::new(false),
            budget: Budget::default(),
            seen: Mutex::default(),
            published: Mutex::default(),
            freeable: AtomicU64::new(0),
            is_writing: AtomicBool::new(false),
            refusal: Mutex::default(),
            rounds: Rounds::default(),
            waiting: Mutex::new(()),
            waiters: AtomicU32::new(0),
            wanted: Mutex::default(),
            changed: Condvar::new(),
            growth: Growth::default(),
            look_again_ns: Mutex::new(0),
            leaf_bytes: leaf_bytes.max(CATALOG_LEAF_BYTES),
            owners,
            env,
        }
    }

    /// Looks at the disk, and finds what is left for writes. If the file system does not report its free space, no write
    /// is refused here; a write that does not fit fails itself, before it is logged.
    pub fn look(&self) -> Result<()> {
        // Another program may take the free space before the next opening: for that, only the log's reserve counts.
        // Called before the free space is read, because it takes files for the reserve.
        let must_stay_empty = self.must_stay_empty();
        let mut seen = self.seen.lock();
        let before = self.budget.look();
        let now = self.measure(before.in_flight).inspect_err(|_| {
            self.short.store(false, Ordering::Release);
            self.full.store(false, Ordering::Release);
            self.is_plenty.store(true, Ordering::Release);
        })?;
        self.budget.set(before, now.left, now.for_checkpoints.saturating_sub(now.kept_from_deletes));
        let has_grown = now.left > seen.left;
        *seen = now;
        *self.published.lock() = now;
        drop(seen);
        self.growth.note(self.env.clock().monotonic_ns(), || self.left_in_all(&now));
        let is_full = must_stay_empty || self.takes_no_checkpoint(&now.log);
        self.full.store(is_full, Ordering::Release);
        self.short.store(now.left <= now.need / 2, Ordering::Release);
        self.is_plenty.store(!is_full && now.left >= now.trees + PLENTY_BYTES, Ordering::Release);
        if has_grown {
            self.wake_waiting();
        }
        self.end_refusal(now.left);
        Ok(())
    }

    /// What a look finds, with commits in flight that cost so much.
    fn measure(&self, in_flight: u64) -> Result<Seen> {
        let is_writing = self.is_writing();
        // First: records that are written meanwhile are no longer in the need, and must not be in the room either.
        let need = self.need(is_writing);
        let log = self.owners.log.room().map_err(|error| {
            Error::io(format!("asking for the free space of {}", self.owners.log.path().display()), error)
        })?;
        let for_checkpoints = log.for_checkpoints(self.owners.log.options());
        let way_out = need.bytes().saturating_add(in_flight);
        let for_deletes = (need.trees() / KEPT_SHARE).clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX);
        let needed = way_out.saturating_add(2 * log.segment_bytes);
        let kept = needed.saturating_add(for_deletes);
        Ok(Seen {
            log,
            for_checkpoints,
            need: need.bytes(),
            needed,
            kept,
            kept_from_deletes: needed.saturating_add(for_deletes / 2),
            left: for_checkpoints.saturating_sub(kept),
            trees: need.trees(),
            is_writing,
        })
    }

    /// The room as it was last looked at, but with the free space of now. Waits for no look.
    pub fn figures(&self) -> Seen {
        let mut last = *self.published.lock();
        if let Ok(log) = self.owners.log.room() {
            last.log = log;
        }
        last
    }

    /// How many seconds until puts are refused, at the rate at which the room has shrunk in the last minute; `None` if it
    /// has not. `seen`: [`Room::figures`].
    pub fn seconds_left(&self, seen: &Seen) -> Option<u64> {
        let left_bytes = self.left_in_all(seen)?;
        let now_ns = self.env.clock().monotonic_ns();
        self.growth.note(now_ns, || Some(left_bytes));
        self.growth.seconds_left(now_ns, left_bytes)
    }

    /// What may still be put until puts are refused: also what checkpoints would free. `None` if the free space is not
    /// known.
    fn left_in_all(&self, seen: &Seen) -> Option<u64> {
        let is_known = seen.log.reported_bytes != u64::MAX;
        let room = seen.log.for_checkpoints(self.owners.log.options()).saturating_add(self.freeable_bytes());
        is_known.then(|| room.saturating_sub(seen.kept))
    }

    /// What was left for puts at the last look; negative: what was missing.
    pub fn left(&self) -> i64 {
        let seen = self.seen.lock();
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        bytes(seen.for_checkpoints) - bytes(seen.kept)
    }

    /// How many bytes of live nodes may be moved beside all that is needed, how many are free, and how many of these
    /// have to be for the commits that wait, as of the last look.
    pub fn for_cleaning(&self) -> (u64, u64, Wanted) {
        let seen = *self.seen.lock();
        let spare = seen.for_checkpoints.saturating_sub(seen.needed);
        // The nodes above them are written, too, and not each segment is filled to its end.
        let leaves = spare - spare / 4;
        let moved = leaves - (leaves / 2).min(seen.trees / INNER_SHARE);
        let costs = *self.wanted.lock();
        let wanted = |kind: Kind, kept: u64| match &costs[kind as usize] {
            None => 0,
            Some(cost) => cost.bytes(self.leaf_bytes, seen.trees).saturating_add(kept),
        };
        let puts = wanted(Kind::Puts, seen.kept);
        let wanted = Wanted { puts, deletes: wanted(Kind::Deletes, seen.kept_from_deletes) };
        (moved, seen.for_checkpoints, wanted)
    }

    /// About how many bytes checkpoints free. Waits for no other thread: if one frees segments, the last known figure.
    pub fn freeable_bytes(&self) -> u64 {
        if let Some(space) = self.owners.space.try_lock() {
            self.freeable.store(space.freeable_bytes(), Ordering::Relaxed);
        }
        self.freeable.load(Ordering::Relaxed)
    }

    /// The free bytes of the data directory's disk: the superblock is there, and is overwritten in place.
    pub fn home_free_bytes(&self) -> u64 {
        self.owners.files.home.free_bytes().unwrap_or(u64::MAX)
    }

    /// Whether nothing is free, and the reserve has no file.
    fn takes_no_checkpoint(&self, log: &LogRoom) -> bool {
        let segment = u64::from(limits::SEGMENT_BYTES_MIN);
        let free = log.free_bytes + log.spare_bytes + log.ready_bytes;
        free < segment && self.owners.log.reserve_bytes() == 0 && log.open_bytes < segment / 4
    }

    /// What checkpoints from here need.
    fn need(&self, is_writing: bool) -> Need {
        let tables = &self.owners.tables;
        let mut need = Need::default();
        let active = tables.active().all();
        let space = self.owners.space.lock();
        // The others have nothing to merge; their dirty bytes are counted together.
        let others = tables.count().saturating_sub(active.len()) as u64;
        let mut rest = TableLoad {
            clean_bytes: space.accounts.bytes_now(),
            segments: space.accounts.segments_now() as u64 + others,
            ..TableLoad::default()
        };
        let mut of_active = 0;
        for table in &active {
            let load = self.load_of(table, &space);
            of_active += load.dirty_bytes;
            rest.clean_bytes = rest.clean_bytes.saturating_sub(load.clean_bytes);
            need.add(&load, is_writing);
        }
        // Last: leaves that a merge makes dirty meanwhile count here.
        rest.dirty_bytes = tables.dirty_bytes().saturating_sub(of_active);
        need.add(&rest, is_writing);
        need.add_records(others);
        need
    }

    fn load_of(&self, table: &TableState, space: &Space) -> TableLoad {
        let (live_bytes, segments) = space.accounts.size_now(table.id);
        let tree = table.index.base();
        let memtables = table.index.memtables();
        let range_deletes = table.index.range_deletes().links() as u64;
        // Before the dirty bytes: a merge makes leaves dirty, and counts their versions as merged then.
        let entries = table.index.unmerged_versions();
        TableLoad {
            dirty_bytes: tree.dirty_bytes(),
            clean_bytes: tree.clean_bytes().unwrap_or(live_bytes + tree.unreported_bytes()),
            entries: entries + WriteCost::RANGE_ENTRIES * range_deletes,
            memtable_bytes: if entries == 0 { 0 } else { memtables.bytes() },
            leaf_bytes: if table.id == TableId::CATALOG { CATALOG_LEAF_BYTES } else { self.leaf_bytes },
            segments: segments as u64,
            range_delete_bytes: 64 * range_deletes,
        }
    }

    /// Whether the disk is full and the replay position has to stay before this epoch (INV-LOG-18). Free and freed
    /// space goes to the next openings first.
    pub fn must_stay_empty(&self) -> bool {
        let log = &self.owners.log;
        let has_free = |bytes| log.room().map_or(true, |room| room.free_bytes >= bytes);
        if !log.must_stay_empty() || has_free(OPENING_BYTES) {
            return false;
        }
        // A failure shows in the next line: the reserve still lacks files.
        let _ = log.fill_reserve();
        log.must_stay_empty() && !has_free(limits::SEGMENT_BYTES_MIN.into())
    }

    /// Whether little room was left when it was last looked at, or a committer waits for it.
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire) || self.waiters.load(Ordering::Acquire) > 0
    }

    /// Whether a committer waits for room, or was refused and there has been no room for it since.
    pub fn is_wanted_by_commits(&self) -> bool {
        self.waiters.load(Ordering::Acquire) > 0 || self.refusal.lock().is_some()
    }

    /// Admits so many bytes of leaves that eviction writes although little room is left: only while a checkpoint is written, which names
    /// their records. A dirty leaf is in the need already, and yet this takes room as a delete does: a leaf may become dirty again
    /// before the checkpoint has written its tree. Where dirty nodes exceed the memory, it takes whatever room there is, and no commit
    /// is admitted before the next look.
    pub fn admit_evicted_leaves(&self, bytes: u64) -> Option<Admitted<'_>> {
        if !self.is_writing() || self.full.load(Ordering::Acquire) {
            return None;
        }
        let bytes = bytes + bytes / EVICTION_MARGIN_SHARE;
        // A rest that is too little for it is left to commits.
        let has = || self.budget.has(Kind::Deletes, bytes);
        if has() || (self.look_again() && has()) {
            return self.budget.take(Kind::Deletes, bytes);
        }
        if self.owners.tables.memory().is_exceeded() {
            self.budget.end();
            return Some(self.budget.fly(bytes));
        }
        None
    }

    /// Looks at the room, a tenth of the time at most; returns whether it did.
    fn look_again(&self) -> bool {
        let Some(mut next_ns) = self.look_again_ns.try_lock() else { return false };
        let now_ns = || self.env.clock().monotonic_ns();
        let start_ns = now_ns();
        if start_ns < *next_ns || self.look().is_err() {
            return false;
        }
        let end_ns = now_ns();
        *next_ns = end_ns + LOOK_AGAIN_NS.max(9 * end_ns.saturating_sub(start_ns));
        true
    }

    /// Whether commits need not be counted. One load, on the path of each commit.
    #[inline]
    pub fn is_plenty(&self) -> bool {
        self.is_plenty.load(Ordering::Acquire)
    }

    /// Admits a commit, if the room that the last look left is enough.
    pub fn admit(&self, kind: Kind, cost: &WriteCost) -> Option<Admitted<'_>> {
        if self.is_plenty() {
            return Some(Admitted::default());
        }
        if self.full.load(Ordering::Acquire) {
            return None;
        }
        self.budget.take(kind, self.bytes_of(cost))
    }

    fn bytes_of(&self, cost: &WriteCost) -> u64 {
        let trees = self.seen.lock().trees;
        cost.bytes(self.leaf_bytes, trees)
    }

    /// Whether a checkpoint is being written.
    pub fn is_writing(&self) -> bool {
        self.is_writing.load(Ordering::Acquire)
    }

    /// Whether one was when the room was looked at last.
    pub fn was_seen_writing(&self) -> bool {
        self.seen.lock().is_writing
    }

    /// A checkpoint begins: until it ends, a leaf may have to be written twice. Commits are admitted after another look.
    pub fn begin_writing(&self) -> Writing<'_> {
        let _seen = self.seen.lock();
        self.is_writing.store(true, Ordering::Release);
        self.owners.tables.memory().set_needs_checkpoint(false);
        self.budget.end();
        Writing(self)
    }

    /// A checkpoint ended, or failed.
    pub fn checkpoint_ended(&self) {
        self.rounds.ended.fetch_add(1, Ordering::SeqCst);
        self.wake_waiting();
    }

    pub fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// Asks for a checkpoint, even if it would write nothing new.
    pub fn want_checkpoint(&self) {
        self.rounds.is_wanted.store(true, Ordering::SeqCst);
    }

    /// Whether a committer asked for a checkpoint since the last call.
    pub fn take_wanted(&self) -> bool {
        self.rounds.is_wanted.load(Ordering::SeqCst) && self.rounds.is_wanted.swap(false, Ordering::SeqCst)
    }

    /// A committer waits for room until the result is dropped.
    pub fn begin_wait(&self, kind: Kind, cost: &WriteCost) -> Waiter<'_> {
        self.waiters.fetch_add(1, Ordering::AcqRel);
        let highest = &mut self.wanted.lock()[kind as usize];
        *highest = Some(highest.unwrap_or_default().max(cost));
        Waiter(self)
    }

    /// Sleeps until a checkpoint has ended or there is room; a short time at most.
    pub fn wait(&self) {
        self.changed.wait_for(&mut self.waiting.lock(), WAIT_MAX);
    }

    fn wake_waiting(&self) {
        if self.waiters.load(Ordering::Acquire) > 0 {
            drop(self.waiting.lock());
            self.changed.notify_all();
        }
    }

    /// Puts that cost so much are refused: checkpoints gain nothing.
    pub fn refuse_puts(&self, cost: &WriteCost) -> Error {
        let cost = self.bytes_of(cost);
        let seen = *self.seen.lock();
        let path = self.owners.files.path.display().to_string();
        let (free, needed) = (seen.log.reported_bytes, seen.kept);
        let what = format!("{}; {needed} are kept for the next checkpoint", seen.describe(&path));
        let mut refusal = self.refusal.lock();
        if refusal.is_none() {
            tracing::warn!(
                %path,
                free,
                needed,
                "the disk is nearly full: only deletes are taken until there is space"
            );
        }
        *refusal = Some(Refusal { cost, why: what.clone() });
        Error::NoSpace { what }
    }

    fn end_refusal(&self, left: u64) {
        let mut refusal = self.refusal.lock();
        if refusal.as_ref().is_some_and(|refusal| left >= refusal.cost) {
            *refusal = None;
            let path = self.owners.files.path.display();
            tracing::info!(%path, left, "the disk has space again");
        }
    }

    /// Why puts are refused, if they are.
    pub fn puts_refused(&self) -> Option<String> {
        self.refusal.lock().as_ref().map(|refusal| refusal.why.clone())
    }

    /// Fails while no checkpoint could free what a delete makes dead, or while a later opening would find no file in
    /// which to begin its epoch (INV-LOG-18): a commit that is logged now would take that file.
    /// The same if the next checkpoint would not fit with it, unless that is less than a segment.
    pub fn check_for_deletes(&self, cost: &WriteCost) -> std::result::Result<(), RefusedDelete> {
        let seen = *self.seen.lock();
        let needed = seen.needed - 2 * seen.log.segment_bytes + cost.bytes(self.leaf_bytes, seen.trees);
        let fits = needed <= seen.for_checkpoints.saturating_add(seen.log.open_bytes)
            || needed <= limits::SEGMENT_BYTES_MIN.into();
        if fits && !self.full.load(Ordering::Acquire) {
            return Ok(());
        }
        let path = self.owners.log.path().display().to_string();
        let what = format!("{}; {needed} are needed for the next checkpoint", seen.describe(&path));
        Err(RefusedDelete { error: Error::NoSpace { what }, while_writing: seen.is_writing })
    }
}
