"""Options of the source and the sink: names, synonyms, checks.

Names are matched without regard to case. Those of Spark's Kafka source and of pulsar-spark are taken where
they mean the same, so that jobs move over with few changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.arrow.columns import COLUMN_TYPES
from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.client.compression import UnknownCompressionError, compression_type
from magnetar.client.errors import ClientError
from magnetar.client.options import ClientOptions
from magnetar.client.service_url import ServiceUrl
from magnetar.spark.errors import OptionError

_SYNONYMS: Final = {
    "serviceurl": "service.url",
    "adminurl": "admin.url",
    "subscribe": "topics",
    "path": "topics",
    "subscribepattern": "topicspattern",
    "topicpattern": "topicspattern",
    "maxoffsetspertrigger": "maxrowspertrigger",
    "startingtime": "startingtimestamp",
    "endingtime": "endingtimestamp",
    "predefinedsubscription": "subscription",
    "subscriptionname": "subscription",
    "maxrecordsperpartition": "maxrowsperpartition",
    "token": "auth.token",
    "pulsar.client.authparams": "auth.token",
    "pulsar.client.tlstrustcertsfilepath": "tls.trustcertsfile",
    "pulsar.client.tlshostnameverificationenable": "tls.validatehostname",
    "pulsar.producer.compressiontype": "compression",
}
"""Lower-case synonym to lower-case name."""

_SHARED_OPTIONS: Final = (
    "service.url",
    "admin.url",
    "auth.token",
    "auth.token.file",
    "auth.user",
    "auth.password",
    "tls.trustCertsFile",
    "tls.certificateFile",
    "tls.keyFile",
    "tls.validateHostname",
    "connectTimeoutMs",
    "requestTimeoutMs",
    "retryTimeoutMs",
)
READ_OPTIONS: Final = (
    *_SHARED_OPTIONS,
    "topic",
    "topics",
    "topicsPattern",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRowsPerPartition",
    "failOnDataLoss",
    "subscription",
    "columns",
    "valueFormat",
)
WRITE_OPTIONS: Final = (
    *_SHARED_OPTIONS,
    "topic",
    "delivery",
    "writeId",
    "batching",
    "compression",
    "maxRowsPerEntry",
    "maxBytesPerEntry",
    "inlineBytesMax",
    "enableDeduplication",
)

_SPARK_OWN: Final = frozenset(("checkpointlocation", "queryname", "outputmode"))
"""What Spark puts among the options itself."""

VALUE_FORMATS: Final = ("bytes", "string")
DELIVERIES: Final = ("exactly_once", "at_least_once")
BATCHINGS: Final = ("partition", "key", "none")
"""What an entry may hold: any rows of one partition; rows of one key, as Key_Shared needs; one row."""


class _Reader:
    """Takes values out of a mapping of options, remembering what is valid."""

    def __init__(self, options: Mapping[str, str], valid: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in valid}
        self._values: dict[str, str] = {}
        for key, value in options.items():
            lower = key.lower()
            name = _SYNONYMS.get(lower, lower)
            if name in _SPARK_OWN:
                continue
            if name == "topics" and name not in names:
                name = "topic"  # The sink writes to one.
            if name not in names:
                raise OptionError(f"unknown option {key!r}; there are {', '.join(sorted(valid))}")
            if name in self._values and self._values[name] != value:
                raise OptionError(f"option {names[name]!r} is given twice, by two of its names")
            self._values[name] = value

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name.lower(), default).strip()

    def number(self, name: str) -> int | None:
        """A positive whole number; None when the option is not given."""
        text = self.text(name)
        if not text:
            return None
        # Sizes and rows may be written with separators.
        digits = text.replace("_", "").replace(",", "")
        if not (digits.isascii() and digits.isdigit() and int(digits) > 0):
            raise OptionError(f"{name}={text!r}: expected a whole number above 0")
        return int(digits)

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise OptionError(f"{name}={text!r}: expected true or false")
        return default if not text else text == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        text = self.text(name, choices[0]).lower().replace("-", "_")
        if text not in choices:
            raise OptionError(f"{name}={text!r}: expected one of {', '.join(choices)}")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Where the cluster is. Can be pickled to executors."""

    service_url: str
    admin_url: str
    """Empty: the host of the service URL at its usual port."""
    client: ClientOptions


def _connection(reader: _Reader) -> ConnectionOptions:
    service_url = reader.text("service.url")
    if not service_url:
        raise OptionError("option 'service.url' is missing: pulsar://host:6650 or http://host:8080")
    admin_url = reader.text("admin.url")
    try:
        ServiceUrl.parse(service_url)
        if admin_url and not ServiceUrl.parse(admin_url).is_http:
            raise OptionError(f"admin.url={admin_url!r}: expected http://host:8080")
    except ClientError as error:
        raise OptionError(str(error)) from error
    default = ClientOptions()
    client = ClientOptions(
        connect_timeout_s=(reader.number("connectTimeoutMs") or default.connect_timeout_s * 1000) / 1000,
        request_timeout_s=(reader.number("requestTimeoutMs") or default.request_timeout_s * 1000) / 1000,
        retry_timeout_s=(reader.number("retryTimeoutMs") or default.retry_timeout_s * 1000) / 1000,
        token=_token(reader),
        user=reader.text("auth.user"),
        password=reader.text("auth.password"),
        tls_trust_certs_file=reader.text("tls.trustCertsFile"),
        tls_certificate_file=reader.text("tls.certificateFile"),
        tls_key_file=reader.text("tls.keyFile"),
        tls_validate_hostname=reader.flag("tls.validateHostname", default=True),
    )
    return ConnectionOptions(service_url=service_url, admin_url=admin_url, client=client)


