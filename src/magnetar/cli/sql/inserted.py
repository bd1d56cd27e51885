"""A result that becomes messages of a topic: kept in a file until all of it is there, then published.

The file has no name, so that it goes with the process. What is published is durable when `publish` returns.
An interruption or an error meanwhile leaves a part of the messages in the topic.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.sql.rows import rows_of

if TYPE_CHECKING:
    import pyarrow as pa


class Inserted:
    """The rows of one INSERT."""

    def __init__(self, folder: str) -> None:
        """`folder`: for the file; empty: the system's temporary folder. Raises OSError."""
        self._file = tempfile.TemporaryFile(dir=folder or None)  # noqa: SIM115  # `__exit__` closes it

    def __enter__(self) -> Inserted:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keep(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        """Takes all rows. Raises what the iterator raises, and OSError."""
        import pyarrow as pa

        with pa.ipc.new_stream(self._file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    def publish(self, client: Client, topic: TopicName) -> int:
        """Publishes the rows in their order, and returns how many there are. Raises StatementError,
        UnfitValueError, ClientError."""
        import pyarrow as pa

        from magnetar.cli.messages.encoding import Encoder
        from magnetar.cli.messages.topic_writer import TopicWriter
        from magnetar.cli.sql.written_rows import WrittenRows

        self._file.seek(0)
        count = 0
        with pa.ipc.open_stream(self._file) as reader:
            rows = WrittenRows(reader.schema, client.schema(topic.base))
            if rows.schema is not None:
                client.register_schema(topic.base, rows.schema)
            encoder = Encoder(client, topic)
            writer = TopicWriter(client, topic, schema_version=encoder.version)
            try:
                for row in rows_of(iter(reader)):
                    message = rows.message(dict(row))
                    if rows.has_text and not message.is_null:
                        message = replace(message, payload=encoder.payload(message.payload))
                    writer.send(message)
                    count += 1
                for _ in writer.flush():
                    continue
            finally:
                writer.close()
        return count
