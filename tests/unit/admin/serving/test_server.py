"""The driver: a real socket on a free port of loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from magnetar.admin.serving import app, loop_server
from magnetar.admin.serving.loop_server import CallProtocol
from magnetar.admin.serving.server import AdminServer
from magnetar.base.errors import StartupError
from magnetar.base.loop_shares import ShareSizes
from magnetar.broker.service import BrokerConfig
from magnetar.websocket import pieces
from magnetar.websocket.sockets import sockets_of
from support.admin_api import AdminApi, with_api

PINGS = 20_000
_READ_BYTES = 256 << 10
"""A read of asyncio, at most."""


async def ask(port: int, request: bytes) -> bytes:
    """The whole answer of a connection that closes after it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await writer.wait_closed()
    return answer


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


def test_calls_wait_until_the_stack_is_loaded_and_none_is_taken_after_stop() -> None:
    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        assert (await ask(port, get("/admin/v2/clusters"))).endswith(b'\r\n\r\n["standalone"]')
        await server.serving()
        await server.stop()
        await server.stop()
        with pytest.raises(ConnectionRefusedError):
            await ask(port, get("/"))

    with_api(story)


def test_a_body_in_tiny_chunks_is_parsed_a_slice_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of 256 KiB in chunks of one byte held the loop for 240 ms."""
    taken: list[int] = []
    parse = H11Protocol.data_received

    def noted(self: H11Protocol, data: bytes) -> None:
        taken.append(len(data))
        parse(self, data)

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        head = (
            b"POST /admin/v2/namespaces/public/default/messageTTL HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        spaces = b"1\r\n \r\n" * 20_000
        answer = await ask(port, head + spaces + b"2\r\n77\r\n0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 204")
        assert await api.get("/admin/v2/namespaces/public/default/messageTTL") == 77
        assert sum(taken) == len(head) + len(spaces) + 12
        assert max(taken) <= loop_server.SLICE_BYTES
        await server.stop()

    monkeypatch.setattr(H11Protocol, "data_received", noted)
    with_api(story)


def test_connections_parse_their_slices_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen connections with giant requests each parsed a slice in the same turn, which took 34 ms."""
    monkeypatch.setattr(loop_server, "_SHARES", ShareSizes(1, 1, turn_ms=0.0))
    turn, sliced = 0, Counter[int]()
    go_on = CallProtocol.go_on

    def noted(self: CallProtocol) -> None:
        sliced[turn] += 1
        go_on(self)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(CallProtocol, "go_on", noted)

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        counting = asyncio.ensure_future(count_turns())
        call = (
            b"POST /admin/v2/namespaces/public/default/messageTTL HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100002\r\nConnection: close\r\n\r\n"
        )
        answers = await asyncio.gather(*(ask(port, call + b" " * 100_000 + b"77") for _ in range(8)))
        assert all(answer.startswith(b"HTTP/1.1 204") for answer in answers)
        counting.cancel()
        assert len(sliced) > 100
        assert max(sliced.values()) == 1
        await server.stop()

    with_api(story)


