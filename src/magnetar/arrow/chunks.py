"""Large messages that producers cut into pieces, each an entry of its own.

Pieces of one message share a uuid, come in order, and may have entries of other producers between them.
The message stands where its last piece stands, so the range that holds the last piece has the message; the
others look back for pieces or leave theirs to the range that comes next.

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
"""The first so many pieces of the message with this uuid, which lie before a position; None when they are
gone and that is to be borne."""


class ChunkAssembler:
    """Pieces seen so far of messages that are not complete."""

    def __init__(self, topic: TopicName, pieces_before: PiecesBefore | None = None) -> None:
        self._topic = topic
        self._pieces_before = pieces_before
        self._pieces: dict[str, list[bytes]] = {}
        self._given_up: set[str] = set()

    def assemble(self, entries: EntryColumns) -> EntryColumns:
        """The entries, pieces replaced by whole messages where these end.

        Raises PayloadError when a piece has no beginning, also not before the range.
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
        """The whole payload when this piece is the last one."""
        uuid, number = metadata.uuid, metadata.chunk_id
        if uuid in self._given_up:
            return None
        pieces = self._pieces.setdefault(uuid, [])
        if number == 0:
            # A producer that begins anew after a failure sends the first piece again.
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
    """Adds the pieces of one message that are among these entries, by number."""
    wanted = uuid.encode()
    for entry in entries.entries:
        if wanted not in entry:
            continue  # Parsing all metadata would cost more than looking for the name.
        _, metadata_at, payload_at = entry_layout(entry)
        metadata = parse_metadata(entry[metadata_at:payload_at])
        if metadata.uuid == uuid:
            found.setdefault(metadata.chunk_id, entry[payload_at:])
