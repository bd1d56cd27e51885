"""Entries that are acknowledged before they are durable, as transcripts."""

from __future__ import annotations

from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.deferred import DeferredWriter
from magnetar.ledger.quorum.effects import Advance, Closed, Effect, Failed, SendAdds, SendForce, WriteMetadata
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.status import Status

OPEN = LedgerMetadata(LedgerState.OPEN, None, ((0, ("a", "b", "c")),), write_quorum=3, ack_quorum=2)
DIGESTER = Digester(1, DigestType.CRC32C)
FORCES = [SendForce("a", 0), SendForce("b", 1), SendForce("c", 2)]


def writer() -> DeferredWriter:
    return DeferredWriter(1, OPEN, 0, DIGESTER)


def acked(core: DeferredWriter, members: str, *entries: int) -> list[Effect]:
    return [e for name in members for e in core.added(name, "abc".index(name), entries, Status.OK)]


def forced(core: DeferredWriter, members: str) -> list[Effect]:
    return [e for name in members for e in core.forced(name, "abc".index(name), Status.OK)]


def test_an_acknowledgement_confirms_nothing_and_a_force_does() -> None:
    core = writer()
    core.append([b"0", b"1", b"2"])
    assert acked(core, "ab", 0, 1) == []
    assert (core.last_acknowledged, core.last_confirmed) == (1, -1)
    # Entry 2 was appended before the force: it is waited for.
    assert core.force() == []
    assert acked(core, "bc", 2) == FORCES
    assert forced(core, "ab") == []
    assert forced(core, "bb") == []
    assert forced(core, "c") == [Advance(2)]
    assert (core.last_confirmed, core.confirmed_bytes) == (2, 3)
    core.check()


def test_what_comes_while_a_force_is_under_way_needs_another_one() -> None:
    core = writer()
    core.append([b"0"])
    acked(core, "ab", 0)
    assert core.force() == FORCES
    core.append([b"1"])
    acked(core, "ab", 1)
    assert core.force() == []
    assert forced(core, "abc") == [Advance(0), *FORCES]
    assert forced(core, "abc") == [Advance(1)]
    assert core.force() == []


def test_entries_carry_what_was_forced() -> None:
    core = writer()
    core.append([b"0"])
    acked(core, "ab", 0)
    (send, *_) = core.append([b"1"])
    assert isinstance(send, SendAdds)
    assert DIGESTER.open(send.entries[0], 1).last_add_confirmed == -1
    core.force()
    acked(core, "ab", 1)
    forced(core, "abc")
    (send, *_) = core.append([b"2"])
    assert isinstance(send, SendAdds)
    # The force that was asked for before entry 1 was acknowledged covers what was acknowledged by then.
    assert DIGESTER.open(send.entries[0], 2).last_add_confirmed in (0, 1)


def test_close_forces_first() -> None:
    core = writer()
    core.append([b"abc"])
    assert core.close() == []
    assert acked(core, "ac", 0) == FORCES
    end = LedgerEnd(0, 3)
    assert forced(core, "abc") == [Advance(0), WriteMetadata(OPEN.closed(end), 0)]
    assert core.metadata_written(1) == [Closed(end)]


def test_an_empty_ledger_is_closed_without_a_force() -> None:
    core = writer()
    assert core.force() == []
    assert core.close() == [WriteMetadata(OPEN.closed(LedgerEnd(-1, 0)), 0)]


def test_a_bookie_that_fails_is_the_end() -> None:
    core = writer()
    core.append([b"0"])
    acked(core, "ab", 0)
    (failed,) = core.added("c", 2, [0], Status.IO_ERROR)
    assert isinstance(failed, Failed)
    assert core.force() == []


def test_a_force_that_fails_is_the_end() -> None:
    core = writer()
    core.append([b"0"])
    acked(core, "ab", 0)
    core.force()
    (failed,) = core.forced("b", 1, Status.IO_ERROR)
    assert isinstance(failed, Failed)
    assert forced(core, "ac") == []
