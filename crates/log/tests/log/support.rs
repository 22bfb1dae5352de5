//! A log on a simulated disk, and a model of its contents and promises.

use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_env::{Env, MemoryMedium};
use fulgurite_log::{
    ChunkRef, CommitLog, Durability, FlushScheme, FrameHeader, Log, LogError, LogOptions, RecoveredFrame,
    RecoveryReport, RecoverySink, ReplayFrom, Reservation, SpillId, StagingOptions, frame_bytes,
    local_record_bytes,
};
use fulgurite_types::{Csn, DatabaseId, Epoch, Lsn, crc32c};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const ID: DatabaseId = DatabaseId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

pub fn dir() -> &'static Path {
    Path::new("/db/log")
}

pub fn segment_path(number: u32) -> PathBuf {
    dir().join(format!("{number:010}.seg"))
}

pub fn options() -> LogOptions {
    LogOptions {
        segment_bytes_min: 16 * 1024,
        segment_bytes_max: 32 * 1024,
        buffer_bytes: 256 * 1024,
        ready_segments: 1,
        background: false,
        mark_idle: Duration::from_millis(10),
        ..LogOptions::default()
    }
}

/// xorshift: enough to vary a workload.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
}

#[derive(Default)]
pub struct Collect(pub Vec<(Csn, Vec<u8>, Lsn, Vec<ChunkRef>)>);

impl RecoverySink for Collect {
    fn frame(&mut self, frame: &RecoveredFrame<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.push((frame.header.csn, frame.body.to_vec(), frame.body_lsn, frame.local.clone()));
        Ok(())
    }
}

/// Fills with a frame whose header has a value in each field.
pub fn fill(log: &Log, reservation: Reservation, body: &[u8], local: &[ChunkRef]) {
    let header = FrameHeader {
        flags: 2,
        body_bytes: body.len() as u32,
        term: 3,
        commit_time_ms: 4,
        ..reservation.header(1, crc32c(body))
    };
    log.fill(reservation, &header, body, local);
}

/// Admits, reserves and fills; does not wait.
pub fn append(log: &Log, body: &[u8], local: &[ChunkRef]) -> Result<(Csn, Lsn), LogError> {
    let admission = log.admit(frame_bytes(body.len() as u32), local_record_bytes(local.len() as u16))?;
    let reservation = log.reserve(admission, Durability::Sync);
    let (csn, lsn) = (reservation.csn(), reservation.body_lsn());
    fill(log, reservation, body, local);
    Ok((csn, lsn))
}

pub fn commit(log: &Log, body: &[u8]) -> Result<(Csn, Lsn), LogError> {
    let (csn, lsn) = append(log, body, &[])?;
    log.wait_durable(csn)?;
    Ok((csn, lsn))
}

pub fn create(env: &Arc<SimEnv>) -> Arc<Log> {
    Log::create(Arc::clone(env) as Arc<dyn Env>, dir(), ID, options())
        .expect("an empty directory takes a log")
}

/// The options of a seed, and its device: every scheme, around the page cache and through it, on devices whose
/// synchronous writes cover everything or only their own blocks.
///
/// From seed [`STAGED`] on commits are staged, in persistent memory.
pub fn varied(env: &SimEnv, seed: u64) -> LogOptions {
    env.faults().fua(seed & 4 != 0);
    if seed >= STAGED {
        return LogOptions { direct: seed & 8 == 0, ..staging(env, MemoryMedium::Persistent, seed) };
    }
    let scheme = match seed % 4 {
        1 => FlushScheme::OwnLsn,
        2 => FlushScheme::Aggregated,
        _ => FlushScheme::Combined,
    };
    LogOptions { scheme, direct: seed.is_multiple_of(4), ..options() }
}

/// Options with one to three staging buffers, each as short as may be, or a little longer.
pub fn staging(env: &SimEnv, medium: MemoryMedium, seed: u64) -> LogOptions {
    env.faults().mapped(Some(medium));
    let staging = StagingOptions {
        buffers: 1 + (seed % 3) as u32,
        buffer_bytes: if seed & 1 == 0 { 32_768 } else { 36_864 },
        ..StagingOptions::new(STAGING, medium)
    };
    LogOptions { staging: Some(staging), ..options() }
}

/// The first seed that stages.
pub const STAGED: u64 = 1_000_000;

pub const STAGING: &str = "/db/staging";

pub type Opened = (Arc<Log>, RecoveryReport, Collect);

pub fn open(env: &Arc<SimEnv>, from: &ReplayFrom) -> Result<Opened, LogError> {
    open_with(env, from, options())
}

pub fn open_with(env: &Arc<SimEnv>, from: &ReplayFrom, options: LogOptions) -> Result<Opened, LogError> {
    let mut sink = Collect::default();
    let (log, report) = Log::open(Arc::clone(env) as Arc<dyn Env>, dir(), ID, options, from, &mut sink)?;
    Ok((log, report, sink))
}

pub fn idle(env: &SimEnv, log: &Log) {
    env.clock().sleep(Duration::from_millis(20));
    while log.maintain().expect("nothing fails here") {}
}

/// A log and its promises.
pub struct World {
    pub env: Arc<SimEnv>,
    seed: u64,
    pub log: Option<Arc<Log>>,
    /// The last body reserved under each CSN.
    pub bodies: BTreeMap<u64, Vec<u8>>,
    pub acked: u64,
    pub reserved: u64,
    /// The last checkpoint's record of the log.
    pub from: ReplayFrom,
    pub epochs: Vec<Epoch>,
}

impl World {
    /// A world with the options and the device of `seed`.
    pub fn new(seed: u64) -> World {
        World {
            env: SimEnv::new(seed),
            seed,
            log: None,
            bodies: BTreeMap::new(),
            acked: 0,
            reserved: 0,
            from: ReplayFrom::beginning(),
            epochs: Vec::new(),
        }
    }

