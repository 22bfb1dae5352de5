#!/usr/bin/env python3
"""Kills a loading process again and again, and tells what that leaves.

    scripts/crash_loops.py PROGRAM DIR puts|lives|full

PROGRAM is a built `fulgurite`, DIR an empty directory on the disk to be used.
puts: a put and a kill, 100 times. lives: 12 lives that each load 24 MiB over the same 10,000 keys. full: a put and a kill,
60 times, meant for a small disk: unshare -m sh -c 'mount -t tmpfs -o size=64m t t && scripts/crash_loops.py P t full'
"""

import os
import re
import subprocess
import sys
import threading
import time


def disk_mib(directory):
    files = (os.path.join(root, name) for root, _, names in os.walk(directory) for name in names)
    return sum(os.lstat(path).st_blocks * 512 for path in files) / (1 << 20)


def life(program, db, rows, count, batch):
    """Loads rows, and kills the process when all are acknowledged; else returns what it said."""
    command = [program, "load", "--json", "--batch", str(batch), db, "t", "-"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )

    def feed():
        try:
            child.stdin.write(rows)
            child.stdin.flush()
        except OSError:
            pass  # It ended, and said why.

    threading.Thread(target=feed, daemon=True).start()
    said = ""
    for line in child.stdout:
        said = line.decode().strip()
        durable = re.search(r'"durable_rows":(\d+)', said)
        if durable and int(durable.group(1)) >= count:
            child.kill()
            child.wait()
            return None
    child.wait()
    return said


def uncovered(program, db):
    """Commits that no checkpoint covers, as far as the superblock knows."""
    dump = subprocess.run([program, "dump", db, "--limit", "0"], capture_output=True, text=True).stdout
    newest = max(map(int, re.findall(r"commit (\d+) was durable", dump)), default=0)
    return newest - max(map(int, re.findall(r"covers commit (\d+)", dump)), default=0)


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in ("puts", "lives", "full"):
        sys.exit(__doc__)
    program, directory, what = sys.argv[1:]
    db = os.path.join(directory, what)
    for nth in range({"puts": 100, "lives": 12, "full": 60}[what]):
        if what == "lives":
            rows, count, batch = b"".join(b"%06d\t%0400d\n" % (n % 10_000, nth) for n in range(60_000)), 60_000, 10
        else:
            rows, count, batch = b"k%d\tv\n" % nth, 1, 1
        said = life(program, db, rows, count, batch)
        if said is not None:
            sys.exit(f"life {nth} was refused: {said}")
    began = time.monotonic()
    subprocess.run([program, "get", db, "t", "000007" if what == "lives" else "k7"], stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    print(f"{disk_mib(db):.0f} MiB, {uncovered(program, db)} commits in no checkpoint, a get after it {seconds:.2f} s")


if __name__ == "__main__":
    main()
