#!/usr/bin/env python3
"""Staging in persistent memory, emulated: kills a virtual machine that commits, again and again, and looks for what it acknowledged.

    scripts/persistent_memory.py PROGRAM KERNEL MODULES [ROUNDS]

PROGRAM is a built `fulgurite`, KERNEL a Linux image (vmlinuz) with ext4, DAX, MAP_SYNC and CONFIG_X86_PMEM_LEGACY, MODULES the
directory with its modules (lib/modules/VERSION), not compressed. Needs qemu-system-x86_64, mkfs.ext4, and a static busybox; emulates the
processor, so it needs no KVM. Of Debian: apt-get install qemu-system-x86 busybox-static, and the files of a package linux-image-*.

The machine has 128 MiB of its memory as a persistent device, with ext4 mounted with DAX. Its memory is a file in /dev/shm, so it is there
again after the machine was killed. The database is on a disk. In each round it loads rows; the process is killed once, started again, and
then the whole machine is, at a moment by chance. Each start checks the database, and that all rows that were reported as durable are there,
and no others but the next ones. What was in the processor's caches is not lost, unlike on real hardware: that is for the simulation.
"""

import glob
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading

MODULES = """crc16 crc32c_generic libcrc32c mbcache jbd2 ext4 virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev
virtio_pci virtio_blk libnvdimm nd_btt nd_pmem nd_e820""".split()
APPLETS = "sh mount insmod cat awk sleep mkdir ls wc grep sed poweroff kill".split()
MEMORY_MIB, PERSISTENT_MIB, PERSISTENT_AT_MIB = 1024, 128, 512

INIT = r"""#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null
for module in @MODULES@; do [ -e /modules/$module.ko ] && { insmod /modules/$module.ko || echo "FAILED insmod $module"; }; done
while [ ! -b /dev/pmem0 ] || [ ! -b /dev/vda ]; do sleep 0.1; done
mount -t ext4 -o dax=always /dev/pmem0 /pmem || echo "FAILED mount of the persistent memory"
mount -t ext4 /dev/vda /data || echo "FAILED mount of the disk"
staging="--staging /pmem/staging --staging-buffer 1MiB"
look() {
    # What the segments have without the file, and then with it.
    fulgurite stat /data/db 2>&1 | grep "may be in that file alone" | sed 's/.*acknowledged commits after \([0-9]*\) .*/SEGMENTS \1/'
    fulgurite stat /data/db --json $staging | sed 's/.*"durable_csn":\([0-9]*\).*/COMMITS \1/'
    fulgurite check /data/db $staging >/dev/null || echo "FAILED check"
    last=$(fulgurite scan /data/db t $staging --reverse --limit 1 --keys-only)
    last=${last:-000000000000}
    echo "FOUND $((1$last - 1000000000000)) $(fulgurite scan /data/db t $staging --keys-only | wc -l)"
    from=$((1$last - 1000000000000 + 1))
}
rows() {
    awk -v from=$from 'BEGIN { for (i = from; ; i++) printf "%012d\tvalue %d %0100d\n", i, i, i }' 2>/dev/null
}
load() {
    echo "START $from"
    rows | fulgurite load /data/db t --json --batch @BATCH@ $staging
}
fulgurite put --create /data/other t k v --staging /data/other.staging 2>&1 | grep -q MAP_SYNC || echo "FAILED a disk is taken for memory"
[ -d /data/db ] || {
    fulgurite put --create /data/db t none "" $staging
    fulgurite delete /data/db t none $staging
}
look
mkfifo /rows
echo "START $from"
rows > /rows &
fulgurite load /data/db t --json --batch @BATCH@ $staging < /rows &
sleep @SECONDS@
kill -9 $! || echo "FAILED the process ended by itself"
wait
look
load
echo "FAILED the load ended"
poweroff -f
"""


def build_initrd(directory, program, modules):
    root = os.path.join(directory, "root")
    for name in ["bin", "lib", "lib64", "proc", "sys", "dev", "pmem", "data", "modules"]:
        os.makedirs(os.path.join(root, name))
    shutil.copy(shutil.which("busybox"), os.path.join(root, "bin/busybox"))
    for applet in APPLETS + ["mkfifo"]:
        os.symlink("busybox", os.path.join(root, "bin", applet))
    shutil.copy(program, os.path.join(root, "bin/fulgurite"))
    for line in subprocess.check_output(["ldd", program], text=True).splitlines():
        if found := re.search(r"(/\S+) \(", line):
            target = os.path.join(root, "lib64" if "ld-linux" in found[1] else "lib")
            shutil.copy(found[1], os.path.join(target, os.path.basename(found[1])))
    for module in MODULES:
        for file in glob.glob(f"{modules}/**/{module}.ko", recursive=True):
            shutil.copy(file, os.path.join(root, "modules", f"{module}.ko"))
    return root


