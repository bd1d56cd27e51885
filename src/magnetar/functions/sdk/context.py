"""What a function sees beside its input: all methods of Pulsar's Python context.

One object for an instance; before each call the instance says which message it is about. What a call
publishes and changes is collected here, and counts when the call ends without an exception.

Source: pulsar-client-python, `pulsar/functions/context.py`; the context of Pulsar's Python instance.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from magnetar.functions.errors import BadResultError, FunctionError
from magnetar.functions.sdk.message_id import InputMessageId
from magnetar.functions.sdk.serde import SerDe, plain_bytes

_KEYWORDS = frozenset(("partition_key", "event_timestamp", "deliver_at", "deliver_after", "properties"))
"""Arguments of the official `Producer.send` that `publish` takes in `message_conf`."""


class CurrentMessage(Protocol):
    """The message that a call is about."""

    @property
    def topic(self) -> str:
        """Full name of its topic; of a partition that of the partition."""
        ...

    def message_id(self) -> InputMessageId:
        """Its position."""
        ...

    def key(self) -> str | None:
        """Its partition key; None: none."""
        ...

    def ordering_key(self) -> bytes | None:
        """Its ordering key; None: none."""
        ...

    def properties(self) -> dict[str, str]:
        """Its properties."""
        ...

    def event_time_ms(self) -> int:
        """Its event time, Unix milliseconds; 0: none."""
        ...

    def index(self) -> int:
        """Its index in the topic; -1 when the broker does not say."""
        ...


class RunningCall(Protocol):
    """The effects of the running call, and the state as it sees it."""

    def publish(
        self,
        topic: str,
        payload: bytes,
        said: Mapping[str, object],
        callback: Callable[[object, object], object] | None,
    ) -> None:
        """Publishes when the call has ended well. `said`: the arguments of Pulsar's `send` other than the
        payload."""
        ...

    def value(self, key: str) -> bytes | None:
        """The value of a key; None: none."""
        ...

    def add(self, key: str, amount: int) -> None:
        """Adds to a counter."""
        ...

    def put(self, key: str, value: bytes | None, ttl_s: float | None) -> None:
        """Sets or, with None, deletes a value."""
        ...


class FunctionFacts(Protocol):
    """What does not change between calls."""

    @property
    def tenant(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def instance(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def user_config(self) -> Mapping[str, object]: ...

    @property
    def secrets(self) -> Mapping[str, str]: ...

    @property
    def output(self) -> str: ...

    @property
    def output_serde(self) -> str: ...

    @property
    def service_url(self) -> str: ...

    @property
    def token(self) -> str: ...


class InstanceServices(Protocol):
    """What the instance does for its function."""

    @property
    def has_state(self) -> bool:
        """Whether the function has a state."""
        ...

    def input_topics(self) -> list[str]:
        """Names of the topics that are read."""
        ...

    def serde(self, class_name: str) -> SerDe:
        """A SerDe by the name of its class."""
        ...

    def acknowledge(self, message_id: InputMessageId, topic: str) -> None:
        """The function itself acknowledges a message."""
        ...


class FunctionContext:
    """The context of one instance. Methods are Pulsar's."""

    def __init__(self, facts: FunctionFacts, services: InstanceServices, call: RunningCall) -> None:
        self._facts = facts
        self._services = services
        self._call = call
        self._logger = logging.getLogger(f"{facts.tenant}/{facts.namespace}/{facts.name}")
        self._pulsar: object = None
        self.current: CurrentMessage
        """The message of the running call."""
        self.metrics: dict[str, float] = {}
        """Sums of what the function recorded, by name."""

    def for_call(self, current: CurrentMessage, call: RunningCall) -> FunctionContext:
        """The context of one of several calls that run at the same time."""
        other = copy.copy(self)
        other.current = current
        other._call = call
        return other

    # ------------------------------------------------------------ the message

    def get_message_id(self) -> InputMessageId:
        """Position of the message."""
        return self.current.message_id()

    def get_message_key(self) -> str | None:
        """Its partition key."""
        return self.current.key()

    def get_partition_key(self) -> str | None:
        """Its partition key."""
        return self.current.key()

    def get_ordering_key(self) -> bytes | None:
        """Its ordering key."""
        return self.current.ordering_key()

    def get_message_eventtime(self) -> int:
        """Its event time in Unix milliseconds; 0: none."""
        return self.current.event_time_ms()

    def get_message_properties(self) -> dict[str, str]:
        """Its properties."""
        return self.current.properties()

    def get_current_message_topic_name(self) -> str:
        """Full name of its topic."""
        return self.current.topic

    def get_message_sequence_id(self) -> int:
        """Its index in the topic where the broker says it, else ledger << 28 | entry as Pulsar has it."""
        index = self.current.index()
        position = self.current.message_id()
        return index if index >= 0 else position.ledger << 28 | position.entry

    def get_message_partition_index(self) -> int:
        """Number of its partition; -1: the topic has none."""
        return self.current.message_id().part

    # ------------------------------------------------------------ the function

    def get_function_tenant(self) -> str:
        """Tenant of the function."""
        return self._facts.tenant

    def get_function_namespace(self) -> str:
        """Namespace of the function, without its tenant."""
        return self._facts.namespace

    def get_function_name(self) -> str:
        """Name of the function."""
        return self._facts.name

    def get_function_id(self) -> str:
        """tenant/namespace/name."""
        facts = self._facts
        return f"{facts.tenant}/{facts.namespace}/{facts.name}"

    def get_function_version(self) -> str:
        """Number that grows with each update."""
        return str(self._facts.version)

    def get_instance_id(self) -> int:
        """Number of the instance, from 0."""
        return self._facts.instance

    def get_logger(self) -> logging.Logger:
        """Writes to the function's log, and to its log topic if it has one."""
        return self._logger

    def get_user_config_value(self, key: str) -> object:
        """A value of the user's configuration; None when there is none."""
        return self._facts.user_config.get(key)

    def get_user_config_map(self) -> dict[str, object]:
        """The user's configuration."""
        return dict(self._facts.user_config)

    def get_secret(self, secret_name: str) -> str | None:
        """A secret of the function; None when there is none."""
        return self._facts.secrets.get(secret_name)

    def record_metric(self, metric_name: str, metric_value: float) -> None:
        """Adds to a metric, which the function's statistics show."""
        self.metrics[metric_name] = self.metrics.get(metric_name, 0.0) + float(metric_value)

    def get_input_topics(self) -> list[str]:
        """Names of the topics that are read."""
        return self._services.input_topics()

    def get_output_topic(self) -> str:
        """Topic of the results; empty: none."""
        return self._facts.output

    def get_output_serde_class_name(self) -> str:
        """SerDe of the results; empty: the default."""
        return self._facts.output_serde

    # ------------------------------------------------------------ effects

    def publish(
        self,
        topic_name: str,
        message: object,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: Mapping[str, str] | None = None,
        compression_type: object = None,
        callback: Callable[[object, object], object] | None = None,
        message_conf: Mapping[str, object] | None = None,
    ) -> None:
        """Publishes a message when the call has ended without an exception, before its input is
        acknowledged.

        `callback` is called with None and None when the message is stored. `message_conf`: arguments of
        the official `Producer.send`: partition_key, event_timestamp, deliver_at, deliver_after, properties.
        Entries are not compressed. Raises BadResultError.
        """
        said = dict(message_conf or {})
        unknown = said.keys() - _KEYWORDS
        if unknown:
            raise FunctionError(f"publish does not know {', '.join(sorted(unknown))} of message_conf")
        if properties:
            said["properties"] = {**dict(said.get("properties") or {}), **properties}  # type: ignore[call-overload]  # the user's
        plain = serde_class_name in ("", "serde.IdentitySerDe")
        payload = plain_bytes(message) if plain else self._services.serde(serde_class_name).serialize(message)
        if not isinstance(payload, bytes):
            raise BadResultError(f"{serde_class_name} serialized to {type(payload).__name__}, not to bytes")
        self._call.publish(topic_name, payload, said, callback)

    def ack(self, msgid: InputMessageId, topic: str) -> None:
        """Acknowledges a message; for functions with the guarantee MANUAL."""
        self._services.acknowledge(msgid, topic)

    def get_pulsar_client(self) -> object:
        """The official client, connected to the same cluster. It must be installed: pip install
        pulsar-client."""
        if self._pulsar is None:
            import pulsar

            facts = self._facts
            how = pulsar.AuthenticationToken(facts.token) if facts.token else None
            self._pulsar = pulsar.Client(facts.service_url, authentication=how)
        return self._pulsar

    # ------------------------------------------------------------ state

    def incr_counter(self, key: str, amount: int) -> None:
        """Adds to a counter, which all instances share."""
        self._known_state().add(key, amount)

    def get_counter(self, key: str) -> int:
        """Value of a counter; 0 when there is none."""
        value = self._known_state().value(key)
        return int.from_bytes(value, "big", signed=True) if value is not None and len(value) == 8 else 0

    def del_counter(self, key: str) -> None:
        """Deletes a counter."""
        self._known_state().put(key, None, None)

    def put_state(self, key: str, value: bytes | str, ttl_s: float | None = None) -> None:
        """Sets a value. `ttl_s`: seconds after which it ends; None: never. Text is stored as UTF-8."""
        self._known_state().put(key, value.encode() if isinstance(value, str) else bytes(value), ttl_s)

    def get_state(self, key: str) -> bytes | None:
        """A value; None when there is none."""
        return self._known_state().value(key)

    def del_state(self, key: str) -> None:
        """Deletes a value."""
        self._known_state().put(key, None, None)

    def _known_state(self) -> RunningCall:
        if not self._services.has_state:
            raise FunctionError("this function has no state: it runs without a folder to keep it in")
        return self._call
