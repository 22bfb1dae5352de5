//! Pages of mapped files that the memory does not deliver. An access to one raises SIGBUS, which ends a process: because the memory is
//! damaged (a machine check), or because another program has cut the file. Here the page is replaced by zeros, the mapping is marked, and the
//! access goes on; the mapping's users ask before they believe what they read, or acknowledge what they stored.
//!
//! The handler is installed with the first mapping, and again with a later one if it was reset meanwhile. It passes on every SIGBUS that is
//! not an access to a mapping. A program that installs its own one later, without passing the signal on, and a thread that blocks it, end at
//! such an access as they would have before.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::Mutex;

use crate::Process;

/// How many mappings are watched at a time. An access to a lost page of a further one ends the process.
const WATCHED_MAX: usize = 256;

const PAGE_BYTES: usize = 4096;

/// No page of the mapping is lost.
const WHOLE: usize = usize::MAX;

/// A mapping, for the signal handler: it takes no lock.
struct Watched {
    /// Identifies the registration, 0 for none: no two have the same number, those of other processes included. The other fields are
    /// valid if it is the same before and after they are read.
    registration: AtomicU64,
    start: AtomicUsize,
    /// Its length in bytes.
    len: AtomicUsize,
    /// Where the first lost page begins in the mapping, or [`WHOLE`].
    lost: AtomicUsize,
}

static WATCHED: [Watched; WATCHED_MAX] = [const {
    Watched {
        registration: AtomicU64::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        lost: AtomicUsize::new(WHOLE),
    }
}; WATCHED_MAX];

/// The last registration. Its holder changes the list, and installs the handler.
static LAST: Mutex<u64> = Mutex::new(0);

/// The process to which the registrations belong: a child of it has none of the mappings. Never freed.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// What SIGBUS did before our handler; never freed.
static FORMER: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Watches a mapping while it lives.
#[derive(Debug)]
pub(super) struct Watch {
    slot: Option<usize>,
    registration: u64,
}

impl Watch {
    /// Of a mapping that stays until this value is dropped.
    pub fn new(start: *mut u8, len: usize) -> io::Result<Watch> {
        // In a child, the thread that held the lock at the fork is missing.
        let locked = LAST.try_lock_for(Duration::from_secs(1));
        let mut last = locked.ok_or_else(|| io::Error::other("forked while a file was being mapped"))?;
        install()?;
        if !is_current() {
            WATCHED.iter().for_each(|watched| watched.registration.store(0, Ordering::SeqCst));
            PROCESS.store(Box::into_raw(Box::new(Process::current())), Ordering::SeqCst);
        }
        *last += 1;
        let registration = *last;
        let slot = WATCHED.iter().position(|watched| watched.registration.load(Ordering::SeqCst) == 0);
        if let Some(slot) = slot {
            let watched = &WATCHED[slot];
            watched.start.store(start.addr(), Ordering::SeqCst);
            watched.len.store(len, Ordering::SeqCst);
            watched.lost.store(WHOLE, Ordering::SeqCst);
            watched.registration.store(registration, Ordering::SeqCst);
        }
        Ok(Watch { slot, registration })
    }

