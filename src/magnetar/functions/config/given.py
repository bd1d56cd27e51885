"""A function's configuration as far as it was given, in Pulsar's JSON (pure).

Source: Pulsar's `FunctionConfig`; where inputs may stand, its `FunctionConfigUtils.convert`.
"""

from __future__ import annotations

import json
from typing import Final, TypedDict, cast

from magnetar.functions.config import shapes
from magnetar.functions.config.function_config import GUARANTEES, POSITIONS, RUNTIMES
from magnetar.functions.config.shapes import Shape
from magnetar.functions.refusals import InvalidConfigError


class GivenCrypto(TypedDict, total=False):
    """`cryptoConfig`."""

    cryptoKeyReaderClassName: str
    cryptoKeyReaderConfig: dict[str, object]
    encryptionKeys: list[str]
    producerCryptoFailureAction: str
    consumerCryptoFailureAction: str


class GivenConsumer(TypedDict, total=False):
    """A value of `inputSpecs`. `isRegexPattern` is what requests say, `regexPattern` what answers say."""

    schemaType: str
    serdeClassName: str
    isRegexPattern: bool
    regexPattern: bool
    schemaProperties: dict[str, str]
    consumerProperties: dict[str, str]
    receiverQueueSize: int
    cryptoConfig: GivenCrypto
    poolMessages: bool


class GivenBatching(TypedDict, total=False):
    """`batchingConfig`."""

    enabled: bool
    batchingMaxPublishDelayMs: int
    batchingMaxMessages: int
    batchingMaxBytes: int
    roundRobinRouterBatchingPartitionSwitchFrequency: int
    batchBuilder: str


class GivenProducer(TypedDict, total=False):
    """`producerConfig`."""

    maxPendingMessages: int
    maxPendingMessagesAcrossPartitions: int
    useThreadLocalProducers: bool
    cryptoConfig: GivenCrypto
    batchBuilder: str
    compressionType: str
    batchingConfig: GivenBatching


class GivenWindow(TypedDict, total=False):
    """`windowConfig`."""

    windowLengthCount: int
    windowLengthDurationMs: int
    slidingIntervalCount: int
    slidingIntervalDurationMs: int
    lateDataTopic: str
    maxLagMs: int
    watermarkEmitIntervalMs: int
    timestampExtractorClassName: str


class GivenResources(TypedDict, total=False):
    """`resources`."""

    cpu: float
    ram: int
    disk: int


class Given(TypedDict, total=False):
    """A configuration as far as it was given."""

    tenant: str
    namespace: str
    name: str
    fqfn: str
    className: str
    inputs: list[str]
    topicsPattern: str
    customSerdeInputs: dict[str, str]
    customSchemaInputs: dict[str, str]
    inputSpecs: dict[str, GivenConsumer]
    inputTypeClassName: str
    output: str
    outputSchemaType: str
    outputSerdeClassName: str
    outputTypeClassName: str
    customSchemaOutputs: dict[str, str]
    producerConfig: GivenProducer
    batchBuilder: str
    forwardSourceMessageProperty: bool
    logTopic: str
    logLevel: str
    processingGuarantees: str
    retainOrdering: bool
    retainKeyOrdering: bool
    userConfig: dict[str, object]
    secrets: dict[str, object]
    runtime: str
    autoAck: bool
    maxMessageRetries: int
    deadLetterTopic: str
    subName: str
    subscriptionPosition: str
    skipToLatest: bool
    cleanupSubscription: bool
    parallelism: int
    resources: GivenResources
    windowConfig: GivenWindow
    timeoutMs: int
    jar: str
    py: str
    go: str
    runtimeFlags: str
    customRuntimeOptions: str
    maxPendingAsyncRequests: int


