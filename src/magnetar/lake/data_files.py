"""Describes a Parquet file of history for Iceberg's manifests, from its footer; the file is not changed.

pyiceberg's own `add_files` maps columns by the names that the table has now, and writes a name mapping into
the table. Here columns are mapped by the ids that the file has, which stay right when names change.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO, InputStream
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from magnetar.history.end import read_end
from magnetar.lake.lake_values import FilesGoneError, LakeError, LakeFile
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError, HistoryError

_METRICS: Final = {
    "write.metadata.metrics.default": "truncate(16)",
    "write.metadata.metrics.column.payload": "counts",
    "write.metadata.metrics.column.raw_entry": "counts",
    "write.metadata.metrics.column.entry_metadata": "counts",
    "write.metadata.metrics.column.message_metadata": "counts",
}


class StreamSource:
    """An opened file, read in ranges; see `ByteSource`."""

    def __init__(self, name: str, size: int, stream: InputStream) -> None:
        self.name = name
        self.size = size
        self._stream = stream

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on. Raises DamagedSegmentError when the file ends earlier."""
        self._stream.seek(offset)
        parts: list[bytes] = []
        while length > 0:
            part = self._stream.read(length)
            if not part:
                raise DamagedSegmentError(f"{self.name} is cut off")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class OpenedFile:
    """A file's footer."""

    def __init__(self, io: FileIO, file: LakeFile) -> None:
        """Reads the footer. Raises FilesGoneError when the file is missing, LakeError when its size differs
        from the list's."""
        self.file = file
        opened = io.new_input(file.path)
        try:
            size = len(opened)
            if size != file.file_bytes:
                raise LakeError(f"{file.path} has {size} of {file.file_bytes} bytes")
            with opened.open() as stream:
                self._footer = read_end(StreamSource(file.path, size, stream)).metadata
        except FileNotFoundError as error:
            raise FilesGoneError(f"{file.path} does not exist") from error
        except (OSError, pa.ArrowException, HistoryError) as error:
            raise LakeError(f"{file.path} cannot be read: {error}") from error
        self.schema: Schema = pyarrow_to_schema(self._footer.schema.to_arrow_schema())
        """The columns of the file, with their ids."""

    def described(self, partition: int, spec_id: int) -> DataFile:
        """The manifest entry of the file, with statistics by column."""
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=self._footer,
            stats_columns=compute_statistics_plan(self.schema, _METRICS),
            parquet_column_mapping=parquet_path_to_id_mapping(self.schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.file.path,
            file_format=FileFormat.PARQUET,
            partition=Record(partition),
            file_size_in_bytes=self.file.file_bytes,
            sort_order_id=None,
            spec_id=spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
