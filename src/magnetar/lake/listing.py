"""What tables are to have, by the stored list of a log. Pure."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from magnetar.base.names import TopicName
from magnetar.lake.locations import NoLakeHereError, file_location
from magnetar.lake.values import LakeFile, ListVersion, LogFiles
from magnetar.managedlog.log_metadata import LogMetadata
from magnetar.metadata.store import Stat
from magnetar.tiered.context import OffloadedCopy, segment_name


def files_of_log(
    log_name: str, metadata: LogMetadata, stat: Stat, *, without: Collection[UUID] = ()
) -> LogFiles:
    """Files of the complete copies that a log's list names.

    `without`: attempts whose objects are about to be deleted though this list may still name them.
    """
    topic = TopicName.from_log_name(log_name)
    files: list[LakeFile] = []
    for ledger in metadata.ledgers:
        context = ledger.offload
        if context is None or not context.complete or context.foreign or context.attempt in without:
            continue
        copy = OffloadedCopy(ledger.ledger_id, context)
        try:
            files += [
                LakeFile(
                    file_location(context.url, segment_name(log_name, copy, segment)),
                    segment.file_bytes,
                    ledger.ledger_id,
                )
                for segment in context.segments
            ]
        except NoLakeHereError:
            # Copies in a store that only this process can read are no part of the table.
            continue
    # Nobody who has read the same list and does not know of them may come after.
    version = ListVersion(stat.created_ms, stat.version, int(bool(without)))
    return LogFiles(str(topic.base), topic.partition, version, tuple(files))
