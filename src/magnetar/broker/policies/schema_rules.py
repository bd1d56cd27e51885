"""What a topic's policies say about schemas, and the checks of clients that come with one or without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.base.names import TopicName
from magnetar.broker.policies.policies import Policies
from magnetar.schemas.compatibility import Strategy
from magnetar.schemas.errors import IncompatibleSchemaError
from magnetar.schemas.types import BYTES_TYPES, TYPES
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.service import Broker
    from magnetar.schemas.registry import StoredSchema


AUTO_UPDATE_POLICY: Final = "schema_auto_update_compatibility_strategy"
"""Key of a namespace's document: the strategy by its older names, where no strategy is set."""

AUTO_UPDATE_STRATEGIES: Final = {
    "AutoUpdateDisabled": Strategy.ALWAYS_INCOMPATIBLE,
    "Backward": Strategy.BACKWARD,
    "Forward": Strategy.FORWARD,
    "Full": Strategy.FULL,
    "AlwaysCompatible": Strategy.ALWAYS_COMPATIBLE,
    "BackwardTransitive": Strategy.BACKWARD_TRANSITIVE,
    "ForwardTransitive": Strategy.FORWARD_TRANSITIVE,
    "FullTransitive": Strategy.FULL_TRANSITIVE,
}
"""The older names."""


@dataclass(frozen=True, slots=True)
class SchemaRules:
    """The rules in force for a topic."""

    strategy: Strategy = Strategy.UNDEFINED
    auto_update_allowed: bool = True
    """Whether clients may add schemas; the admin API always may."""
    validation_enforced: bool = False
    """Whether producers without a schema are refused on topics that have one."""

    @classmethod
    def of(cls, topic: Policies, namespace: Policies, default: SchemaRules | None = None) -> SchemaRules:
        """From the policies of a topic and its namespace, the topic's own win; where they say nothing,
        `default`. What the default enforces no policy takes back."""
        default = default or cls()
        both = {**namespace, **topic}
        try:
            strategy = Strategy(both.get("schema_compatibility_strategy", "UNDEFINED"))
        except ValueError:
            # Policies of a namespace may be put as a whole, unchecked: the default, which is strict.
            strategy = Strategy.UNDEFINED
        if strategy is Strategy.UNDEFINED:
            strategy = AUTO_UPDATE_STRATEGIES.get(namespace.get(AUTO_UPDATE_POLICY, ""), strategy)
        return cls(
            strategy=default.strategy if strategy is Strategy.UNDEFINED else strategy,
            auto_update_allowed=both.get("is_allow_auto_update_schema", default.auto_update_allowed)
            is not False,
            validation_enforced=default.validation_enforced
            or both.get("schema_validation_enforced", False) is True,
        )


async def rules_of(broker: Broker, topic: TopicName) -> SchemaRules:
    """Raises NamespaceNotFoundError."""
    return SchemaRules.of(
        await broker.policies.topic_policies(topic),
        await broker.policies.namespace(topic.namespace_name),
        broker.config.schemas,
    )


async def admit_producer(broker: Broker, topic: TopicName, schema: pb.Schema | None) -> bytes:
    """The version of a producer's schema as it travels; b"" when it has none.

    Raises IncompatibleSchemaError, InvalidSchemaError.
    """
    latest = await broker.schemas.latest(topic)
    if schema is None or (schema.type in BYTES_TYPES and not _names_bytes(schema, latest)):
        if latest is not None:
            rules = await rules_of(broker, topic)
            if rules.validation_enforced:
                raise IncompatibleSchemaError(
                    f"{topic.base} has a schema and its policy schema_validation_enforced"
                    " refuses producers without one"
                )
        return b""
    rules = await rules_of(broker, topic)
    stored = await broker.schemas.add(
        topic, schema, strategy=rules.strategy, auto_update_allowed=rules.auto_update_allowed
    )
    return stored.version_bytes


def _names_bytes(schema: pb.Schema, latest: StoredSchema | None) -> bool:
    """Whether "bytes" is what the topic's schema is or is to be. Most clients send no schema for bytes;
    those that do mark their messages with its version and ask for it when they read."""
    return schema.type == TYPES["NONE"] and (latest is None or latest.schema.type == schema.type)


async def admit_consumer(broker: Broker, topic: TopicName, schema: pb.Schema | None) -> None:
    """Checks that a consumer's schema can read the topic; a topic without one gets it.

    Raises IncompatibleSchemaError, InvalidSchemaError.
    """
    if schema is None or schema.type in BYTES_TYPES:
        return
    rules = await rules_of(broker, topic)
    if await broker.schemas.latest(topic) is None:
        await broker.schemas.add(
            topic, schema, strategy=rules.strategy, auto_update_allowed=rules.auto_update_allowed
        )
    else:
        await broker.schemas.check(topic, schema, rules.strategy.for_consumers)
