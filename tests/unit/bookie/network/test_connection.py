"""A ledger client's share of a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.bookie.network.connection import BookieConnection
from magnetar.wire.bookkeeper.bookie import REQUEST_WORK
from magnetar.wire.bookkeeper.bookie_client import encode_request
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_MAX
from magnetar.wire.bookkeeper.requests import AddRun, Read, ReadLac, Request

PER_READ = 4
PER_TURN = 8


class Bookie:
    """Notes what it is to handle. Two pieces of work take a turn."""

    packet_bytes_max = PACKET_BYTES_MAX

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []
        self.handled: list[tuple[BookieConnection, Request]] = []
        self.ms = 0.0
        sizes = ShareSizes(PER_READ * REQUEST_WORK, PER_TURN * REQUEST_WORK)
        self.turns = LoopShares(self.later.append, lambda: self.ms, sizes)

    def opened(self, connection: BookieConnection) -> None: ...

    def closed(self, connection: BookieConnection) -> None: ...

    def handle(self, connection: BookieConnection, requests: Sequence[Request]) -> None:
        self.ms += 0.6
        self.handled += [(connection, request) for request in requests]

    def go_on(self, connection: BookieConnection) -> None: ...

    def answering(self, connection: BookieConnection, size: int) -> None: ...

    def taken(self, connection: BookieConnection) -> None: ...

    def turn(self) -> None:
        due, self.later[:] = list(self.later), []
        for work in due:
            work()

    def of(self, connection: BookieConnection) -> list[Request]:
        return [request for of, request in self.handled if of is connection]


class Wire(asyncio.Transport):
    """A socket's transport."""

    def __init__(self, address: str = "192.0.2.7") -> None:
        super().__init__({"peername": (address, 1)})
        self.reads = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: Any) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


def opened(bookie: Bookie, address: str = "192.0.2.7") -> tuple[BookieConnection, Wire]:
    connection, wire = BookieConnection(bookie), Wire(address)
    connection.connection_made(wire)
    # The first read of a client makes room for large ones.
    brings(connection, [ReadLac(1, 0)])
    bookie.turn()
    bookie.handled.clear()
    return connection, wire


def brings(connection: BookieConnection, requests: Sequence[Request]) -> None:
    """One read of the socket."""
    data = b"".join(piece for request in requests for piece in encode_request(request, is_v2=False))
    buffer = connection.get_buffer(-1)
    buffer[: len(data)] = data
    connection.buffer_updated(len(data))


def reads(count: int) -> list[Request]:
    return [Read(1, number, number) for number in range(count)]


def story(tell: Callable[[Bookie], None]) -> None:
    async def main() -> None:
        tell(Bookie())

    asyncio.run(main())


def test_a_read_is_handled_in_pieces_and_in_its_order() -> None:
    """All requests of a read of 256 KiB were handled at once: others waited for up to 22 seconds."""

    def tell(bookie: Bookie) -> None:
        flood, wire = opened(bookie)
        brings(flood, reads(19))
        assert bookie.of(flood) == reads(19)[:PER_READ]
        assert not wire.reads
        bookie.turn()
        assert not wire.reads
        while bookie.later:
            bookie.turn()
        assert bookie.of(flood) == reads(19)
        assert wire.reads

    story(tell)


def test_a_turn_serves_others_between_the_pieces() -> None:
    def tell(bookie: Bookie) -> None:
        floods = [opened(bookie)[0] for _ in range(3)]
        other, wire = opened(bookie, "192.0.2.8")
        for flood in floods:
            brings(flood, reads(40))
        # Each further read handles one request.
        assert [len(bookie.of(flood)) for flood in floods] == [PER_READ, PER_READ, 1]
        brings(other, reads(1))
        assert bookie.of(other) == reads(1)
        assert not wire.reads
        before = len(bookie.handled)
        bookie.turn()
        # It has nothing left, so it does not wait for the pieces of floods, of which two take the turn.
        assert wire.reads
        assert len(bookie.handled) - before == 2 * PER_READ
        while bookie.later:
            bookie.turn()
        assert all(bookie.of(flood) == reads(40) for flood in floods)

    story(tell)


