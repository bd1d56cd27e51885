"""What a client of a bookie that behaves feels of one that does not; for `bench hostile --metadata`.

The bookie runs as `magnetar bookie`, with TLS for clients that ask for it, beside the metadata service that
`--metadata` names. The client that behaves reads one entry of its ledger, up to 100 times a second. Each
attack is a process of its own: `python -m bench.hostile_bookies NAME PORT`.
"""

from __future__ import annotations

import datetime
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from bench.attacks_of_http import client_hello
from bench.broker import BrokerFailedError
from magnetar.auth.authority import Authority, new_key
from magnetar.base.ids import LedgerId
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.requests import AddRun, Read, Request, StartTls
from magnetar.wire.bookkeeper.responses import Response

PACE_S: Final = 0.01
_DEADLINE_S: Final = 30.0
_READY_S: Final = 60.0
_LEDGER: Final = LedgerId(1)
_KEY: Final = b"k" * 20
_SMALL_BYTES: Final = 1_000
_LARGE_BYTES: Final = 1_000_000
_SOCKETS: Final = 1_000
_WRITERS: Final = 60
_LAST: Final = 1 << 40
"""A last add confirmed that the ledger never reaches."""


def _encoded(request: Request) -> bytes:
    return b"".join(encode_request(request, is_v2=False))


