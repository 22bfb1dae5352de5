#!/usr/bin/env python3
"""Measures GETs or SETs of 50 clients while one more client sends long commands one after the other: a table of docs/server.md.

Servers take turns row by row, and are stopped while another one has its turn, with what they do in the background: `redis-server`, and
each program that is given. The client of the long commands reads replies without
looking at them, at the lowest priority: it stands for another machine. Beside the last row it sends 256 MiB to a process that has nothing
to do with the servers, which writes them to a file and sends as many back, in two seconds, about as long as a server takes for them: what
that costs the clients, the machine costs them. Needs Linux, redis-server and redis-benchmark. For example:

    cargo build --release
    scripts/beside_long.py --dir /var/tmp/beside --rounds 5 target/release/fulgurite > table.md
"""

import argparse
import mmap
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

from beside_redis import Server, idle_share

MEMBERS = 1_000_000
MOVED = 256 << 20
MOVE_SECONDS = 2.0
MOVE = "256 MiB to another process, and back"
LONG = {
    "none": [],
    "`KEYS *`": [["KEYS", "*"]],
    "`SMEMBERS` of a million": [["SMEMBERS", "large"]],
    "`SUNIONSTORE` of a million, `DEL` of it": [["SUNIONSTORE", "copy", "large"], ["DEL", "copy"]],
    "`SET` of 256 MiB, `GET` of it": [["SET", "long", "v" * MOVED], ["GET", "long"]],
    "`SORT` of a million `BY` nothing `GET`": [["SORT", "large", "BY", "nothing", "LIMIT", "0", "300000"]],
    MOVE: [],
}


def encode(words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.buffer = bytearray(1 << 20)

    def send(self, words):
        self.send_encoded(encode(words))

    def send_encoded(self, command):
        """Sends a command and reads its reply, and that of a PING behind it, by which the end is known."""
        self.socket.sendall(command)
        self.socket.sendall(encode(["PING", "end of the reply"]))
        end = b"$16\r\nend of the reply\r\n"
        last = b""
        while not last.endswith(end):
            length = self.socket.recv_into(self.buffer)
            if length == 0:
                sys.exit("a server has closed the connection of the long commands")
            last = (last + bytes(self.buffer[max(0, length - len(end)) : length]))[-len(end) :]


def receive(connection, view):
    """Fills a buffer. Whether the other side had as much to send."""
    filled = 0
    while filled < len(view):
        length = connection.recv_into(view[filled:])
        if length == 0:
            return False
        filled += length
    return True


def move(listener, path):
    """The other process: takes bytes and writes them past the page cache, then sends as many; over and over, for one connection after the
    other."""
    buffer = mmap.mmap(-1, 1 << 20)
    view = memoryview(buffer)
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT)
    offsets = range(0, MOVED, len(buffer))
    while True:
        connection, _ = listener.accept()
        with connection:
            while all(receive(connection, view) and os.pwrite(file, view, offset) for offset in offsets):
                for _ in offsets:
                    connection.sendall(view)


def load(server):
    server.run("set", 50, 16, 400_000, 100)
    client = Client(server.port)
    for first in range(0, MEMBERS, 1_000):
        client.send(["SADD", "large", *(f"member:{number}" for number in range(first, first + 1_000))])


def send_commands(port, encoded, stop, took):
    client = Client(port)
    while not stop.is_set():
        began = time.monotonic()
        for command in encoded:
            client.send_encoded(command)
        took.append(time.monotonic() - began)


def send_bytes(port, stop, took):
    connection = socket.create_connection(("127.0.0.1", port), timeout=120)
    buffer = bytearray(1 << 20)
    steps = MOVED // len(buffer)
    while not stop.is_set():
        began = time.monotonic()
        for step in range(2 * steps):
            if step < steps:
                connection.sendall(buffer)
            else:
                receive(connection, memoryview(buffer))
            time.sleep(max(0.0, began + (step + 1) * MOVE_SECONDS / (2 * steps) - time.monotonic()))
        took.append(time.monotonic() - began)
    connection.close()


