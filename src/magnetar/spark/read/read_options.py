"""Options of the source: topics, start and end, amounts per trigger, and the format of values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.arrow.columns import COLUMN_TYPES, EXTRA_TYPES
from magnetar.base.names import InvalidNamespaceNameError, NamespaceName, TopicName
from magnetar.spark.connection_options import (
    SHARED_OPTIONS,
    ConnectionOptions,
    connection_options,
    topic_option,
)
from magnetar.spark.errors import OptionError
from magnetar.spark.option_values import OptionValues
from magnetar.spark.read.pinned import PinnedRanges, parse_ranges
from magnetar.spark.timestamps import parse_duration

READ_OPTIONS: Final = (
    *SHARED_OPTIONS,
    "topic",
    "topics",
    "topicsPattern",
    "namespace",
    "assign",
    "ranges",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "limit",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "minRowsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRowsPerPartition",
    "failOnDataLoss",
    "waitingForNonExistedTopic",
    "subscription",
    "columns",
    "includeHeaders",
    "encrypted",
    "valueFormat",
    "valueSchema",
    "schemaVersion",
    "protobufDescriptor",
    "protobufMessage",
    "allowDifferentTopicSchemas",
    "mode",
    "columnNameOfCorruptRecord",
    "deadLetterTopic",
    "history",
    "keys",
    "pushFilters",
)

VALUE_FORMATS: Final = ("bytes", "string", "auto", "json", "avro", "protobuf", "keyvalue", "variant")
ENCRYPTED: Final = ("fail", "skip", "bytes")
"""Treatment of encrypted entries: an error, skipped, or given as encrypted bytes."""

MODES: Final = ("failfast", "permissive", "dropmalformed")
"""Treatment of values that do not match their schema: an error, null, or no row."""

HISTORY: Final = ("files", "broker")
"""Places from which offloaded history can be read."""

TRIGGER_DELAY_MS: Final = 15 * 60_000
"""Default of `maxTriggerDelay`: longest wait for `minRowsPerTrigger` rows, as in Spark's Kafka source."""

