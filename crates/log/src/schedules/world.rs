//! A log over the yielding disk, and the frames that were appended to it.

use crate::CommitLog;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_types::{Csn, DatabaseId, Lsn, crc32c};
use shuttle::rand::{Rng, thread_rng};

use super::disk::{Watch, YieldingEnv};
use crate::format::{GroupKind, segment_file_name};
use crate::{
    Durability, FlushScheme, Log, LogError, LogOptions, Numbers, RecoveredFrame, RecoverySink, ReplayFrom,
    ScanItem, TimeBounds, Waiting, frame_bytes, scan_segment,
};

pub const ID: DatabaseId = DatabaseId(7);

pub fn dir() -> &'static Path {
    Path::new("/log")
}

/// A number below `n`, drawn from the schedule's random numbers.
pub fn below(n: usize) -> usize {
    thread_rng().gen_range(0..n)
}

pub fn one_of<T: Copy>(choices: &[T]) -> T {
    choices[below(choices.len())]
}

/// The smallest possible segments and buffers: three long frames fill a segment, two groups the buffers.
pub fn options() -> LogOptions {
    LogOptions {
        segment_bytes_min: 16 * 1024,
        segment_bytes_max: 16 * 1024,
        buffer_bytes: 16 * 1024,
        ready_segments: 1,
        background: false,
        mark_idle: Duration::from_millis(10),
        scheme: one_of(&FlushScheme::ALL),
        waiting: one_of(&[Waiting::Block, Waiting::SpinThenBlock]),
        direct: one_of(&[true, false]),
        ..LogOptions::default()
    }
}

/// A frame.
struct Appended {
    body_lsn: Lsn,
    body: Vec<u8>,
}

/// A log, and its frames.
pub struct World {
    pub sim: Arc<SimEnv>,
    pub watch: Arc<Watch>,
    pub log: Arc<Log>,
    /// By CSN.
    appended: Mutex<BTreeMap<u64, Appended>>,
}