def measure(server, long, count, short, mover_port):
    """Short commands a second, p50, p99 and the longest in milliseconds, and the median of the long commands."""
    stop, took = threading.Event(), []
    encoded = [encode(words) for words in LONG[long]]

    def send():
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        if long == MOVE:
            send_bytes(mover_port, stop, took)
        else:
            send_commands(server.port, encoded, stop, took)

    sender = threading.Thread(target=send)
    if long != "none":
        sender.start()
        time.sleep(0.3)
    args = ["redis-benchmark", "-p", str(server.port), "-t", short, "-n", str(count), "-c", "50"]
    ran = subprocess.run([*args, "-d", "100", "-r", "100000", "--csv"], capture_output=True, text=True, timeout=600)
    stop.set()
    if long != "none":
        sender.join()
    fields = [field.strip('"') for field in ran.stdout.splitlines()[-1].split('","')]
    rate, _, _, p50, _, p99, longest = (float(field) for field in fields[1:])
    return rate, p50, p99, longest, statistics.median(took) * 1e3 if took else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", required=True, help="where the servers keep their data; what is there is removed")
    parser.add_argument("--rounds", type=int, default=3, help="how often each row is measured (default: %(default)s)")
    parser.add_argument("--count", type=int, default=150_000, help="commands of a row (default: %(default)s)")
    parser.add_argument("--command", default="get", choices=["get", "set"], help="of the 50 clients (default: %(default)s)")
    parser.add_argument("programs", nargs="+", help="programs of this project to measure")
    options = parser.parse_args()
    redis = ["redis-server", "--port", "17010", "--bind", "127.0.0.1", "--dir", f"{options.dir}/redis", "--save", ""]
    servers = [Server("Redis", 17010, [*redis, "--appendonly", "yes", "--appendfsync", "always"], f"{options.dir}/redis")]
    for number, program in enumerate(options.programs):
        port, directory = 17011 + number, f"{options.dir}/{number}"
        serve = [program, "serve", "--dir", f"{directory}/data", "--bind", f"127.0.0.1:{port}", "--io-threads", "1"]
        servers.append(Server(program if number else "Fulgurite", port, serve, directory))
    listener = socket.create_server(("127.0.0.1", 0))
    mover = multiprocessing.Process(target=move, args=(listener, f"{options.dir}/moved"), daemon=True)
    mover.start()
    figures = {(long, server.name): [] for long in LONG for server in servers}

    def run():
        for server in servers:
            load(server)
        for number in range(options.rounds):
            for long, commands in LONG.items():
                for server in servers:
                    others = [other for other in servers if other is not server]
                    count = options.count // 20 if commands and server.name == "Redis" else options.count
                    for other in others:
                        other.pause()
                    row = measure(server, long, count, options.command, listener.getsockname()[1])
                    for other in others:
                        other.resume()
                    figures[long, server.name].append(row)
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)

    idle = idle_share(run)
    mover.terminate()
    for server in servers:
        server.stop()
    print(f"{options.rounds} rounds in turns, medians; processors idle {idle:.2f}.\n")
    print(f"| long command | server | {options.command.upper()}s a second | p50, ms | p99, ms | to p99 beside none | longest, ms | a long command, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for (long, name), rows in figures.items():
        rate, p50, p99, longest, took = (statistics.median(column) for column in zip(*rows))
        ratios = [row[2] / none[2] for row, none in zip(rows, figures["none", name])]
        print(
            f"| {long} | {name} | {rate:,.0f} | {p50:.2f} | {p99:.2f} | {statistics.median(ratios):.1f} "
            f"({min(ratios):.1f}, {max(ratios):.1f}) | {longest:.1f} | {took:,.0f} |"
        )


if __name__ == "__main__":
    main()
