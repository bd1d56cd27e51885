"""A session with ZooKeeper, by bytes."""

from __future__ import annotations

import struct

import pytest

from magnetar.metadata.zookeeper.jute import JuteError, pack_buffer, pack_int, pack_long, pack_string
from magnetar.metadata.zookeeper.protocol import Event, Opcode, pack_connect, pack_read
from magnetar.metadata.zookeeper.session import Expired, Joined, Reply, ZooKeeperSession

PASSWORD = bytes(range(16))


def frame(*parts: bytes) -> bytes:
    return pack_buffer(b"".join(parts))


def greeting(session_id: int, timeout_ms: int = 4000) -> bytes:
    return frame(pack_int(0), pack_int(timeout_ms), pack_long(session_id), pack_buffer(PASSWORD), b"\0")


def reply(xid: int, zxid: int, record: bytes = b"", error: int = 0) -> bytes:
    return frame(pack_int(xid), pack_long(zxid), pack_int(error), record)


def joined() -> ZooKeeperSession:
    session = ZooKeeperSession(10_000)
    session.connect()
    assert session.receive(greeting(7)) == [Joined(resumed=False)]
    return session


def test_a_session_is_opened_resumed_and_lost() -> None:
    session = ZooKeeperSession(10_000)
    assert session.connect() == pack_connect(0, 10_000, 0, bytes(16))
    assert session.receive(greeting(7)) == [Joined(resumed=False)]
    assert (session.session_id, session.timeout_ms) == (7, 4000)
    session.request(Opcode.SYNC, pack_string("/a"))
    session.receive(reply(1, 99))
    assert session.connect() == pack_connect(99, 10_000, 7, PASSWORD)
    assert session.receive(greeting(7)) == [Joined(resumed=True)]
    session.connect()
    assert session.receive(greeting(0, 0)) == [Expired()]
    assert session.connect() == pack_connect(99, 10_000, 0, bytes(16))
    assert session.receive(greeting(8)) == [Joined(resumed=False)]


def test_requests_are_answered_in_order_with_events_between() -> None:
    session = joined()
    sent = session.request(Opcode.GET_DATA, pack_read("/a"))
    assert sent == struct.pack(">iii", 8 + 4 + 2 + 1, 1, 4) + pack_string("/a") + b"\0"
    session.request(Opcode.DELETE, b"")
    event = frame(pack_int(-1), pack_long(-1), pack_int(0), pack_int(2), pack_int(3), pack_string("/b"))
    ping = reply(-2, 5)
    stream = reply(1, 3, b"x") + event + ping + reply(2, 4, error=-101)
    whole = [describe(output) for output in session.receive(stream)]
    assert whole == [(0, 1), Event(2, "/b"), (-101, 0)]
    again = joined()
    again.request(Opcode.GET_DATA, b"")
    again.request(Opcode.DELETE, b"")
    pieces = [output for byte in stream for output in again.receive(bytes([byte]))]
    assert [describe(output) for output in pieces] == whole


def describe(output: object) -> object:
    return (output.error, output.reader.left) if isinstance(output, Reply) else output


@pytest.mark.parametrize(
    "data",
    [
        reply(2, 1),
        frame(b"\0\0\0"),
        struct.pack(">I", 1 << 31),
        frame(pack_int(-1), pack_long(-1), pack_int(0), pack_int(1), pack_int(3), pack_buffer(b"\xff")),
        frame(pack_int(-1), pack_long(-1), pack_int(0), pack_int(1), pack_int(3), pack_int(-7)),
    ],
)
def test_what_is_no_protocol_is_refused(data: bytes) -> None:
    session = joined()
    session.request(Opcode.SYNC, b"")
    with pytest.raises(JuteError):
        session.receive(data)
