"""The topic on which a broker checks itself: no bundle's, so that the check needs no owner (pure).

Without it the check would go to a topic of one broker, and fail on all others. Source: Pulsar's heartbeat
namespaces, which belong to the broker that they name.
"""

from __future__ import annotations

from typing import Final

from magnetar.base.names import PERSISTENT, NamespaceName, TopicName

_NAMESPACE: Final = NamespaceName("pulsar", "system")
_PREFIX: Final = "healthcheck-"


def health_topic(broker_id: str) -> TopicName:
    """`persistent://pulsar/system/healthcheck-HOST:PORT`"""
    return TopicName.of(PERSISTENT, _NAMESPACE.tenant, _NAMESPACE.namespace, f"{_PREFIX}{broker_id}")


def checked_broker(name: TopicName) -> str:
    """Id of the broker that checks itself on the topic; "": it is a topic like others."""
    if not name.persistent or name.namespace_name != _NAMESPACE or not name.local.startswith(_PREFIX):
        return ""
    return name.local.removeprefix(_PREFIX)
