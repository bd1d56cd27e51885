"""Writes a configuration as Pulsar shows it: inputs folded into one place, defaults written out (pure).

`given_of` and `config_of` make the same configuration of it again; so it is also what is stored.

Source: Pulsar's `FunctionConfigUtils.convertFromDetails`; answers of Pulsar 4.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from magnetar.functions.config.function_config import (
    ConsumerConfig,
    CryptoConfig,
    FunctionConfig,
    ProducerConfig,
    WindowConfig,
)


def document_of(config: FunctionConfig) -> dict[str, object]:
    """The configuration as Pulsar's answer to GET shows it."""
    found: dict[str, object] = {
        "tenant": config.tenant,
        "namespace": config.namespace,
        "name": config.name,
        "className": config.class_name,
        "inputSpecs": {topic: _consumer_document(each) for topic, each in config.inputs.items()},
        "output": config.output,
        "outputSchemaType": config.output_schema_type,
        "outputSerdeClassName": config.output_serde,
        "inputTypeClassName": config.input_type_class_name,
        "outputTypeClassName": config.output_type_class_name,
        "producerConfig": _producer_document(config.producer),
        "logTopic": config.log_topic,
        "logLevel": config.log_level,
        "processingGuarantees": config.processing_guarantees,
        "retainOrdering": config.retain_ordering,
        "retainKeyOrdering": config.retain_key_ordering,
        "forwardSourceMessageProperty": config.forward_source_message_property,
        "userConfig": dict(config.user_config),
        "secrets": dict(config.secrets) or None,
        "runtime": config.runtime,
        "autoAck": config.auto_ack,
        "maxMessageRetries": config.max_message_retries,
        "deadLetterTopic": config.dead_letter_topic,
        "subName": config.subscription_name,
        "subscriptionPosition": config.subscription_position,
        "skipToLatest": config.skip_to_latest or None,
        "parallelism": config.parallelism,
        "resources": {
            "cpu": config.resources.cpu,
            "ram": config.resources.ram,
            "disk": config.resources.disk,
        },
        "windowConfig": None if config.window is None else _window_document(config.window),
        "timeoutMs": config.timeout_ms,
        "cleanupSubscription": config.cleanup_subscription,
        "runtimeFlags": config.runtime_flags,
        "customRuntimeOptions": config.custom_runtime_options,
        "maxPendingAsyncRequests": config.max_pending_async_requests,
    }
    if config.output_schema_properties:
        schema = json.dumps({"schemaProperties": dict(config.output_schema_properties)})
        found["customSchemaOutputs"] = {config.output: schema}
    return _without_nothing(found)


def _without_nothing(document: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in document.items() if value not in (None, "")}


def _consumer_document(config: ConsumerConfig) -> dict[str, object]:
    return _without_nothing(
        {
            "schemaType": config.schema_type,
            "serdeClassName": config.serde,
            "regexPattern": config.is_regex,
            "schemaProperties": dict(config.schema_properties),
            "consumerProperties": dict(config.consumer_properties),
            "receiverQueueSize": config.receiver_queue_size,
            "cryptoConfig": _crypto_document(config.crypto),
            "poolMessages": config.pool_messages,
        }
    )


def _crypto_document(config: CryptoConfig | None) -> dict[str, object] | None:
    if config is None:
        return None
    return _without_nothing(
        {
            "cryptoKeyReaderClassName": config.key_reader_class_name,
            "cryptoKeyReaderConfig": dict(config.key_reader_config) or None,
            "encryptionKeys": list(config.encryption_keys) or None,
            "producerCryptoFailureAction": config.producer_failure_action,
            "consumerCryptoFailureAction": config.consumer_failure_action,
        }
    )


def _producer_document(config: ProducerConfig) -> dict[str, object]:
    batching = config.batching
    found = {
        "maxPendingMessages": config.max_pending_messages,
        "maxPendingMessagesAcrossPartitions": config.max_pending_messages_across_partitions,
        "useThreadLocalProducers": config.use_thread_local_producers,
        "cryptoConfig": _crypto_document(config.crypto),
        "compressionType": config.compression_type,
        "batchingConfig": None
        if batching is None
        else _without_nothing(
            {
                "enabled": batching.enabled,
                "batchingMaxPublishDelayMs": batching.publish_delay_ms_max,
                "batchingMaxMessages": batching.messages_max,
                "batchingMaxBytes": batching.bytes_max,
                "roundRobinRouterBatchingPartitionSwitchFrequency": batching.partition_switch_frequency,
                "batchBuilder": batching.batch_builder,
            }
        ),
    }
    # Pulsar shows this one also when it is empty.
    return {**_without_nothing(found), "batchBuilder": config.batch_builder}


def _window_document(config: WindowConfig) -> dict[str, object]:
    return _without_nothing(
        {
            "windowLengthCount": config.length_count,
            "windowLengthDurationMs": config.length_ms,
            "slidingIntervalCount": config.sliding_count,
            "slidingIntervalDurationMs": config.sliding_ms,
            "lateDataTopic": config.late_data_topic,
            "maxLagMs": config.max_lag_ms,
            "watermarkEmitIntervalMs": config.watermark_interval_ms,
            "timestampExtractorClassName": config.timestamp_extractor,
        }
    )
