"""Producer and consumer ids of one connection that are being opened.

A client whose PRODUCER or SUBSCRIBE timed out closes the id, and may open it again while the first attempt
still waits for storage. Only the newest attempt may attach: another one would stay attached, holding messages
or the topic, and never be closed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magnetar.base.ids import RequestId
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.runtime.turns import Turns


class Openings:
    """Ids of one kind; `kind` names it in errors."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._attempts: dict[int, int] = {}
        self._leaving: dict[int, int] = {}
        self._turns = Turns()

    def begin(self, id_: int, request_id: RequestId) -> bool:
        """Notes an attempt; False while another one is under way."""
        return self._attempts.setdefault(id_, request_id) == request_id

    def check(self, id_: int, request_id: RequestId) -> None:
        """Raises ServiceNotReadyError when the client has closed the id since this attempt began."""
        if self._attempts.get(id_) != request_id:
            raise ServiceNotReadyError(f"{self._kind} {id_} was closed before it was opened")

    def leaves(self, id_: int) -> None:
        """An UNSUBSCRIBE of the id was read; `left` must follow."""
        self._leaving[id_] = self._leaving.get(id_, 0) + 1

    def is_leaving(self, id_: int) -> bool:
        """Whether an UNSUBSCRIBE of the id waits or runs: a new opening of the id must follow it."""
        return id_ in self._leaving

    @asynccontextmanager
    async def left(self, id_: int) -> AsyncIterator[None]:
        """The work of an UNSUBSCRIBE."""
        try:
            async with self._turns.hold((id_,)):
                yield
        finally:
            self._leaving[id_] -= 1
            if not self._leaving[id_]:
                del self._leaving[id_]

    async def free(self, id_: int) -> None:
        """Returns when earlier commands that detach the id are done."""
        async with self._turns.hold((id_,)):
            return

    def closed(self, id_: int) -> None:
        """The client closes the id: an attempt under way will fail."""
        self._attempts.pop(id_, None)

    def ended(self, id_: int, request_id: RequestId) -> None:
        """An attempt has ended, with or without success."""
        if self._attempts.get(id_) == request_id:
            del self._attempts[id_]
