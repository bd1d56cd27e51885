"""START_TLS of clients that do not go on, at a bookie, over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from pathlib import Path

import pytest

from magnetar.bookie.network import handshakes
from magnetar.bookie.network.access import Access
from magnetar.bookie.network.server import ServerOptions
from magnetar.runtime import loop as event_loop
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.requests import Read, StartTls
from magnetar.wire.bookkeeper.responses import Response, TlsStarts
from magnetar.wire.bookkeeper.status import Status
from support.bookie_nodes import BookieNodes, bookie_nodes
from support.certificates import Authority
from support.waiting import eventually

pytestmark = pytest.mark.one_process("own")

MAX = 3
ANSWER_S = 60.0
START = b"".join(encode_request(StartTls(1), is_v2=False))


@pytest.mark.parametrize("required", [True, False], ids=["TLS is demanded", "TLS is offered"])
def test_handshakes_that_stop_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    """Two thousand of them took 677 MB of the bookie's memory, which did not come back."""
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", MAX)
    # All of this test are young.
    monkeypatch.setattr(handshakes, "YOUNG_S", 600.0)
    authority = Authority(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*authority.issue("bookie"))
    trust = ssl.create_default_context(cafile=str(authority.file))
    options = ServerOptions(tls=serving, access=Access(tls_required=required), outside_s=600.0)

    async def main() -> None:
        async with bookie_nodes(tmp_path / "nodes", 0) as nodes:
            await nodes.start("a", options)
            under_way = nodes.nodes["a"].server._handshakes
            stopped = []
            for _ in range(MAX):
                answer, writer = await starts(nodes)
                assert answer == TlsStarts(Status.OK, 1)
                stopped.append(writer)
            assert len(under_way) == MAX
            answer, writer = await starts(nodes)
            assert answer is None
            await end(writer)
            # A place is free once one of them has gone, or has failed.
            stopped[0].write(b"this is no TLS")
            await end(stopped.pop(1))
            await eventually(lambda: len(under_way) == MAX - 2)
            answer, writer = await starts(nodes)
            assert answer == TlsStarts(Status.OK, 1)
            await writer.start_tls(trust, server_hostname="localhost")
            await eventually(lambda: len(under_way) == MAX - 2)
            for each in (writer, *stopped):
                await end(each)

    asyncio.run(main())


def test_a_connection_that_ends_before_or_in_its_handshake_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookie kept the connection, its place and 256 KiB for ever; clients could take all places so."""
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", MAX)
    monkeypatch.setattr(handshakes, "YOUNG_S", 0.0)
    authority = Authority(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*authority.issue("bookie"))
    options = ServerOptions(tls=serving, access=Access(tls_required=True), outside_s=600.0)

    async def main() -> None:
        async with bookie_nodes(tmp_path / "nodes", 0) as nodes:
            await nodes.start("a", options)
            server = nodes.nodes["a"].server
            # The bookie ends the oldest ones.
            stopped = [(await starts(nodes))[1] for _ in range(3 * MAX)]
            await eventually(lambda: server.connections == MAX)
            for each in stopped:
                await end(each)
            # These are gone before it has begun.
            for _ in range(2 * MAX):
                one = socket.create_connection(("127.0.0.1", nodes.nodes["a"].port))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.sendall(START)
                one.close()
            await eventually(lambda: not server.connections)
            await eventually(lambda: not len(server._handshakes))

    # What a loop reports of such an end is its own: uvloop is what bookies run on.
    event_loop.run(main())


def test_what_stands_between_two_start_tls_in_clear_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what stood behind the last one did: an attacker could put requests in front of a client's own."""
    authority = Authority(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*authority.issue("bookie"))

    async def main() -> None:
        async with bookie_nodes(tmp_path / "nodes", 0) as nodes:
            await nodes.start("a", ServerOptions(tls=serving))
            reader, writer = await asyncio.open_connection("127.0.0.1", nodes.nodes["a"].port)
            # The first answer says that the bookie reads large packets by now.
            read = b"".join(encode_request(Read(1, 0, 5), is_v2=False))
            writer.write(read)
            assert await asyncio.wait_for(reader.read(1 << 10), ANSWER_S)
            writer.write(START + read + START)
            with contextlib.suppress(ConnectionError):
                while await asyncio.wait_for(reader.read(1 << 10), ANSWER_S):
                    pass
            await eventually(lambda: not nodes.nodes["a"].server.connections)
            assert "unencrypted bytes before TLS" in caplog.text
            writer.close()

    asyncio.run(main())


async def starts(nodes: BookieNodes) -> tuple[Response | None, asyncio.StreamWriter]:
    """What the bookie answers to a client that asks for TLS; None when it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", nodes.nodes["a"].port)
    writer.write(START)
    got = b""
    with contextlib.suppress(ConnectionError):
        while more := await asyncio.wait_for(reader.read(1 << 10), ANSWER_S):
            got += more
            answers, _ = BookieClientParser(is_v2=False).parse(got, len(got))
            if answers:
                (answer,) = answers
                return answer, writer
    return None, writer


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
