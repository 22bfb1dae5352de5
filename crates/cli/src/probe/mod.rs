//! `fulgurite probe`: how fast a device and its file system are at the ways to write a log.
//!
//! All cases are measured in turns, several rounds of them, so that other load on the machine affects them alike.

mod advice;
mod cases;
mod chart;
mod cpu;
mod files;
mod json;
mod measure;
mod reads;
mod samples;
mod table;
mod writes;

pub(crate) use self::advice::advise;
pub(crate) use self::chart::draw;
pub(crate) use self::json::as_json;
pub(crate) use self::measure::measure;
pub(crate) use self::table::lines;

use fulgurite::env::DeviceInfo;

use self::cases::{ReadCase, WriteCase};
use self::samples::Figures;

/// The results.
pub(crate) struct Report {
    /// The directory as it was given.
    directory: String,
    /// What the kernel reports of the device.
    device: DeviceInfo,
    /// Whether the file system passes direct writes to a device.
    takes_direct_writes: bool,
    /// Each way to write and its figures; `None` where the file system takes no direct writes.
    writes: Vec<(WriteCase, Option<Figures>)>,
    /// Random reads around the page cache.
    reads: Vec<(ReadCase, Figures)>,
    /// How long it took.
    seconds: f64,
    /// The idle share of processor time during the writes; `None` if the system does not report it. The many threads
    /// that read may well keep a small machine busy.
    cpu_idle: Option<f64>,
}

impl Report {
    /// The figures of a way to write, if there are any.
    fn write(&self, wanted: WriteCase) -> Option<&Figures> {
        let found = self.writes.iter().find(|(case, _)| *case == wanted);
        found.and_then(|(_, figures)| figures.as_ref())
    }
}