impl World {
    pub fn new(options: LogOptions) -> Arc<World> {
        let sim = SimEnv::new(thread_rng().r#gen());
        sim.faults().fua(one_of(&[true, false]));
        sim.faults().power_safe_cache(options.power_safe_cache);
        if let Some(staging) = &options.staging {
            sim.faults().mapped(Some(staging.medium));
        }
        let watch = Arc::new(Watch::default());
        watch.syncs_beside_writes.store(options.scheme != FlushScheme::Combined, Relaxed);
        let env = YieldingEnv::new(&sim, &watch);
        let log = Log::create(env, dir(), ID, options).expect("an empty directory takes a log");
        Arc::new(World { sim, watch, log, appended: Mutex::default() })
    }

    /// Admits, reserves and fills.
    pub fn append(&self, bytes: usize, level: Durability) -> Result<Csn, LogError> {
        let admission = self.log.admit(frame_bytes(bytes as u32), 0)?;
        Ok(self.put(admission, bytes, level))
    }

    /// Reserves and fills what was admitted.
    pub fn put(&self, admission: crate::Admission, bytes: usize, level: Durability) -> Csn {
        self.put_at(admission, bytes, level, TimeBounds::ANY).expect("any time will do").0
    }

    /// Like [`World::put`], within `time`; also returns the commit's time.
    pub fn put_at(
        &self,
        admission: crate::Admission,
        bytes: usize,
        level: Durability,
        time: TimeBounds,
    ) -> Option<(Csn, u64)> {
        // Each drawn number is a step of the schedule, so long bodies repeat themselves.
        let drawn: Vec<u8> = std::iter::repeat_with(|| thread_rng().r#gen()).take(bytes.min(64)).collect();
        let body: Vec<u8> = drawn.iter().copied().cycle().take(bytes).collect();
        let reservation = self.log.reserve_at(admission, level, time)?;
        let Numbers { csn, body_lsn, time_ms } = reservation.numbers();
        let appended = Appended { body_lsn, body: body.clone() };
        let before = self.appended.lock().expect("no panic").insert(csn.0, appended);
        assert!(before.is_none(), "a CSN was given twice: {csn}");
        let header = reservation.header(1, crc32c(&body));
        self.log.fill(reservation, &header, &body, &[]);
        Some((csn, time_ms))
    }

    /// Commits synchronously, and asserts that the acknowledged commit survives a power cut.
    pub fn commit(&self, bytes: usize) -> Result<Csn, LogError> {
        let csn = self.append(bytes, Durability::Sync)?;
        self.wait_durable(csn)?;
        Ok(csn)
    }

    pub fn wait_durable(&self, csn: Csn) -> Result<(), LogError> {
        self.log.wait_durable(csn)?;
        self.assert_durable(csn);
        Ok(())
    }

    /// Asserts that everything up to `csn` survives any power cut.
    pub fn assert_durable(&self, csn: Csn) {
        let (found, _) = self.on_the_medium();
        assert!(
            found.len() as u64 >= csn.0,
            "INV-LOG-1: commit {csn} was acknowledged, and a power cut leaves {} of {:?}",
            found.len(),
            self.log.options()
        );
        self.assert_appended(&found);
    }

    /// Asserts that the frames found are the appended ones, from the first on.
    fn assert_appended(&self, found: &[(Csn, Lsn, Vec<u8>)]) {
        let appended = self.appended.lock().expect("no panic");
        for ((csn, lsn, body), expected) in found.iter().zip(1..) {
            assert_eq!(csn.0, expected, "numbers are dense");
            let frame = appended.get(&csn.0).expect("only what was reserved is written");
            assert_eq!((frame.body_lsn, &frame.body), (*lsn, body), "INV-LOG-3: commit {csn} is at its LSN");
        }
    }

    /// Asserts that `durable` has passed nothing that a power cut takes, mark groups included.
    pub fn assert_watermark(&self) {
        let durable = self.log.watermarks().durable;
        let (_, end) = self.on_the_medium();
        assert!(durable <= end, "INV-LOG-1: {durable} is durable, but a power cut leaves all before {end}");
    }

    /// The frames of the commit stream that survive any power cut, as far as recovery would follow them, and their end.
    fn on_the_medium(&self) -> (Vec<(Csn, Lsn, Vec<u8>)>, Lsn) {
        let (mut frames, mut next, mut last) = (Vec::new(), Some(1), Lsn::NULL);
        while let Some(number) = next.take() {
            let path = dir().join(segment_file_name(number));
            let copy = SimEnv::new(0);
            let bytes = self.sim.read_durable(&path).expect("a segment of the log");
            copy.write_raw(&path, &bytes).expect("a copy of a segment");
            let scan = scan_segment(copy.disk(), &path).expect("the copy");
            let end = scan.problems.first().map_or(u64::MAX, |problem| problem.offset);
            for item in scan.items {
                match item {
                    ScanItem::Group(group) if u64::from(group.offset) >= end => return (frames, last),
                    ScanItem::Group(group) => {
                        let is_end = group.kind == GroupKind::SegmentEnd;
                        next = is_end.then_some(group.next_segment);
                        last = Lsn::new(number, group.end());
                    }
                    ScanItem::Frame { header, body_lsn, body, .. } => {
                        frames.push((header.csn, body_lsn, body));
                    }
                    _ => {}
                }
            }
        }
        (frames, last)
    }

    /// Asserts that what was appended so far reads as it was put, once it is filled.
    pub fn assert_reads(&self) {
        let filled = self.log.watermarks().filled;
        let appended = self.appended.lock().expect("no panic");
        let known: Vec<_> = appended.values().map(|frame| (frame.body_lsn, frame.body.clone())).collect();
        drop(appended);
        for (lsn, body) in known.iter().filter(|(lsn, body)| lsn.advance(body.len() as u32) <= filled) {
            let read = self.log.read_bytes(*lsn, body.len() as u32).expect("it is in the log");
            assert!(read == *body, "{lsn} reads as something else");
        }
    }

    /// After all threads ended well: CSNs are dense, and rise with the LSNs of the frames. All frames were written as
    /// they were appended, and the log opens after a crash.
    pub fn finish(&self) {
        let newest = self.log.reserved_csn();
        self.wait_durable(newest).expect("nothing failed");
        self.log.watermarks().validate();
        let appended = self.appended.lock().expect("no panic");
        assert!(appended.keys().copied().eq(1..=newest.0), "numbers are dense");
        let mut end = Lsn::NULL;
        for (csn, frame) in &*appended {
            assert!(
                end < frame.body_lsn,
                "INV-LOG-3: the range of commit {csn} overlaps that of the one before"
            );
            end = frame.body_lsn.advance(frame.body.len() as u32);
        }
        drop(appended);
        self.assert_recovers(newest);
    }

    /// Asserts that after a crash the log opens and has everything up to `acknowledged`.
    pub fn assert_recovers(&self, acknowledged: Csn) {
        let kind = one_of(&[CrashKind::PowerCut, CrashKind::OsCrash, CrashKind::Kill]);
        let image = self.sim.crash(kind, thread_rng().r#gen());
        let mut found = Found::default();
        let options = self.log.options().clone();
        let opened = Log::open(image, dir(), ID, options, &ReplayFrom::beginning(), &mut found);
        let (_, report) = opened.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert!(
            report.last_csn >= acknowledged,
            "{acknowledged} was acknowledged, {} is there",
            report.last_csn
        );
        self.assert_appended(&found.0);
    }

    /// Every segment, as reads see it.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let paths = self.sim.list_raw().into_iter().map(|(path, _)| path);
        paths.map(|path| (path.clone(), self.sim.read_raw(&path).expect("it is listed"))).collect()
    }
}

#[derive(Default)]
struct Found(Vec<(Csn, Lsn, Vec<u8>)>);

impl RecoverySink for Found {
    fn frame(&mut self, frame: &RecoveredFrame<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.push((frame.header.csn, frame.body_lsn, frame.body.to_vec()));
        Ok(())
    }
}
