"""What clients may create: topics and subscriptions that do not exist (pure).

The broker's setting, then the namespace's override (`autoTopicCreationOverride`,
`autoSubscriptionCreationOverride`), then, for subscriptions, the topic's own: the narrowest that is set wins.

Source: Pulsar's policies documents.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.policies.policies import Policies

PARTITIONS_MAX: Final = 10_000
"""Most partitions of a topic; each becomes a topic with its first message."""

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


def check_number(name: TopicName, partitions: int) -> None:
    """Raises NotAllowedError when no client may make a topic of this name by using it. `partitions`: what the
    partitioned topic of the name has, 0 without one."""
    if partitions and name.partition < 0:
        raise NotAllowedError(
            f"Found partitioned metadata for non-partitioned topic: {name}",
            remedy=f"use one of its {partitions} partitions",
        )
    if not partitions and name.partition >= PARTITIONS_MAX:
        # It would keep the name of a partitioned topic taken, with a number that none can have.
        raise NotAllowedError(
            f"{name}: a topic has at most {PARTITIONS_MAX} partitions", remedy="take a smaller number"
        )