class Behaves:
    """A client that adds two entries to a ledger, and reads the small one."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _DEADLINE_S)
        self._parser = BookieClientParser(is_v2=False)
        self._pending = b""
        for number, size in enumerate((_SMALL_BYTES, _LARGE_BYTES)):
            self.ask(_add(number, bytes(size)))

    def ask(self, request: Request) -> Response:
        """Its answer. Raises OSError when the bookie ends the connection."""
        self._socket.sendall(_encoded(request))
        while True:
            if not (received := self._socket.recv(1 << 20)):
                raise ConnectionError("the bookie ended the connection")
            self._pending += received
            answers, used = self._parser.parse(self._pending, len(self._pending))
            self._pending = self._pending[used:]
            if answers:
                return answers[0]

    def times_ms(self, seconds: float) -> list[float]:
        """How long each read took."""
        found = []
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            self.ask(Read(_LEDGER, 0, 5))
            found.append((time.perf_counter() - began) * 1000)
            # The pace of a client that behaves: one read in PACE_S.
            time.sleep(max(0.0, began + PACE_S - time.perf_counter()))
        return found

    def close(self) -> None:
        """Ends its connection."""
        self._socket.close()


def _add(entry_id: int, data: bytes) -> AddRun:
    run = AddRun(_LEDGER, _KEY, v3=True)
    head = (_LEDGER, entry_id, entry_id - 1, 0)
    run.entry_ids = [entry_id]
    run.entries = [b"".join(value.to_bytes(8, "big", signed=True) for value in head) + data]
    run.txn_ids = [1]
    return run


def _attack(port: int, sockets: int, first: bytes, more: bytes, *, then: bytes = b"") -> None:
    """Holds so many sockets that send `first` once, then `more` as it is taken, and read nothing. Opens each
    again when it is closed. `then`: sent behind the answer to `first`, which is waited for."""
    held: dict[int, socket.socket] = {}
    closed = select.poll()
    said = False
    while True:
        while len(held) < sockets:
            one = socket.socket()
            one.settimeout(_DEADLINE_S)
            try:
                one.connect(("127.0.0.1", port))
                one.sendall(first)
                if then:
                    # The bookie ends a connection that sends in clear what must be secured.
                    if not one.recv(1 << 10):
                        raise ConnectionError("the bookie ended the connection")
                    one.sendall(then)
            except OSError:
                one.close()
                break
            one.setblocking(False)
            held[one.fileno()] = one
            closed.register(one.fileno(), select.POLLRDHUP)
        if not said:
            said = True
            print("ready", flush=True)
        ended = {descriptor for descriptor, _ in closed.poll(20)}
        for descriptor, one in held.items():
            try:
                if more:
                    one.send(more)
            except BlockingIOError:
                pass
            except OSError:
                ended.add(descriptor)
        for descriptor in ended:
            closed.unregister(descriptor)
            held.pop(descriptor).close()


def start_tls(port: int) -> None:
    """START_TLS, half a handshake behind its answer, and nothing more."""
    _attack(port, _SOCKETS, _encoded(StartTls(1)), b"", then=client_hello()[:100])


def waiting_reads(port: int) -> None:
    """Reads that wait for entries that never come, as long as a client may ask for."""
    wait = Read(_LEDGER, 1, 5, previous_lac=_LAST, timeout_ms=(1 << 31) - 1, piggyback=True)
    _attack(port, _WRITERS, b"", _encoded(wait) * 100)


def garbage(port: int) -> None:
    """Random bytes, in packets that claim to have 5 MB."""
    _attack(port, _WRITERS, (5_000_000).to_bytes(4, "big"), os.urandom(1 << 16))


def large_reads(port: int) -> None:
    """Reads of an entry of a megabyte, whose answers stay unread."""
    _attack(port, _WRITERS, b"", _encoded(Read(_LEDGER, 1, 5)) * 1_000)


ATTACKS: Final[dict[str, Callable[[int], None]]] = {
    "bookie-start-tls": start_tls,
    "bookie-waiting-reads": waiting_reads,
    "bookie-garbage": garbage,
    "bookie-large-reads": large_reads,
}


@contextmanager
def bookie(metadata: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Port and process id of a bookie, which is ended after the body. Raises BrokerFailedError."""
    now, key, certificate = datetime.datetime.now(datetime.UTC), folder / "key.pem", folder / "bookie.pem"
    authority = Authority.new(new_key(), name="bench", now=now, days=1)
    key.write_bytes(new_key())
    key.chmod(0o600)
    certificate.write_bytes(authority.for_broker(key.read_bytes(), hosts=["127.0.0.1"], now=now, days=1))
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "magnetar", "bookie", "--metadata", metadata, "--initialize"]
    command += ["--data", str(folder / "data"), "--port", "0", "--ready-file", str(ready)]
    command += [
        "--tls-certificate",
        str(certificate),
        "--tls-key",
        str(key),
        "--disk-usage-threshold",
        "0.99",
    ]
    log = folder / "bookie.log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            end = time.perf_counter() + _READY_S
            while not ready.exists():
                if process.poll() is not None or time.perf_counter() > end:
                    raise BrokerFailedError(f"the bookie did not start:\n{log.read_text()}")
                time.sleep(PACE_S)  # the file is the only sign; _READY_S bounds the wait
            told = json.loads(ready.read_text())
            yield int(told["port"]), int(told["pid"])
        finally:
            process.terminate()


def run_story(
    name: str, seconds: float, metadata: str, resident_mb: Callable[[int], float]
) -> dict[str, float]:
    """One attack on a bookie of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-hostile-") as scratch,
        bookie(metadata, Path(scratch)) as (port, pid),
    ):
        client = Behaves(port)
        client.times_ms(1.0)
        alone = client.times_ms(seconds)
        before_mb = resident_mb(pid)
        words = [sys.executable, "-m", "bench.hostile_bookies", name, str(port)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as attack:
            try:
                assert attack.stdout is not None
                attack.stdout.readline()
                beside = client.times_ms(seconds)
                found = {"before_mb": before_mb, "after_mb": resident_mb(pid)}
            finally:
                attack.kill()
        client.close()
        for when, times in (("alone", alone), ("beside", beside)):
            found[f"{when}_p50_ms"] = float(np.percentile(times, 50))
            found[f"{when}_p99_ms"] = float(np.percentile(times, 99))
            found[f"{when}_max_ms"] = max(times)
        return found


def main() -> int:
    """Attacks a bookie until it is ended."""
    name, port = sys.argv[1:]
    ATTACKS[name](int(port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
