"""Reads of an entry from a bookie with it, and ledgers whose entries are durable only when forced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.deferred import DeferredWriter
from magnetar.ledger.quorum.effects import (
    Advance,
    Closed,
    Effect,
    Failed,
    SendAdds,
    SendForce,
    SendRead,
    WriteMetadata,
)
from magnetar.ledger.quorum.entry_read import SILENCE, EntryRead, FoundEntry, NotFound, ReadEffect, Unread
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.status import Status

GOOD, DAMAGED = b"good", b"damaged"
ABSENT = (Status.NO_ENTRY, Status.NO_LEDGER)
ANSWERS = (GOOD, DAMAGED, *ABSENT, Status.IO_ERROR, Status.UNKNOWN_LEDGER_STATE, SILENCE)
ENTRY = 4


@given(
    st.sampled_from(DigestType),
    st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=5),
    st.integers(0, 1 << 32),
)
def test_a_good_copy_is_found_wherever_it_is(
    kind: DigestType, copies: list[bytes | Status], seed: int
) -> None:
    """In whatever order bookies answer, and whichever is asked out of turn."""
    random = Random(seed)
    digester = Digester(1, kind, b"secret")
    good = digester.seal(ENTRY, 3, 100, b"payload") + b"payload"
    # Without a digest damage shows where it makes the entry another one.
    damaged = good[:15] + b"\xff" + good[16:]
    members = [f"b{n}" for n in range(len(copies))]
    order = random.sample(range(len(copies)), len(copies))
    read = EntryRead(ENTRY, members, order, digester)
    asked: list[SendRead] = []
    ever_asked: list[int] = []
    outcome: FoundEntry | NotFound | None = None

    def do(effects: Sequence[ReadEffect]) -> None:
        nonlocal outcome
        for effect in effects:
            if isinstance(effect, SendRead):
                asked.append(effect)
                ever_asked.append(effect.index)
            else:
                assert outcome is None
                outcome = effect

    do(read.start())
    while outcome is None:
        if random.random() < 0.3:
            do(read.is_silent())
        answered = asked.pop(random.randrange(len(asked)))
        copy = copies[answered.index]
        if isinstance(copy, Status):
            do(read.read(answered.index, copy, None))
        else:
            do(read.read(answered.index, Status.OK, good if copy == GOOD else damaged))
    assert ever_asked == order[: len(ever_asked)], "the best first, each once"
    if GOOD in copies:
        assert isinstance(outcome, FoundEntry)
        assert outcome.entry.payload == b"payload"
        for index in outcome.bad:
            assert copies[index] in (DAMAGED, *ABSENT, Status.IO_ERROR)
        return
    assert isinstance(outcome, NotFound)
    assert (outcome.reason is Unread.ABSENT) == all(copy in ABSENT for copy in copies)


class Bookie:
    """Has what it took in memory until it is forced."""

    def __init__(self) -> None:
        self.memory: set[int] = set()
        self.disk: set[int] = set()


@given(
    st.sampled_from(
        [QuorumLayout(3, 3, 2), QuorumLayout(3, 2, 2), QuorumLayout(5, 3, 2), QuorumLayout(2, 2, 1)]
    ),
    st.integers(0, 1 << 32),
)
def test_what_was_forced_survives_the_power_of_all_bookies(layout: QuorumLayout, seed: int) -> None:
    random = Random(seed)
    members = tuple(f"b{n}" for n in range(layout.ensemble_size))
    bookies = [Bookie() for _ in members]
    metadata = LedgerMetadata(
        LedgerState.OPEN,
        None,
        ((0, members),),
        write_quorum=layout.write_quorum,
        ack_quorum=layout.ack_quorum,
    )
    core = DeferredWriter(1, metadata, 0, Digester(1, DigestType.CRC32C))
    waiting: list[Callable[[], None]] = []
    confirmed = -1
    ended: list[Closed | Failed] = []

    def do(effects: Sequence[Effect]) -> None:
        nonlocal confirmed
        for effect in effects:
            if isinstance(effect, Advance):
                assert effect.last_entry > confirmed
                confirmed = effect.last_entry
                for entry in range(confirmed + 1):
                    assert sum(entry in bookie.disk for bookie in bookies) >= layout.ack_quorum
            elif isinstance(effect, Closed | Failed):
                ended.append(effect)
            else:
                waiting.append(lambda effect=effect: carry_out(effect))

    def carry_out(effect: Effect) -> None:
        if isinstance(effect, SendAdds):
            bookies[effect.index].memory.update(effect.entry_ids)
            ids = effect.entry_ids
            waiting.append(lambda: do(core.added(effect.bookie, effect.index, ids, Status.OK)))
        elif isinstance(effect, SendForce):
            bookie = bookies[effect.index]
            bookie.disk |= bookie.memory
            waiting.append(lambda: do(core.forced(effect.bookie, effect.index, Status.OK)))
        elif isinstance(effect, WriteMetadata):
            waiting.append(lambda: do(core.metadata_written(1)))

    def step() -> bool:
        if waiting:
            waiting.pop(random.randrange(len(waiting)))()
        return bool(waiting)

    appended = 0
    for _ in range(random.randint(1, 10)):
        count = random.randint(0, 4)
        appended += count
        do(core.append([b"x"] * count))
        if random.random() < 0.4:
            do(core.force())
        for _ in range(random.randint(0, 20)):
            step()
        core.check()
        assert core.last_confirmed == confirmed <= core.last_acknowledged <= core.last_pushed
    do(core.force())
    while step():
        pass
    assert confirmed == appended - 1, "a force ends with everything that was appended"
    do(core.close())
    while step():
        pass
    assert ended == [Closed(LedgerEnd(appended - 1, appended))]