def test_a_wrong_body_behind_its_answer_ends_its_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its refusal would have been a second answer, which h11 does not permit: the turn of the loop broke off,
    other calls waited for ever, and the server could not be stopped in order."""
    monkeypatch.setattr(loop_server, "_SHARES", ShareSizes(1, 1, turn_ms=0.0))

    async def story(api: AdminApi) -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        wrong = (
            b"POST /admin/v2/nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"1000\r\n" + b" " * 4_096 + b"\r\n") * 12
            + b"zz\r\n"
        )
        call = (
            b"POST /admin/v2/namespaces/public/default/messageTTL HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 400002\r\nConnection: close\r\n\r\n"
        )
        refused, answer = await asyncio.gather(ask(port, wrong), ask(port, call + b" " * 400_000 + b"77"))
        assert refused.startswith(b"HTTP/1.1 404")
        assert refused.count(b"HTTP/1.1") == 1
        assert answer.startswith(b"HTTP/1.1 204")
        assert errors == []
        await server.stop()

    with_api(story)


def test_calls_behind_an_unanswered_one_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer read another quarter of a megabyte, and all was kept: 40 MB a second."""
    held: list[int] = []
    answered: list[int] = []
    respond = H11Protocol.on_response_complete

    def noted(self: H11Protocol) -> None:
        assert isinstance(self, CallProtocol)
        answered.append(len(self._rest))
        held.append(len(self.conn._receive_buffer))
        respond(self)

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        call = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"x" * 6_000 + b"\r\n\r\n"
        last = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        answer = await ask(port, call * 300 + last)
        assert answer.count(b"HTTP/1.1 200") == len(answered) == 301
        assert max(held) <= loop_server.SLICE_BYTES + len(call)
        assert max(answered) <= _READ_BYTES
        await server.stop()

    monkeypatch.setattr(H11Protocol, "on_response_complete", noted)
    with_api(story)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_first_websocket_finds_its_library_loaded(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(api: AdminApi) -> None:
        monkeypatch.delitem(sys.modules, "magnetar.admin.serving.socket_protocol", raising=False)
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        await server.start()
        await server.serving()
        assert ("magnetar.admin.serving.socket_protocol" in sys.modules) == enabled
        await server.stop()

    with_api(story, config=BrokerConfig(websocket_enabled=enabled))


@pytest.mark.parametrize("chunks", [b"2\r\n{}XX0\r\n\r\n", b"2\r\n{}\nX0\r\n\r\n", b"2 \nXX{}\r\n0\r\n\r\n"])
def test_cve_2025_43859_a_chunk_must_end_as_it_says(chunks: bytes) -> None:
    """Older versions of h11 took any two bytes as the end of a chunk: requests could be smuggled."""

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        head = (
            b"PUT /admin/v2/tenants/smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        answer = await ask(port, head + chunks + get("/admin/v2/tenants"))
        assert answer.startswith(b"HTTP/1.1 400")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert (await api.call("GET", "/admin/v2/tenants/smuggled")).status == 404
        await server.stop()

    with_api(story)


def test_a_body_with_two_lengths_ends_the_connection() -> None:
    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        both = (
            b"POST /admin/v2/tenants/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        # `ask` reads to the end: what is smuggled behind is not answered.
        answer = await ask(port, both + get("/admin/v2/tenants"))
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"connection: close" in answer.lower()
        assert answer.count(b"HTTP/1.1 ") == 1
        await server.stop()

    with_api(story)


@pytest.mark.parametrize("before", [b"", b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n"])
@pytest.mark.parametrize("lines", [200, 1_000])
def test_a_head_has_few_lines(lines: int, before: bytes) -> None:
    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        head = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        answer = await ask(port, before + head + b"a:b\r\n" * lines + b"\r\n")
        status = answer.rpartition(b"HTTP/1.1 ")[2][:3]
        assert status == (b"200" if lines == 200 else b"400")
        await server.stop()

    with_api(story)


def test_stopping_right_after_starting() -> None:
    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        await server.start()
        await server.stop()

    with_api(story)


def test_stopping_with_an_idle_connection() -> None:
    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /status.html HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\nOK"), 30)
        await server.stop()
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()

    with_api(story)


def test_bytes_that_are_no_http_close_their_connection_only() -> None:
    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        assert b" 400 " in (await ask(port, b"\x00\x00\x00\x05nonsense\r\n\r\n")).splitlines()[0]
        assert b" 200 " in (await ask(port, get("/"))).splitlines()[0]
        await server.stop()

    with_api(story)


def test_who_sends_no_whole_request_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_server, "HEAD_S", 0.01)
    monkeypatch.setattr(loop_server, "LOOK_S", 0.01)
    monkeypatch.setattr(app, "BODY_S", 0.01)

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        assert await ask(port, b"") == b""
        assert await ask(port, b"GET / HTT") == b""
        answer = await ask(
            port,
            b"POST /admin/v2/tenants/t HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: 9\r\nConnection: close\r\n\r\n{",
        )
        assert b" 408 " in answer.splitlines()[0]
        await server.stop()

    with_api(story)


def test_who_sends_its_second_head_slowly_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_server, "HEAD_S", 0.01)
    monkeypatch.setattr(loop_server, "LOOK_S", 0.01)

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /status.html HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\nOK"), 60)
        writer.write(b"GET /sta")
        assert not (await asyncio.wait_for(reader.read(), 60)).strip()
        writer.close()
        await server.stop()

    with_api(story)


def test_the_idle_make_room_for_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_server, "_CALLERS_MAX", 3)
    # Else the deadline of heads would end them as well.
    monkeypatch.setattr(loop_server, "HEAD_S", 600.0)

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        for _ in range(3):
            assert b" 200 " in (await ask(port, get("/status.html"))).splitlines()[0]
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(idle[0][0].read(), 60) == b""
        for _, writer in idle:
            writer.close()
        await server.stop()

    with_api(story)


def test_a_port_in_use_is_found_at_once() -> None:
    async def story(api: AdminApi) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(StartupError) as caught:
                await AdminServer(api.broker, host="127.0.0.1", port=port).start()
        message = str(caught.value)
        assert message.startswith(f"port {port} is in use")
        assert "--http-port" in message
        assert "\n" not in message

    with_api(story)


def test_a_host_that_is_not_ours() -> None:
    async def story(api: AdminApi) -> None:
        with pytest.raises(StartupError, match=r"cannot listen on 192\.0\.2\.1:0"):
            await AdminServer(api.broker, host="192.0.2.1", port=0).start()

    with_api(story)


def test_importing_the_driver_does_not_load_the_http_stack() -> None:
    code = (
        "import sys, magnetar.admin.serving.server\n"
        "print([m for m in ('starlette', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_websockets_that_are_switched_off_are_not_there() -> None:
    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        upgrade = (
            b"GET /ws/v2/reader/persistent/public/default/t HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        answer = await ask(port, upgrade)
        assert answer.startswith(b"HTTP/1.1 404")
        assert b"websocket_enabled" in answer
        await server.stop()

    with_api(story, config=BrokerConfig(websocket_enabled=False))


_LARGE = b"\x01\xff" + (300_000).to_bytes(8, "big") + bytes(300_004)
"""The first part of a text; control frames may stand between it and the next."""


@pytest.mark.parametrize("before", [b"", _LARGE], ids=["", "after a large frame"])
@pytest.mark.parametrize("sockets", [1, 64])
def test_pings_over_websockets_are_answered_in_pieces(
    sockets: int, before: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magnetar.admin.serving.socket_protocol import SocketProtocol

    turn, answered = 0, Counter[int]()
    handle = SocketProtocol.handle_ping

    def counted(self: SocketProtocol) -> None:
        answered[turn] += 1
        handle(self)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(SocketProtocol, "handle_ping", counted)
    pings = PINGS // sockets

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(sockets)]
        for reader, writer in opened:
            writer.write(
                b"GET /ws/v2/reader/persistent/public/default/t HTTP/1.1\r\nHost: localhost\r\n"
                b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            assert b" 101 " in (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).splitlines()[0]
        counting = asyncio.ensure_future(count_turns())
        for _, writer in opened:
            writer.write(before + b"\x89\x80\x00\x00\x00\x00" * pings)
        for reader, _ in opened:
            pongs = await asyncio.wait_for(reader.readexactly(2 * pings), 60)
            assert pongs == b"\x8a\x00" * pings
        # Those of reads, 128, and 16 pieces of those that wait.
        assert max(answered.values()) <= 128 + 17 * pieces.FRAMES_MAX
        counting.cancel()
        for _, writer in opened:
            writer.close()
        await server.stop()

    with_api(story)


@pytest.mark.parametrize("why", ["no pong", "too much for all"])
def test_a_websocket_whose_client_takes_nothing_ends(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what waits for it, whether its client ever reads again or not."""
    from magnetar.admin.serving import socket_protocol
    from magnetar.admin.serving.socket_protocol import SocketProtocol

    monkeypatch.setattr(socket_protocol, "_LAST_WORDS_S", 1_000.0)
    made: list[SocketProtocol] = []
    make = SocketProtocol.connection_made

    def making(self: SocketProtocol, transport: asyncio.Transport) -> None:
        made.append(self)
        make(self, transport)

    monkeypatch.setattr(SocketProtocol, "connection_made", making)

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", port))
        client.sendall(
            b"GET /ws/v2/reader/persistent/public/default/t?messageId=earliest HTTP/1.1\r\n"
            b"Host: localhost\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        await until(lambda: len(sockets_of(api.broker)) == 1)
        (endpoint,) = sockets_of(api.broker)._open
        if why != "no pong":
            endpoint.memory._most = 1 << 20
        for _ in range(5):
            await api.publish("t", bytes(4 << 20))
        (protocol,) = made
        if why == "no pong":
            await until(lambda: protocol.transport.get_write_buffer_size() > 0)
            protocol.keepalive_timeout()
        await until(protocol._gone.is_set)
        await until(lambda: not len(sockets_of(api.broker)))
        client.close()
        await server.stop()

    with_api(story)


def test_a_large_message_is_written_in_frames_that_others_do_not_wait_for() -> None:
    """Its text was one frame, which was copied four times at once."""

    async def story(api: AdminApi) -> None:
        server = AdminServer(api.broker, host="127.0.0.1", port=0)
        port = await server.start()
        await server.serving()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET /ws/v2/reader/persistent/public/default/t?messageId=earliest HTTP/1.1\r\n"
            b"Host: localhost\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert b" 101 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        await api.publish("t", bytes(range(256)) * 4_000)
        text, frames = b"", 0
        while True:
            head = await asyncio.wait_for(reader.readexactly(2), 60)
            size = head[1]
            if size >= 126:
                size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
            assert head[0] & 0x0F == (0 if frames else 1)
            text += await asyncio.wait_for(reader.readexactly(size), 60)
            assert size <= 256 << 10
            frames += 1
            if head[0] & 0x80:
                break
        assert frames > 10
        assert b64decode(json.loads(text)["payload"]) == bytes(range(256)) * 4_000
        writer.close()
        await server.stop()

    with_api(story)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # of another's making
            await asyncio.sleep(0.01)


class _Unread:
    """A transport whose client takes `unsent` bytes less than it should."""

    def __init__(self) -> None:
        self.unsent = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


def test_a_client_that_takes_nothing_of_its_answer_is_dropped() -> None:
    """One that takes a little now and then is not."""
    protocol: Any = loop_server.CallProtocol.__new__(loop_server.CallProtocol)
    transport = protocol.transport = _Unread()
    looks = iter(range(1_000))

    def look() -> bool:
        protocol.look(next(looks) * loop_server.STUCK_S * 0.6)
        return transport.aborted

    assert not look()
    transport.unsent = 500
    assert not look(), "it is new"
    assert not look(), "not for so long"
    transport.unsent = 400
    assert not look(), "some of it was taken"
    assert not look()
    assert look()
