"""Harnesses of texts and documents: names, patterns, expressions, schemas, policies, WebSockets, settings."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import parse_qsl

from fuzzing.harness import Harness, described, require
from magnetar.admin.calls.call import Call
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.policies.table import ALL
from magnetar.base.errors import StartupError
from magnetar.base.names import InvalidNameError, TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.filters.entry_filter import Candidate, Context, FilterError
from magnetar.broker.filters.expression import PROPERTY, ExpressionFilter
from magnetar.broker.watchers.pattern import Pattern, PatternError
from magnetar.schemas.compatibility import check_definition, unreadable
from magnetar.schemas.errors import InvalidSchemaError
from magnetar.schemas.key_value import join
from magnetar.server.settings.loading import load
from magnetar.server.settings.properties import parse as parse_properties
from magnetar.websocket.documents import message_id_of, order_of, outgoing_of
from magnetar.websocket.errors import MessageError, OpeningError
from magnetar.websocket.paths import target_of
from magnetar.websocket.query_options import consumer_options, producer_options, reader_options
from magnetar.wire import pulsar_pb2 as pb

TOPIC: Final = "persistent://public/default/orders-partition-3"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _topic_name(data: bytes) -> object:
    name = TopicName.parse(data.decode("utf-8", "replace"))
    require(TopicName.parse(str(name)) == name, "the full name is another topic")
    require(TopicName.from_log_name(name.log_name) == name, "the stored name is another topic")
    require(name.log_name.count("/") == 3, "a stored name with a slash of its own")
    return str(name)


def _pattern(data: bytes) -> object:
    pattern = Pattern(data.decode("utf-8", "replace"))
    return [
        pattern.match(text) for text in (TOPIC, "", "a" * 200, "persistent://public/default/" + "ab" * 99)
    ]


@cache
def _candidates() -> tuple[Candidate, ...]:
    found = []
    for key, colour in (("k", "red"), ("", "A" * 5_000)):
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=3, publish_time=17, partition_key=key)
        metadata.properties.add(key="colour", value=colour)
        found.append(Candidate(metadata, memoryview(b"body"), 1))
    return tuple(found)


def judged(data: bytes) -> object:
    """An expression, and what it says of two messages."""
    text = data.decode("utf-8", "replace")
    verdicts = ExpressionFilter(Context("t", "s", {PROPERTY: text})).judge(_candidates())
    require(len(verdicts) == len(_candidates()), "a verdict is missing")
    return [verdict.value for verdict in verdicts]


_SCHEMA_TYPES: Final = (pb.Schema.Avro, pb.Schema.Json, pb.Schema.KeyValue, pb.Schema.ProtobufNative)


def _schema(data: bytes) -> object:
    """The first byte says which type; the rest is checked, and compared with itself."""
    kind = _SCHEMA_TYPES[data[0] % len(_SCHEMA_TYPES)] if data else pb.Schema.Avro
    schema = pb.Schema(name="", type=kind, schema_data=data[1:])
    if kind == pb.Schema.KeyValue:
        schema.properties.add(key="key.schema.type", value="AVRO")
        schema.properties.add(key="value.schema.type", value="JSON")
    check_definition(schema)
    return unreadable(schema, schema)


def websocket(data: bytes) -> object:
    """The first byte says what the text is: a producer's message, a consumer's order, a path with a query."""
    text, kind = _text(data[1:]), data[0] % 4 if data else 0
    if kind == 0:
        return described(outgoing_of(text, 1_700_000_000_000))
    if kind == 1:
        return described(order_of(text))
    if kind == 2:
        return described(message_id_of(text))
    path, _, query_text = text.partition("?")
    query = dict(parse_qsl(query_text))
    target = target_of(path, query, "standalone")
    options = {"producer": producer_options, "consumer": consumer_options}.get(
        target.role.value, reader_options
    )
    return str(target.topics), described(options(query))


_BROKER: Final = cast(Any, SimpleNamespace(config=BrokerConfig()))


def policy(data: bytes) -> object:
    """The first byte says which policy; the rest is the body. What is read must be JSON for good."""
    policy = ALL[data[0] % len(ALL)] if data else ALL[0]
    path = f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{policy.of_namespace or policy.of_topic}"
    call = Call(_BROKER, cast(Any, None), path, {}, {}, {}, data[1:], "localhost")
    kind = policy.kind if policy.of_namespace else policy.kind_of_topic or policy.kind
    value = kind.read(call)
    stored = json.dumps(value, allow_nan=False)
    require(json.loads(stored) == value, "what is stored is not what was read")
    require(len(stored) <= 4 * len(data) + 1_000, "a small body, a large document")
    return stored


def _configuration(data: bytes) -> object:
    """Pulsar's form or, when the first byte is odd, TOML."""
    if data and data[0] % 2 == 0:
        return parse_properties(data[1:].decode("utf-8", "replace"))
    with tempfile.NamedTemporaryFile(suffix=".toml", dir=_memory()) as file:
        file.write(data[1:])
        file.flush()
        return str(load({"ephemeral": True}, file=Path(file.name), environment={}).config)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _schema_seeds() -> list[bytes]:
    record = b'{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"],"default":null}]}'
    deep = b'{"type":"array","items":' * 40 + b'"int"' + b"}" * 40
    return [b"\0" + record, b"\1" + record, b"\2" + join(record, record), b"\0" + deep, b"\3{}"]


