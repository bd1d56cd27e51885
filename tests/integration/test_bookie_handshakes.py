"""START_TLS of clients that do not go on, at a bookie, over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from magnetar.bookie.network import handshakes
from magnetar.bookie.network.access import Access
from magnetar.bookie.network.server import ServerOptions
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.requests import StartTls
from magnetar.wire.bookkeeper.responses import Response, TlsStarts
from magnetar.wire.bookkeeper.status import Status
from support.bookie_nodes import BookieNodes, bookie_nodes
from support.certificates import Authority
from support.waiting import eventually

MAX = 3
ANSWER_S = 60.0


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


async def starts(nodes: BookieNodes) -> tuple[Response | None, asyncio.StreamWriter]:
    """What the bookie answers to a client that asks for TLS; None when it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", nodes.nodes["a"].port)
    writer.write(b"".join(encode_request(StartTls(1), is_v2=False)))
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
