"""Options of the sink: names and checks."""

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
"""What a written value is made of: the column as it is; a struct, by a schema that the topic gets."""
BATCHES_MAX: Final = 1 << 31
"""Batches that the numbers of messages can count, see `publishing`."""
DELIVERIES: Final = ("exactly_once", "at_least_once")
BATCHINGS: Final = ("partition", "key", "none")
"""What an entry may hold: any rows of one partition; rows of one key, as Key_Shared needs; one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where rows are written, and how."""

    connection: ConnectionOptions
    topic: str
    """Full name; empty when each row names its own."""
    namespace: NamespaceName
    """Where the topics are that the sink keeps for itself, when rows name theirs."""
    value_format: str
    delivery: str
    write_id: str
    """Name of a batch write, for running it again after a failure; else empty."""
    batch_id: int
    """Which of the writes under `write_id`; each is one behind the last."""
    batching: str
    compression: int
    """Number in the protocol's CompressionType."""
    rows_per_entry_max: int
    bytes_per_entry_max: int
    inline_bytes_max: int
    """Rows of a task up to this size travel in its commit message instead of the staging topic."""
    enable_deduplication: bool
    """Whether the sink switches deduplication on at the topic where it is off."""
    deterministic: bool
    """Whether a batch that is run again has the same rows; if not, those of the first time count."""

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
            raise OptionError(f"writeId={write_id!r}: expected up to 100 letters, digits, dots, dashes")
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
