"""Makes a complete configuration of a given one: every default is filled in (pure).

Source: Pulsar's `FunctionConfigUtils.convert` and `inferMissingArguments`.
"""

from __future__ import annotations

from magnetar.functions.config.function_config import (
    GIB,
    GUARANTEES,
    LATEST,
    PYTHON,
    BatchingConfig,
    ConsumerConfig,
    CryptoConfig,
    FunctionConfig,
    ProducerConfig,
    Resources,
    WindowConfig,
)
from magnetar.functions.config.given import (
    Given,
    GivenConsumer,
    GivenCrypto,
    GivenProducer,
    GivenWindow,
    custom_schema,
    inputs_of,
    is_pattern,
)


def config_of(given: Given) -> FunctionConfig:
    """The complete configuration; `given` must have passed `checks.check`. Raises InvalidConfigError."""
    window = given.get("windowConfig")
    output = given.get("output", "")
    custom = given.get("customSchemaOutputs", {}).get(output, "")
    resources = given.get("resources", {})
    return FunctionConfig(
        tenant=given.get("tenant", ""),
        namespace=given.get("namespace", ""),
        name=given.get("name", ""),
        class_name=given.get("className", ""),
        inputs={topic: _consumer(each) for topic, each in inputs_of(given).items()},
        output=output,
        output_schema_type=given.get("outputSchemaType", ""),
        output_serde=given.get("outputSerdeClassName", ""),
        output_schema_properties=custom_schema(output, custom).get("schemaProperties", {}) if custom else {},
        input_type_class_name=given.get("inputTypeClassName", ""),
        output_type_class_name=given.get("outputTypeClassName", ""),
        processing_guarantees=given.get("processingGuarantees", GUARANTEES[0]),
        retain_ordering=given.get("retainOrdering", False),
        retain_key_ordering=given.get("retainKeyOrdering", False),
        auto_ack=window is None and given.get("autoAck", True),
        subscription_name=given.get("subName", ""),
        subscription_position=given.get("subscriptionPosition", LATEST),
        skip_to_latest=given.get("skipToLatest", False),
        cleanup_subscription=given.get("cleanupSubscription", True),
        user_config=given.get("userConfig", {}),
        secrets=given.get("secrets", {}),
        runtime=given.get("runtime", PYTHON),
        parallelism=given.get("parallelism", 1),
        resources=Resources(
            cpu=resources.get("cpu", 1.0), ram=resources.get("ram", GIB), disk=resources.get("disk", 10 * GIB)
        ),
        window=None if window is None else _window(window),
        timeout_ms=given.get("timeoutMs"),
        max_message_retries=_limit(given.get("maxMessageRetries")),
        dead_letter_topic=given.get("deadLetterTopic", ""),
        log_topic=given.get("logTopic", ""),
        log_level=given.get("logLevel", "").upper(),
        forward_source_message_property=given.get("forwardSourceMessageProperty", True),
        producer=_producer(given.get("producerConfig", {}), given.get("batchBuilder", "")),
        runtime_flags=given.get("runtimeFlags", ""),
        custom_runtime_options=given.get("customRuntimeOptions", ""),
        max_pending_async_requests=given.get("maxPendingAsyncRequests", 1000),
    )


def _limit(retries: int | None) -> int | None:
    return None if retries is None or retries < 0 else retries


def _consumer(given: GivenConsumer) -> ConsumerConfig:
    schema = given.get("schemaType", "").strip()
    return ConsumerConfig(
        schema_type=schema,
        serde="" if schema else given.get("serdeClassName", "").strip(),
        is_regex=is_pattern(given),
        receiver_queue_size=given.get("receiverQueueSize"),
        schema_properties=given.get("schemaProperties", {}),
        consumer_properties=given.get("consumerProperties", {}),
        crypto=_crypto(given.get("cryptoConfig")),
        pool_messages=given.get("poolMessages", False),
    )


def _crypto(given: GivenCrypto | None) -> CryptoConfig | None:
    if given is None:
        return None
    return CryptoConfig(
        key_reader_class_name=given.get("cryptoKeyReaderClassName", ""),
        key_reader_config=given.get("cryptoKeyReaderConfig", {}),
        encryption_keys=tuple(given.get("encryptionKeys", ())),
        producer_failure_action=given.get("producerCryptoFailureAction", ""),
        consumer_failure_action=given.get("consumerCryptoFailureAction", ""),
    )


def _producer(given: GivenProducer, batch_builder: str) -> ProducerConfig:
    batching = given.get("batchingConfig")
    return ProducerConfig(
        max_pending_messages=given.get("maxPendingMessages"),
        max_pending_messages_across_partitions=given.get("maxPendingMessagesAcrossPartitions"),
        use_thread_local_producers=given.get("useThreadLocalProducers", False),
        batch_builder=batch_builder or given.get("batchBuilder", ""),
        compression_type=given.get("compressionType", "") or "LZ4",
        crypto=_crypto(given.get("cryptoConfig")),
        batching=None
        if batching is None
        else BatchingConfig(
            enabled=batching.get("enabled", True),
            publish_delay_ms_max=batching.get("batchingMaxPublishDelayMs", 10),
            messages_max=batching.get("batchingMaxMessages"),
            bytes_max=batching.get("batchingMaxBytes"),
            partition_switch_frequency=batching.get("roundRobinRouterBatchingPartitionSwitchFrequency"),
            batch_builder=batching.get("batchBuilder", ""),
        ),
    )


def _window(given: GivenWindow) -> WindowConfig:
    """Windows with their defaults. Source: Pulsar's `WindowConfigUtils.inferMissingArguments`."""
    length_count, length_ms = given.get("windowLengthCount"), given.get("windowLengthDurationMs")
    timed = bool(given.get("timestampExtractorClassName"))
    return WindowConfig(
        length_count=length_count,
        length_ms=length_ms,
        sliding_count=given.get("slidingIntervalCount", length_count),
        sliding_ms=given.get("slidingIntervalDurationMs", length_ms),
        late_data_topic=given.get("lateDataTopic", ""),
        max_lag_ms=given.get("maxLagMs", 0 if timed else None),
        watermark_interval_ms=given.get("watermarkEmitIntervalMs", 1000 if timed else None),
        timestamp_extractor=given.get("timestampExtractorClassName", ""),
    )
