"""Refuses configurations that cannot work, with Pulsar's words (pure).

What Pulsar refuses in Python only and this project runs is taken: effectively once, windows, retries.

Source: Pulsar's `FunctionConfigUtils.doCommonChecks`, `WindowConfigUtils.validate`, `ResourceConfigUtils`.
"""

from __future__ import annotations

import json
from typing import Final

from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.functions.config.function_config import (
    ATLEAST_ONCE,
    ATMOST_ONCE,
    EFFECTIVELY_ONCE,
    GO,
    JAVA,
    MANUAL,
    PYTHON,
)
from magnetar.functions.config.given import (
    Given,
    GivenCrypto,
    GivenProducer,
    GivenResources,
    GivenWindow,
    inputs_of,
)
from magnetar.functions.refusals import InvalidConfigError

INSTANCES_MAX: Final = 1_024
"""Most instances of one function; each may be a process."""
INPUTS_MAX: Final = 1_000
"""Most inputs of one function; each is a consumer of every instance."""
CONFIG_BYTES_MAX: Final = 256 << 10
"""Most bytes of a configuration as JSON. Metadata stores take values of up to a megabyte."""
NAME_CHARS_MAX: Final = 255
_LOG_LEVELS: Final = ("INFO", "DEBUG", "WARN", "ERROR")
_BATCH_BUILDERS: Final = ("", "DEFAULT", "KEY_BASED")
_CONTRADICTION: Final = (
    "When Guarantees == ATMOST_ONCE, autoAck must be equal to true."
    " This is a contradictory configuration, autoAck will be removed later."
    " Please refer to PIP: https://github.com/apache/pulsar/issues/15560"
)


def check_name(name: str) -> None:
    """Raises InvalidConfigError for what cannot be a function's name: it is a part of paths and of keys."""
    if not name:
        raise InvalidConfigError("Function name cannot be null")
    if len(name) > NAME_CHARS_MAX or name in (".", "..") or "/" in name or not name.isprintable():
        raise InvalidConfigError(
            "Function name is not valid",
            remedy=f"a name has at most {NAME_CHARS_MAX} printable characters and no slash",
        )


def with_runtime(given: Given) -> Given:
    """The configuration with the runtime that its package names, as Pulsar infers it."""
    for field, runtime in (("jar", JAVA), ("py", PYTHON), ("go", GO)):
        if field in given:
            return {**given, "runtime": runtime}
    return given


def check(given: Given) -> None:
    """Raises InvalidConfigError."""
    _check_names(given)
    _check_topics(given)
    if "logLevel" in given and given["logLevel"].upper() not in _LOG_LEVELS:
        raise InvalidConfigError(f"LogLevel {given['logLevel']} is invalid")
    if (window := given.get("windowConfig")) is not None:
        _check_window(window, given.get("processingGuarantees", ATLEAST_ONCE))
    if (resources := given.get("resources")) is not None:
        _check_resources(resources)
    _check_delivery(given)
    _check_consumers(given)
    _check_producer(given.get("producerConfig", {}))
    if given.get("maxPendingAsyncRequests", 1) < 1:
        raise InvalidConfigError("Max pending async requests must be a positive number")
    if len(json.dumps(given)) > CONFIG_BYTES_MAX:
        raise InvalidConfigError(
            f"Function config has more than {CONFIG_BYTES_MAX} bytes",
            remedy="put large values into the package, or into a topic",
        )


def _check_names(given: Given) -> None:
    if not given.get("tenant"):
        raise InvalidConfigError("Function tenant cannot be null")
    if not given.get("namespace"):
        raise InvalidConfigError("Function namespace cannot be null")
    check_name(given.get("name", ""))
    if "runtime" not in given:
        raise InvalidConfigError("Function language runtime is either not set or cannot be determined")
    if given["runtime"] == PYTHON and not given.get("className"):
        raise InvalidConfigError("Function classname cannot be null")
    if not given.get("parallelism", 1) >= 1:
        raise InvalidConfigError("Function parallelism must be a positive number")
    if given.get("parallelism", 1) > INSTANCES_MAX:
        raise InvalidConfigError(f"Function parallelism must be at most {INSTANCES_MAX}")


def _check_topics(given: Given) -> None:
    inputs = inputs_of(given)
    if not inputs:
        raise InvalidConfigError("No input topic(s) specified for the function")
    if len(inputs) > INPUTS_MAX:
        raise InvalidConfigError(f"A function has at most {INPUTS_MAX} input topics")
    read = {_full(topic, "Input topic") for topic in inputs}
    for place, field in (
        ("Output topic", "output"),
        ("LogTopic topic", "logTopic"),
        ("DeadLetter topic", "deadLetterTopic"),
    ):
        topic = str(given.get(field, ""))
        if topic and _full(topic, place) in read:
            raise InvalidConfigError(
                f"{place} {topic} is also being used as an input topic (topics must be one or the other)"
            )


