//! The bare device: its speed without an engine, the yardstick beside the engines.

use std::path::Path;
use std::sync::Arc;

use fulgurite::env::{AlignedBuf, Env, File, OpenOptions};

use crate::{Error, Result};

const BLOCK_BYTES: usize = 4096;
const FILE_BYTES: usize = 16 << 20;
/// How long one measurement takes.
const MEASURE_NS: u64 = 100_000_000;

/// A file of zeros, allocated and durable, for writing one block at a time.
pub(crate) struct BareDevice {
    env: Arc<dyn Env>,
    file: Arc<dyn File>,
    block: AlignedBuf,
    direct: bool,
    next: u64,
}

impl BareDevice {
    /// Makes the file.
    pub fn create(env: &Arc<dyn Env>, path: &Path) -> Result<BareDevice> {
        let made = |file: Arc<dyn File>| {
            let zeros = vec![0; 1 << 20];
            for offset in (0..FILE_BYTES).step_by(zeros.len()) {
                file.write_at(&zeros, offset as u64)?;
            }
            file.sync_data()?;
            Ok(file)
        };
        let file = env.disk().open(path, OpenOptions::CreateNew).and_then(made);
        let file = file.map_err(Error::io("making a file for bare writes"))?;
        let mut block = AlignedBuf::new(BLOCK_BYTES);
        block.fill(0xa5);
        let direct = file.takes_direct_writes().map_err(Error::io("preparing bare writes"))?;
        Ok(BareDevice { env: env.clone(), direct, file, block, next: 0 })
    }

    /// The measurement in words.
    pub fn describe(&self) -> String {
        let how = if self.direct { "around the page cache" } else { "through the page cache" };
        format!("blocks of 4 KiB {how}, each durable before the next")
    }

    /// How many blocks a second the device takes, one after the other, each durable before the next.
    pub fn writes_per_second(&mut self) -> Result<f64> {
        let env = self.env.clone();
        let clock = env.clock();
        let began_ns = clock.monotonic_ns();
        let mut writes = 0;
        loop {
            self.write_next()?;
            writes += 1;
            let elapsed_ns = clock.monotonic_ns() - began_ns;
            if elapsed_ns >= MEASURE_NS {
                return Ok(f64::from(writes) * 1e9 / elapsed_ns as f64);
            }
        }
    }

    /// Writes a block, and returns when it is durable.
    pub fn write_next(&mut self) -> Result<()> {
        self.write(self.next * BLOCK_BYTES as u64).map_err(Error::io("writing a bare block"))?;
        self.next = (self.next + 1) % (FILE_BYTES / BLOCK_BYTES) as u64;
        Ok(())
    }

    fn write(&self, offset: u64) -> std::io::Result<()> {
        match self.direct {
            true => self.file.write_direct(&self.block, offset, true),
            false => self.file.write_at_dsync(&self.block, offset),
        }
    }
}
