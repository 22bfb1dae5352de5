"""Counts the files and functions that a durable put, a get and an open with replay run through.

    cargo build -p fulgurite --example trace
    gdb -q -batch -x scripts/trace.py --args target/debug/examples/trace DIR

DIR must not exist. Sets a breakpoint on each function of the crates, in a build without inlining, between the calls of
`trace_begin` and `trace_end`. Constructors of values, `Deref` and the like count too. Frames are those of the crates on
the stack of the write that makes the put durable.
"""

import os
import re

import gdb

NAMES = {1: "durable put", 2: "get", 3: "open with replay"}
OURS = re.compile(r"crates/(types|env|log|index|fulgurite)/src/")

gdb.execute("set pagination off")
gdb.execute("set breakpoint pending on")
gdb.execute("set print thread-events off")
gdb.execute("handle SIGPIPE nostop noprint")


def file_of(symtab):
    name = symtab.fullname() if symtab else ""
    found = OURS.search(name)
    return name[found.start():] if found else None


class Hit(gdb.Breakpoint):
    recording = None
    thread = None

    def __init__(self, name, address):
        super().__init__(f"*{address}", internal=True)
        self.silent = True
        self.name = name

    def stop(self):
        if Hit.recording is not None and gdb.selected_thread().num == Hit.thread:
            Hit.recording.add(self.name)
            # One hit tells all; loops would take minutes.
            self.enabled = False
        return False


def functions():
    """Name, file and address of each function of ours."""
    text = gdb.execute("info functions -q -n .", to_string=True)
    current, found = None, []
    for line in text.splitlines():
        if line.startswith("File "):
            match = OURS.search(line)
            current = line[match.start():].rstrip(":") if match else None
        elif current and line.strip():
            number = re.match(r"(\d+):", line)
            if number:
                found.append((current, int(number.group(1))))
    return found


class Begin(gdb.Breakpoint):
    def stop(self):
        return True


class End(gdb.Breakpoint):
    def stop(self):
        return True


Begin("trace_begin")
gdb.execute("run", to_string=True)

# Each line of a file at which a function begins, resolved to addresses.
lines = {}
for path, line in functions():
    lines.setdefault(path, set()).add(line)
ours = []
for path, numbers in sorted(lines.items()):
    for line in sorted(numbers):
        try:
            for sal in gdb.decode_line(f"{path}:{line}")[1] or []:
                block = gdb.block_for_pc(sal.pc)
                while block and not block.function:
                    block = block.superblock
                name = str(block.function) if block else "?"
                ours.append(Hit(f"{path}:{name}", hex(sal.pc)))
        except gdb.error:
            pass
print(f"{len(ours)} functions")


catch = re.search(r"Catchpoint (\d+)", gdb.execute("catch syscall pwritev2 pwrite64 pwritev", to_string=True)).group(1)

End("trace_end")
for what in (1, 2, 3):
    if what == 2:
        gdb.execute(f"delete {catch}")
    Hit.recording, Hit.thread, stack = set(), gdb.selected_thread().num, []
    while True:
        gdb.execute("continue", to_string=True)
        frame = gdb.newest_frame()
        if (frame.name() or "").endswith("trace_end"):
            break
        if gdb.selected_thread().num == Hit.thread and what == 1:
            frames, each = [], frame
            while each:
                path = file_of(each.find_sal().symtab)
                if path:
                    frames.append(f"{path}:{each.name()}")
                each = each.older()
            if len(frames) > len(stack):
                stack = frames
    hits, Hit.recording = sorted(Hit.recording), None
    for function in ours:
        function.enabled = True
    files = sorted({name.split(":")[0] for name in hits})
    print(f"\n== {NAMES[what]}: {len(files)} files, {len(hits)} functions")
    for path in files:
        inside = [name.split(":", 1)[1] for name in hits if name.split(":")[0] == path]
        print(f"  {path} ({len(inside)})")
    if stack:
        print(f"-- {len(stack)} frames at the write:")
        for name in stack:
            print(f"  {name}")
    if what < 3:
        while not (gdb.newest_frame().name() or "").endswith("trace_begin"):
            gdb.execute("continue", to_string=True)
gdb.execute("kill")
