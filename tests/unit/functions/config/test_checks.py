"""Configurations that cannot work are refused with Pulsar's words."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.functions.config.checks import INPUTS_MAX, INSTANCES_MAX, check, check_name, with_runtime
from magnetar.functions.config.given import given_of
from magnetar.functions.refusals import InvalidConfigError
from support.functions import GIVEN

NAMES = {"tenant": "public", "namespace": "default", "name": "ex"}
WINDOW = {"windowLengthCount": 3}


def checked(**more: Any) -> None:
    check(with_runtime(given_of({**GIVEN, **NAMES, **more})))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tenant": None}, "Function tenant cannot be null"),
        ({"namespace": ""}, "Function namespace cannot be null"),
        ({"name": None}, "Function name cannot be null"),
        ({"py": None}, "Function language runtime is either not set or cannot be determined"),
        ({"className": None}, "Function classname cannot be null"),
        ({"inputs": []}, r"No input topic\(s\) specified for the function"),
        ({"inputs": ["a/b"]}, "Input topic a/b is invalid"),
        ({"output": "a/b"}, "Output topic a/b is invalid"),
        ({"logTopic": "://"}, "LogTopic topic :// is invalid"),
        ({"deadLetterTopic": "a/b", "maxMessageRetries": 1}, "DeadLetter topic a/b is invalid"),
        ({"output": "in"}, "Output topic in is also being used as an input topic"),
        ({"output": "persistent://public/default/in"}, "is also being used as an input topic"),
        ({"logTopic": "in"}, "LogTopic topic in is also being used"),
        ({"deadLetterTopic": "in", "maxMessageRetries": 1}, "DeadLetter topic in is also being used"),
        ({"logLevel": "loud"}, "LogLevel loud is invalid"),
        ({"parallelism": 0}, "Function parallelism must be a positive number"),
        ({"parallelism": INSTANCES_MAX + 1}, "at most 1024"),
        ({"inputs": [f"t{i}" for i in range(INPUTS_MAX + 1)]}, "at most 1000 input topics"),
        ({"resources": {"cpu": 0}}, "cpu allocation for the function must be positive"),
        ({"resources": {"ram": -1}}, "ram allocation for the function must be positive"),
        ({"resources": {"disk": 0}}, "disk allocation for the function must be positive"),
        ({"timeoutMs": 0}, "Function timeout must be a positive number"),
        ({"timeoutMs": 1, "processingGuarantees": "MANUAL"}, "Message timeout can only be specified"),
        (
            {"maxMessageRetries": 0, "processingGuarantees": "EFFECTIVELY_ONCE"},
            "MaxMessageRetries and Effectively once don't gel well",
        ),
        ({"deadLetterTopic": "d"}, "Dead Letter Topic specified, however max retries is set to infinity"),
        (
            {"retainKeyOrdering": True, "processingGuarantees": "EFFECTIVELY_ONCE"},
            "retain Key ordering cannot be set",
        ),
        (
            {"retainKeyOrdering": True, "retainOrdering": True},
            "Only one of retain ordering or retain key ordering can be set",
        ),
        ({"autoAck": False, "processingGuarantees": "ATMOST_ONCE"}, "autoAck must be equal to true"),
        ({"windowConfig": WINDOW, "processingGuarantees": "ATMOST_ONCE"}, "autoAck must be equal to true"),
        ({"windowConfig": WINDOW, "processingGuarantees": "MANUAL"}, "Windows Function not support MANUAL"),
        ({"windowConfig": {}}, "Window length is not specified"),
        ({"windowConfig": {**WINDOW, "windowLengthDurationMs": 1}}, "time and count are set"),
        ({"windowConfig": {"windowLengthCount": 0}}, r"Window length must be positive \[0\]"),
        ({"windowConfig": {**WINDOW, "slidingIntervalCount": 0}}, r"Sliding interval must be positive \[0\]"),
        (
            {"windowConfig": {**WINDOW, "timestampExtractorClassName": "x", "maxLagMs": -1}},
            r"Lag duration must be positive \[-1\]",
        ),
        (
            {"windowConfig": {**WINDOW, "timestampExtractorClassName": "x", "watermarkEmitIntervalMs": 0}},
            r"Watermark interval must be positive \[0\]",
        ),
        ({"inputSpecs": {"in": {"receiverQueueSize": -1}}}, "Receiver queue size should be >= zero"),
        (
            {"inputSpecs": {"in": {"schemaType": "json", "serdeClassName": "S"}}},
            "Only one of schemaType or serdeClassName should be set in inputSpec",
        ),
        ({"inputSpecs": {"in": {"cryptoConfig": {}}}}, "CryptoKeyReader class name required"),
        (
            {"outputSchemaType": "json", "outputSerdeClassName": "S"},
            "Only one of outputSchemaType or outputSerdeClassName should be set",
        ),
        ({"batchBuilder": "ODD"}, "batchBuilder must be one of"),
        ({"producerConfig": {"cryptoConfig": {}}}, "CryptoKeyReader class name required"),
        (
            {"producerConfig": {"cryptoConfig": {"cryptoKeyReaderClassName": "R"}}},
            "Must provide encryption key name for crypto key reader",
        ),
        ({"maxPendingAsyncRequests": 0}, "must be a positive number"),
        ({"userConfig": {"large": "x" * 300_000}}, "more than 262144 bytes"),
    ],
)
def test_it_is_refused(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        checked(**more)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"processingGuarantees": "effectively_once"},  # Pulsar refuses it, and the next two, in Python.
        {"windowConfig": WINDOW},
        {"maxMessageRetries": 3, "deadLetterTopic": "d"},
        {"inputs": None, "topicsPattern": "persistent://public/default/in-.*"},
        {"inputs": None, "customSerdeInputs": {"in": "S"}},
        {"inputs": None, "inputSpecs": {"in": {}}},
        {"maxMessageRetries": -1},
        {"timeoutMs": 5, "processingGuarantees": "ATLEAST_ONCE"},
        {"go": "x", "py": None, "className": None},
    ],
)
def test_it_is_taken(more: dict[str, Any]) -> None:
    checked(**more)


def test_the_package_names_the_runtime() -> None:
    assert with_runtime(given_of({"jar": "a.jar"}))["runtime"] == "JAVA"
    assert with_runtime(given_of({"py": "a.py"}))["runtime"] == "PYTHON"
    assert with_runtime(given_of({"go": "a"}))["runtime"] == "GO"
    assert "runtime" not in with_runtime(given_of({}))


@pytest.mark.parametrize("name", ["a/b", "..", ".", "x\n", "n" * 256])
def test_a_name_stays_a_part_of_a_path(name: str) -> None:
    with pytest.raises(InvalidConfigError, match="not valid"):
        check_name(name)
