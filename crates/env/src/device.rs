//! The description of a device.

/// A file system and the device below it, as the operating system describes them. A device may claim what it does not
/// keep to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The kind of the file system: `ext4` (also for its predecessors), `xfs`, `tmpfs`; a number if it is uncommon.
    pub file_system: String,
    /// The kernel's name of the device: `vda`, `nvme0n1`, `dm-0`. `None` for file systems without one: in memory, on
    /// the network, or above other file systems.
    pub device: Option<String>,
    /// Whether the kernel has to flush a device cache that loses its content without power. A device with a power-safe
    /// cache may report `Some(false)`; many report `Some(true)` all the same.
    pub volatile_cache: Option<bool>,
    /// Whether the device makes a single write durable without a flush of its whole cache.
    pub fua: Option<bool>,
    /// Whether it has to seek.
    pub rotational: Option<bool>,
}
