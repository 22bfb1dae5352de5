//! The kernel's description of the device below a directory, read from `/sys`.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Dev, fstat, fstatfs, major, minor};
use rustix::io::{Errno, retry_on_intr};

use super::filesystem::Magic;
use crate::DeviceInfo;

/// The file system and the device below an open file or directory.
pub(super) fn device(descriptor: &OwnedFd) -> Result<DeviceInfo, Errno> {
    let file_system = Magic::new(retry_on_intr(|| fstatfs(descriptor))?.f_type).name();
    let number = retry_on_intr(|| fstat(descriptor))?.st_dev;
    let queue = directory_of(Path::new("/sys/dev/block"), number);
    Ok(info(file_system, queue.as_deref()))
}

/// The directory in `/sys` of the whole device below an open file, if it has one.
pub(super) fn directory(descriptor: &OwnedFd) -> Option<PathBuf> {
    let number = retry_on_intr(|| fstat(descriptor)).ok()?.st_dev;
    directory_of(Path::new("/sys/dev/block"), number)
}

/// The directory of the whole device; a partition has no queue of its own. `None` for file systems without a device.
fn directory_of(by_number: &Path, number: Dev) -> Option<PathBuf> {
    let name = format!("{}:{}", major(number), minor(number));
    let directory = by_number.join(name).canonicalize().ok()?;
    if directory.join("partition").exists() {
        return directory.parent().map(Path::to_path_buf);
    }
    Some(directory)
}

fn info(file_system: String, directory: Option<&Path>) -> DeviceInfo {
    let setting = |name: &str| {
        let text = std::fs::read_to_string(directory?.join("queue").join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    DeviceInfo {
        file_system,
        device: directory.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()),
        volatile_cache: setting("write_cache").as_deref().and_then(parse_cache),
        fua: setting("fua").as_deref().and_then(parse_flag),
        rotational: setting("rotational").as_deref().and_then(parse_flag),
    }
}

fn parse_cache(text: &str) -> Option<bool> {
    match text {
        "write back" => Some(true),
        "write through" => Some(false),
        _ => None,
    }
}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{Mode, OFlags, makedev, open};

    use super::*;

    /// A tree like `/sys`, with one device.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Tree {
            let tree = Tree(tempfile::tempdir().expect("a temporary directory"));
            tree.file("devices/pci/block/vda/queue/write_cache", "write back\n");
            tree.file("devices/pci/block/vda/queue/fua", "1\n");
            tree.file("devices/pci/block/vda/queue/rotational", "0\n");
            tree.file("devices/pci/block/vda/vda2/partition", "2\n");
            tree.file("devices/virtual/block/dm-0/queue/write_cache", "write through\n");
            tree.file("devices/virtual/block/dm-0/queue/fua", "unexpected\n");
            tree.file("dev/block/README", "");
            for (number, target) in
                [("253:0", "pci/block/vda"), ("253:2", "pci/block/vda/vda2"), ("254:0", "virtual/block/dm-0")]
            {
                let target = Path::new("../../devices").join(target);
                symlink(target, tree.path("dev/block").join(number)).expect("link");
            }
            tree
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        #[expect(clippy::disallowed_methods, reason = "a tree for the test, no database")]
        fn file(&self, name: &str, text: &str) {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
            std::fs::write(path, text).expect("write");
        }

        fn info(&self, major: u32, minor: u32) -> DeviceInfo {
            let directory = directory_of(&self.path("dev/block"), makedev(major, minor));
            info("ext4".to_owned(), directory.as_deref())
        }
    }

    #[test]
    fn a_partition_has_the_queue_of_its_device() {
        let tree = Tree::new();
        let expected = DeviceInfo {
            file_system: "ext4".to_owned(),
            device: Some("vda".to_owned()),
            volatile_cache: Some(true),
            fua: Some(true),
            rotational: Some(false),
        };
        assert_eq!(tree.info(253, 0), expected);
        assert_eq!(tree.info(253, 2), expected);
    }

    #[test]
    fn a_mapped_device_has_its_own_and_what_is_not_understood_is_not_known() {
        let info = Tree::new().info(254, 0);
        assert_eq!((info.device.as_deref(), info.volatile_cache), (Some("dm-0"), Some(false)));
        assert_eq!((info.fua, info.rotational), (None, None));
    }

    #[test]
    fn a_file_system_without_a_device_has_only_its_name() {
        let info = Tree::new().info(0, 42);
        let nothing = DeviceInfo {
            file_system: "ext4".to_owned(),
            device: None,
            volatile_cache: None,
            fua: None,
            rotational: None,
        };
        assert_eq!(info, nothing);
    }

    #[test]
    fn this_machine_answers_and_a_missing_path_does_not() {
        let found = device(&open("/proc", OFlags::RDONLY, Mode::empty()).expect("open")).expect("statfs");
        assert_eq!((found.file_system.as_str(), found.device), ("0x9fa0", None));
    }
}
