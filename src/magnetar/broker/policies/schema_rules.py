"""The policies about schemas (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.broker.policies.policies import Policies
from magnetar.schemas.compatibility import Strategy

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
        """The rules from the policies of a topic and its namespace; the topic's own win, unset ones are
        `default`. A policy cannot relax what the default enforces.

        A strategy UNDEFINED is one that is not set, as in Pulsar (`AbstractTopic.updateTopicPolicy`).
        """
        default = default or cls()
        both = {**namespace, **topic}
        strategy = _strategy_of(topic)
        if strategy is Strategy.UNDEFINED:
            strategy = _strategy_of(namespace)
        if strategy is Strategy.UNDEFINED:
            strategy = AUTO_UPDATE_STRATEGIES.get(namespace.get(AUTO_UPDATE_POLICY, ""), strategy)
        return cls(
            strategy=default.strategy if strategy is Strategy.UNDEFINED else strategy,
            auto_update_allowed=both.get("is_allow_auto_update_schema", default.auto_update_allowed)
            is not False,
            validation_enforced=default.validation_enforced
            or both.get("schema_validation_enforced", False) is True,
        )


def _strategy_of(policies: Policies) -> Strategy:
    try:
        return Strategy(policies.get("schema_compatibility_strategy", "UNDEFINED"))
    except ValueError:
        # Policies of a namespace may be put as a whole, unchecked: as if not set. The default is strict.
        return Strategy.UNDEFINED
