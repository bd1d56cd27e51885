"""Computes the files of a table from the stored list of a log. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from magnetar.base.names import TopicName
from magnetar.lake.lake_values import LakeFile, ListVersion, LogFiles
from magnetar.lake.locations import NoLakeHereError, file_location
from magnetar.managedlog.log_metadata import LogMetadata
from magnetar.metadata.store import Stat
from magnetar.tiered.context import OffloadedCopy, segment_name

Place = Callable[[str], str]


def _same(url: str) -> str:
    return url


def files_of_log(
    log_name: str, metadata: LogMetadata, stat: Stat, *, without: Collection[UUID] = (), place: Place = _same
) -> LogFiles:
    """Files of the complete copies that a log's list names.

    `place`: returns the present URL of a store that the list names.
    `without`: attempts whose objects are about to be deleted though this list may still name them.
    """
    topic = TopicName.from_log_name(log_name)
    # An object of several ledgers is one file.
    copies = {
        ledger.offload.attempt: OffloadedCopy(ledger.ledger_id, ledger.offload)
        for ledger in reversed(metadata.ledgers)
        if ledger.offload is not None and ledger.offload.attempt not in without
    }
    files = [file for copy in reversed(copies.values()) for file in _files(log_name, copy, place)]
    replaced = [
        file.path
        for copy in metadata.deleted_copies
        if copy.context.delete_after_ms and copy.context.attempt not in without
        for file in _files(log_name, copy, place)
    ]
    # No process that has read the same list without them may write after this.
    version = ListVersion(stat.created_ms, stat.version, int(bool(without)))
    return LogFiles(str(topic.base), topic.partition, version, tuple(files), frozenset(replaced))


def _files(log_name: str, copy: OffloadedCopy, place: Place) -> list[LakeFile]:
    context = copy.context
    if not context.complete or context.foreign:
        return []
    try:
        return [
            LakeFile(
                file_location(place(context.url), segment_name(log_name, copy, segment)),
                segment.file_bytes,
                copy.ledger_id,
            )
            for segment in context.segments
        ]
    except NoLakeHereError:
        # Copies in a store that only this process can read are not a part of the table.
        return []
