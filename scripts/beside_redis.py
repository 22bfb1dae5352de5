#!/usr/bin/env python3
"""Compares `fulgurite serve` with `redis-server` by `redis-benchmark`: the table of figures in docs/server.md.

Both run on this machine, on new directories beside each other, and take turns row by row, so that only ratios of one run count. Needs
redis-server and redis-benchmark, and Linux, whose /proc has the processor times. For example, from the root of the repository:

    cargo build --release
    scripts/beside_redis.py --dir /var/tmp/beside --rounds 5 > table.md
"""

import argparse
import atexit
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

COMMANDS = ["set", "get", "incr", "hset", "lpush", "zadd", "mset"]
# Clients, pipeline, and about how many commands a second and a half has.
WAYS = [(1, 1, 8_000), (8, 1, 40_000), (50, 1, 90_000), (128, 1, 100_000), (512, 1, 100_000), (50, 16, 500_000)]
SLOW = {"zadd": 3, "mset": 6}
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A server process of its own, on a new directory."""

    def __init__(self, name, port, command, directory):
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)
        self.name, self.port = name, port
        with open(f"{directory}.log", "w") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(command, **streams, start_new_session=True)
        atexit.register(self.process.kill)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        sys.exit(f"{name} does not listen on port {port}: see {directory}.log")

    def processor_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def pause(self):
        """Stops it with its children: nothing of it runs beside another server that is measured."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)

    def run(self, command, clients, pipeline, count, value_bytes):
        """Commands a second, and microseconds of processor time of each."""
        args = ["redis-benchmark", "-p", str(self.port), "-t", command, "-n", str(count), "-c", str(clients)]
        args += ["-P", str(pipeline), "-d", str(value_bytes), "-r", "100000", "--csv"]
        before = self.processor_seconds()
        ran = subprocess.run(args, capture_output=True, text=True, timeout=600)
        seconds = self.processor_seconds() - before
        rows = [line.split('","') for line in ran.stdout.splitlines() if line.startswith('"')]
        rates = [float(row[1].strip('"')) for row in rows if row[0].strip('"').lower().startswith(command)]
        if not rates:
            sys.exit(f"redis-benchmark gave no figure for {command} of {self.name}: {ran.stdout} {ran.stderr}")
        return rates[0], seconds / count * 1e6


def idle_share(work):
    """Runs something. Returns the share of the time for which processors were idle meanwhile."""

    def times():
        with open("/proc/stat") as stat:
            fields = [int(field) for field in stat.readline().split()[1:]]
        return fields[3], sum(fields)

    idle, total = times()
    work()
    idle_after, total_after = times()
    return (idle_after - idle) / max(total_after - total, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", required=True, help="where both servers keep their data; what is there is removed")
    parser.add_argument("--server", default="target/release/fulgurite", help="the program (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured (default: %(default)s)")
    parser.add_argument("--commands", nargs="+", default=COMMANDS, choices=COMMANDS, help="which (default: all)")
    parser.add_argument("--volatile", action="store_true", help="without durability, on both sides")
    options = parser.parse_args()
    durability = ["--durability", "none"] if options.volatile else []
    appends = ["--appendonly", "no"] if options.volatile else ["--appendonly", "yes", "--appendfsync", "always"]
    ours, theirs = f"{options.dir}/fulgurite", f"{options.dir}/redis"
    serve = [options.server, "serve", "--dir", f"{ours}/data", "--bind", "127.0.0.1:17001", "--io-threads", "1"]
    redis = ["redis-server", "--port", "17002", "--bind", "127.0.0.1", "--dir", theirs, "--save", "", *appends]
    servers = [Server("Redis", 17002, redis, theirs), Server("Fulgurite", 17001, serve + durability, ours)]
    rows = [(command, *way, 100) for command in options.commands for way in WAYS]
    if "set" in options.commands and not options.volatile:
        rows.append(("set", 50, 1, 60_000, 4096))
    measured = {row: ([], []) for row in rows}

    def measure():
        for server in servers:
            server.run("set", 50, 16, 400_000, 100)
        for number in range(options.rounds):
            for command, clients, pipeline, count, value_bytes in rows:
                few = count // SLOW.get(command, 1)
                for server, figures in zip(servers, measured[(command, clients, pipeline, count, value_bytes)]):
                    figures.append(server.run(command, clients, pipeline, few, value_bytes))
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)

    idle = idle_share(measure)
    for server in servers:
        server.stop()
    print(f"{options.rounds} rounds in turns, medians; processors idle {idle:.2f}.\n")
    print("| command | clients | pipeline | Redis | Fulgurite | ratio (least, most) | us of processor time a command: Redis, Fulgurite |")
    print("|---|---|---|---|---|---|---|")
    for (command, clients, pipeline, _, value_bytes), (redis_figures, own_figures) in measured.items():
        ratios = [own / redis for (own, _), (redis, _) in zip(own_figures, redis_figures)]
        rates = [statistics.median(rate for rate, _ in figures) for figures in (redis_figures, own_figures)]
        costs = [statistics.median(cost for _, cost in figures) for figures in (redis_figures, own_figures)]
        name = command.upper() + (" 4 KiB" if value_bytes == 4096 else "")
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})"
        print(
            f"| {name} | {clients} | {pipeline} | {rates[0]:,.0f} | {rates[1]:,.0f} | {spread} | {costs[0]:.2f}, {costs[1]:.2f} |"
        )


if __name__ == "__main__":
    main()
