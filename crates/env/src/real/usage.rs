//! What the kernel counts of this process.

use crate::ContextSwitches;

/// The context switches of all threads, of those that ended, too.
pub(super) fn context_switches() -> Option<ContextSwitches> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a structure of this type, which the call writes.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: zeros are a value of this structure, which has integers alone.
    let usage = unsafe { usage.assume_init() };
    let count = |switches: libc::c_long| u64::try_from(switches).unwrap_or(0);
    (result == 0)
        .then(|| ContextSwitches { voluntary: count(usage.ru_nvcsw), involuntary: count(usage.ru_nivcsw) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_waits_gives_its_processor_up() {
        let before = context_switches().unwrap();
        (0..3).for_each(|_| std::thread::park_timeout(Duration::from_millis(1)));
        assert!(context_switches().unwrap().voluntary >= before.voluntary + 3);
    }
}