_CRYPTO: Final[Shape] = {
    "cryptoKeyReaderClassName": shapes.text,
    "cryptoKeyReaderConfig": shapes.document,
    "encryptionKeys": shapes.texts,
    "producerCryptoFailureAction": shapes.text,
    "consumerCryptoFailureAction": shapes.text,
}
_CONSUMER: Final[Shape] = {
    "schemaType": shapes.text,
    "serdeClassName": shapes.text,
    "isRegexPattern": shapes.flag,
    "regexPattern": shapes.flag,
    "schemaProperties": shapes.map_of(shapes.text),
    "consumerProperties": shapes.map_of(shapes.text),
    "receiverQueueSize": shapes.whole,
    "cryptoConfig": shapes.object_of(_CRYPTO),
    "poolMessages": shapes.flag,
}
_BATCHING: Final[Shape] = {
    "enabled": shapes.flag,
    "batchingMaxPublishDelayMs": shapes.whole,
    "batchingMaxMessages": shapes.whole,
    "batchingMaxBytes": shapes.whole,
    "roundRobinRouterBatchingPartitionSwitchFrequency": shapes.whole,
    "batchBuilder": shapes.text,
}
_PRODUCER: Final[Shape] = {
    "maxPendingMessages": shapes.whole,
    "maxPendingMessagesAcrossPartitions": shapes.whole,
    "useThreadLocalProducers": shapes.flag,
    "cryptoConfig": shapes.object_of(_CRYPTO),
    "batchBuilder": shapes.text,
    "compressionType": shapes.choice(("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")),
    "batchingConfig": shapes.object_of(_BATCHING),
}
_WINDOW: Final[Shape] = {
    "windowLengthCount": shapes.whole,
    "windowLengthDurationMs": shapes.long,
    "slidingIntervalCount": shapes.whole,
    "slidingIntervalDurationMs": shapes.long,
    "lateDataTopic": shapes.text,
    "maxLagMs": shapes.long,
    "watermarkEmitIntervalMs": shapes.long,
    "timestampExtractorClassName": shapes.text,
}
_RESOURCES: Final[Shape] = {"cpu": shapes.decimal, "ram": shapes.long, "disk": shapes.long}

SHAPE: Final[Shape] = {
    **dict.fromkeys(
        (
            *("tenant", "namespace", "name", "fqfn", "className", "topicsPattern", "inputTypeClassName"),
            *("output", "outputSchemaType", "outputSerdeClassName", "outputTypeClassName", "batchBuilder"),
            *("logTopic", "logLevel", "deadLetterTopic", "subName", "jar", "py", "go"),
            *("runtimeFlags", "customRuntimeOptions"),
        ),
        shapes.text,
    ),
    **dict.fromkeys(
        (
            *("forwardSourceMessageProperty", "retainOrdering", "retainKeyOrdering", "autoAck"),
            *("skipToLatest", "cleanupSubscription"),
        ),
        shapes.flag,
    ),
    "inputs": shapes.texts,
    "customSerdeInputs": shapes.map_of(shapes.text),
    "customSchemaInputs": shapes.map_of(shapes.text),
    "customSchemaOutputs": shapes.map_of(shapes.text),
    "inputSpecs": shapes.map_of(shapes.object_of(_CONSUMER)),
    "producerConfig": shapes.object_of(_PRODUCER),
    "processingGuarantees": shapes.choice(GUARANTEES),
    "runtime": shapes.choice(RUNTIMES),
    "subscriptionPosition": shapes.choice(POSITIONS),
    "userConfig": shapes.document,
    "secrets": shapes.document,
    "maxMessageRetries": shapes.whole,
    "parallelism": shapes.whole,
    "maxPendingAsyncRequests": shapes.whole,
    "timeoutMs": shapes.long,
    "resources": shapes.object_of(_RESOURCES),
    "windowConfig": shapes.object_of(_WINDOW),
}
"""What a configuration may hold."""


def given_of(document: object) -> Given:
    """What a JSON document gives. Raises InvalidConfigError."""
    found = shapes.read_object(document, "", SHAPE)
    # An empty text says nothing: the Go tools send one for each field that is not set.
    return cast(Given, {name: value for name, value in found.items() if value != ""})


def inputs_of(given: Given) -> dict[str, GivenConsumer]:
    """All inputs by topic or pattern, from the five places where they may stand. Raises
    InvalidConfigError."""
    found: dict[str, GivenConsumer] = {topic: {} for topic in given.get("inputs", ())}
    if pattern := given.get("topicsPattern"):
        found[pattern] = {"isRegexPattern": True}
    for topic, serde in given.get("customSerdeInputs", {}).items():
        found[topic] = {"serdeClassName": serde}
    for topic, schema in given.get("customSchemaInputs", {}).items():
        found[topic] = custom_schema(topic, schema)
    found.update(given.get("inputSpecs", {}))
    return found


def custom_schema(topic: str, schema: str) -> GivenConsumer:
    """A custom schema: a consumer's configuration as JSON text, or the schema's type alone."""
    if not schema.lstrip().startswith("{"):
        return {"schemaType": schema}
    try:
        found = shapes.read_object(json.loads(schema), topic, _CONSUMER)
    except (ValueError, RecursionError) as error:
        raise InvalidConfigError(f"Topic {topic} has an incorrect schema Info") from error
    return cast(GivenConsumer, found)


def is_pattern(consumer: GivenConsumer) -> bool:
    """Whether the input's name is a pattern."""
    return consumer.get("isRegexPattern", False) or consumer.get("regexPattern", False)
