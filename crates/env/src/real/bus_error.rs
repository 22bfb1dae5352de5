//! Pages of mapped files that the memory does not deliver. An access to one raises SIGBUS, which ends a process: because the memory is
//! damaged (a machine check), or because another program has cut the file. Here the page is replaced by zeros, the mapping is marked, and the
//! access goes on; the mapping's users ask before they believe what they read, or acknowledge what they stored.
//!
//! The handler is installed with the first mapping, and passes on every SIGBUS that is not of a mapping. A program that installs its own one
//! later, without passing the signal on, ends at such an access as it would have before.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// How many mappings are watched at a time. An access to a lost page of a further one ends the process.
const WATCHED_MAX: usize = 64;

const PAGE_BYTES: usize = 4096;

/// No page of the mapping is lost.
const WHOLE: usize = usize::MAX;

/// A mapping, for the signal handler: it takes no lock.
struct Watched {
    /// The process that has it, 0 for none.
    process: AtomicI32,
    start: AtomicUsize,
    /// Its length in bytes, 0 while the slot is being filled or is free.
    len: AtomicUsize,
    /// Where the first page that was found lost begins in the mapping, or [`WHOLE`].
    lost: AtomicUsize,
}

static WATCHED: [Watched; WATCHED_MAX] = [const {
    Watched {
        process: AtomicI32::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        lost: AtomicUsize::new(WHOLE),
    }
}; WATCHED_MAX];

/// What SIGBUS did before.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

/// Watches a mapping while it lives.
#[derive(Debug)]
pub(super) struct Watch(Option<&'static Watched>);

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("start", &self.start).finish_non_exhaustive()
    }
}

impl Watch {
    /// Of a mapping that stays until this value is dropped.
    pub fn new(start: *mut u8, len: usize) -> io::Result<Watch> {
        install()?;
        let process = process();
        // A slot that a parent of this process had is free here: its mappings are not inherited.
        let take = |watched: &&Watched| {
            let owner = watched.process.load(Ordering::Relaxed);
            owner != process
                && watched
                    .process
                    .compare_exchange(owner, process, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let Some(watched) = WATCHED.iter().find(take) else { return Ok(Watch(None)) };
        watched.len.store(0, Ordering::SeqCst);
        watched.lost.store(WHOLE, Ordering::SeqCst);
        watched.start.store(start.addr(), Ordering::SeqCst);
        watched.len.store(len, Ordering::SeqCst);
        Ok(Watch(Some(watched)))
    }

    /// Where a page that was found lost begins in the mapping.
    pub fn lost(&self) -> Option<usize> {
        self.0.map(|watched| watched.lost.load(Ordering::Acquire)).filter(|&at| at != WHOLE)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(watched) = self.0 else { return };
        // A child has the slot of its own process, or none.
        if watched.process.load(Ordering::Relaxed) == process() {
            watched.len.store(0, Ordering::SeqCst);
            watched.process.store(0, Ordering::Release);
        }
    }
}

fn process() -> i32 {
    // SAFETY: no arguments, and it cannot fail.
    unsafe { libc::getpid() }
}

fn install() -> io::Result<()> {
    // Two threads that install it at once would take the handler for its own former one.
    static IS_INSTALLED: parking_lot::Mutex<bool> = parking_lot::Mutex::new(false);
    let mut is_installed = IS_INSTALLED.lock();
    if *is_installed {
        return Ok(());
    }
    let mut former = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the pointers are valid, and a zeroed `sigaction` is one.
    let former = unsafe {
        if libc::sigaction(libc::SIGBUS, ptr::null(), former.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        former.assume_init()
    };
    let _ = FORMER.set(former);
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and calls only what is safe in a handler.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    *is_installed = true;
    Ok(())
}

/// The handler of SIGBUS. It takes no lock and allocates nothing.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `info`; SIGBUS has an address.
    let (address, was_sent) = unsafe { ((*info).si_addr().addr(), (*info).si_code <= 0) };
    if was_sent || !replace(address) {
        pass_on(signal, info, context);
    }
}

/// Replaces the page of a mapping by zeros, and marks the mapping. False if the address is in none.
fn replace(address: usize) -> bool {
    let process = process();
    let found = WATCHED.iter().find_map(|watched| {
        let (start, len) = (watched.start.load(Ordering::SeqCst), watched.len.load(Ordering::SeqCst));
        let is_inside = watched.process.load(Ordering::SeqCst) == process
            && address.checked_sub(start).is_some_and(|at| at < len);
        is_inside.then_some((watched, start, len))
    });
    let Some((watched, start, len)) = found else { return false };
    let at = (address - start) / PAGE_BYTES * PAGE_BYTES;
    // First the mark, then the page: who sees the zeros sees the mark.
    watched.lost.store(at, Ordering::SeqCst);
    // Memory with huge pages takes no shorter ones: then all of the mapping is lost.
    map_zeros(start + at, PAGE_BYTES) || map_zeros(start, len)
}

fn map_zeros(start: usize, len: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the range is in a mapping that its owner has not unmapped yet, and stays accessible. `mmap` is one system call;
    // the thread that was interrupted finds its `errno` as it was.
    unsafe {
        let errno = *libc::__errno_location();
        let mapped = libc::mmap(ptr::without_provenance_mut(start), len, protection, flags, -1, 0);
        *libc::__errno_location() = errno;
        mapped != libc::MAP_FAILED
    }
}

/// Does what would have been done without this handler.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(former) = FORMER.get() else { return };
    let handler = former.sa_sigaction;
    // SAFETY: the former action is as the program, or Rust's library, installed it. With the default one back, the access is repeated,
    // and ends the process; a signal that was sent is sent again.
    unsafe {
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            if handler == libc::SIG_IGN && (*info).si_code <= 0 {
                return;
            }
            libc::signal(signal, libc::SIG_DFL);
            if (*info).si_code <= 0 {
                libc::raise(signal);
            }
        } else if former.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
            handler(signal);
        }
    }
}
