//! The open reads, and what pruning keeps for them: snapshots, deadlines, and the CSN of reads without a snapshot.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use fulgurite_env::Env;
use fulgurite_index::range_delete::{RangeDeletes, Readers};
use fulgurite_index::{PruneRules, Version};
use fulgurite_log::{CommitLog, Log};
use fulgurite_types::Csn;
use fulgurite_types::sync::{AtomicU64, Ordering};

use crate::Result;
use crate::catalog::TableState;
use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::deadlines::Deadlines;
use crate::files::Files;
use crate::merger::Horizon;
use crate::snapshots::{SnapshotGuard, Snapshots};

/// The open reads of a database.
pub(crate) struct Reads<L: CommitLog = Log> {
    pub snapshots: Snapshots,
    pub deadlines: Deadlines,
    /// The largest CSN at which reads began after a pruner had taken its horizon and its time (INV-TXN-14).
    pruned_at: CachePadded<AtomicU64>,
    /// How old readers may become ([`crate::reader_age`]); `u64::MAX` if they are not ended.
    pub(crate) age_ns_max: u64,
    pipeline: Arc<Pipeline<L>>,
    pub(crate) files: Arc<Files>,
    clock: Arc<Clock>,
    pub(crate) env: Arc<dyn Env>,
}

impl<L: CommitLog> Reads<L> {
    pub fn new(
        pipeline: Arc<Pipeline<L>>,
        files: Arc<Files>,
        clock: Arc<Clock>,
        env: Arc<dyn Env>,
    ) -> Reads<L> {
        Reads {
            snapshots: Snapshots::new(),
            deadlines: Deadlines::new(),
            pruned_at: CachePadded::default(),
            age_ns_max: u64::MAX,
            pipeline,
            files,
            clock,
            env,
        }
    }

    /// The same, which end readers that are older than this.
    pub fn ending(self, max_age: Option<Duration>) -> Arc<Reads<L>> {
        let age_ns_max = max_age.map_or(u64::MAX, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        Arc::new(Reads { age_ns_max, ..self })
    }

    /// Milliseconds since 1970-01-01 UTC; never less than an earlier call returned.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms(self.env.clock())
    }

    /// Registers a snapshot of the commits up to the result of `csn`, for a single operation: it is not ended however old
    /// it is. In a child of `fork()`, where nothing can be read, returns an empty one.
    pub fn snapshot(&self, csn: impl Fn() -> Csn) -> SnapshotGuard {
        if self.files.is_own_process() {
            self.snapshots.register(|| self.now_ms(), csn, &self.deadlines, || self.pipeline.read_csn())
        } else {
            SnapshotGuard::of_nothing()
        }
    }

    /// The CSNs at which tables are read from now on. The CSN at which later reads begin is loaded before the snapshot
    /// slots (INV-TXN-1).
    pub fn readers(&self) -> Readers {
        let from = self.pipeline.read_csn();
        let (snapshots, _) = self.snapshots.open();
        Readers { from, snapshots }
    }

    /// Whether a single operation may return what it `found` at `at`, in the memtables or else in the base.
    ///
    /// INV-TXN-14: a single operation has no snapshot slot. So a pruner may remove the version that it would find at
    /// `at`, because at the pruner's horizon or time the key has a newer version, which the operation does not see.
    /// Therefore the operation returns "no value" only if `pruned_at` is at or below `at`: then every pruner so far has
    /// taken its horizon and its time before `at`. Else it asks a snapshot. It also does if the version that it found
    /// has expired: it reads the clock after `at`, so the key may have got a new value before it expired.
    #[inline]
    pub fn needs_no_snapshot(&self, found: Option<&Version>, at: Csn) -> bool {
        match found {
            Some(version) => version.expires_at_ms == 0 || version.is_live_at(self.now_ms()),
            None => self.pruned_at.load(Ordering::Relaxed) <= at.0,
        }
    }

    /// What may be pruned now from the table with these range tombstones. Ends the readers that are too old first.
    ///
    /// The horizon, the time and the deadlines are read, in this order, before the snapshot slots (INV-TXN-1): a
    /// snapshot that has no slot yet then begins at or after that time (INV-TIME-3). A single operation has no slot: for
    /// it, `pruned_at` is raised to the CSN at which reads now begin, before anything is pruned (INV-TXN-14).
    pub fn prune_rules_of(&self, range_deletes: &Arc<RangeDeletes>) -> PruneRules {
        self.end_old();
        let horizon = self.pipeline.horizon();
        let confirmed_ms = self.clock.confirmed_ms(self.env.clock());
        // A replica removes what has expired at the time of a commit that all have: on another node, or on this one once it follows, the time
        // stands at the newest commit, and this node's clock may be ahead of it.
        let confirmed_ms = confirmed_ms.min(self.pipeline.agreed_time_ms());
        let confirmed_ms = self.deadlines.lock(self.pipeline.read_csn()).before(confirmed_ms, Csn::ZERO);
        self.pruned_at.fetch_max(self.pipeline.read_csn().0, Ordering::SeqCst);
        let (snapshots, now_ms_min) = self.snapshots.open();
        PruneRules {
            horizon,
            snapshots,
            expired_until_ms: now_ms_min.map_or(confirmed_ms, |now_ms| now_ms.min(confirmed_ms)),
            range_deletes: range_deletes.clone(),
        }
    }
}

impl<L: CommitLog> Horizon for Reads<L> {
    fn csn(&self) -> Csn {
        self.pipeline.horizon()
    }

    fn request(&self, csn: Csn) -> Result<()> {
        self.pipeline.request_horizon(csn)
    }

    fn prune_rules(&self, table: &TableState) -> PruneRules {
        self.prune_rules_of(table.index.range_deletes())
    }
}
