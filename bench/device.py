"""Limits of the machine, measured in the same run: sync of the device, copies over loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from bench.broker import pinned
from bench.histogram import Latencies

SYNC_SIZES: Final = (4 << 10, 64 << 10, 1 << 20)
LOOPBACK_SIZES: Final = (1 << 10, 64 << 10, 1 << 20)

SENDER: Final = """
import socket, sys, time
port, size, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
payload = bytes(size)
with socket.create_connection(("127.0.0.1", port)) as out:
    before = time.process_time()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        out.sendall(payload)
    print(time.process_time() - before)
"""
"""The other process: no imports beyond the least, so that it is up at once."""


def sync_histogram(folder: Path, size_bytes: int, seconds: float) -> dict[str, float]:
    """Append `size_bytes` and fdatasync, one after the other, to a new file in `folder`.

    `cpu_s_per_gb` is what the kernel takes to copy into its cache and to sync: the cost of the same
    pattern without a broker.
    """
    payload = os.urandom(size_bytes)
    times: list[int] = []
    with TemporaryDirectory(dir=folder, prefix="bench-sync-") as scratch:
        fd = os.open(Path(scratch, "file"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            clock = time.perf_counter_ns
            begin, cpu_start = clock(), time.process_time()
            end = begin + int(seconds * 1e9)
            while (start := clock()) < end:
                os.write(fd, payload)
                os.fdatasync(fd)
                times.append(clock() - start)
            elapsed_s, cpu_s = (clock() - begin) / 1e9, time.process_time() - cpu_start
        finally:
            os.close(fd)
    latencies = Latencies()
    latencies.record(np.array(times, dtype=np.int64))
    return {
        **latencies.milliseconds(),
        "syncs_per_s": len(times) / elapsed_s,
        "megabytes_per_s": len(times) * size_bytes / elapsed_s / 1e6,
        "cpu_s_per_gb": cpu_s / (len(times) * size_bytes / 1e9),
    }


def loopback(
    size_bytes: int, seconds: float, *, sender_cpu: int | None, receiver_cpu: int | None
) -> dict[str, float]:
    """Send pieces of `size_bytes` between two processes over 127.0.0.1: rate, CPU seconds of both a GB."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pinned(sender_cpu):
            sender = subprocess.Popen(
                [sys.executable, "-c", SENDER, str(port), str(size_bytes), str(seconds)],
                stdout=subprocess.PIPE,
                text=True,
            )
        connection, _ = server.accept()
    buffer = bytearray(1 << 20)
    received = 0
    with pinned(receiver_cpu), connection:
        start, cpu_start = time.perf_counter(), time.process_time()
        while count := connection.recv_into(buffer):
            received += count
        elapsed_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    sender_cpu_s = float(sender.communicate()[0])
    gigabytes = received / 1e9
    return {
        "gigabytes_per_s": gigabytes / elapsed_s,
        "sender_cpu_s_per_gb": sender_cpu_s / gigabytes,
        "receiver_cpu_s_per_gb": cpu_s / gigabytes,
    }
