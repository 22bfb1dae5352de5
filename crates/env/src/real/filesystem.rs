//! Kinds of file systems, by the number that `statfs` reports.

/// The number, as 32 bits: the type of the kernel's field differs between architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Magic(u32);

const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;
const HUGETLBFS: u32 = 0x9584_58f6;
/// Shared by ext2, ext3 and ext4.
const EXT: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;
const F2FS: u32 = 0xf2f5_2010;

const NAMES: [(u32, &str); 19] = [
    (EXT, "ext4"),
    (XFS, "xfs"),
    (F2FS, "f2fs"),
    (TMPFS, "tmpfs"),
    (RAMFS, "ramfs"),
    (HUGETLBFS, "hugetlbfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x794c_7630, "overlay"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x00c3_6400, "ceph"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x7366_746e, "ntfs3"),
];

impl Magic {
    /// From `statfs`'s field, of any width and sign.
    pub(super) fn new(number: impl Into<i64>) -> Magic {
        Magic(number.into() as u32)
    }

    /// The name of the kernel's driver, or the number if it is uncommon.
    pub(super) fn name(self) -> String {
        let known = NAMES.iter().find(|(number, _)| *number == self.0);
        known.map_or_else(|| format!("{:#x}", self.0), |(_, name)| (*name).to_owned())
    }

    /// Whether it keeps files in memory only: some such kernels accept direct I/O and ignore it.
    pub(super) fn is_memory(self) -> bool {
        matches!(self.0, TMPFS | RAMFS | HUGETLBFS)
    }

    /// Whether every direct write that it accepts reaches the device. Other file systems may accept one and buffer it.
    pub(super) fn writes_directly(self) -> bool {
        matches!(self.0, EXT | XFS | F2FS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        assert_eq!(Magic::new(0xef53).name(), "ext4");
        assert_eq!(Magic::new(i64::from(0x9123_683e_u32)).name(), "btrfs");
        assert_eq!(Magic::new(-1_859_950_530).name(), "btrfs", "sign-extended, as from a field of 32 bits");
        assert_eq!(Magic::new(0x1234).name(), "0x1234");
    }

    #[test]
    fn memory_is_no_device() {
        assert!(Magic::new(i64::from(TMPFS)).is_memory() && !Magic::new(i64::from(TMPFS)).writes_directly());
        assert!(!Magic::new(i64::from(EXT)).is_memory() && Magic::new(i64::from(EXT)).writes_directly());
    }
}