    /// Where the first page that was found lost begins in the mapping: by an access of this thread, or one that it knows of.
    pub fn lost(&self) -> Option<usize> {
        // After the accesses before this call, loads and stores.
        fence(Ordering::SeqCst);
        let lost = WATCHED[self.slot?].lost.load(Ordering::SeqCst);
        (lost != WHOLE).then_some(lost)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        // In a child it may be another's by now.
        let registration = &WATCHED[slot].registration;
        let _ = registration.compare_exchange(self.registration, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Whether the registrations are this process's.
fn is_current() -> bool {
    // SAFETY: it is null, or never freed.
    unsafe { PROCESS.load(Ordering::SeqCst).as_ref() }.is_some_and(Process::is_current)
}

/// Makes ours the handler of SIGBUS, if it is not. The caller has the lock of the registry.
fn install() -> io::Result<()> {
    let mut current = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the pointers are valid.
    let current = unsafe {
        if libc::sigaction(libc::SIGBUS, ptr::null(), current.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        current.assume_init()
    };
    let is_first = FORMER.load(Ordering::SeqCst).is_null();
    // Another one may pass on to ours: two that do so to each other would never end.
    if !is_first && current.sa_sigaction != libc::SIG_DFL {
        return Ok(());
    }
    if is_first {
        FORMER.store(Box::into_raw(Box::new(current)), Ordering::SeqCst);
    }
    // SAFETY: a zeroed `sigaction` is one; the handler has the signature that SA_SIGINFO asks for, and calls only what is safe in a
    // handler.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) != 0 {
            let error = io::Error::last_os_error();
            if is_first {
                FORMER.store(ptr::null_mut(), Ordering::SeqCst);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// The handler of SIGBUS. It takes no lock and allocates nothing.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `info`; SIGBUS has an address.
    let (address, code) = unsafe { ((*info).si_addr().addr(), (*info).si_code) };
    let is_handled = match code {
        // This thread accesses the page now, so the mapping is there.
        libc::BUS_ADRERR | libc::BUS_MCEERR_AR => replace(address),
        // The kernel found the damage without an access: one will raise the signal again.
        libc::BUS_MCEERR_AO => mark(address).is_some(),
        _ => false,
    };
    if !is_handled {
        pass_on(signal, code, info, context);
    }
}

/// Marks the mapping with this address; it and the page's offset. `None` if the address is in none.
fn mark(address: usize) -> Option<(usize, usize, usize)> {
    if !is_current() {
        return None;
    }
    WATCHED.iter().find_map(|watched| {
        let registration = watched.registration.load(Ordering::SeqCst);
        let (start, len) = (watched.start.load(Ordering::SeqCst), watched.len.load(Ordering::SeqCst));
        let at = address.checked_sub(start).filter(|at| registration != 0 && *at < len)?;
        if watched.registration.load(Ordering::SeqCst) != registration {
            return None;
        }
        let at = at / PAGE_BYTES * PAGE_BYTES;
        watched.lost.fetch_min(at, Ordering::SeqCst);
        Some((start, len, at))
    })
}

/// Replaces the page of a mapping by zeros, and marks the mapping. False if the address is in none.
fn replace(address: usize) -> bool {
    // First the mark, then the page: a thread that sees the zeros sees the mark.
    let Some((start, len, at)) = mark(address) else { return false };
    // Memory with larger pages takes no shorter ones: then all of the mapping is lost.
    map_zeros(start + at, PAGE_BYTES) || map_zeros(start, len)
}

fn map_zeros(start: usize, len: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the range is in a mapping that this thread is accessing, so its owner has not unmapped it, and it stays accessible. Both are
    // one system call each; the code that was interrupted finds its `errno` as it was.
    unsafe {
        let errno = *libc::__errno_location();
        let start = ptr::without_provenance_mut(start);
        let is_mapped = libc::mmap(start, len, protection, flags, -1, 0) != libc::MAP_FAILED;
        if is_mapped {
            libc::madvise(start, len, libc::MADV_DONTFORK);
        }
        *libc::__errno_location() = errno;
        is_mapped
    }
}

/// Does what would have been done without this handler.
fn pass_on(signal: libc::c_int, code: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: it is null, or never freed.
    let Some(former) = (unsafe { FORMER.load(Ordering::SeqCst).as_ref() }) else { return };
    // An access that goes on raises it again; nothing else does.
    let is_repeated = code > 0 && code != libc::BUS_MCEERR_AO;
    // SAFETY: the former action is as the program, or Rust's library, installed it.
    unsafe {
        match former.sa_sigaction {
            libc::SIG_IGN if !is_repeated => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
                if !is_repeated {
                    libc::raise(signal);
                }
            }
            handler if former.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
