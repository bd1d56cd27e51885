"""What clients may create: topics and subscriptions that do not exist (pure).

The broker's setting, then the namespace's override (`autoTopicCreationOverride`,
`autoSubscriptionCreationOverride`), then, for subscriptions, the topic's own: the narrowest that is set wins.

Source: Pulsar's policies documents.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from magnetar.broker.policies.policies import Policies

TOPICS_POLICY: Final = "autoTopicCreationOverride"
SUBSCRIPTIONS_POLICY: Final = "autoSubscriptionCreationOverride"
PARTITIONED: Final = "partitioned"
NON_PARTITIONED: Final = "non-partitioned"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationRules:
    """The rules in force for a topic. Also: the broker's settings."""

    topics: bool = True
    """Whether a client that asks for a topic makes it."""
    partitions: int = 0
    """Partitions of a topic that is made so; 0: it is not partitioned."""
    subscriptions: bool = True
    """Whether a consumer makes its durable subscription."""

    def under(self, own: Policies, namespace: Policies) -> CreationRules:
        """The rules for a topic with these policies of its own in this namespace."""
        rules = self
        topics: object = namespace.get(TOPICS_POLICY)
        if isinstance(topics, dict):
            partitioned = str(topics.get("topicType")).lower() == PARTITIONED
            rules = replace(
                rules,
                topics=topics.get("allowAutoTopicCreation") is not False,
                partitions=int(topics.get("defaultNumPartitions") or 1) if partitioned else 0,
            )
        for document in (namespace, own):
            subscriptions: object = document.get(SUBSCRIPTIONS_POLICY)
            if isinstance(subscriptions, dict):
                allowed = subscriptions.get("allowAutoSubscriptionCreation") is not False
                rules = replace(rules, subscriptions=allowed)
        return rules
