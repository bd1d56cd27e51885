"""Entries of a range that the broker sends: all of them, or an error that tells what is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from magnetar.adminclient.errors import AdminCallError
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import DataLossError, RefusedError
from magnetar.client.reader import peek, read_range
from magnetar.tables.ledgers import KnownLog
from magnetar.tables.log_state import log_state
from magnetar.wire import pulsar_pb2 as pb

_BYTES_PER_BATCH: Final = 2 << 20
"""Bytes of entries that are decoded together: large enough for array operations, small enough for the
processor's cache and for the memory of a task."""

_PEEK_TIMEOUT_S: Final = 10.0


class Lost(Protocol):
    """Makes the error for entries that are gone."""

    def __call__(self, topic: str, start: str, gone: str, *, rule: str = "") -> Exception:
        """`gone`: the lost entries, in words. `rule`: what the namespace removes, in words."""


def entries_from_broker(
    client: Client, topic: TopicName, start: Position, end: Position, lost: Lost, *, strict: bool
) -> Iterator[EntryColumns]:
    """The entries from `start` on and before `end` that readers get, also of history; each once.

    `strict`: entries that are gone are the error that `lost` makes; otherwise they are left out. Raises
    ClientError, AdminCallError.
    """
    checked = strict and start > EARLIEST
    expected = start
    try:
        for entries in read_range(client, topic, start, end, bytes_target=_BYTES_PER_BATCH):
            if expected == start and checked:
                _check_beginning(client, topic, expected, entries.position(0), lost)
            last = entries.position(len(entries) - 1)
            expected = Position(last.ledger_id, last.entry_id + 1)
            yield entries
    except DataLossError as error:
        if strict and not _is_hidden(client, topic, start, end):
            raise _lost(
                lost, client, topic, start, f"up to {end} nothing is there any more: {error}"
            ) from error
        return
    except RefusedError as error:
        if error.code != pb.ServerError.TopicNotFound:
            raise
        if strict:
            raise _lost(lost, client, topic, start, "the topic is not there any more") from error
        return
    if checked:
        # A reader of a ledger that is removed goes on with the next one.
        _check_beginning(client, topic, expected, end, lost)


def _is_hidden(client: Client, topic: TopicName, start: Position, end: Position) -> bool:
    """Whether a topic that looks empty to readers has these entries, all of aborted transactions."""
    try:
        state = log_state(client, topic)
    except AdminCallError:
        return False
    return state.stored_end is not None and state.first <= start and end <= state.stored_end


def _lost(lost: Lost, client: Client, topic: TopicName, start: Position, gone: str) -> Exception:
    return lost(str(topic), str(start), gone, rule=client.admin.removal_rule(topic))


def _check_beginning(
    client: Client, topic: TopicName, start: Position, delivered: Position, lost: Lost
) -> None:
    """Raises the error of `lost` when the entry after `start` is `delivered` because others were removed.

    Entries that no consumer gets, such as markers, leave gaps too; then the topic begins before the gap.
    """
    if delivered <= start:
        return
    try:
        is_gone = KnownLog.from_internal_stats(client.admin.internal_stats(topic)).first > start
    except AdminCallError:
        first = peek(client, topic, EARLIEST, _PEEK_TIMEOUT_S)
        is_gone = not len(first) or first.position(0) > start
    if is_gone:
        gone = f"{start} to {delivered} was removed"
        raise _lost(lost, client, topic, start, gone)
