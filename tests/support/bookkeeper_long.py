"""`./dev compat bookkeeper [--minutes M] [--seed S]`: the long form of what runs with Apache BookKeeper.

- the stories of `tests/compat/bookkeeper`;
- BookKeeper's own verifier, which writes, reads and compares, over three bookies of ours;
- our ledger client over three bookies of ours and two of Apache's in one cluster, while bookies of both kinds
  are killed and come back: writers are fenced and taken over, and everything acknowledged must be there;
- the same with two of Apache's and one of ours, and with one of Apache's and two of ours, each a process that
  is killed, all three in every acknowledgement;
- our ledger client over `localbookie 3`, and `decommissionbookie` over bookies of ours.

Needs a JDK of version 17 or newer and Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from magnetar.base.clock import ManualClock
from magnetar.base.errors import LedgerError, MagnetarError
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from support import java_client
from support.apache_bookkeeper import HERE, ApacheBookKeeper, apache_bookkeeper
from support.bookie_process import BookieProcess
from support.bookkeeper_steps import both_kinds, decommission, local_bookkeeper, until_it_goes
from support.ledger_clusters import Marks

ROOT = Path(__file__).parents[2]
VERIFIER = "org.apache.bookkeeper.verifier.BookkeeperVerifierMain"
OPEN_DEADLINE_S = 120.0


COLLECT_S = 5.0
"""Between two looks of a bookie for deleted ledgers: what is written here would fill a disk soon."""


@contextmanager
def bookies(folder: Path, url: str, count: int) -> Iterator[list[BookieProcess]]:
    """Bookies of ours, stopped at the end."""
    options = ("--collect-interval", str(COLLECT_S))
    running = [BookieProcess(folder / f"bookie-{number}", url, *options) for number in range(count)]
    with ExitStack() as stack:
        for bookie in running:
            stack.callback(bookie.stop)
            bookie.begin()
        for bookie in running:
            bookie.wait()
        yield running


def verify(apache: ApacheBookKeeper, folder: Path, minutes: float) -> bool:
    """Runs Apache's verifier with three of our bookies; returns whether it found no fault."""
    with bookies(folder, f"zk://{apache.zookeeper}/verifier", 3):
        command = ["java", "-Xmx1g", f"-Dlog4j.configurationFile={HERE / 'log4j2.xml'}"]
        command += ["-cp", java_client.class_path(HERE), VERIFIER]
        settings = {
            "ledger_path": "/verifier",
            "zookeeper": apache.zookeeper,
            "ensemble_size": "3",
            "write_quorum": "3",
            "ack_quorum": "2",
            "duration": str(int(minutes * 60)),
            "target_concurrent_ledgers": "4",
            "target_entry_size": "8192",
            "target_ledger_size": str(4 << 20),
            "target_ledgers": "30",
        }
        for name, value in settings.items():
            command += [f"-{name}", value]
        # It says several lines of every read and write: hundreds of megabytes.
        counts = {("Created new ledger", ""): 0, ("Writing entries", ""): 0, ("Read ", "complete"): 0}
        last: deque[str] = deque(maxlen=20)
        errors: deque[str] = deque(maxlen=20)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                last.append(line)
                if "ERROR" in line or "Exception" in line:
                    errors.append(line)
                for begin, end in counts:
                    counts[begin, end] += line.startswith(begin) and line.rstrip().endswith(end)
        code = process.wait()
    ledgers, writes, reads = counts.values()
    print(f"verifier: exit code {code}, {ledgers} ledgers, {writes} groups of entries written, {reads} read")
    if code:
        print("".join((*errors, *last)))
    return code == 0


class Breaking:
    """Takes one bookie at a time down, of either kind."""

    def __init__(self, chance: random.Random, apache: ApacheBookKeeper, root: str) -> None:
        self.count = 0
        self._chance = chance
        self._apache = apache
        self._root = root
        self._actions: list[tuple[Callable[[], object], Callable[[], object]]] = []

    def ours(self, bookie: BookieProcess) -> None:
        """A bookie of ours, which is killed."""

        def back() -> None:
            bookie.begin()
            bookie.wait()

        self._actions.append((bookie.kill, back))

    def theirs(self, name: str) -> None:
        """A bookie of Apache's, which is stopped."""
        down, up = self._apache.stop_bookie, self._apache.start_bookie
        self._actions.append((lambda: down(name), lambda: up(name, root=self._root)))

    def once(self) -> None:
        """Takes one down, and lets it come back after a while."""
        down, up = self._chance.choice(self._actions)
        down()
        self.count += 1
        time.sleep(self._chance.uniform(0.5, 3.0))
        up()
        time.sleep(self._chance.uniform(0.5, 2.0))


