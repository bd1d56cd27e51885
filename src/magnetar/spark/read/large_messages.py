"""Pieces of large messages that lie before the range which has their end."""

from __future__ import annotations

from typing import Final

from magnetar.adminclient.errors import AdminCallError
from magnetar.arrow.chunks import collect_pieces
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.reader import read_range
from magnetar.spark.read.ledgers import KnownLog

_ENTRIES_AT_FIRST: Final = 64
"""Pieces usually follow each other closely; each further look goes four times as far."""


class LookBack:
    """Reads backwards from where a range starts. Nothing is asked before a piece is missed."""

    def __init__(self, client: Client, topic: TopicName, start: Position, *, strict: bool) -> None:
        """`strict`: pieces that are gone are an error of the caller's, else None is the answer."""
        self._client = client
        self._topic = topic
        self._start = start
        self._strict = strict

    def __call__(self, uuid: str, count: int, position: Position) -> list[bytes] | None:
        """The first `count` pieces of a message, as `PiecesBefore` says; the message is missed at `position`.

        Raises UnreachableError, RefusedError.
        """
        found: dict[int, bytes] = {}
        stop = self._start
        entries = _ENTRIES_AT_FIRST
        state = self._log()
        while stop > EARLIEST and len(found) < count:
            begin = EARLIEST if state is None else state.retreat(stop, entries)
            if begin >= stop:
                break
            for columns in read_range(self._client, self._topic, begin, stop):
                collect_pieces(columns, uuid, found)
            stop = begin
            entries *= 4
        if all(number in found for number in range(count)):
            return [found[number] for number in range(count)]
        return [] if self._strict else None

    def _log(self) -> KnownLog | None:
        """The ledgers; None without an admin interface, when all from the first entry on has to be read."""
        try:
            return KnownLog.from_internal_stats(self._client.admin.internal_stats(self._topic))
        except AdminCallError:
            return None
