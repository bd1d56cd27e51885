"""When an unused topic is deleted (pure). The names are those of Pulsar's policies documents."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from magnetar.broker.policies.policies import Policies

INACTIVE_POLICY: Final = "inactive_topic_policies"


class DeleteMode(Enum):
    """The conditions that keep a topic without producers and consumers."""

    NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
    """Any subscription does."""
    CAUGHT_UP = "delete_when_subscriptions_caught_up"
    """Messages do that some subscription has not acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InactivePolicy:
    """The policy in force on a topic. Also: the broker's default, which is Pulsar's."""

    delete: bool = True
    mode: DeleteMode = DeleteMode.NO_SUBSCRIPTIONS
    idle_s: int = 60
    """Seconds without use before the deletion, at least 1."""

    def under(self, own: Policies, namespace: Policies) -> InactivePolicy:
        """The policy of a topic with these policies of its own in this namespace."""
        for level in (own, namespace):
            document: object = level.get(INACTIVE_POLICY)
            if isinstance(document, dict):
                return InactivePolicy(
                    delete=document.get("deleteWhileInactive") is True,
                    mode=DeleteMode(document.get("inactiveTopicDeleteMode", self.mode.value)),
                    idle_s=max(1, int(document.get("maxInactiveDurationSeconds", self.idle_s))),
                )
        return self
