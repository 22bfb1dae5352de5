//! One thread that writes.

use std::io;

use fulgurite::env::{AlignedBuf, Clock, File};

use super::cases::{Variant, WriteCase};
use super::files::{Files, Random};
use super::samples::Samples;
use crate::interrupt;

/// The fewest operations of a turn.
const OPERATIONS_MIN: u64 = 3;

/// The thread's files and buffers.
pub(super) struct Writer<'a> {
    files: &'a Files,
    clock: &'a dyn Clock,
    buf: AlignedBuf,
    /// The offset of the next write to the zeroed file.
    at: u64,
    /// The length of the growing file.
    appended: u64,
}

impl<'a> Writer<'a> {
    pub fn new(files: &'a Files, clock: &'a dyn Clock, bytes_max: usize, seed: u64) -> Writer<'a> {
        let mut buf = AlignedBuf::new(bytes_max);
        Random::new(seed).fill(&mut buf);
        Writer { files, clock, buf, at: 0, appended: 0 }
    }

    /// Writes for `ns` nanoseconds, or until a signal asks to end.
    pub fn turn(&mut self, case: WriteCase, ns: u64, samples: &mut Samples) -> io::Result<()> {
        // The first operation pays for dirty data of the turn before.
        self.operation(case)?;
        let until_ns = self.clock.monotonic_ns() + ns;
        let mut operations = 0;
        while !interrupt::asked() {
            self.make_room(case)?;
            let began_ns = self.clock.monotonic_ns();
            self.operation(case)?;
            let ended_ns = self.clock.monotonic_ns();
            samples.add(ended_ns - began_ns);
            operations += 1;
            if ended_ns >= until_ns && operations >= OPERATIONS_MIN {
                break;
            }
        }
        // Leaves nothing for the next turn to flush.
        self.files.zeroed.sync_data()
    }

    /// Truncates the growing file when it reaches its bound.
    fn make_room(&mut self, case: WriteCase) -> io::Result<()> {
        if case.variant == Variant::AppendSync && self.appended + case.bytes as u64 > self.files.sizes.written
        {
            self.appended = 0;
            self.files.appended.set_len(0)?;
            self.files.appended.sync_data()?;
        }
        Ok(())
    }

    fn operation(&mut self, case: WriteCase) -> io::Result<()> {
        for _ in 0..case.writes_per_sync {
            self.write(case.variant, case.bytes)?;
        }
        match case.variant {
            Variant::AppendSync => self.files.appended.sync_data(),
            Variant::ZeroedSync => self.files.zeroed.sync_data(),
            Variant::DirectSync | Variant::Direct => Ok(()),
        }
    }

    fn write(&mut self, variant: Variant, bytes: usize) -> io::Result<()> {
        let buf = &self.buf[..bytes];
        if variant == Variant::AppendSync {
            let at = self.appended;
            self.appended += bytes as u64;
            return self.files.appended.write_at(buf, at);
        }
        if self.at + bytes as u64 > self.files.sizes.written {
            self.at = 0;
        }
        let (file, at): (&dyn File, u64) = (&*self.files.zeroed, self.at);
        self.at += bytes as u64;
        match variant {
            Variant::DirectSync => file.write_direct(buf, at, true),
            Variant::Direct => file.write_direct(buf, at, false),
            Variant::AppendSync | Variant::ZeroedSync => file.write_at(buf, at),
        }
    }
}
