"""One ledger's life under faults, and what must hold whatever happened.

A writer appends and perhaps closes. Bookies crash and come back, messages are late, lost, doubled and cut
off, a bit flips or a bookie is lost for ever (together no more than Qa - 1 copies of anything), the writer
goes away, and at some time one or two others recover the ledger, perhaps while the writer still writes.
Then everything heals, and the ledger must be closed and whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.quorum_writer import QuorumWriter
from magnetar.ledger.quorum.recovery import LedgerRecovery
from magnetar.wire.bookkeeper.digests import Digester, DigestMismatchError, DigestType, master_key
from sim.bookies import BookieNode
from sim.clients import ClientNode
from sim.metadata import MetadataNode
from sim.network import Network, NetworkFaults
from sim.rules import RulesInForce
from sim.world import World

LEDGER: Final = LedgerId(7)
LAYOUTS: Final = (QuorumLayout(3, 3, 2), QuorumLayout(3, 2, 2), QuorumLayout(4, 3, 2), QuorumLayout(5, 5, 3))
FAULTS_END_US: Final = 400_000
END_US: Final = 3_000_000
RECOVERIES_MAX: Final = 12

_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that did not hold."""

    rule: str
    detail: str


class LedgerStory:
    """One run of one seed."""

    def __init__(self, seed: str, *, keep_log: bool = False, skipped: frozenset[int] = frozenset()) -> None:
        """`skipped`: numbers of planned events that do not happen."""
        world = self.world = World(seed, keep_log=keep_log)
        self._skipped = skipped
        self.planned = 0
        """How many events were planned."""
        random = world.random
        self._layout = random.choice(LAYOUTS)
        calm = random.random() < 0.2
        self._network = Network(
            world,
            NetworkFaults()
            if calm
            else NetworkFaults(
                loss=random.choice((0.0, 0.02, 0.1)),
                doubling=random.choice((0.0, 0.05)),
                slow=random.choice((0.0, 0.1, 0.5)),
            ),
        )
        stalls = 0.0 if calm else random.choice((0.02, 0.3))
        size = self._layout.ensemble_size
        self._bookies = {
            name: BookieNode(world, self._network, name, stalls=stalls)
            for name in (f"b{at}" for at in range(size + random.randint(1, 3)))
        }
        members = tuple(random.sample(sorted(self._bookies), size))
        metadata = LedgerMetadata(
            state=LedgerState.OPEN,
            end=None,
            ensembles=((0, members),),
            write_quorum=self._layout.write_quorum,
            ack_quorum=self._layout.ack_quorum,
        )
        self._metadata = MetadataNode(world, self._network, metadata)
        self._digester = Digester(LEDGER, DigestType.CRC32C)
        self._payloads: list[bytes] = []
        self._ends: list[tuple[str, LedgerEnd]] = []
        self._clients: list[ClientNode] = []
        self._writer = self._client("writer")
        self._core = QuorumWriter(LEDGER, metadata, 0, self._digester, rules=RulesInForce.writing)
        self._writer.use(self._core)
        self._lost_copies = 0
        self._moment_us = 0
        self._is_closing = False
        self._writer_hangs = False
        world.note("quorums", self._layout, "ensemble", members)

    def _client(self, name: str) -> ClientNode:
        client = ClientNode(
            self.world,
            self._network,
            name,
            bookies=self._bookies,
            metadata=self._metadata,
            master_key=master_key(b""),
        )
        self._clients.append(client)
        return client

    def run(self) -> list[Violation]:
        """Lives it through; what did not hold at the end."""
        self._plan()
        self.world.run(FAULTS_END_US)
        self._heal()
        self.world.run(END_US)
        return self._violations()

    # What happens

    def _at(self, time_us: int, action: Callable[..., None], *arguments: object) -> None:
        """Plans an event."""
        if self.planned not in self._skipped:
            self.world.at(time_us, action, *arguments)
        self.planned += 1

    def _plan(self) -> None:
        random, at = self.world.random, self._at
        time_us = 0
        many = random.choice((1, 3, 8))
        moments = []
        for _ in range(random.randint(1, 6)):
            at(time_us, self._append, random.randint(1, many))
            moments.append(time_us)
            time_us += random.randint(0, 40 * _MS)
        # What goes wrong mostly goes wrong near something else.
        self._moment_us = random.choice(moments)
        plan = random.choice(
            (
                self._plan_anything,
                self._plan_anything,
                self._plan_fences,
                self._plan_replacements,
                self._plan_half_recoveries,
            )
        )
        plan(time_us)

    def _plan_fences(self, time_us: int) -> None:
        """Recoveries while the writer writes, at moments when bookies are down."""
        random = self.world.random
        start_us = self._moment_us + random.randint(0, 4 * _MS)
        self._at(start_us, self._recover, "recovery0", RECOVERIES_MAX)
        for name in random.sample(sorted(self._bookies), random.randint(0, 3)):
            down_us = start_us + random.randint(0, 12 * _MS)
            self._at(down_us, self._bookies[name].crash)
            self._at(down_us + random.randint(1, 4 * _MS), self._bookies[name].restart)
        if random.random() < 0.5:
            self._plan_cut()

    def _plan_replacements(self, time_us: int) -> None:
        """Bookies go down one after the other, for longer than any wait, and the writer goes last."""
        random = self.world.random
        for name in random.choices(sorted(self._bookies), k=random.randint(2, 5)):
            down_us = random.randint(0, time_us + 20 * _MS)
            self._at(down_us, self._bookies[name].crash)
            self._at(down_us + random.randint(20, 120) * _MS, self._bookies[name].restart)
        if random.random() < 0.5:
            self._at(time_us + random.randint(0, 90 * _MS), self._writer.crash)
        self._at(time_us + random.randint(0, 90 * _MS), self._recover, "recovery0", RECOVERIES_MAX)

    def _plan_half_recoveries(self, time_us: int) -> None:
        """Crashes the writer, and then the process that recovers, in the middle, while bookies are away."""
        random = self.world.random
        self._at(self._moment_us + random.randint(0, 40 * _MS), self._writer.crash)
        start_us = time_us + random.randint(0, 20 * _MS)
        for number in range(2):
            self._at(start_us, self._recover, f"recovery{number}", 0)
            for name in random.sample(sorted(self._bookies), random.randint(1, 3)):
                down_us = start_us + random.randint(0, 10 * _MS)
                self._at(down_us, self._bookies[name].crash)
                self._at(down_us + random.randint(60, 120) * _MS, self._bookies[name].restart)
            self._at(start_us + random.randint(60, 120) * _MS, self._crash_client, f"recovery{number}")
            start_us += random.randint(60, 150) * _MS

    def _crash_client(self, name: str) -> None:
        for client in self._clients:
            if client.name == name:
                client.crash()

    def _plan_anything(self, time_us: int) -> None:
        random, at = self.world.random, self._at
        if random.random() < 0.4:
            at(time_us, self._close)
        elif random.random() < 0.5:
            at(random.randint(0, time_us + 20 * _MS), self._writer.crash)
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            self._plan_crash(random.choice(sorted(self._bookies)))
        for _ in range(random.choice((0, 0, 1, 2, 3))):
            self._plan_cut()
        if random.random() < 0.3:
            at(self._some_time(), self._damage)
        if random.random() < 0.3:
            self._plan_disk_faults()
        for number in range(random.choice((0, 1, 1, 2))):
            at(self._some_time(), self._recover, f"recovery{number}", RECOVERIES_MAX)

    def _plan_disk_faults(self) -> None:
        """A disk is full for a while, or fails once, or lies for a while and loses power."""
        random, at = self.world.random, self._at
        bookie = self._bookies[random.choice(sorted(self._bookies))]
        start_us = self._some_time()
        end_us = start_us + random.randint(_MS, 100 * _MS)
        fault = random.randrange(3)
        if fault == 0:
            at(start_us, self._fill, bookie, True)
            at(end_us, self._fill, bookie, False)
        elif fault == 1:
            at(start_us, self._fail_disk, bookie)
            at(end_us, bookie.restart)
        else:
            at(start_us, self._lie, bookie, True)
            at(end_us, bookie.crash)
            at(end_us, self._lie, bookie, False)
            at(end_us + random.randint(1, 20 * _MS), bookie.restart)

    def _fill(self, bookie: BookieNode, full: bool) -> None:  # an event's argument
        bookie.set_full(full=full)

    def _fail_disk(self, bookie: BookieNode) -> None:
        self.world.note("a disk fails at", bookie.name)
        bookie.disk.fails_next = True

    def _lie(self, bookie: BookieNode, lies: bool) -> None:  # an event's argument
        self.world.note("the disk of", bookie.name, "lies" if lies else "means it")
        bookie.disk.lies = lies

    def _some_time(self) -> int:
        random = self.world.random
        if random.random() < 0.3:
            return random.randint(0, FAULTS_END_US - 1)
        return self._moment_us + random.randint(0, random.choice((3, 30, 80)) * _MS)

    def _plan_crash(self, name: str) -> None:
        start_us = self._some_time()
        down_us = self.world.random.randint(_MS, self.world.random.choice((10, 150)) * _MS)
        self._at(start_us, self._bookies[name].crash)
        self._at(start_us + down_us, self._bookies[name].restart)

    def _plan_cut(self) -> None:
        random = self.world.random
        names = [*sorted(self._bookies), "metadata"]
        ends = random.choice(("writer", "recovery0", "recovery1")), random.choice(names)
        if random.random() < 0.5:
            ends = ends[1], ends[0]
        start_us = max(0, self._some_time() - 5 * _MS)
        self._at(start_us, self._network.cut, *ends)
        self._at(start_us + random.randint(_MS, 200 * _MS), self._network.mend, *ends)

    def _append(self, count: int) -> None:
        if self._writer.is_up and not self._core.is_over and not self._is_closing:
            first = len(self._payloads)
            fresh = [f"entry {first + at}".encode() * (1 + at) for at in range(count)]
            self._payloads += fresh
            self.world.note("writer appends", first, "to", first + count - 1)
            self._writer.do(self._core.append(fresh))

    def _close(self) -> None:
        if self._writer.is_up:
            self._is_closing = True
            self.world.note("writer closes")
            self._writer.do(self._core.close())

    def _damage(self) -> None:
        if self._lost_copies >= self._layout.ack_quorum - 1:
            return
        self._lost_copies += 1
        bookie = self.world.random.choice(list(self._bookies.values()))
        if self.world.random.random() < 0.5:
            bookie.lose()
        elif bookie.disk.flip_a_bit():
            self.world.note("a bit flips at", bookie.name)

    def _recover(self, name: str, attempts: int) -> None:
        client = self._client(name)
        self._begin_recovery(client, attempts)

    def _begin_recovery(self, client: ClientNode, attempts: int) -> None:
        self.world.note(client.name, "begins")
        value, version = self._metadata.value, self._metadata.version
        core = LedgerRecovery(LEDGER, value, version, self._digester, rules=RulesInForce.recovery)
        client.use(core)
        client.do(core.start())
        self._watch_recovery(client, attempts)

    def _watch_recovery(self, client: ClientNode, attempts: int) -> None:
        if client.closed is not None:
            self._ends.append((client.name, client.closed))
        elif client.failed is None:
            self.world.at(20 * _MS, self._watch_recovery, client, attempts)
        elif attempts:
            self.world.at(40 * _MS, self._begin_recovery, client, attempts - 1)

    def _heal(self) -> None:
        self.world.note("everything heals")
        self._network.heal()
        for bookie in self._bookies.values():
            bookie.disk.fails_next = bookie.disk.lies = False
            bookie.set_full(full=False)
            bookie.restart()
        self.world.at(500 * _MS, self._last)

    def _last(self) -> None:
        self._writer_hangs = self._is_closing and not self._writer.is_done
        self._recover("last", RECOVERIES_MAX)

    # What must hold

    def _violations(self) -> list[Violation]:
        found: list[Violation] = []
        if self._writer.closed is not None:
            self._ends.append(("writer", self._writer.closed))
        if self._writer_hangs:
            found.append(Violation("liveness", "the writer neither closed the ledger nor gave up"))
        final = self._metadata.value
        if final.end is None:
            return [Violation("liveness", "the ledger is not closed although everything healed")]
        found += [
            Violation("one end", f"{name} saw {end}, it is {final.end}")
            for name, end in self._ends
            if end != final.end
        ]
        if any(bookie.disk.has_lied for bookie in self._bookies.values()):
            # What only lying disks kept cannot be had, nor a fence: what is left is that all see one end.
            return found
        confirmed = self._writer.confirmed
        if confirmed > final.end.last_entry:
            found.append(
                Violation("acknowledged", f"entry {confirmed} was confirmed, the ledger ends at {final.end}")
            )
        found += self._misses(final, final.end)
        return found

    def _misses(self, metadata: LedgerMetadata, end: LedgerEnd) -> list[Violation]:
        found = []
        length = 0
        for entry_id in range(end.last_entry + 1):
            length += len(self._payloads[entry_id]) if entry_id < len(self._payloads) else 0
            members = next(part for first, part in reversed(metadata.ensembles) if first <= entry_id)
            good = copies = 0
            for index in self._layout.write_set(entry_id):
                held = self._copy(self._bookies[members[index]], entry_id, length)
                copies += held is not None
                good += held is True
            if not good:
                found.append(Violation("readable", f"entry {entry_id} is on none of its bookies"))
            elif copies < self._layout.ack_quorum and not self._lost_copies:
                due = self._layout.ack_quorum
                found.append(Violation("copies", f"entry {entry_id} has {copies} copies, {due} are due"))
        if end.length_bytes != length:
            found.append(Violation("length", f"the ledger says {end.length_bytes} bytes, it has {length}"))
        return found

    def _copy(self, bookie: BookieNode, entry_id: int, length: int) -> bool | None:
        """Whether a good copy lies there; None when there is none at all."""
        try:
            data = bookie.disk.entry(LEDGER, entry_id)
        except CorruptDataError:
            return False
        if data is None:
            return None
        try:
            entry = self._digester.open(data, entry_id)
        except DigestMismatchError:
            return False
        return entry.payload == self._payloads[entry_id] and entry.length_bytes == length
