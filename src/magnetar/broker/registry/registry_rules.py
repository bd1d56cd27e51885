"""What the registry of topics waits for, and what it makes topics of.

Handed to the registry and its storage as an object, so that the simulator can hand in a broken one and show
that each rule is needed (`sim/broker/mutations.py`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.registry.topic_states import TopicState
from magnetar.broker.topic.disk_mark import DiskMark
from magnetar.broker.topic.topic import Topic
from magnetar.broker.topic.topic_resources import TopicResources
from magnetar.managedlog.log import ManagedLog
from magnetar.runtime.flights import Flight


class RegistryRules:
    """One object per name, whatever happens concurrently."""

    __slots__ = ()

    def waits_for(self, state: TopicState) -> bool:
        """Whether callers that want a name wait for work on it that is under way: two objects over one log
        would each wait for what the other one hears."""
        return True

    def flight(self, work: Coroutine[object, object, None]) -> Flight[None]:
        """The work, which all callers share: one that gives up leaves it to the others."""
        return Flight(work)

    def closes_half_loaded(self) -> bool:
        """Whether what could not be loaded whole is closed: its log would report to an object that is not in
        use."""
        return True

    def topic(self, name: TopicName, log: ManagedLog, resources: TopicResources, disk: DiskMark) -> Topic:
        """The object of a topic that is loaded."""
        return Topic(name, log, resources, disk=disk)


REGISTRY_RULES: Final = RegistryRules()
