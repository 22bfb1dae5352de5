#!/bin/sh
# Runs the tests of full disks on real file systems: tmpfs, and ext4 on a loop device, of 320 MiB and of 64 MiB.
# Needs root, to mount. Usage: scripts/full_disk.sh [SECONDS [TEST]]: how long each load of overwrites runs (20).
set -eu
cd "$(dirname "$0")/.."
FULGURITE_FULL_DISK_SECONDS=${1:-20}
export FULGURITE_FULL_DISK_SECONDS
cargo test --release -p fulgurite --test full_disk_real --no-run
work=$(mktemp -d)
trap 'umount "$work/disk" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/disk"
for mib in 320 64; do
    for kind in tmpfs ext4; do
        if [ "$kind" = tmpfs ]; then
            mount -t tmpfs -o "size=${mib}m" tmpfs "$work/disk"
        else
            truncate -s "${mib}M" "$work/image"
            mkfs.ext4 -q -F "$work/image"
            mount -o loop "$work/image" "$work/disk"
        fi
        echo "== $kind, $mib MiB"
        FULGURITE_FULL_DISK=$work/disk FULGURITE_FULL_DISK_MIB=$mib \
            cargo test -q --release -p fulgurite --test full_disk_real -- --ignored --nocapture --test-threads 1 ${2:-}
        if [ "$kind" = ext4 ]; then
            # The last test, after which the file system cannot be written: the kernel is told of an error in it.
            mount -o remount,errors=remount-ro "$work/disk"
            device=$(basename "$(findmnt -n -o SOURCE "$work/disk")")
            FULGURITE_READ_ONLY_TRIGGER=/sys/fs/ext4/$device/trigger_fs_error FULGURITE_FULL_DISK=$work/disk \
                cargo test -q --release -p fulgurite --test full_disk_real -- --ignored --nocapture read_only
        fi
        umount "$work/disk"
        rm -f "$work/image"
    done
done
