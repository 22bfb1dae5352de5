//! The priority of threads.

/// By so much a thread is nicer than the process: it gets about a quarter of a processor for which another competes.
#[cfg(target_os = "linux")]
const NICER: libc::c_int = 5;

/// Lowers the priority of the calling thread, which no program has to be privileged for. On Linux it is an attribute of the thread, and
/// not of the process as POSIX has it.
pub(super) fn lower() {
    #[cfg(target_os = "linux")]
    // SAFETY: the calls take and return numbers. `getpriority` may return -1 for a success, too, which is a priority then.
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, nice + NICER);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn the_priority_of_one_thread_is_lowered() {
        // SAFETY: as above. The number of the process is that of its first thread.
        let nice = |thread| unsafe { libc::getpriority(libc::PRIO_PROCESS, thread) };
        let first = std::process::id();
        let before = (nice(0), nice(first));
        super::lower();
        assert_eq!((nice(0), nice(first)), ((before.0 + super::NICER).min(19), before.1));
    }
}
