"""Counts the work of a WebSocket against its role's share: its texts, and their time on the event loop.

A role that is over its share rests: its sockets are neither read nor written to until the share has
recovered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import TypeVar

from magnetar.broker.service import Broker
from magnetar.broker.session.answering import owner_of
from magnetar.broker.session.session import Session
from magnetar.websocket.errors import TooMuchUsedError

_T = TypeVar("_T")


class Share:
    """The share of one socket's role, or of its address."""

    __slots__ = ("_broker", "_owner")

    def __init__(self, broker: Broker, session: Session) -> None:
        """`session`: the authenticated session."""
        self._broker = broker
        self._owner = owner_of(session)

    def admit(self) -> None:
        """Counts a handshake. Raises TooMuchUsedError."""
        if rest_ms := self._broker.quotas.count(self._owner, 0):
            raise TooMuchUsedError(self._owner, rest_ms)
        self._broker.quotas.count(self._owner, 1)

    def count(self) -> None:
        """Counts one text of the client."""
        self._broker.quotas.count(self._owner, 1)

    async def rest(self) -> None:
        """Waits until the role may continue; another connection of the role may use its share first."""
        while rest_ms := self._broker.quotas.count(self._owner, 0):
            rested = asyncio.Event()
            self._broker.alarms.after(rested, rest_ms, rested.set)
            try:
                await rested.wait()
            finally:
                self._broker.alarms.discard(rested)

    def timing(self, work: Coroutine[object, object, _T]) -> Awaitable[_T]:
        """Wraps work so that its time on the event loop is counted."""
        return self._broker.quotas.timing(self._owner, work)
