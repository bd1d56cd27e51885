"""Assembles large messages that producers cut into pieces, each in its own entry.

Pieces of one message share a uuid and come in order; entries of other producers may lie between them. The
message belongs to the range that holds its last piece. That range reads earlier pieces from before its start;
other ranges leave their pieces to it.

Source: PIP-37.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry, entry_layout, parse_metadata

PiecesBefore = Callable[[str, int, Position], list[bytes] | None]
"""Returns the first pieces of a message. Arguments: uuid, number of pieces, position before which they lie.
Returns None when they are gone and the caller may skip the message."""


class ChunkAssembler:
    """The pieces so far of incomplete messages."""

    def __init__(self, topic: TopicName, pieces_before: PiecesBefore | None = None) -> None:
        self._topic = topic
        self._pieces_before = pieces_before
        self._pieces: dict[str, list[bytes]] = {}
        self._given_up: set[str] = set()

    def assemble(self, entries: EntryColumns) -> EntryColumns:
        """The entries, with the last piece of each message replaced by the whole message, and no other
        pieces.

        Raises PayloadError when the first pieces of a message are in neither the range nor before it.
        """
        whole = EntryColumns()
        for row, entry in enumerate(entries.entries):
            _, metadata_at, payload_at = entry_layout(entry)
            metadata = parse_metadata(entry[metadata_at:payload_at])
            if metadata.num_chunks_from_msg > 1:
                message = self._take(entries.position(row), metadata, entry[payload_at:])
                if message is None:
                    continue
                for field in ("uuid", "num_chunks_from_msg", "chunk_id", "total_chunk_msg_size"):
                    metadata.ClearField(field)
                entry = build_entry(metadata, message)
            whole.add(
                entries.ledger_ids[row],
                entries.entry_ids[row],
                entry,
                entries.last_indexes[row],
                entries.broker_times_ms[row],
            )
        return whole

    def _take(self, position: Position, metadata: pb.MessageMetadata, piece: bytes) -> bytes | None:
        """Takes a piece; returns the whole payload if it is the last one, else None. Raises PayloadError."""
        uuid, number = metadata.uuid, metadata.chunk_id
        if uuid in self._given_up:
            return None
        pieces = self._pieces.setdefault(uuid, [])
        if number == 0:
            # A producer that starts again after a failure sends the first piece again.
            pieces.clear()
        elif number < len(pieces):
            return None
        if number > len(pieces):
            before = self._pieces_before(uuid, number, position) if self._pieces_before else []
            if before is None:
                self._given_up.add(uuid)
                del self._pieces[uuid]
                return None
            if len(before) < number:
                raise PayloadError(
                    f"entry {position} of {self._topic} is piece {number} of {metadata.num_chunks_from_msg}"
                    " of a large message whose beginning is not there any more; set failOnDataLoss=false to"
                    " leave it out"
                )
            pieces[:] = before
        pieces.append(piece)
        if len(pieces) < metadata.num_chunks_from_msg:
            return None
        return b"".join(self._pieces.pop(uuid))


def collect_pieces(entries: EntryColumns, uuid: str, found: dict[int, bytes]) -> None:
    """Adds the pieces of one message in these entries to `found`, by number."""
    wanted = uuid.encode()
    for entry in entries.entries:
        if wanted not in entry:
            continue  # Parsing all metadata would cost more than a search for the uuid.
        _, metadata_at, payload_at = entry_layout(entry)
        metadata = parse_metadata(entry[metadata_at:payload_at])
        if metadata.uuid == uuid:
            found.setdefault(metadata.chunk_id, entry[payload_at:])