    pub fn create(&mut self) -> Result<(), LogError> {
        let env = Arc::clone(&self.env) as Arc<dyn Env>;
        self.log = Some(Log::create(env, dir(), ID, varied(&self.env, self.seed))?);
        Ok(())
    }

    pub fn log(&self) -> Arc<Log> {
        Arc::clone(self.log.as_ref().expect("the log is open"))
    }

    /// Random commits, checkpoints, bulk records, idle times; until `steps` are done or something fails.
    pub fn run(&mut self, rng: &mut Rng, steps: usize) -> Result<(), LogError> {
        let log = self.log();
        for _ in 0..steps {
            match rng.below(12) {
                0 => self.env.clock().sleep(Duration::from_millis(15)),
                1 => while log.maintain()? {},
                2 => {
                    log.append_bulk(
                        fulgurite_log::BulkKind::LeafNode,
                        &[&vec![7; rng.below(6000) as usize]],
                    )?;
                }
                3 => log.sync_bulk()?,
                4 if rng.below(3) == 0 => self.checkpoint(&log)?,
                _ => self.commits(&log, rng)?,
            }
            log.watermarks().validate();
        }
        Ok(())
    }

    fn commits(&mut self, log: &Log, rng: &mut Rng) -> Result<(), LogError> {
        let mut newest = (Lsn::NULL, 0);
        for _ in 0..1 + rng.below(3) {
            let body = vec![rng.next() as u8; 1 + rng.below(2500) as usize];
            let local: Vec<ChunkRef> = (0..rng.below(3))
                .map(|n| ChunkRef {
                    spill: SpillId::default(),
                    ordinal: n as u32,
                    lsn: Lsn::new(9, 9),
                    len: 5,
                })
                .collect();
            let local = if rng.below(4) == 0 { local } else { Vec::new() };
            let (csn, lsn) = append(log, &body, &local)?;
            assert_eq!(csn.0, self.reserved + 1, "CSNs are dense");
            self.reserved = csn.0;
            assert_eq!(
                log.read_bytes(lsn, body.len() as u32)?,
                body,
                "bytes are readable before they are written"
            );
            newest = (lsn, body.len() as u32);
            self.bodies.insert(csn.0, body);
        }
        if rng.below(4) > 0 {
            log.wait_durable(Csn(self.reserved))?;
            self.acked = self.reserved;
            assert_eq!(
                log.read_bytes(newest.0, newest.1)?,
                self.bodies[&self.reserved],
                "and after they are"
            );
        }
        Ok(())
    }

    /// Durable commits of one length, each a group, and a checkpoint after twenty: in each segment groups begin at the
    /// same offsets.
    pub fn run_equal(&mut self, steps: usize) -> Result<(), LogError> {
        let log = self.log();
        for step in 1..=steps {
            let body = vec![self.reserved as u8; 1000];
            let (csn, _) = append(&log, &body, &[])?;
            self.reserved = csn.0;
            self.bodies.insert(csn.0, body);
            log.wait_durable(csn)?;
            self.acked = csn.0;
            if step % 20 == 0 {
                self.checkpoint(&log)?;
            }
            while log.maintain()? {}
        }
        Ok(())
    }

    fn checkpoint(&mut self, log: &Log) -> Result<(), LogError> {
        let csn = Csn(self.acked);
        log.wait_synced(csn)?;
        self.from = ReplayFrom {
            lsn: log.replay_point(csn),
            csn,
            epoch: log.epoch(),
            durable_csn: csn,
            closed_at: None,
            must_exist: BTreeSet::new(),
            up_to: None,
            up_to_entry: None,
        };
        log.drop_before(csn);
        for info in log.segments() {
            let bulk = info.stream == Some(fulgurite_log::Stream::Bulk);
            if !info.open && (bulk || info.number < self.from.lsn.segment()) {
                log.free_segment(info.number)?;
            }
        }
        Ok(())
    }

    /// Crashes, and continues with the disk that the crash left.
    pub fn crash(&mut self, kind: CrashKind, seed: u64) {
        self.log = None;
        self.env = self.env.crash(kind, seed);
    }

    /// Opens another disk.
    pub fn open_image(&self, image: &Arc<SimEnv>) -> Result<Opened, LogError> {
        open_with(image, &self.from, varied(image, self.seed))
    }

    /// Opens, and checks every promise.
    pub fn reopen(&mut self) -> Result<RecoveryReport, LogError> {
        let (log, report, found) = open_with(&self.env, &self.from, varied(&self.env, self.seed))?;
        let mut expected = self.from.csn;
        for (csn, body, lsn, _) in &found.0 {
            expected = expected.next();
            assert_eq!(*csn, expected, "frames come in order, without a gap");
            assert_eq!(Some(body), self.bodies.get(&csn.0), "commit {csn} is what was committed");
            assert_eq!(
                &log.read_bytes(*lsn, body.len() as u32)?,
                body,
                "commit {csn} is readable at its LSN"
            );
        }
        assert_eq!(report.last_csn, expected);
        assert!(
            report.last_csn.0 >= self.acked,
            "commit {} was acknowledged, {} found",
            self.acked,
            expected
        );
        assert!(report.last_csn.0 <= self.reserved, "nothing that was never reserved");
        assert!(self.epochs.last().is_none_or(|&last| last < report.epoch), "epochs rise");
        // Recovery made all commits that it found durable: they count as acknowledged from now on.
        self.acked = report.last_csn.0;
        self.reserved = self.acked;
        self.epochs.push(report.epoch);
        self.log = Some(log);
        Ok(report)
    }
}
