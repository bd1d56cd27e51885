"""What a function is configured to do, complete: every default is filled in.

The fields are those of Pulsar's FunctionConfig, in Python's spelling; `given.py` has Pulsar's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ATMOST_ONCE: Final = "ATMOST_ONCE"
ATLEAST_ONCE: Final = "ATLEAST_ONCE"
EFFECTIVELY_ONCE: Final = "EFFECTIVELY_ONCE"
MANUAL: Final = "MANUAL"
GUARANTEES: Final = (ATLEAST_ONCE, ATMOST_ONCE, EFFECTIVELY_ONCE, MANUAL)
"""How often a message counts, in the order of Pulsar's protocol."""

JAVA: Final = "JAVA"
PYTHON: Final = "PYTHON"
GO: Final = "GO"
RUNTIMES: Final = (JAVA, PYTHON, GO)

LATEST: Final = "Latest"
EARLIEST: Final = "Earliest"
POSITIONS: Final = (LATEST, EARLIEST)
"""Where a new subscription of a function begins."""

FAILOVER: Final = "Failover"
KEY_SHARED: Final = "Key_Shared"
SHARED: Final = "Shared"

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class CryptoConfig:
    """How messages are encrypted or decrypted."""

    key_reader_class_name: str
    key_reader_config: Mapping[str, object] = field(default_factory=dict)
    encryption_keys: tuple[str, ...] = ()
    """Names of the keys with which the output is encrypted."""
    producer_failure_action: str = ""
    """FAIL or SEND; empty: the client's default."""
    consumer_failure_action: str = ""
    """FAIL, DISCARD or CONSUME; empty: the client's default."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """How one input is read."""

    schema_type: str = ""
    """Name of a schema type or class; empty: none. At most one of it and `serde` is set."""
    serde: str = ""
    """Class that makes values of payloads; empty: the SDK's default."""
    is_regex: bool = False
    """Whether the topic's name is a pattern."""
    receiver_queue_size: int | None = None
    """Messages fetched ahead, 0 or more; None: the client's default."""
    schema_properties: Mapping[str, str] = field(default_factory=dict)
    consumer_properties: Mapping[str, str] = field(default_factory=dict)
    crypto: CryptoConfig | None = None
    pool_messages: bool = False
    """Has a meaning in Java only."""


@dataclass(frozen=True, slots=True)
class BatchingConfig:
    """How the output is batched (PIP-401). None: the producer's default."""

    enabled: bool = True
    publish_delay_ms_max: int = 10
    messages_max: int | None = None
    bytes_max: int | None = None
    partition_switch_frequency: int | None = None
    batch_builder: str = ""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """How the output is written. None: the producer's default."""

    max_pending_messages: int | None = None
    max_pending_messages_across_partitions: int | None = None
    use_thread_local_producers: bool = False
    """Has a meaning in Java only."""
    batch_builder: str = ""
    """KEY_BASED; empty or DEFAULT: by arrival."""
    compression_type: str = "LZ4"
    crypto: CryptoConfig | None = None
    batching: BatchingConfig | None = None


@dataclass(frozen=True, slots=True)
class WindowConfig:
    """Windows of messages: by count or by time, never both."""

    length_count: int | None = None
    """Messages in a window, at least 1."""
    length_ms: int | None = None
    """Milliseconds in a window, at least 1."""
    sliding_count: int | None = None
    """Messages between the beginnings of two windows; equal to the length: windows do not overlap."""
    sliding_ms: int | None = None
    """Milliseconds between the beginnings of two windows."""
    late_data_topic: str = ""
    """Topic of messages that come behind the watermark; empty: they are dropped."""
    max_lag_ms: int | None = None
    """How long events may come late, in milliseconds; None: there is no event time."""
    watermark_interval_ms: int | None = None
    """Milliseconds between two watermarks; None: there is no event time."""
    timestamp_extractor: str = ""
    """Class that takes the event time out of a value; empty: messages count by their arrival."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What an instance may use."""

    cpu: float = 1.0
    """Cores."""
    ram: int = GIB
    """Bytes of memory."""
    disk: int = 10 * GIB
    """Bytes of disk."""


@dataclass(frozen=True, slots=True)
class FunctionConfig:
    """One function."""

    tenant: str
    namespace: str
    name: str
    class_name: str
    """Class or module of the user's code, as `module.Class` or `module`."""
    inputs: Mapping[str, ConsumerConfig]
    """By topic or pattern, at least one; names as they were given, short or full."""
    output: str = ""
    """Topic of the results; empty: results are dropped."""
    output_schema_type: str = ""
    output_serde: str = ""
    output_schema_properties: Mapping[str, str] = field(default_factory=dict)
    input_type_class_name: str = ""
    """Class of the inputs' values, for schemas by class; empty: none."""
    output_type_class_name: str = ""
    processing_guarantees: str = ATLEAST_ONCE
    """One of GUARANTEES."""
    retain_ordering: bool = False
    retain_key_ordering: bool = False
    auto_ack: bool = True
    """False: the code acknowledges by itself; always false with windows."""
    subscription_name: str = ""
    """As given; empty: `subscription` makes one."""
    subscription_position: str = LATEST
    """One of POSITIONS."""
    skip_to_latest: bool = False
    """True: an instance begins behind the last message whenever it starts."""
    cleanup_subscription: bool = True
    """True: the subscriptions end with the function."""
    user_config: Mapping[str, object] = field(default_factory=dict)
    """Values of JSON."""
    secrets: Mapping[str, object] = field(default_factory=dict)
    """How each secret is found: what the secrets provider of the worker takes, never the secret itself."""
    runtime: str = PYTHON
    """One of RUNTIMES."""
    parallelism: int = 1
    """Instances, at least 1."""
    resources: Resources = Resources()
    window: WindowConfig | None = None
    timeout_ms: int | None = None
    """Milliseconds after which a message that is not acknowledged comes again; None: the default."""
    max_message_retries: int | None = None
    """Deliveries after the first one, 0 or more, before a message goes to the dead letter topic; None: no
    limit."""
    dead_letter_topic: str = ""
    """Empty with a limit of retries: `INPUT-SUBSCRIPTION-DLQ`, as clients name it."""
    log_topic: str = ""
    """Topic of the code's log records; empty: they are in the worker's log."""
    log_level: str = ""
    """INFO, DEBUG, WARN or ERROR; empty: the worker's."""
    forward_source_message_property: bool = True
    """True: properties of an input message are those of its result too."""
    producer: ProducerConfig = ProducerConfig()
    runtime_flags: str = ""
    custom_runtime_options: str = ""
    max_pending_async_requests: int = 1000
    """Messages that an asynchronous function may work on at the same time, at least 1."""

    @property
    def full_name(self) -> str:
        """`tenant/namespace/name`."""
        return f"{self.tenant}/{self.namespace}/{self.name}"

    @property
    def subscription(self) -> str:
        """Name of the subscription to each input. Source: Pulsar's `InstanceUtils`."""
        return self.subscription_name or self.full_name

    @property
    def subscription_type(self) -> str:
        """FAILOVER, KEY_SHARED or SHARED. Source: Pulsar, `FunctionConfigUtils.convert`."""
        if self.retain_ordering or self.processing_guarantees == EFFECTIVELY_ONCE:
            return FAILOVER
        return KEY_SHARED if self.retain_key_ordering else SHARED

    @property
    def batch_builder(self) -> str:
        """How the output is batched: KEY_BASED, or empty for the default."""
        return self.producer.batch_builder
