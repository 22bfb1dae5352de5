//! `fulgurite stat` beside a process that has the database open: the process, and what the files alone show.

use std::path::Path;

use fulgurite::dump::{self, SuperblockCopy};
use fulgurite::env::{Env, LockHolder, OpenOptions, RealEnv};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;
use crate::text::{aligned, number, size};

pub(crate) fn run(dir: &Path, holder: &LockHolder, as_json: bool) -> Result<(), Failure> {
    let env = RealEnv::new();
    let copies = dump::superblock(env.disk(), dir)?;
    let newest = copies.iter().filter_map(|copy| match copy {
        SuperblockCopy::Valid(content) => Some(content),
        _ => None,
    });
    let newest = newest.max_by_key(|content| content.sequence);
    let (mut segments, mut segment_bytes) = (0u64, 0);
    for (_, path) in dump::segment_paths(env.disk(), dir)? {
        // The file may have been removed since the listing.
        let Ok(file) = env.disk().open(&path, OpenOptions::Read) else { continue };
        segments += 1;
        segment_bytes += file.len().unwrap_or(0);
    }
    let open_s = holder.since_ms.map(|since_ms| env.clock().wall_ms().saturating_sub(since_ms) / 1000);
    let mut output = Output::new();
    if as_json {
        output.json(&json!({
            "open_elsewhere": true,
            "pid": holder.pid,
            "since_ms": holder.since_ms,
            "epoch": newest.map(|content| content.epoch.0),
            "checkpoint_csn": newest.map(|content| content.covered.0),
            "segments": segments,
            "segment_bytes": segment_bytes,
        }))?;
        return output.flush();
    }
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String, note: &str| rows.push(vec![name.into(), value, note.into()]);
    let process = holder.pid.map_or("an unknown process".to_string(), |pid| format!("process {pid}"));
    row("open in", process, "its own figures are in its stats()");
    if let Some(open_s) = open_s {
        row("for", duration(open_s), "");
    }
    if let Some(newest) = newest {
        row("in the checkpoint", number(newest.covered.0), "commits; there may be more in the log");
        row("opened", number(newest.epoch.0.into()), "times");
    }
    row("on disk", size(segment_bytes), "all segments, ready ones included");
    row("segments", number(segments), "");
    for line in aligned(&rows, &[1]) {
        output.line(line)?;
    }
    output.flush()
}

pub(super) fn duration(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{hours} h {} min", minutes % 60),
    }
}
