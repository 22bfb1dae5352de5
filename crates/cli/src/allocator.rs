//! The program's allocator: jemalloc.
//!
//! The I/O threads allocate what the merger frees, and the other way round. With the allocator of glibc they waited for each other's locks:
//! under pipelined writes 30 % of an I/O thread's time, nearly half of it in system calls. And glibc keeps holes where jemalloc gives
//! whole pages back within half a second.

use std::ptr;

use fulgurite::env::{Allocator, use_allocator};
use tikv_jemalloc_ctl::{epoch, stats};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static JEMALLOC: Jemalloc = Jemalloc;

/// Freed pages go back within about half a second, by threads of jemalloc, also if the program does nothing. Few arenas: what is free in
/// one serves no other.
// SAFETY: it is the pointer to a C string that jemalloc looks for when it starts, and no other symbol has the name.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &[u8; 69] = b"background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0,narenas:4\0";

/// Has databases give memory back by jemalloc.
pub(crate) fn begin() {
    use_allocator(Allocator { give_back, freed_bytes });
}

fn give_back() {
    // SAFETY: the name is that of an action, which takes and returns nothing, for all arenas (`MALLCTL_ARENAS_ALL`).
    unsafe {
        let (nothing, no_length) = (ptr::null_mut(), ptr::null_mut());
        tikv_jemalloc_sys::mallctl(c"arena.4096.purge".as_ptr(), nothing, no_length, ptr::null_mut(), 0);
    }
}

fn freed_bytes() -> Option<u64> {
    // The figures are those of the last epoch.
    epoch::advance().ok()?;
    let (resident, allocated) = (stats::resident::read().ok()?, stats::allocated::read().ok()?);
    Some(resident.saturating_sub(allocated) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jemalloc_is_configured_and_gives_back_what_is_freed() {
        let arenas = tikv_jemalloc_ctl::opt::narenas::read().expect("it has the option");
        assert_eq!(arenas, 4, "the configuration was found");
        begin();
        let blocks: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 5_000]).collect();
        let full = stats_resident();
        drop(blocks);
        give_back();
        let empty = stats_resident();
        assert!(full > 100_000_000 && empty < full - 80_000_000, "{full} {empty}");
        assert!(freed_bytes().is_some_and(|freed| freed < 50_000_000), "{:?}", freed_bytes());
    }

    fn stats_resident() -> usize {
        epoch::advance().expect("it has epochs");
        stats::resident::read().expect("it has statistics")
    }
}
