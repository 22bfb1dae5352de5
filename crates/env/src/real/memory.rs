//! How much memory this process may use: that of the machine, or less if its control group is limited.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::ProcessMemory;

/// The smallest of the machine's memory and the limits of the control groups, version 1 or 2, that the process is in.
pub(super) fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_bytes(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups_bytes(&groups, Path::new("/sys/fs/cgroup")).into_iter().chain(machine).min()
}

/// What a program's own allocator can do for databases ([`use_allocator`]).
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// Gives memory back to the operating system that the program has freed.
    pub give_back: fn(),
    /// How many bytes the program has freed that it has not given back ([`ProcessMemory::freed_bytes`]).
    pub freed_bytes: fn() -> Option<u64>,
}

static ALLOCATOR: OnceLock<Allocator> = OnceLock::new();

/// Says how the allocator of this program gives memory back. For programs with a `#[global_allocator]`, before they open a database;
/// without it databases ask the C library, which has none of their memory then. The first call counts.
///
/// ```
/// // That of the C library, for example.
/// fulgurite_env::use_allocator(fulgurite_env::Allocator { give_back: || (), freed_bytes: || None });
/// ```
pub fn use_allocator(allocator: Allocator) {
    _ = ALLOCATOR.set(allocator);
}

/// Has the allocator give back the memory that the program has freed. That of glibc gives back the ends of arenas by itself, and nothing
/// else: a thread frees into the arena from which the memory came.
pub(super) fn trim(resident: u64) -> bool {
    let is_above = resident_bytes().is_some_and(|own| own > resident);
    if !is_above {
        return false;
    }
    if let Some(allocator) = ALLOCATOR.get() {
        (allocator.give_back)();
        return true;
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer, and locks what it changes.
    unsafe {
        libc::malloc_trim(0);
    }
    true
}

/// Has glibc take memory from one arena, instead of eight for each processor: each keeps what threads have freed into it, and what
/// one thread frees serves only those that take from its arena.
/// For programs, which decide for their process, before they start threads; a library leaves that to them. With another
/// allocator it does nothing.
pub fn limit_arenas() {
    limit_arenas_to(1);
}

/// The same with several arenas: for a program of many threads that take memory all the time, and would wait for one.
pub fn limit_arenas_to(count: u8) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer, and locks what it changes.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, count.max(1).into());
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = count;
}

/// The resident bytes of this process, and what the allocator has of them.
pub(super) fn process_memory() -> Option<ProcessMemory> {
    let freed_bytes = ALLOCATOR.get().map_or_else(freed_bytes, |allocator| (allocator.freed_bytes)());
    Some(ProcessMemory { resident_bytes: resident_bytes()?, freed_bytes })
}

/// What glibc has of memory that the program has freed, by `mallinfo2`, which is there since glibc 2.33. It locks one arena after the
/// other, for as long as it takes to walk over the free blocks there.
fn freed_bytes() -> Option<u64> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: the name is a string of C.
        let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if function.is_null() {
            return None;
        }
        // SAFETY: the symbol of that name is the function of glibc, which takes nothing and returns this structure.
        let mallinfo2 = unsafe {
            std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> libc::mallinfo2>(function)
        };
        // SAFETY: it takes no pointer, and locks what it reads.
        let info = unsafe { mallinfo2() };
        Some(info.fordblks as u64)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    own_bytes(&statm, rustix::param::page_size() as u64)
}

/// The resident bytes that are not of files.
fn own_bytes(statm: &str, page_bytes: u64) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
    resident.checked_sub(shared)?.checked_mul(page_bytes)
}

fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The limit of each group that contains the process, up to the root. In a container the path of a group may be that of the
/// host: then the mount shows the container's own group as its root.
fn groups_bytes(groups: &str, mount: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (mount, file) = if controllers.is_empty() {
            (mount.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (mount.join("memory"), "memory.limit_in_bytes")
        } else {
            return None;
        };
        let paths = Path::new(group.trim_start_matches('/')).ancestors();
        paths.filter_map(|path| limit(&mount.join(path).join(file))).min()
    });
    limits.min()
}

/// The limit in a file; `None` if there is none: `max`, or in version 1 a number near 2 to the 63rd.
fn limit(file: &Path) -> Option<u64> {
    let bytes: u64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (bytes < 1 << 60).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_that_without_files() {
        assert_eq!(own_bytes("1000 300 100 5 0 200 0\n", 4096), Some(200 * 4096));
        for wrong in ["", "1000", "1000 300", "1000 a 100", "1000 100 300"] {
            assert_eq!(own_bytes(wrong, 4096), None, "{wrong}");
        }
        assert!(!trim(u64::MAX) && trim(0));
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn freed_memory_is_known() {
        let blocks: Vec<Box<[u8]>> = (0..10_000).map(|_| vec![1; 5_000].into_boxed_slice()).collect();
        let before = process_memory().unwrap();
        assert!(before.resident_bytes > 50_000_000, "{before:?}");
        // Between each two that are freed one stays.
        let stays: Vec<_> = blocks.into_iter().step_by(2).collect();
        let after = process_memory().unwrap();
        let freed =
            after.freed_bytes.zip(before.freed_bytes).map(|(after, before)| after.saturating_sub(before));
        assert!(freed.is_none_or(|freed| freed > 20_000_000), "{before:?}, then {after:?}");
        drop(stays);
    }

    #[test]
    fn the_machine_has_memory() {
        assert_eq!(machine_bytes("MemTotal:       24576 kB\nMemFree: 1 kB\n"), Some(24 << 20));
        assert_eq!(machine_bytes("MemFree: 1 kB\n"), None);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "files as the kernel shows them")]
    fn the_smallest_limit_of_all_groups_counts() {
        let mount = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = mount.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("app/memory.max", "max\n");
        put("app/db/memory.max", "900\n");
        put("memory/old/memory.limit_in_bytes", "700\n");
        put("memory/memory.limit_in_bytes", "9223372036854771712\n");
        let of = |groups| groups_bytes(groups, mount.path());
        assert_eq!(of("0::/app/db/x\n"), Some(900));
        assert_eq!(of("0::/app\n"), None);
        assert_eq!(of("5:cpu,memory:/old\n0::/app/db\n"), Some(700));
        assert_eq!(of("5:memory:/\n4:cpu:/old\n"), None);
        assert_eq!(of(""), None);
        put("memory.max", "800\n");
        assert_eq!(of("0::/on/the/host\n"), Some(800));
    }
}
