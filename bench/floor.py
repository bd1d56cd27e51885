"""What does a durable message cost at the very least on this machine? No broker: a C program of one loop.

    python -m bench floor                        1,000, 5,000 and 20,000 messages a second
    python -m bench floor --rates 1000 --seconds 10

The program (`floor.c`) receives what is there, writes it to a file, syncs, and answers with a few bytes: one
process, no protocol, no checksum, no checks. A broker that has to be durable cannot cost less for a message
that comes alone. Each rate is measured with the sync and without it. Messages of 1 KiB are sent as an open
loop from a core of their own. Needs a C compiler (`cc`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import machine, proc
from bench.__main__ import parse_cpus
from bench.broker import Cpus, pinned

SOURCE: Final = Path(__file__).with_name("floor.c")
MESSAGE_BYTES: Final = 1_024
READ_BYTES: Final = 64 << 10
PORT_WAIT_S: Final = 60.0


class NoCompilerError(Exception):
    """There is no C compiler, or it refused the program."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What the program used at one rate."""

    rate: float
    """Messages a second that were sent."""
    syncs: bool
    cpu_us: float
    """CPU of a message in microseconds, user and system."""
    switches: float
    """Times that the program waited, a message."""


def compile_into(folder: Path) -> Path:
    """The program, made in `folder`. Raises NoCompilerError."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompilerError(
            "`python -m bench floor` needs a C compiler: there is no `cc` and no `gcc` in PATH"
        )
    program = folder / "floor"
    done = subprocess.run(
        [compiler, "-O2", "-o", program, SOURCE], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NoCompilerError(f"{compiler} refused {SOURCE.name}: {done.stderr.strip()}")
    return program


def waits_of(pid: int) -> int:
    """Voluntary context switches of a process (source: proc(5))."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


def send(connection: socket.socket, rate: float, seconds: float) -> tuple[int, float]:
    """An open loop: message i is due at start + i / rate. How many were sent, and the seconds that took."""
    message = os.urandom(MESSAGE_BYTES)
    count = int(rate * seconds)
    began_s = time.perf_counter()
    for i in range(count):
        if (early_s := began_s + i / rate - time.perf_counter()) > 0:
            time.sleep(early_s)  # the pace of the open loop
        connection.sendall(message)
        with suppress(BlockingIOError):
            connection.recv(READ_BYTES, socket.MSG_DONTWAIT)
    return count, time.perf_counter() - began_s


def measure(program: Path, folder: Path, cpus: Cpus, rate: float, seconds: float, *, syncs: bool) -> Floor:
    """One rate. Raises OSError when the program cannot write or is not reached."""
    with pinned(cpus.broker):
        process = subprocess.Popen(
            [program, folder / "data", str(int(syncs))], stdout=subprocess.PIPE, text=True
        )
    with process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise OSError("the program of `floor.c` ended before it listened; is the disk full?")
            with socket.create_connection(("127.0.0.1", int(port)), PORT_WAIT_S) as connection:
                connection.settimeout(None)  # with a time limit, recv would wait for an answer
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                waits, used_s = waits_of(process.pid), proc.usage(process.pid).cpu_s
                count, took_s = send(connection, rate, seconds)
                used_s = proc.usage(process.pid).cpu_s - used_s
                waits = waits_of(process.pid) - waits
        finally:
            process.kill()
    return Floor(count / took_s, syncs, used_s / count * 1e6, waits / count)


def render(floors: Sequence[Floor]) -> str:
    """The table."""
    lines = ["  msg/s  sync  CPU µs/msg  waits/msg"]
    for floor in floors:
        sync = "yes" if floor.syncs else "no"
        lines.append(f"{floor.rate:7,.0f}  {sync:>4}  {floor.cpu_us:10.1f}  {floor.switches:9.2f}")
    return "\n".join(lines)


def main() -> int:
    """0, or 1 without a compiler or a disk to write to."""
    parser = argparse.ArgumentParser(
        prog="python -m bench floor", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rates", default="1000,5000,20000", help="messages a second (1000,5000,20000)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each (5)")
    parser.add_argument("--cpus", default="0,1", help='cores of program and sender; "free" pins nothing')
    parser.add_argument("--data-dir", type=Path, help="folder for the file (the system's temporary folder)")
    given = parser.parse_args()
    cpus = parse_cpus(given.cpus)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-floor-", dir=given.data_dir) as scratch:
            folder = Path(scratch)
            program = compile_into(folder)
            print(" · ".join(str(value) for value in machine.describe(folder).values()))
            if cpus.generator is not None:
                os.sched_setaffinity(0, {cpus.generator})
            floors = [
                measure(program, folder, cpus, rate, given.seconds, syncs=syncs)
                for rate in map(float, given.rates.split(","))
                for syncs in (False, True)
            ]
    except (NoCompilerError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(render(floors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
