//! Randomness from the kernel.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::clock::RealClock;
use crate::Clock;

/// An unpredictable number. Without `getrandom` (an old kernel, a sandbox) the numbers differ between calls, processes
/// and boots, yet could be guessed: none of their uses is a secret.
pub(super) fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(_) => return guessable(),
        }
    }
    u64::from_le_bytes(bytes)
}

fn guessable() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let process = u64::from(rustix::process::getpid().as_raw_nonzero().get().unsigned_abs());
    let clock = RealClock;
    let mut number = 0;
    for source in [clock.wall_ms(), clock.monotonic_ns(), process, call] {
        number = crate::sim::mix(number ^ source);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ() {
        assert_ne!(random_u64(), random_u64());
        assert_ne!(guessable(), guessable());
    }
}