def _full(topic: str, place: str) -> str:
    try:
        return str(TopicName.parse(topic))
    except InvalidTopicNameError as error:
        raise InvalidConfigError(f"{place} {topic[:200]} is invalid", remedy=str(error)) from error


def _check_delivery(given: Given) -> None:
    guarantees = given.get("processingGuarantees", "")
    retries = given.get("maxMessageRetries", -1)
    if "timeoutMs" in given and given["timeoutMs"] <= 0:
        raise InvalidConfigError("Function timeout must be a positive number")
    if "timeoutMs" in given and guarantees not in ("", ATLEAST_ONCE):
        raise InvalidConfigError(
            f"Message timeout can only be specified with processing guarantee is {ATLEAST_ONCE}"
        )
    if retries >= 0 and guarantees == EFFECTIVELY_ONCE:
        raise InvalidConfigError("MaxMessageRetries and Effectively once don't gel well")
    if retries < 0 and given.get("deadLetterTopic"):
        raise InvalidConfigError("Dead Letter Topic specified, however max retries is set to infinity")
    if given.get("retainKeyOrdering") and guarantees == EFFECTIVELY_ONCE:
        raise InvalidConfigError(
            "When effectively once processing guarantee is specified, retain Key ordering cannot be set"
        )
    if given.get("retainKeyOrdering") and given.get("retainOrdering"):
        raise InvalidConfigError("Only one of retain ordering or retain key ordering can be set")
    auto_ack = given.get("autoAck", True) and "windowConfig" not in given
    if not auto_ack and guarantees == ATMOST_ONCE:
        raise InvalidConfigError(_CONTRADICTION)


def _check_consumers(given: Given) -> None:
    for consumer in inputs_of(given).values():
        if consumer.get("receiverQueueSize", 0) < 0:
            raise InvalidConfigError("Receiver queue size should be >= zero")
        if consumer.get("schemaType") and consumer.get("serdeClassName"):
            raise InvalidConfigError("Only one of schemaType or serdeClassName should be set in inputSpec")
        _check_crypto(consumer.get("cryptoConfig"))
    if given.get("outputSerdeClassName") and given.get("outputSchemaType"):
        raise InvalidConfigError("Only one of outputSchemaType or outputSerdeClassName should be set")
    if given.get("batchBuilder", "").upper() not in _BATCH_BUILDERS:
        raise InvalidConfigError(
            f"batchBuilder must be one of DEFAULT, KEY_BASED, not {given['batchBuilder']}"
        )


def _check_crypto(crypto: GivenCrypto | None) -> None:
    if crypto is not None and not crypto.get("cryptoKeyReaderClassName", "").strip():
        raise InvalidConfigError("CryptoKeyReader class name required")


def _check_producer(producer: GivenProducer) -> None:
    crypto = producer.get("cryptoConfig")
    _check_crypto(crypto)
    if crypto is not None and not crypto.get("encryptionKeys"):
        raise InvalidConfigError("Must provide encryption key name for crypto key reader")


def _check_resources(resources: GivenResources) -> None:
    if resources.get("cpu", 1.0) <= 0:
        raise InvalidConfigError("The cpu allocation for the function must be positive")
    if resources.get("ram", 1) <= 0:
        raise InvalidConfigError("The ram allocation for the function must be positive")
    if resources.get("disk", 1) <= 0:
        raise InvalidConfigError("The disk allocation for the function must be positive")


def _check_window(window: GivenWindow, guarantees: str) -> None:
    lengths = [window.get("windowLengthCount"), window.get("windowLengthDurationMs")]
    if lengths == [None, None]:
        raise InvalidConfigError("Window length is not specified")
    if None not in lengths:
        raise InvalidConfigError("Window length for time and count are set! Please set one or the other.")
    slidings = [window.get("slidingIntervalCount"), window.get("slidingIntervalDurationMs")]
    for what, values in (("Window length", lengths), ("Sliding interval", slidings)):
        for value in values:
            if value is not None and value <= 0:
                raise InvalidConfigError(f"{what} must be positive [{value}]")
    if window.get("timestampExtractorClassName"):
        if window.get("maxLagMs", 0) < 0:
            raise InvalidConfigError(f"Lag duration must be positive [{window['maxLagMs']}]")
        if window.get("watermarkEmitIntervalMs", 1) <= 0:
            raise InvalidConfigError(
                f"Watermark interval must be positive [{window['watermarkEmitIntervalMs']}]"
            )
    if guarantees in (EFFECTIVELY_ONCE, MANUAL):
        raise InvalidConfigError(f"Windows Function not support {guarantees} delivery semantics.")