_WAYS: Final = ("topic", "topics", "topicsPattern", "namespace", "assign", "ranges")
_PLACES: Final = ("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """Options for the type of the value column."""

    format: str
    schema: str = ""
    """The type of values, when the topic's schema does not have it: DDL, or an Avro schema in JSON."""
    version: int | None = None
    """Version of the topic's schema for the type; None for the newest."""
    descriptor_file: str = ""
    """File with a FileDescriptorSet, for Protobuf topics whose schema has none."""
    message: str = ""
    """Full name of the message type in `descriptor_file`."""
    differs: bool = False
    """Whether topics may have different schemas; all are read as the schema of the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The checked options of one read."""

    connection: ConnectionOptions
    topics: tuple[str, ...]
    """Full names of topics and partitions; empty with `pattern` or `namespace`."""
    pattern: str
    """Regular expression for full names of topics, after a literal tenant and namespace; empty: not given."""
    namespace: str
    """Namespace of which all topics are read; empty: not given."""
    ranges: PinnedRanges | None
    """The exact entries to read; None when topics, starts and ends define them."""
    starting_offsets: str
    starting_timestamp: str
    ending_offsets: str
    ending_timestamp: str
    limit: int | None
    rows_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    rows_per_trigger_min: int | None
    trigger_delay_ms: int
    partitions_min: int | None
    rows_per_partition_max: int | None
    fail_on_data_loss: bool
    wait_for_topics: bool
    """Whether a stream waits for topics that do not exist yet."""
    subscription: str
    columns: tuple[str, ...]
    encrypted: str
    value: ValueOptions
    mode: str
    """One of MODES."""
    rescue_column: str
    """Column for the payloads of values that do not match their schema; empty for none."""
    dead_letter_topic: str
    """Full name of the topic to which such messages are sent; empty for none."""
    keys: frozenset[bytes] | None
    """Only messages with these keys are read; None for all."""
    history: bool
    """Whether executors read offloaded history from its files; otherwise, they read it through brokers."""
    push_filters: bool
    """Whether a query's filters narrow the read. Spark then uses the narrowed read for all queries of the
    DataFrame, so this is for DataFrames of one query."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Checks all options. Raises OptionError."""
        given = OptionValues(options, READ_OPTIONS)
        ways = [name for name in _WAYS if given.text(name)]
        if len(ways) != 1:
            raise OptionError(
                "one of the options topic, topics (names separated by commas), topicsPattern and namespace is"
                " needed" + (f"; {' and '.join(ways)} are given" if ways else "")
            )
        ranges = parse_ranges(given.text("ranges"))
        if ranges is not None and any(given.text(name) for name in _PLACES):
            raise OptionError("ranges say where reading starts and ends; leave out " + ", ".join(_PLACES))
        minimum = given.number("minRowsPerTrigger")
        maximum = given.number("maxRowsPerTrigger")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise OptionError(f"minRowsPerTrigger={minimum} is more than maxRowsPerTrigger={maximum}")
        delay = given.text("maxTriggerDelay")
        topics = _topics(given) if ranges is None else tuple(topic for topic, _ in ranges)
        return cls(
            connection=connection_options(given),
            topics=topics,
            pattern=_pattern(given.text("topicsPattern")),
            namespace=_namespace(given.text("namespace")),
            ranges=ranges,
            starting_offsets=given.text("startingOffsets"),
            starting_timestamp=given.text("startingTimestamp"),
            ending_offsets=given.text("endingOffsets"),
            ending_timestamp=given.text("endingTimestamp"),
            limit=given.number("limit"),
            rows_per_trigger_max=maximum,
            bytes_per_trigger_max=given.number("maxBytesPerTrigger"),
            rows_per_trigger_min=minimum,
            trigger_delay_ms=parse_duration("maxTriggerDelay", delay) if delay else TRIGGER_DELAY_MS,
            partitions_min=given.number("minPartitions"),
            rows_per_partition_max=given.number("maxRowsPerPartition"),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
            wait_for_topics=given.flag("waitingForNonExistedTopic", default=False),
            subscription=given.text("subscription"),
            columns=_columns(given),
            encrypted=given.choice("encrypted", ENCRYPTED),
            value=_value(given),
            mode=given.choice("mode", MODES),
            rescue_column=_rescue_column(given),
            dead_letter_topic=_dead_letter_topic(given, topics),
            keys=_keys(given.text("keys")),
            history=given.choice("history", HISTORY) == "files",
            push_filters=given.flag("pushFilters", default=False),
        )


def _topics(given: OptionValues) -> tuple[str, ...]:
    if assigned := given.text("assign"):
        return _assigned(assigned)
    topic, topics = given.text("topic"), given.text("topics")
    names = [topic] if topic else [name for name in topics.split(",") if name.strip()]
    return tuple(dict.fromkeys(topic_option("topics", name) for name in names))


def _assigned(text: str) -> tuple[str, ...]:
    """Names of partitions, from the form of Spark's Kafka source: `{"orders": [0, 2]}`."""
    try:
        chosen = json.loads(text)
        if not isinstance(chosen, dict):
            raise TypeError
        names = [
            topic_option("assign", f"{topic}-partition-{int(number)}")
            for topic, numbers in chosen.items()
            for number in numbers
        ]
    except (ValueError, TypeError, AttributeError):
        raise OptionError(f'assign={text!r}: expected JSON such as {{"orders": [0, 2]}}') from None
    if not names:
        raise OptionError("assign names no partition")
    return tuple(dict.fromkeys(names))


def _pattern(text: str) -> str:
    if not text:
        return ""
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"topicsPattern={text!r} is not a regular expression: {error}") from error
    return text


