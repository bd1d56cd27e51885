"""Limits the running calls, in total and per address; running calls share the event loop.

Probes and scrapes have separate places: clients that use all places of calls must neither make an
orchestrator believe that the broker is dead, nor stop its monitoring.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Final, TypeAlias

from magnetar.admin.calls.call_turns import CallTurns
from magnetar.base.asgi import Receive, Scope, Send
from magnetar.broker.limits.token_bucket import TokenBucket
from magnetar.runtime.tasks import soon

_CALLS_MAX: Final = 256
_CALLS_PER_ADDRESS_MAX: Final = 192
"""Most running calls of one address, so that places are left for others."""
_PROBES_MAX: Final = 16
PROBES: Final = frozenset(
    (
        "/metrics",
        "/status.html",
        "/admin/v2/brokers/ready",
        "/admin/v2/brokers/health",
        "/heartbeat",
        "/api/v1/bookie/is_ready",
    )
)
"""Paths of probes and scrapes, which must be answered even when all other calls are refused."""
_ADDRESSES_MAX: Final = 4_096
"""Most addresses whose rates are remembered."""
_TOO_FAST: Final = b"too many calls in a second (http_calls_per_second); call more slowly\n"
_BODY: Final = b"too many calls are in work; try again later\n"

_App: TypeAlias = Callable[[Scope, Receive, Send], Coroutine[object, object, None]]


class CallPlaces:
    """An ASGI application around another one: answers 503 when all places are taken, and 429 beyond a rate.

    Running calls take turns (`call_turns.py`). Probes and scrapes have turns of their own: they are few, and
    wait for no other calls.
    """

    def __init__(
        self,
        app: _App,
        per_second: int = 0,
        now_ms: Callable[[], int] | None = None,
        turns: CallTurns | None = None,
        probe_turns: CallTurns | None = None,
    ) -> None:
        """`per_second`: calls per second of one address, without probes; 0: no limit."""
        self._app = app
        self._per_second = per_second
        self._now_ms = now_ms or _now_ms
        self._turns = turns or CallTurns(soon, _exactly_ms)
        self._probe_turns = probe_turns or CallTurns(soon, _exactly_ms)
        self._rates: dict[str, TokenBucket] = {}
        """By address, in the order of the last call."""
        self._calls: Counter[str] = Counter()
        """Running calls by address."""
        self._probes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"].rstrip("/") in PROBES and self._probes < _PROBES_MAX:
            self._probes += 1
            try:
                await self._probe_turns.sharing(_address_of(scope), self._app(scope, receive, send))
            finally:
                self._probes -= 1
        else:
            await self._call(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = _address_of(scope)
        calls = self._calls
        if self._per_second and not self._take_token(address):
            await _refuse(send, 429, _TOO_FAST)
            return
        if calls.total() >= _CALLS_MAX or calls[address] >= _CALLS_PER_ADDRESS_MAX:
            await _refuse(send, 503, _BODY)
            return
        calls[address] += 1
        try:
            await self._turns.sharing(address, self._app(scope, receive, send))
        finally:
            calls[address] -= 1
            if not calls[address]:
                del calls[address]

    def _take_token(self, address: str) -> bool:
        """Takes a token of the address for one call; returns whether it had one."""
        now_ms = self._now_ms()
        bucket = self._rates.pop(address, None) or TokenBucket(self._per_second, 1_000, now_ms)
        self._rates[address] = bucket
        if len(self._rates) > _ADDRESSES_MAX:
            # The address with the oldest call has all its tokens again: forgetting it loses nothing.
            del self._rates[next(iter(self._rates))]
        if bucket.available(now_ms) <= 0:
            return False
        bucket.take(1, now_ms)
        return True


def _address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _exactly_ms() -> float:
    return time.monotonic_ns() / 1_000_000


async def _refuse(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"1"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
