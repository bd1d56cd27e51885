"""Writer and recovery of a ledger against bookies of a few lines, with any answer at any time.

Answers come in any order, are lost before or after they took effect, bookies refuse, successors are
missing, writes of metadata end with an unknown outcome. Whatever happens: entries are confirmed in
order, each on Qa bookies that the metadata names; and the ledger's end keeps what was confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.ledger.api import LedgerClosedError, LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.effects import (
    Advance,
    ChooseBookies,
    Closed,
    Effect,
    Failed,
    Failure,
    ReadMetadata,
    SendAdds,
    SendRead,
    WriteMetadata,
)
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.quorum_writer import QuorumWriter
from magnetar.ledger.quorum.recovery import LedgerRecovery
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.requests import LAST_ENTRY
from magnetar.wire.bookkeeper.status import Status

LEDGER = 1
DIGESTER = Digester(LEDGER, DigestType.CRC32C)
LAYOUTS = [
    QuorumLayout(5, 5, 3),
    QuorumLayout(5, 3, 2),
    QuorumLayout(3, 3, 2),
    QuorumLayout(4, 3, 2),
    QuorumLayout(3, 2, 2),
    QuorumLayout(3, 1, 1),
]


def payload(entry_id: int) -> bytes:
    return b"%d" % entry_id * (entry_id % 5)


class Bookie:
    def __init__(self) -> None:
        self.entries: dict[int, bytes] = {}
        self.fenced = False
        self.down = False

    def add(self, send: SendAdds) -> Status:
        if self.down:
            return Status.IO_ERROR
        if self.fenced and not send.recovery:
            return Status.FENCED
        self.entries.update(zip(send.entry_ids, send.entries, strict=True))
        return Status.OK

    def read(self, send: SendRead) -> tuple[Status, bytes | None]:
        if self.down:
            return Status.IO_ERROR, None
        self.fenced |= send.fence
        wanted = max(self.entries, default=-1) if send.entry_id == LAST_ENTRY else send.entry_id
        entry = self.entries.get(wanted)
        return (Status.NO_ENTRY, None) if entry is None else (Status.OK, entry)


class Client:
    """Does what its core asks for, some time."""

    def __init__(self, world: World, core: QuorumWriter | LedgerRecovery) -> None:
        self.world = world
        self.core = core
        self.confirmed = -1
        self.end: LedgerEnd | None = None
        self.failure: Failure | None = None

    def do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Advance):
                assert effect.last_entry > self.confirmed
                for entry_id in range(self.confirmed + 1, effect.last_entry + 1):
                    self.world.check_confirmed(entry_id)
                self.confirmed = effect.last_entry
            elif isinstance(effect, Closed):
                self.end = effect.end
            elif isinstance(effect, Failed):
                self.failure = effect.failure
            else:
                self.world.later(lambda effect=effect: self.carry_out(effect))
        if isinstance(self.core, QuorumWriter):
            self.core.check()

    def carry_out(self, effect: Effect) -> None:
        world, core = self.world, self.core
        if isinstance(effect, SendAdds):
            status = Status.IO_ERROR if world.fails() else world.bookies[effect.bookie].add(effect)
            ids = list(effect.entry_ids)
            if status is Status.OK and world.fails():
                status = world.random.choice((Status.IO_ERROR, Status.READ_ONLY))
            cut = world.random.randint(0, len(ids))
            for part in (ids[:cut], ids[cut:]):
                if part:
                    world.later(
                        lambda part=part: self.do(core.added(effect.bookie, effect.index, part, status))
                    )
        elif isinstance(effect, SendRead):
            assert isinstance(core, LedgerRecovery)
            status, entry = world.bookies[effect.bookie].read(effect)
            world.later(
                lambda: self.do(core.read(effect.bookie, effect.index, effect.entry_id, status, entry))
            )
        elif isinstance(effect, WriteMetadata):
            lost = world.fails()
            applied = effect.expected_version == world.version and not (lost and world.random.random() < 0.5)
            if applied:
                world.metadata, world.version = effect.metadata, world.version + 1
                version = world.version
            if applied and not lost:
                world.later(lambda: self.do(core.metadata_written(version)))
            else:
                world.later(lambda: self.do(core.metadata_conflict()))
        elif isinstance(effect, ReadMetadata):
            found, version = world.metadata, world.version
            world.later(lambda: self.do(core.metadata_read(found, version)))
        elif isinstance(effect, ChooseBookies):
            chosen = world.successors(effect, core)
            world.later(lambda: self.do(core.bookies_chosen(chosen)))


class World:
    def __init__(self, layout: QuorumLayout, random: Random, spare: int = 3) -> None:
        self.layout = layout
        self.random = random
        names = [f"b{n}" for n in range(layout.ensemble_size + spare)]
        self.bookies = {name: Bookie() for name in names}
        self.metadata = LedgerMetadata(
            LedgerState.OPEN,
            None,
            ((0, tuple(names[: layout.ensemble_size])),),
            write_quorum=layout.write_quorum,
            ack_quorum=layout.ack_quorum,
        )
        self.version = 0
        self.failures_left = random.randint(0, 12)
        self._waiting: list[Callable[[], None]] = []

    def later(self, action: Callable[[], None]) -> None:
        self._waiting.append(action)

    def fails(self) -> bool:
        if self.failures_left and self.random.random() < 0.15:
            self.failures_left -= 1
            return True
        return False

    def step(self) -> bool:
        if not self._waiting:
            return False
        self._waiting.pop(self.random.randrange(len(self._waiting)))()
        return True

    def successors(self, choose: ChooseBookies, core: QuorumWriter | LedgerRecovery) -> dict[int, str]:
        free = [name for name in self.bookies if name not in choose.exclude and not self.bookies[name].down]
        self.random.shuffle(free)
        chosen = dict(zip(choose.failed, free, strict=False))
        for index, name in choose.failed.items():
            # A failed bookie is back where there is no other; or no reader looks so far.
            if index not in chosen and not self.bookies[name].down:
                chosen[index] = name
        if isinstance(core, QuorumWriter) and self.fails():
            return {}
        return chosen

    def holders(self, entry_id: int) -> list[str]:
        """The bookies in the metadata that have the entry as it was written."""
        members = next(part for first, part in reversed(self.metadata.ensembles) if first <= entry_id)
        found = []
        for index in self.layout.write_set(entry_id):
            entry = self.bookies[members[index]].entries.get(entry_id)
            if entry is not None and DIGESTER.open(entry, entry_id).payload == payload(entry_id):
                found.append(members[index])
        return found

    def check_confirmed(self, entry_id: int) -> None:
        assert len(self.holders(entry_id)) >= self.layout.ack_quorum, f"entry {entry_id} is not kept"


def write(writer: Client, count: int) -> None:
    core = writer.core
    assert isinstance(core, QuorumWriter)
    first = core.last_pushed + 1
    try:
        writer.do(core.append([payload(first + n) for n in range(count)]))
    except LedgerClosedError:
        assert core.is_closing or core.is_over


@pytest.mark.parametrize("delay_change", [False, True], ids=["at-once", "delayed"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(LAYOUTS), st.integers(0, 1 << 32), st.sampled_from([0, 3]))
def test_a_writer_and_who_takes_its_ledger_over(
    delay_change: bool, layout: QuorumLayout, seed: int, spare: int
) -> None:
    random = Random(seed)
    world = World(layout, random, spare)
    core = QuorumWriter(LEDGER, world.metadata, 0, DIGESTER, delay_change=delay_change)
    writer = Client(world, core)
    for _ in range(random.randint(1, 8)):
        write(writer, random.randint(1, 4))
        for _ in range(random.randint(0, 25)):
            world.step()
        if random.random() < 0.3:
            writer.do(core.take_back())
    if random.random() < 0.3:
        writer.do(core.close())

    # Now bookies are lost for good, no more than a confirmed entry survives, another client takes over while
    # the writer goes on.
    for name in random.sample(list(world.bookies), layout.ack_quorum - 1):
        world.bookies[name].down = True
    world.failures_left = 0
    taking = [
        Client(world, LedgerRecovery(LEDGER, world.metadata, world.version, DIGESTER))
        for _ in range(random.randint(1, 2))
    ]
    for client in taking:
        assert isinstance(client.core, LedgerRecovery)
        client.do(client.core.start())
        write(writer, 2)
        for _ in range(random.randint(0, 10)):
            world.step()
    while world.step():
        pass
    end = world.metadata.end
    if end is None:
        # Where no bookie is left to replace the lost, entries must reach Qa without them.
        members = world.metadata.ensembles[-1][1]
        lost = [index for index, name in enumerate(members) if world.bookies[name].down]
        assert not spare
        assert not layout.can_confirm_without(lost)
        return
    for client in taking:
        assert client.end == end or client.failure is Failure.NOT_ENOUGH_BOOKIES
        assert client.end == end or not spare
    assert end.last_entry >= writer.confirmed
    assert end.length_bytes == sum(len(payload(n)) for n in range(end.last_entry + 1))
    for entry_id in range(end.last_entry + 1):
        alive = [name for name in world.holders(entry_id) if not world.bookies[name].down]
        assert alive, f"entry {entry_id} is lost"


@pytest.mark.parametrize("delay_change", [False, True], ids=["at-once", "delayed"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(LAYOUTS), st.integers(0, 1 << 32))
def test_a_writer_that_is_left_alone_confirms_and_closes(
    delay_change: bool, layout: QuorumLayout, seed: int
) -> None:
    random = Random(seed)
    world = World(layout, random)
    core = QuorumWriter(LEDGER, world.metadata, 0, DIGESTER, delay_change=delay_change)
    writer = Client(world, core)
    written = 0
    for _ in range(random.randint(1, 8)):
        count = random.randint(1, 4)
        write(writer, count)
        written += count
        for _ in range(random.randint(0, 25)):
            world.step()
    writer.do(core.close())
    world.failures_left = 0
    while not core.is_over:
        while world.step():
            pass
        if not core.is_over:
            assert core.is_short, "nothing is under way, and it is not over"
            writer.do(core.take_back())
    if writer.failure is not None:
        assert writer.failure is Failure.NOT_ENOUGH_BOOKIES
        return
    assert (
        writer.end
        == world.metadata.end
        == LedgerEnd(written - 1, sum(map(len, map(payload, range(written)))))
    )
    assert writer.confirmed == written - 1
