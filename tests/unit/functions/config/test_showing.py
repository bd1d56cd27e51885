"""A configuration is shown as Pulsar shows it, and read again as what it was."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.functions.config.completing import config_of
from magnetar.functions.config.given import given_of
from magnetar.functions.config.showing import document_of
from support.functions import config

# What Pulsar 4.2 answers for a function that was created with a class, an input, an output and nothing else;
# `maxPendingAsyncRequests` is ours beside it.
SHOWN = {
    "tenant": "public",
    "namespace": "default",
    "name": "ex",
    "className": "ex.Ex",
    "inputSpecs": {
        "in": {"regexPattern": False, "schemaProperties": {}, "consumerProperties": {}, "poolMessages": False}
    },
    "output": "out",
    "producerConfig": {"useThreadLocalProducers": False, "batchBuilder": "", "compressionType": "LZ4"},
    "processingGuarantees": "ATLEAST_ONCE",
    "retainOrdering": False,
    "retainKeyOrdering": False,
    "forwardSourceMessageProperty": True,
    "userConfig": {},
    "runtime": "PYTHON",
    "autoAck": True,
    "subscriptionPosition": "Latest",
    "parallelism": 1,
    "resources": {"cpu": 1.0, "ram": 1073741824, "disk": 10737418240},
    "cleanupSubscription": True,
    "maxPendingAsyncRequests": 1000,
}
CRYPTO = {
    "cryptoKeyReaderClassName": "R",
    "cryptoKeyReaderConfig": {"a": [1]},
    "encryptionKeys": ["k"],
    "producerCryptoFailureAction": "FAIL",
    "consumerCryptoFailureAction": "CONSUME",
}
FULL: dict[str, Any] = {
    "inputs": None,
    "inputSpecs": {
        "in-.*": {"isRegexPattern": True, "schemaType": "avro", "schemaProperties": {"p": "1"}},
        "b": {"serdeClassName": "S", "receiverQueueSize": 0, "cryptoConfig": CRYPTO, "poolMessages": True},
    },
    "outputSchemaType": "json",
    "customSchemaOutputs": {"out": '{"schemaProperties": {"q": "2"}}'},
    "inputTypeClassName": "ex.In",
    "outputTypeClassName": "ex.Out",
    "producerConfig": {
        "maxPendingMessages": 5,
        "cryptoConfig": CRYPTO,
        "compressionType": "zstd",
        "batchingConfig": {"enabled": False, "batchingMaxMessages": 7},
    },
    "batchBuilder": "KEY_BASED",
    "logTopic": "log",
    "logLevel": "debug",
    "retainKeyOrdering": True,
    "userConfig": {"n": 1, "deep": {"a": [True, None, 1.5]}},
    "secrets": {"s": {"path": "p", "key": "k"}},
    "maxMessageRetries": 2,
    "deadLetterTopic": "dlq",
    "subName": "own",
    "subscriptionPosition": "Earliest",
    "skipToLatest": True,
    "cleanupSubscription": False,
    "parallelism": 3,
    "resources": {"cpu": 0.5},
    "timeoutMs": 1_000,
    "windowConfig": {"windowLengthDurationMs": 60_000, "timestampExtractorClassName": "T"},
    "runtimeFlags": "-X",
    "customRuntimeOptions": "{}",
    "maxPendingAsyncRequests": 7,
}


def test_a_small_function_is_shown_as_pulsar_shows_it() -> None:
    assert document_of(config()) == SHOWN


@pytest.mark.parametrize("more", [{}, FULL])
def test_what_is_shown_makes_the_same_configuration(more: dict[str, Any]) -> None:
    made = config(**more)
    assert config_of(given_of(document_of(made))) == made


def test_names_of_pulsar_reach_their_fields() -> None:
    made = config(**FULL)
    assert (made.inputs["in-.*"].is_regex, made.inputs["b"].serde) == (True, "S")
    assert made.inputs["b"].receiver_queue_size == 0
    assert (made.batch_builder, made.producer.compression_type) == ("KEY_BASED", "ZSTD")
    assert made.window is not None
    assert (made.window.sliding_ms, made.window.max_lag_ms, made.window.watermark_interval_ms) == (
        60_000,
        0,
        1_000,
    )
    assert made.auto_ack is False, "windows acknowledge by themselves"
    assert made.resources.ram == 1 << 30
    assert made.output_schema_properties == {"q": "2"}
    assert made.subscription == "own"


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, "Shared"),
        ({"retainOrdering": True}, "Failover"),
        ({"processingGuarantees": "EFFECTIVELY_ONCE"}, "Failover"),
        ({"retainKeyOrdering": True}, "Key_Shared"),
    ],
)
def test_the_type_of_the_subscription_follows_from_the_order(more: dict[str, Any], kind: str) -> None:
    made = config(**more)
    assert (made.subscription_type, made.subscription) == (kind, "public/default/ex")
