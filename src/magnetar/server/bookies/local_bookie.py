"""The process of a bookie beside a broker, which ends with its standard input, and so with the broker.

The first line of its standard input is the password that clients must prove, empty for none: arguments and
environment of a process are not secret. Requests follow, see `bookie_requests.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.bookie import store_metrics
from magnetar.bookie.network.access import Access
from magnetar.bookie.network.node import BookieNode, NodeOptions
from magnetar.bookie.network.server import ServerOptions
from magnetar.bookie.store_options import StoreOptions
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.folder_registry import FolderBookieRegistry
from magnetar.observability import logs, process
from magnetar.observability.metrics import Registry
from magnetar.runtime import loop as event_loop
from magnetar.runtime.tasks import race, won
from magnetar.server import open_files
from magnetar.server.bookies.bookie_requests import BookieAnswers

_log = logging.getLogger("magnetar.server")

USER: Final = "broker"
"""User name of the password."""

_READ_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBookie:
    """Settings of one bookie, passed as the argument of its process."""

    name: str
    folder: str
    """The bookies' common folder; each bookie has a folder of its name in it."""
    metadata_file: str
    """File of the broker's metadata."""
    segment_bytes: int
    packet_bytes_max: int
    """Most bytes of a client's packet."""
    log_level: str
    log_json: bool


def encode(bookie: LocalBookie) -> str:
    """The argument."""
    return json.dumps(asdict(bookie))


def main(argument: str) -> int:
    """Runs until standard input ends, SIGTERM, or its disk fails; returns the exit code."""
    bookie = LocalBookie(**json.loads(argument))
    password = sys.stdin.readline()
    if not password.endswith("\n"):
        # The broker has ended before it said it.
        return 0
    logs.configure(level=bookie.log_level, as_json=bookie.log_json)
    open_files.raise_limit()
    try:
        return event_loop.run(_serve(bookie, password.strip()))
    except MagnetarError as error:
        _log.error("%s: %s", bookie.name, error)
        return 1


async def _serve(bookie: LocalBookie, password: str) -> int:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    # That is the broker's, which reads its credentials anew; a bookie beside it has none in files.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    metrics = Registry()
    answers = BookieAnswers(metrics, bookie.name)
    for collect in (process.collect, logs.collect, lambda out: store_metrics.collect(answers.stores, out)):
        metrics.collector(collect)

    def read() -> None:
        data = os.read(sys.stdin.fileno(), _READ_BYTES)
        if not data:
            over.set()
            loop.remove_reader(sys.stdin)
        # A broker that has ended hears nothing; its end is met at the next read.
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.buffer.write(answers.take(data))
            sys.stdout.buffer.flush()

    loop.add_reader(sys.stdin, read)
    folder = Path(bookie.folder)
    registry = FolderBookieRegistry(folder, Path(bookie.metadata_file), BookKeeperTree())
    node = await BookieNode.start(
        NodeOptions(
            data=folder / bookie.name,
            # Its port may be another one after each start: its name is what lasts.
            port=0,
            bookie_id=bookie.name,
            moves=True,
            store=StoreOptions(segment_bytes=bookie.segment_bytes),
            server=ServerOptions(
                access=Access(users={USER: password} if password else {}),
                connections_max=open_files.affordable_sockets().clients,
                packet_bytes_max=bookie.packet_bytes_max,
            ),
        ),
        registry,
    )
    answers.stores, answers.paused = node.server.entries.stores, node.server.holding.paused
    try:
        failing, _ = await race(node.failed(), over.wait())
        if won(failing):
            _log.critical("%s ends: %s", bookie.name, failing.result())
            return 1
        return 0
    finally:
        await node.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
