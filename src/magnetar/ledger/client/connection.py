"""One connection to one bookie: sends requests, and hands each answer to its caller.

Adds of a ledger are answered to one sink, many at a time: nothing is kept per entry. The number sent by each
time and the number answered suffice to see that an add has waited too long. Reads are kept one by one: by
number in version 3, by ledger and entry in version 2, where any answer to a key fits any of its callers.

Source: BookKeeper protocol, matching of answers.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, cast

from magnetar.auth.digest_md5 import DigestClient, DigestError
from magnetar.base.ids import LedgerId
from magnetar.runtime.tasks import call_later
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.requests import AddRun, Auth, BatchRead, Read, Request, StartTls
from magnetar.wire.bookkeeper.responses import (
    Added,
    AuthDone,
    BatchReadDone,
    ReadDone,
    Refused,
    Response,
    TlsStarts,
)
from magnetar.wire.bookkeeper.status import Status
from magnetar.wire.frames import FrameError

_log = logging.getLogger("magnetar.ledger.client")

_BUFFER_BYTES: Final = 256 << 10
"""Bytes of the receive buffer; a larger packet makes it grow."""
_TICKS_PER_TIMEOUT: Final = 8
_JOIN_BELOW_BYTES: Final = 4_096
"""Pieces below this mean size are joined before writing; larger ones are written as a vector."""

_SASL: Final = "sasl"
_NO_AUTHENTICATION: Final = "AuthDisabledPlugin"
"""The bookie demands no authentication."""

Answered: TypeAlias = Callable[[Response | None], None]
"""Called with the answer, or with None when there will be none."""


class AddSink(Protocol):
    """Notified of the answers to the adds to one ledger at one bookie."""

    def added(self, entry_ids: Sequence[int], status: Status) -> None:
        """These entries were answered. Without entries: some of the sent ones never will be, for that
        reason."""


class _Adds:
    """Adds of one ledger under way."""

    __slots__ = ("answered", "sent", "sink", "times")

    def __init__(self, sink: AddSink) -> None:
        self.sink = sink
        self.sent = 0
        self.answered = 0
        self.times: deque[tuple[float, int]] = deque()
        """(time, number sent by then) of sends that may not be answered yet."""


class BookieChannel(asyncio.BufferedProtocol):
    """A socket to a bookie. `lost` is called once, when no further answer will come."""

    def __init__(
        self,
        bookie: str,
        *,
        is_v2: bool,
        timeout_s: float,
        packet_bytes_max: int,
        lost: Callable[[], None],
        adds_took: Callable[[float], None] | None = None,
    ) -> None:
        """`timeout_s`: longest time to an answer; `packet_bytes_max`: both sides must agree on it.

        `adds_took` is called with the seconds that a vector of adds took until all of it was answered.
        """
        self.bookie: Final = bookie
        self._is_v2 = is_v2
        self._timeout_s = timeout_s
        self._lost = lost
        self._adds_took = adds_took
        self._loop = asyncio.get_running_loop()
        self._parser = BookieClientParser(is_v2=is_v2, packet_bytes_max=packet_bytes_max)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self._txn_id = 0
        self._adds: dict[int, _Adds] = {}
        self._waiting: dict[object, deque[tuple[float, Answered]]] = {}
        self._out: list[bytes] = []
        self._ticker: asyncio.TimerHandle | None = None
        self._is_lost = False
        self.has_answered = False
        """Whether a request was answered since this was last set to False."""
        self._transport: asyncio.Transport | None = None

    # -- what clients ask -------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """Whether a request can be answered."""
        return not self._is_lost and self._transport is not None and not self._transport.is_closing()

    def take_txn_id(self) -> int:
        """A number for a request of version 3, unique on this connection."""
        self._txn_id += 1
        return self._txn_id

    def send_adds(self, run: AddRun, sink: AddSink) -> None:
        """Sends adds of one ledger. A ledger has one sink at a time; a new one replaces it."""
        adds = self._adds.get(run.ledger_id)
        if adds is None:
            adds = self._adds[run.ledger_id] = _Adds(sink)
        adds.sink = sink
        count = len(run.entries)
        if not self._is_v2:
            first = self._txn_id + 1
            self._txn_id += count
            run.txn_ids = list(range(first, first + count))
        adds.sent += count
        adds.times.append((self._loop.time(), adds.sent))
        self._write(encode_request(run, is_v2=self._is_v2))

    def ask(self, key: object, request: Request, answered: Answered, *, wait_s: float = 0.0) -> None:
        """Sends any other request; `key` is `key_of` it. The bookie may take `wait_s` longer than for
        others."""
        self._waiting.setdefault(key, deque()).append((self._loop.time() + wait_s, answered))
        self._write(encode_request(request, is_v2=self._is_v2))

    # -- before it is used ------------------------------------------------------------------------

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Starts TLS; before any other request. Raises OSError when the bookie refuses.

        The answer has version 3 whatever version the connection has.
        """
        self._parser.is_v2 = False
        request = StartTls(self.take_txn_id())
        answer = await self._asked(request.txn_id, request, is_v2=False)
        if not isinstance(answer, TlsStarts) or answer.status is not Status.OK:
            raise OSError("the bookie offers no TLS")
        transport = self._transport
        if transport is None or transport.is_closing():
            raise OSError("the bookie has gone")
        transport.pause_reading()
        secured = await self._loop.start_tls(
            transport,
            self,
            context,
            server_hostname=host if context.check_hostname else None,
            ssl_handshake_timeout=self._timeout_s,
        )
        # The loop takes a handshake whose connection is closed without an error for one that succeeded.
        if secured is None or secured.is_closing():
            raise OSError("the bookie has gone")
        self._transport = secured
        self._parser.is_v2 = self._is_v2

    async def authenticate(self, user: str, password: str, nonce: str) -> None:
        """Proves a user's password, and has the bookie prove that it knows it. Raises OSError.

        `nonce`: a word that was never used before. Does nothing when the bookie demands no password.
        """
        client = DigestClient(user, password, nonce)
        challenge = await self._auth_step(b"")
        if challenge is None:
            return
        try:
            proof = await self._auth_step(client.answer(challenge))
            client.check(b"" if proof is None else proof)
        except DigestError as error:
            raise OSError(f"no authentication: {error}") from error

    async def _auth_step(self, payload: bytes) -> bytes | None:
        """The bookie's word; None when it demands no authentication."""
        number = None if self._is_v2 else self.take_txn_id()
        key = "auth" if number is None else number
        answer = await self._asked(key, Auth(_SASL, payload, number), is_v2=self._is_v2)
        if isinstance(answer, AuthDone) and answer.status is Status.OK:
            return None if answer.plugin == _NO_AUTHENTICATION else answer.payload
        raise OSError("the bookie does not let us in")

    async def _asked(self, key: object, request: Request, *, is_v2: bool) -> Response | None:
        answered: asyncio.Future[Response | None] = self._loop.create_future()

        def done(response: Response | None) -> None:
            if not answered.done():
                answered.set_result(response)

        self._waiting.setdefault(key, deque()).append((self._loop.time(), done))
        self._write(encode_request(request, is_v2=is_v2))
        return await answered

    # -- after ------------------------------------------------------------------------------------

    def forget(self, ledger_id: LedgerId, sink: AddSink) -> None:
        """The sink is not notified any more."""
        adds = self._adds.get(ledger_id)
        if adds is not None and adds.sink is sink:
            del self._adds[ledger_id]

    def close(self) -> None:
        """Closes the connection; further answers are lost."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    # -- asyncio.BufferedProtocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods but not its classes.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        try:
            responses, consumed = self._parser.parse(self._buffer, self._filled)
        except FrameError as error:
            self._deliver(cast("list[Response]", error.events))
            self._fail(f"illegal packet: {error}")
            return
        rest = self._filled - consumed
        if rest and consumed:
            self._buffer[:rest] = self._buffer[consumed : self._filled]
        self._filled = rest
        if self._parser.needed > len(self._buffer):
            grown = bytearray(self._parser.needed)
            grown[:rest] = self._buffer[:rest]
            self._buffer = grown
        self._deliver(responses)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    # -- answers ----------------------------------------------------------------------------------

    def _deliver(self, responses: Sequence[Response]) -> None:
        if responses:
            self.has_answered = True
        for response in responses:
            try:
                if isinstance(response, Added):
                    self._added(response)
                else:
                    self._answered(response)
            except Exception:  # noqa: BLE001  # one asker's bug must not take the others' answers
                _log.exception("%s: an answer could not be handled", self.bookie)

    def _added(self, response: Added) -> None:
        adds = self._adds.get(response.ledger_id)
        if adds is None:
            return
        adds.answered += len(response.entry_ids)
        sent_s = 0.0
        while adds.times and adds.times[0][1] <= adds.answered:
            sent_s = adds.times.popleft()[0]
        if sent_s and self._adds_took is not None:
            self._adds_took(self._loop.time() - sent_s)
        adds.sink.added(response.entry_ids, response.status)

    def _answered(self, response: Response) -> None:
        if isinstance(response, Refused) and response.txn_id not in self._waiting:
            # An add failed without an id; the others of the ledger would fail for the same reason.
            for adds in list(self._adds.values()):
                adds.sink.added((), response.status)
            self._fail(f"requests are refused: {response.status.name}")
            return
        key = _key_of_answer(response)
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        _, answered = waiting.popleft()
        if not waiting:
            del self._waiting[key]
        answered(response)

    # -- what takes too long ----------------------------------------------------------------------

    def _start_ticker(self) -> None:
        if self._ticker is None and not self._is_lost:
            self._ticker = call_later(self._timeout_s / _TICKS_PER_TIMEOUT, self._tick)

    def _tick(self) -> None:
        self._ticker = None
        late = self._loop.time() - self._timeout_s
        for ledger_id, adds in list(self._adds.items()):
            if adds.times and adds.times[0][0] < late:
                del self._adds[ledger_id]
                adds.sink.added((), Status.IO_ERROR)
        for key, waiting in list(self._waiting.items()):
            while waiting and waiting[0][0] < late:
                waiting.popleft()[1](None)
            if not waiting:
                self._waiting.pop(key, None)
        if self._waiting or any(adds.times for adds in self._adds.values()):
            self._start_ticker()

    def _fail(self, reason: str) -> None:
        _log.warning("%s: connection dropped: %s", self.bookie, reason)
        self.close()

    def _end(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        self._out.clear()
        adds, self._adds = self._adds, {}
        waiting, self._waiting = self._waiting, {}
        self._lost()
        for each in adds.values():
            if each.answered < each.sent:
                each.sink.added((), Status.IO_ERROR)
        for asked in waiting.values():
            for _, answered in asked:
                answered(None)

    # -- writing ----------------------------------------------------------------------------------

    def _write(self, pieces: list[bytes]) -> None:
        """Requests of one turn of the loop leave in one write at its end."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += pieces
        self._start_ticker()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if not out or self._transport is None or self._transport.is_closing():
            return
        if sum(map(len, out)) < _JOIN_BELOW_BYTES * len(out):
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)


def key_of(request: Request, *, is_v2: bool) -> object:
    """The key by which its answer is found."""
    if isinstance(request, BatchRead):
        return "batch", request.request_id
    if is_v2:
        assert isinstance(request, Read)
        return request.ledger_id, request.entry_id
    assert not isinstance(request, AddRun)
    return request.txn_id


def _key_of_answer(response: Response) -> object:
    if isinstance(response, BatchReadDone):
        return "batch", response.request_id
    if isinstance(response, ReadDone) and response.txn_id is None:
        return response.ledger_id, response.entry_id
    assert not isinstance(response, Added)
    if isinstance(response, AuthDone):
        return "auth" if response.txn_id is None else response.txn_id
    return response.txn_id
