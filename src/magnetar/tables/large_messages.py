"""Finds the pieces of a large message that lie before a range, or that were left out of it."""

from __future__ import annotations

from typing import Final

from magnetar.adminclient.errors import AdminCallError
from magnetar.arrow.chunks import collect_pieces
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.reader import read_range
from magnetar.tables.ledgers import KnownLog

_ENTRIES_AT_FIRST: Final = 64
"""Entries of the first look back: pieces are usually close together. Each further look goes four times as
far."""


class LookBack:
    """Reads backwards from a piece before which others are missing; before that, it sends no request. They
    may be anywhere before it: a range may have gaps, of entries that a query does not want."""

    def __init__(self, client: Client, topic: TopicName, *, strict: bool) -> None:
        """`strict`: lost pieces are an error of the caller; otherwise, the result for them is None."""
        self._client = client
        self._topic = topic
        self._strict = strict

    def __call__(self, uuid: str, count: int, position: Position) -> list[bytes] | None:
        """The first `count` pieces of the message that has a later piece at `position`; see `PiecesBefore`.

        Raises UnreachableError, RefusedError.
        """
        found: dict[int, bytes] = {}
        stop = position
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
        """The ledgers; None without an admin interface: then the log is read from its first entry."""
        try:
            return KnownLog.from_internal_stats(self._client.admin.internal_stats(self._topic))
        except AdminCallError:
            return None
