"""Where a topic is served, as look-ups tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.broker.ownership.records import BrokerUrls


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """A broker."""

    urls: BrokerUrls | None
    """None: this one."""
    redirect: bool = False
    """The broker does not have the topic yet: it is to be asked, with `authoritative`."""


HERE: Final = TopicPlace(None)