def _token(reader: _Reader) -> str:
    """As the client takes it: the token, or `file:` and the path that executors read it from."""
    token, file = reader.text("auth.token").removeprefix("token:"), reader.text("auth.token.file")
    if token and file:
        raise OptionError("of the options auth.token and auth.token.file only one may be given")
    if reader.text("auth.password") and not reader.text("auth.user"):
        raise OptionError("option auth.password needs auth.user")
    return f"file:{file.removeprefix('file://').removeprefix('file:')}" if file else token


def _topic(option: str, text: str) -> str:
    try:
        return str(TopicName.parse(text.strip()))
    except InvalidTopicNameError as error:
        raise OptionError(f"{option}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is read, and how."""

    connection: ConnectionOptions
    topics: tuple[str, ...]
    """Full names; empty when `pattern` says which."""
    pattern: str
    """A regular expression over full names, `namespace` in front of it being literal; else empty."""
    starting_offsets: str
    starting_timestamp: str
    ending_offsets: str
    ending_timestamp: str
    rows_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    partitions_min: int | None
    rows_per_partition_max: int | None
    fail_on_data_loss: bool
    subscription: str
    columns: tuple[str, ...]
    value_format: str

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Checks all options. Raises OptionError."""
        reader = _Reader(options, READ_OPTIONS)
        texts = {name: reader.text(name) for name in ("topic", "topics", "topicsPattern")}
        given = [name for name, text in texts.items() if text]
        if len(given) != 1:
            raise OptionError(
                "one of the options topic, topics (names parted by commas) and topicsPattern is needed"
                + (f"; {' and '.join(given)} are given" if given else "")
            )
        return cls(
            connection=_connection(reader),
            topics=_topics(texts["topic"], texts["topics"]),
            pattern=_pattern(texts["topicsPattern"]),
            starting_offsets=reader.text("startingOffsets"),
            starting_timestamp=reader.text("startingTimestamp"),
            ending_offsets=reader.text("endingOffsets"),
            ending_timestamp=reader.text("endingTimestamp"),
            rows_per_trigger_max=reader.number("maxRowsPerTrigger"),
            bytes_per_trigger_max=reader.number("maxBytesPerTrigger"),
            partitions_min=reader.number("minPartitions"),
            rows_per_partition_max=reader.number("maxRowsPerPartition"),
            fail_on_data_loss=reader.flag("failOnDataLoss", default=True),
            subscription=reader.text("subscription"),
            columns=_columns(reader.text("columns")),
            value_format=reader.choice("valueFormat", VALUE_FORMATS),
        )


def _topics(topic: str, topics: str) -> tuple[str, ...]:
    names = [topic] if topic else [name for name in topics.split(",") if name.strip()]
    return tuple(dict.fromkeys(_topic("topics", name) for name in names))


def _pattern(text: str) -> str:
    if not text:
        return ""
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"topicsPattern={text!r} is no regular expression: {error}") from error
    return text


def _columns(text: str) -> tuple[str, ...]:
    if not text:
        return tuple(COLUMN_TYPES)
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in COLUMN_TYPES]
    if unknown or not names:
        raise OptionError(f"columns: no column {', '.join(unknown)}; there are {', '.join(COLUMN_TYPES)}")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where rows are written, and how."""

    connection: ConnectionOptions
    topic: str
    """Full name."""
    delivery: str
    write_id: str
    """Name of a batch write, for running it again after a failure; else empty."""
    batching: str
    compression: int
    """Number in the protocol's CompressionType."""
    rows_per_entry_max: int
    bytes_per_entry_max: int
    inline_bytes_max: int
    """Rows of a task up to this size travel in its commit message instead of the staging topic."""
    enable_deduplication: bool
    """Whether the sink switches deduplication on at the topic where it is off."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Checks all options. Raises OptionError."""
        reader = _Reader(options, WRITE_OPTIONS)
        topic = reader.text("topic")
        if not topic:
            raise OptionError("option 'topic' is missing: the topic to write to")
        try:
            compression = compression_type(reader.text("compression", "none"))
        except UnknownCompressionError as error:
            raise OptionError(f"compression: {error}") from error
        write_id = reader.text("writeId")
        if write_id and re.fullmatch(r"[A-Za-z0-9._-]{1,100}", write_id) is None:
            raise OptionError(f"writeId={write_id!r}: expected up to 100 letters, digits, dots, dashes")
        return cls(
            connection=_connection(reader),
            topic=_topic("topic", topic),
            delivery=reader.choice("delivery", DELIVERIES),
            write_id=write_id,
            batching=reader.choice("batching", BATCHINGS),
            compression=compression,
            rows_per_entry_max=reader.number("maxRowsPerEntry") or 1000,
            bytes_per_entry_max=reader.number("maxBytesPerEntry") or 128 * 1024,
            inline_bytes_max=reader.number("inlineBytesMax") or 256 * 1024,
            enable_deduplication=reader.flag("enableDeduplication", default=True),
        )