def _policy_seeds() -> list[bytes]:
    bodies: list[object] = [
        *(7, -1, True, None, "Shared", ["Shared"], {}, [], "expression", 1 << 40, 1.5),
        {"retentionTimeInMinutes": 7, "retentionSizeInMB": 8},
        {"limitSize": 10, "limitTime": 5, "policy": "producer_exception"},
        {"entryFilterNames": "expression"},
        {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": 2, "ratePeriodInSecond": 1},
    ]
    texts = [json.dumps(body).encode() for body in bodies] + [b"NaN", b"Infinity", b"1e999", b"[" * 500]
    return [bytes((number,)) + text for number in range(0, len(ALL), 3) for text in texts]


HARNESSES: Final = (
    Harness(
        name="topic-names",
        run=_topic_name,
        refusals=(InvalidNameError,),
        seeds=lambda: [
            TOPIC.encode(),
            b"orders",
            b"a/b/c",
            b"non-persistent://a/b/%2F..%2f",
            b"persistent://a/b/..",
        ],
        words=(b"-partition-", b"://", b"%2F", b"..", b"persistent", "é".encode()),
        input_bytes_max=300,
    ),
    Harness(
        name="patterns",
        run=_pattern,
        refusals=(PatternError,),
        seeds=lambda: [
            b"persistent://public/default/.*",
            b"(a|b)*c{2,5}",
            rb"(?i)[^a-z\d]+\Q.\E$",
            b"(((a{9}){9}){9})",
        ],
        words=(b"(?:", b"{1,9}", b"*?", rb"\d", b"[^", b"|", b"(?i)"),
        input_bytes_max=300,
    ),
    Harness(
        name="expressions",
        run=judged,
        refusals=(FilterError,),
        seeds=lambda: [
            b'properties.colour == "red"',
            b'key in ("a", "b") and size > 3 or not contains(properties.colour, "e")',
            b'starts(lower(key), "k") and number(properties.colour) / 0 > 1',
            b"1000000 % 7 - 3 // 2 + publish_time is None",
        ],
        words=(
            b"properties",
            b"contains(",
            b"lower(",
            b"len(",
            b" and ",
            b" or ",
            b"not ",
            b"[-1]",
            b" in ",
            b"%",
        ),
        input_bytes_max=2_500,
    ),
    Harness(
        name="schemas",
        run=_schema,
        refusals=(InvalidSchemaError,),
        seeds=_schema_seeds,
        words=(
            b'"type"',
            b'"record"',
            b'"union"',
            b'"enum"',
            b'"items"',
            b'"logicalType"',
            b'"decimal"',
            b'"R"',
        ),
    ),
    Harness(
        name="websocket",
        run=websocket,
        refusals=(MessageError, OpeningError),
        seeds=lambda: [
            b'\0{"payload":"aGk=","properties":{"a":"b"},"context":"1","key":"k","eventTime":"2026-01-01T00:00:00Z"}',
            b'\1{"messageId":"CAMQBA=="}',
            b'\1{"type":"permit","permitMessages":100}',
            b"\2CAMQBA==",
            b"\3/ws/v2/consumer/persistent/public/default/t/s?receiverQueueSize=7&ackTimeoutMillis=2000",
            b"\3/ws/v2/producer/persistent/public/default/t?sendTimeoutMillis=7",
            b"\3/ws/v2/reader/persistent/public/default/t?messageId=earliest",
        ],
        words=(
            b'"context"',
            b'"eventTime"',
            b'"payload"',
            b'"properties"',
            b"\\ud800",
            b"%00",
            b"1e400",
            b"NaN",
        ),
    ),
    Harness(
        name="policies",
        run=policy,
        refusals=(BadRequestError, PreconditionFailedError),
        seeds=_policy_seeds,
        words=(
            b"NaN",
            b"-Infinity",
            b"1e400",
            b"-1",
            b"2147483648",
            b"9223372036854775808",
            b"null",
            b"true",
        ),
        input_bytes_max=1_000,
    ),
    Harness(
        name="configuration",
        run=_configuration,
        refusals=(StartupError, ValueError),
        seeds=lambda: [
            b'\1host = "127.0.0.1"\nbroker_port = 0\n',
            b"\1connections_max = -1\n",
            b"\0brokerServicePort=6650\nclusterName=\\u0041\\\n  b\n",
        ],
        words=(b"\\u00", b"= ", b"[a]\n", b"'''", b"inf", b"nan", b"1979-05-27"),
        input_bytes_max=1_000,
    ),
)