def pack(root, target, seconds, batch):
    text = INIT.replace("@MODULES@", " ".join(MODULES)).replace("@SECONDS@", f"{seconds:.2f}").replace("@BATCH@", str(batch))
    with open(os.path.join(root, "init"), "w") as init:
        init.write(text)
    os.chmod(os.path.join(root, "init"), 0o755)
    subprocess.run(f"cd {root} && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 > {target}", shell=True, check=True)


def start(kernel, initrd, memory, disk):
    options = f"console=ttyS0 quiet panic=-1 memmap={PERSISTENT_MIB}M!{PERSISTENT_AT_MIB}M"
    return subprocess.Popen(
        ["qemu-system-x86_64", "-machine", "pc,accel=tcg,memory-backend=ram", "-cpu", "max", "-m", f"{MEMORY_MIB}M",
         "-object", f"memory-backend-file,id=ram,share=on,mem-path={memory},size={MEMORY_MIB}M",
         "-drive", f"file={disk},if=virtio,format=raw,cache=writethrough",
         "-kernel", kernel, "-initrd", initrd, "-append", options, "-nic", "none", "-nographic", "-no-reboot"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )


class Acknowledged:
    """What the machine reported as durable, and the checks of what it finds."""

    def __init__(self):
        self.rows, self.first, self.lives, self.in_segments, self.from_file = 0, 1, 0, None, 0

    def line(self, line):
        """True for each report of durable rows."""
        if "FAILED" in line or "error:" in line or "panicked" in line:
            sys.exit(f"failed: {line}")
        if found := re.search(r"SEGMENTS (\d+)", line):
            self.in_segments = int(found[1])
        if found := re.search(r"COMMITS (\d+)", line):
            # Commits that were in the file alone.
            self.from_file += self.in_segments is not None and int(found[1]) > self.in_segments
            self.in_segments = None
        if found := re.search(r"FOUND (\d+) (\d+)", line):
            last, count = int(found[1]), int(found[2])
            if last != count or last < self.rows:
                sys.exit(f"LOST: {self.rows} rows were acknowledged; found {count}, up to row {last}")
            self.rows, self.lives = last, self.lives + 1
        if found := re.search(r"START (\d+)", line):
            self.first = int(found[1])
        if found := re.search(r'"durable_rows":(\d+)\}', line):
            self.rows = max(self.rows, self.first - 1 + int(found[1]))
            return True
        return False


def one_round(machine, acknowledged, reports):
    """Kills the machine once it has reported so many times in its second life."""
    starts = seen = 0
    timer = threading.Timer(180, machine.kill)
    timer.start()
    for line in machine.stdout:
        starts += "START" in line
        if acknowledged.line(line.strip()) and starts == 2:
            seen += 1
            if seen >= reports:
                machine.kill()
                # What it had printed counts: it was acknowledged.
                for rest in machine.stdout:
                    acknowledged.line(rest.strip())
                break
    machine.wait()
    timer.cancel()
    if seen < reports:
        sys.exit("the machine ended by itself, or hung")


def main():
    program, kernel, modules = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 100
    directory = tempfile.mkdtemp()
    memory = os.path.join(tempfile.mkdtemp(dir="/dev/shm"), "memory")
    disk, initrd = os.path.join(directory, "disk"), os.path.join(directory, "initrd")
    try:
        for file, size in [(memory, MEMORY_MIB), (disk, 2048)]:
            with open(file, "wb") as image:
                image.truncate(size << 20)
        at = f"offset={PERSISTENT_AT_MIB << 20}"
        subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", at, memory, f"{PERSISTENT_MIB << 10}k"], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
        root, acknowledged, chance = build_initrd(directory, program, modules), Acknowledged(), random.Random()
        for nth in range(1, rounds + 1):
            batch = chance.choice([1, 3, 20, 100])
            pack(root, initrd, 0.3 + 1.5 * chance.random(), batch)
            one_round(start(kernel, initrd, memory, disk), acknowledged, chance.randrange(1, 20))
            print(f"round {nth}: {acknowledged.rows} rows acknowledged, batches of {batch}, nothing lost", flush=True)
        print(f"{rounds} machines and {rounds} processes killed, {acknowledged.lives} recoveries, nothing lost; "
              f"{acknowledged.from_file} of them needed what the file held")
        if acknowledged.from_file == 0:
            sys.exit("no recovery needed the file: this shows nothing")
    finally:
        shutil.rmtree(directory)
        shutil.rmtree(os.path.dirname(memory))


if __name__ == "__main__":
    main()
