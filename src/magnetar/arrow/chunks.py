"""Large messages that producers cut into pieces, each an entry of its own.

Pieces of one message share a uuid, come in order, and may have entries of other producers between them.
The message stands where its last piece stands. All pieces have to lie in the range that is read: a range
that starts in the middle of a message is refused, as dropping it or repeating it would both be wrong.

Source: PIP-37.
"""

from __future__ import annotations

from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError
from magnetar.wire.payload import build_entry, entry_layout, parse_metadata


class ChunkAssembler:
    """Pieces seen so far of messages that are not complete."""

    def __init__(self, topic: TopicName) -> None:
        self._topic = topic
        self._pieces: dict[str, list[bytes]] = {}

    def assemble(self, entries: EntryColumns) -> EntryColumns:
        """The entries, pieces replaced by whole messages where these end.

        Raises PayloadError when a piece has no beginning.
        """
        whole = EntryColumns()
        for row, entry in enumerate(entries.entries):
            _, metadata_at, payload_at = entry_layout(entry)
            metadata = parse_metadata(entry[metadata_at:payload_at])
            if metadata.num_chunks_from_msg > 1:
                pieces = self._pieces.setdefault(metadata.uuid, [])
                if metadata.chunk_id == 0:
                    # A producer that begins anew after a failure sends the first piece again.
                    pieces.clear()
                elif metadata.chunk_id < len(pieces):
                    continue
                if metadata.chunk_id != len(pieces):
                    raise PayloadError(
                        f"entry {entries.position(row)} of {self._topic} is piece {metadata.chunk_id} of"
                        f" {metadata.num_chunks_from_msg} of a large message whose beginning lies before the"
                        " range that is read; start at or before its first piece, read without minPartitions"
                        " and maxRowsPerPartition, and without a limit per trigger"
                    )
                pieces.append(entry[payload_at:])
                if len(pieces) < metadata.num_chunks_from_msg:
                    continue
                del self._pieces[metadata.uuid]
                for field in ("uuid", "num_chunks_from_msg", "chunk_id", "total_chunk_msg_size"):
                    metadata.ClearField(field)
                entry = build_entry(metadata, b"".join(pieces))
            whole.add(
                entries.ledger_ids[row],
                entries.entry_ids[row],
                entry,
                entries.last_indexes[row],
                entries.broker_times_ms[row],
            )
        return whole
