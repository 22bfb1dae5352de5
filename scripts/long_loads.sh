#!/bin/sh
# Runs the loads that never pause, each for SECONDS (20): crates/fulgurite/tests/long_loads.rs says what they promise.
# Usage: scripts/long_loads.sh [SECONDS [TEST]]. As root it then runs the load of one thread on a disk that is throttled to
# writes of 20 MB/s: ext4 on a loop device, for which cgroup v1 limits the root group. All writes count there: direct ones,
# and those of the page cache, which the kernel's threads write.
set -eu
cd "$(dirname "$0")/.."
export FULGURITE_LONG_SECONDS="${1:-20}"
run() {
    cargo test --release -q -p fulgurite --test long_loads -- --ignored --nocapture --test-threads 1 --skip child "$@"
}
run ${2:-} || failed=1
limits=/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device
if [ "$(id -u)" != 0 ] || [ ! -w "$limits" ]; then
    echo "== no throttled disk: needs root, and the controller blkio of cgroup v1"
    exit "${failed:-0}"
fi
work=$(mktemp -d -p "${FULGURITE_LONG_DIR:-/var/tmp}")
# Written in full: a sparse file would have the file system below allocate blocks at each sync.
dd if=/dev/zero of="$work/image" bs=1M count=6144 conv=fsync status=none
mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "$work/image"
device=$(losetup --find --show "$work/image")
number=$(cat "/sys/block/$(basename "$device")/dev")
trap 'echo "$number 0" >"$limits"; umount "$work/disk" || true; losetup -d "$device"; rm -rf "$work"' EXIT
mkdir "$work/disk"
mount "$device" "$work/disk"
echo "$number 20000000" >"$limits"
echo "== 20 MB/s"
FULGURITE_LONG_DIR=$work/disk run one_thread || failed=1
exit "${failed:-0}"
