//! How this processor writes lines of its caches back to persistent memory.
//!
//! Intel's manual, volume 1, chapter 11 (storing to persistent memory): `CLWB` and `CLFLUSHOPT` begin to write a line back, in no order
//! with other stores; `SFENCE` after them waits until they have come to the memory controller, whose queue the platform drains when
//! power fails. `CLFLUSH` does the same in order, one line after the other.

use std::path::Path;

use crate::mapped::LINE_BYTES;

/// The instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteBack {
    /// None: the platform keeps the content of the caches, or there is nothing to keep.
    Nothing,
    /// Keeps the line in the cache.
    Clwb,
    /// Drops it.
    ClflushOpt,
    /// Drops it, and is ordered: each x86-64 has it.
    Clflush,
}

impl WriteBack {
    /// The best that this processor has; `None` if none is known for it.
    pub fn of_processor() -> Option<WriteBack> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::__cpuid_count;
            const CLFLUSHOPT: u32 = 1 << 23;
            const CLWB: u32 = 1 << 24;
            let features = if __cpuid_count(0, 0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
            Some(match features {
                features if features & CLWB != 0 => WriteBack::Clwb,
                features if features & CLFLUSHOPT != 0 => WriteBack::ClflushOpt,
                _ => WriteBack::Clflush,
            })
        }
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Begins to write `lines` lines back, from an address that is a multiple of [`LINE_BYTES`].
    ///
    /// # Safety
    /// The lines are mapped, and the processor has the instruction.
    #[inline]
    pub unsafe fn begin(self, first: *const u8, lines: usize) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..lines {
            use std::arch::asm;
            // SAFETY: the caller promises that the line is mapped, and that the processor has the instruction. None of them changes
            // bytes, registers or flags.
            unsafe {
                let line = first.add(line * LINE_BYTES);
                match self {
                    WriteBack::Nothing => return,
                    WriteBack::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    WriteBack::ClflushOpt => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    WriteBack::Clflush => {
                        asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags))
                    }
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (first, lines, LINE_BYTES);
            assert!(self == WriteBack::Nothing, "no other is chosen for this processor");
        }
    }

    /// Returns when the lines that this thread began to write back are durable.
    #[inline]
    pub fn end(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: each x86-64 has the instruction, which orders stores and does nothing else.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// Whether the platform keeps the content of the processor's caches when power fails, as the kernel says of the region that a
/// device belongs to. `device`: its directory in `/sys`.
pub(super) fn caches_are_kept(device: &Path) -> bool {
    device
        .ancestors()
        .find_map(|directory| std::fs::read_to_string(directory.join("persistence_domain")).ok())
        .is_some_and(|domain| domain.trim() == "cpu_cache")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    /// On any memory they change nothing.
    #[test]
    fn each_instruction_of_this_processor_runs() {
        let mut bytes = AlignedBuf::new(4096);
        bytes.fill(7);
        let best = WriteBack::of_processor();
        let mut known = vec![WriteBack::Nothing];
        if cfg!(target_arch = "x86_64") {
            known.push(WriteBack::Clflush);
        }
        known.extend(best);
        for write_back in known {
            // SAFETY: the lines are those of the buffer, and the instruction is one that the processor has.
            unsafe { write_back.begin(bytes.as_ptr(), 64) };
            write_back.end();
            assert!(bytes.iter().all(|byte| *byte == 7), "{write_back:?}");
        }
        assert_eq!(best.is_some(), cfg!(target_arch = "x86_64"));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a tree like that of /sys for the test, no database")]
    fn the_region_above_a_device_says_what_is_kept() {
        let tree = tempfile::tempdir().expect("a temporary directory");
        let device = tree.path().join("ndbus0/region0/namespace0.0/block/pmem0");
        std::fs::create_dir_all(&device).expect("mkdir");
        assert!(!caches_are_kept(&device));
        let domain = tree.path().join("ndbus0/region0/persistence_domain");
        for (text, expected) in [("memory_controller\n", false), ("cpu_cache\n", true), ("unknown\n", false)]
        {
            std::fs::write(&domain, text).expect("write");
            assert_eq!(caches_are_kept(&device), expected, "{text}");
        }
    }
}
