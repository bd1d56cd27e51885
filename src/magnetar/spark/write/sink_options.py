"""Names and checks of the options of the sink."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.names import InvalidNamespaceNameError, NamespaceName
from magnetar.client.compression import UnknownCompressionError, compression_type
from magnetar.spark.connection_options import (
    SHARED_OPTIONS,
    ConnectionOptions,
    connection_options,
    topic_option,
)
from magnetar.spark.errors import OptionError
from magnetar.spark.option_values import OptionValues

WRITE_OPTIONS: Final = (
    *SHARED_OPTIONS,
    "topic",
    "sinkNamespace",
    "valueFormat",
    "delivery",
    "writeId",
    "batchId",
    "batching",
    "compression",
    "maxRowsPerEntry",
    "maxBytesPerEntry",
    "inlineBytesMax",
    "enableDeduplication",
    "deterministic",
)

WRITE_FORMATS: Final = ("bytes", "avro", "json")
"""Formats of written values: the column unchanged, or a struct with a schema, which the topic gets."""
BATCHES_MAX: Final = 1 << 31
"""Most batches of a sink, limited by the sequence ids of messages: `publisher.py` checks it."""
DELIVERIES: Final = ("exactly_once", "at_least_once")
BATCHINGS: Final = ("partition", "key", "none")
"""Content of an entry: any rows of one partition; rows of one key, as Key_Shared needs; one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The checked options of one write."""

    connection: ConnectionOptions
    topic: str
    """Full name of the target; empty when each row names its target."""
    namespace: NamespaceName
    """Namespace of the sink's own topics, when rows name their targets."""
    value_format: str
    delivery: str
    write_id: str
    """Name of a batch write, with which it can be repeated after a failure; else empty."""
    batch_id: int
    """Number of this write under `write_id`; each write has the next number."""
    batching: str
    compression: int
    """Number in the protocol's CompressionType."""
    rows_per_entry_max: int
    bytes_per_entry_max: int
    inline_bytes_max: int
    """Rows of a task up to this size are sent in its commit message, not through the staging topic."""
    enable_deduplication: bool
    """Whether the sink switches deduplication on for topics that have it off."""
    deterministic: bool
    """Whether a repeated batch must have the same rows; if not, the rows of the first time count."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Checks all options. Raises OptionError."""
        given = OptionValues(options, WRITE_OPTIONS)
        topic = given.text("topic")
        namespace = given.text("sinkNamespace") or "public/default"
        try:
            home = NamespaceName.parse(namespace)
        except InvalidNamespaceNameError as error:
            raise OptionError(f"sinkNamespace: {error}") from error
        try:
            compression = compression_type(given.text("compression", "none"))
        except UnknownCompressionError as error:
            raise OptionError(f"compression: {error}") from error
        write_id = given.text("writeId")
        if write_id and re.fullmatch(r"[A-Za-z0-9._-]{1,100}", write_id) is None:
            raise OptionError(f"writeId={write_id!r}: expected 1 to 100 of A-Z, a-z, 0-9, ., _, -")
        batch = given.text("batchId") or "0"
        if not (batch.isascii() and batch.isdigit() and int(batch) < BATCHES_MAX):
            raise OptionError(f"batchId={batch!r}: expected a number from 0 to {BATCHES_MAX - 1}")
        if int(batch) and not write_id:
            raise OptionError("batchId counts the writes under a name: give writeId too")
        return cls(
            connection=connection_options(given),
            topic=topic_option("topic", topic) if topic else "",
            namespace=home,
            value_format=given.choice("valueFormat", WRITE_FORMATS),
            delivery=given.choice("delivery", DELIVERIES),
            write_id=write_id,
            batch_id=int(batch),
            batching=given.choice("batching", BATCHINGS),
            compression=compression,
            rows_per_entry_max=given.number("maxRowsPerEntry") or 1000,
            bytes_per_entry_max=given.number("maxBytesPerEntry") or 128 * 1024,
            inline_bytes_max=given.number("inlineBytesMax") or 256 * 1024,
            enable_deduplication=given.flag("enableDeduplication", default=True),
            deterministic=given.flag("deterministic", default=True),
        )