async def one_ledger(
    client: LedgerClient, taking: LedgerClient, chance: random.Random, seconds: float
) -> tuple[int, int]:
    """Writes a ledger, lets another client take it over, reads everything; entries, changes of ensemble."""
    marks = Marks()
    size = chance.choice((2, 3))
    layout = QuorumLayout(3, size, chance.randint(2, size))
    writer = await until_it_goes(partial(client.create, LedgerOptions(layout=layout), marks))
    written: list[bytes] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        vector = [chance.randbytes(chance.randint(0, 2_000)) for _ in range(chance.randint(1, 50))]
        writer.append(vector)
        written += vector
        await marks.reach(len(written) - 1, OPEN_DEADLINE_S)
    acknowledged = len(written)
    writer.append([b"perhaps"] * 3)
    written += [b"perhaps"] * 3
    deadline = time.monotonic() + OPEN_DEADLINE_S
    while True:
        try:
            reader = await taking.open(writer.ledger_id)
            break
        except (LedgerError, MagnetarError) as error:
            # Two of its bookies may be away just now.
            if time.monotonic() > deadline:
                raise AssertionError(f"ledger {writer.ledger_id} cannot be recovered: {error}") from error
            await asyncio.sleep(0.5)
    assert reader.last_entry >= acknowledged - 1, (reader.last_entry, acknowledged)
    read: list[bytes] = []
    while len(read) <= reader.last_entry:
        try:
            read += [entry.payload for entry in await reader.read(len(read), reader.last_entry, 1 << 20)]
        except (LedgerError, MagnetarError) as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"ledger {writer.ledger_id} cannot be read: {error}") from error
            await asyncio.sleep(0.5)
    assert read == written[: len(read)]
    return acknowledged, len(writer.metadata.ensembles) - 1


async def write_and_take_over(url: str, seed: int, minutes: float) -> tuple[int, int, int]:
    """Writes ledger after ledger; returns their number, their entries, and the changes of ensembles."""
    chance = random.Random(seed)
    found = parse_metadata_url(url)
    end = time.monotonic() + minutes * 60
    ledgers = entries = changes = 0
    stores = [await open_metadata(found, ManualClock()) for _ in range(2)]
    try:
        while time.monotonic() < end:
            clients = []
            for store in stores:
                tree = await open_tree(store, found.root)
                options = LedgerClientOptions(use_v2=chance.random() < 0.5, answer_timeout_s=2.0)
                registries = TreeLedgerRegistry(store, tree), TreeBookieRegistry(store, tree)
                clients.append(LedgerClient(Cluster(*registries, options)))
            try:
                more, changed = await one_ledger(clients[0], clients[1], chance, 5.0)
            finally:
                for client in clients:
                    await client.close()
            ledgers, entries, changes = ledgers + 1, entries + more, changes + changed
    finally:
        for store in stores:
            await store.close()
    return ledgers, entries, changes


async def mixed(apache: ApacheBookKeeper, folder: Path, seed: int, minutes: float) -> None:
    """Both kinds of bookies under load, with one of them down again and again."""
    root = "/mixed"
    url = f"zk://{apache.zookeeper}{root}"
    with bookies(folder, url, 3) as ours:
        breaking = Breaking(random.Random(seed), apache, root)
        for bookie in ours:
            breaking.ours(bookie)
        for name in ("theirs-0", "theirs-1"):
            apache.start_bookie(name, root=root)
            breaking.theirs(name)
        writing = asyncio.create_task(write_and_take_over(url, seed, minutes))
        while not writing.done():
            await asyncio.to_thread(breaking.once)
        ledgers, entries, changes = await writing
        for name in ("theirs-0", "theirs-1"):
            apache.stop_bookie(name)
    print(
        f"mixed cluster, seed {seed}: {ledgers} ledgers taken over, {entries} acknowledged entries found, "
        f"{changes} changes of ensembles, {breaking.count} bookies down and back"
    )


def main() -> int:
    """The command: 0 when everything held."""
    parser = argparse.ArgumentParser(prog="./dev compat bookkeeper", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=3.0, help="of the verifier and of the kills (3)")
    parser.add_argument("--seed", type=int, default=1, help="of the kills and the writers (1)")
    chosen = parser.parse_args()
    tests = [sys.executable, "-m", "pytest", "tests/compat/bookkeeper", "-q"]
    code = subprocess.run(tests, cwd=ROOT, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="magnetar-bookkeeper-") as scratch:
        folder = Path(scratch)
        for name in ("apache", "verifier", "mixed"):
            (folder / name).mkdir()
        with apache_bookkeeper(folder / "apache") as apache:
            content = verify(apache, folder / "verifier", chosen.minutes)
            asyncio.run(mixed(apache, folder / "mixed", chosen.seed, chosen.minutes))
            for theirs in (2, 1):
                print(
                    asyncio.run(both_kinds(apache, folder, theirs, chosen.seed, chosen.minutes)), flush=True
                )
            print(asyncio.run(local_bookkeeper(apache)), flush=True)
            print(asyncio.run(decommission(apache, folder)), flush=True)
    return 0 if content and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