def _namespace(text: str) -> str:
    try:
        return str(NamespaceName.parse(text)) if text else ""
    except InvalidNamespaceNameError as error:
        raise OptionError(f"namespace: {error}") from error


def _columns(given: OptionValues) -> tuple[str, ...]:
    text = given.text("columns")
    names = tuple(COLUMN_TYPES)
    if text:
        names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    rescue = _rescue_column(given)
    names = tuple(rescue if rescue and name == rescue.lower() else name for name in names)
    known = COLUMN_TYPES | EXTRA_TYPES | ({rescue: ""} if rescue else {})
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise OptionError(f"columns: no column {', '.join(unknown)}; there are {', '.join(known)}")
    if given.flag("includeHeaders", default=False) and "headers" not in names:
        names = (*names, "headers")
    if given.choice("encrypted", ENCRYPTED) == "bytes" and not text and "encryption" not in names:
        names = (*names, "encryption")
    return names if not rescue or rescue in names else (*names, rescue)


def _rescue_column(given: OptionValues) -> str:
    option = "columnNameOfCorruptRecord"
    name = given.text(option)
    if not name:
        return ""
    if given.choice("mode", MODES) != "permissive":
        raise OptionError(f"{option} is for mode=permissive: else there is no row that it could stand in")
    if re.fullmatch(r"\w{1,100}", name) is None or name.lower() in COLUMN_TYPES | EXTRA_TYPES:
        raise OptionError(
            f"{option}={name!r}: expected letters, digits and _, and no column that topics have"
        )
    return name


def _dead_letter_topic(given: OptionValues, topics: tuple[str, ...]) -> str:
    option = "deadLetterTopic"
    name = given.text(option)
    if not name:
        return ""
    if given.choice("mode", MODES) == "failfast":
        raise OptionError(f"{option} is for mode=permissive or mode=dropmalformed: else the read ends")
    if given.choice("valueFormat", VALUE_FORMATS) == "bytes":
        raise OptionError(f"{option} is for a valueFormat other than bytes: those are never broken")
    topic = topic_option(option, name)
    if topic in (str(TopicName.parse(each).base) for each in topics):
        raise OptionError(f"{option}={name!r} is a topic that is read, which would never end")
    return topic


def _keys(text: str) -> frozenset[bytes] | None:
    """Reads keys separated by commas, or a JSON list, for keys with commas."""
    if not text:
        return None
    names: object = [name.strip() for name in text.split(",") if name.strip()]
    if text.startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OptionError(f'keys={text!r}: expected keys separated by commas, or JSON such as ["a,b", "c"]')
    return frozenset(name.encode() for name in names)


def _value(given: OptionValues) -> ValueOptions:
    if given.text("valueFormat").lower() == "kv":
        raise OptionError("valueFormat='kv': the name is keyvalue")
    chosen = given.choice("valueFormat", VALUE_FORMATS)
    if chosen != "bytes" and given.choice("encrypted", ENCRYPTED) == "bytes":
        raise OptionError(f"encrypted=bytes needs valueFormat=bytes: what is encrypted is no {chosen}")
    schema, version = given.text("valueSchema"), given.text("schemaVersion")
    if schema and version:
        raise OptionError("give only one of the options valueSchema and schemaVersion")
    if schema and chosen not in ("json", "avro"):
        raise OptionError(f"valueSchema is for the formats json and avro, not {chosen}")
    if version and not (version.isascii() and version.isdigit()):
        raise OptionError(f"schemaVersion={version!r}: expected a number, 0 for the first version")
    descriptor, message = given.text("protobufDescriptor"), given.text("protobufMessage")
    if bool(descriptor) != bool(message):
        raise OptionError("protobufDescriptor and protobufMessage are needed together")
    return ValueOptions(
        format=chosen,
        schema=schema,
        version=int(version) if version else None,
        descriptor_file=descriptor,
        message=message,
        differs=given.flag("allowDifferentTopicSchemas", default=False),
    )