def test_addresses_take_turns() -> None:
    def tell(bookie: Bookie) -> None:
        floods = [opened(bookie)[0] for _ in range(20)]
        other, _ = opened(bookie, "192.0.2.8")
        for flood in floods:
            brings(flood, reads(40))
        brings(other, reads(1 + PER_READ))
        bookie.turn()
        assert bookie.of(other) == reads(1 + PER_READ)

    story(tell)


def test_what_is_held_for_another_reason_keeps_its_bytes() -> None:
    def tell(bookie: Bookie) -> None:
        flood, wire = opened(bookie)
        brings(flood, reads(11))
        flood.hold()
        for _ in range(5):
            bookie.turn()
        assert len(bookie.of(flood)) == PER_READ
        assert not bookie.later
        flood.release()
        while bookie.later:
            bookie.turn()
        assert bookie.of(flood) == reads(11)
        assert wire.reads

    story(tell)


def test_who_has_gone_gets_no_turn() -> None:
    def tell(bookie: Bookie) -> None:
        flood, _ = opened(bookie)
        brings(flood, reads(11))
        flood.connection_lost(None)
        bookie.turn()
        assert len(bookie.of(flood)) == PER_READ
        assert not bookie.turns.waiting

    story(tell)


def test_a_large_packet_counts_before_it_is_whole() -> None:
    """Sixty packets of 5 MB, a megabyte of each in a read, had the loop for a tenth of a second."""

    def tell(bookie: Bookie) -> None:
        writer, wire = opened(bookie)
        other, others_wire = opened(bookie, "192.0.2.8")
        run = AddRun(1, bytes(20), v3=True)
        run.entry_ids, run.entries, run.txn_ids = [0], [bytes(1 << 20)], [1]
        data = memoryview(b"".join(encode_request(run, is_v2=False)))
        size, turns, in_a_turn = len(data), 0, 0
        while data:
            if not wire.reads:
                assert in_a_turn >= PER_TURN << 10 << 4 or bookie.handled
                turns, in_a_turn = turns + 1, 0
                bookie.turn()
                assert wire.reads, "it is read again in the next turn"
            buffer = writer.get_buffer(-1)
            taken = min(len(buffer), len(data), 64 << 10)
            buffer[:taken] = data[:taken]
            writer.buffer_updated(taken)
            data, in_a_turn = data[taken:], in_a_turn + taken
        assert turns >= size // (PER_TURN << 10 << 4) - 1
        (added,) = bookie.of(writer)
        assert isinstance(added, AddRun)
        assert added.entries == run.entries
        while bookie.later:
            bookie.turn()
        brings(other, reads(1))
        assert bookie.of(other) == reads(1), "a packet counts once"
        assert not bookie.turns.spent
        assert others_wire.reads

    story(tell)


def test_a_read_of_a_large_packet_is_small_when_a_turn_is_used_up() -> None:
    def tell(bookie: Bookie) -> None:
        writer, _ = opened(bookie)
        length = (5 << 20).to_bytes(4, "big")
        writer.get_buffer(-1)[:4] = length
        writer.buffer_updated(4)
        assert len(writer.get_buffer(-1)) == 1 << 20
        bookie.turns.handled(PER_TURN * REQUEST_WORK)
        assert len(writer.get_buffer(-1)) == 64 << 10

    story(tell)


def test_a_buffer_that_a_large_packet_made_takes_no_more_than_another() -> None:
    """170,000 reads came behind one packet of 5 MB."""

    def tell(bookie: Bookie) -> None:
        writer, _ = opened(bookie)
        run = AddRun(1, bytes(20), v3=True)
        run.entry_ids, run.entries, run.txn_ids = [0], [bytes(1 << 20)], [1]
        data = memoryview(b"".join(encode_request(run, is_v2=False)))
        while data:
            buffer = writer.get_buffer(-1)
            size = min(len(data), len(buffer))
            buffer[:size], data = data[:size], data[size:]
            writer.buffer_updated(size)
        assert len(bookie.of(writer)) == 1
        assert len(writer.get_buffer(-1)) == 256 << 10

    story(tell)
