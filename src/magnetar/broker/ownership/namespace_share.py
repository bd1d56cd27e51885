"""Which topics of a namespace a broker looks after while they are not loaded."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.base.names import InvalidNameError, NamespaceName, TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import NAMESPACES
from magnetar.broker.ownership.states import BundleState
from magnetar.broker.policies.bundles import LAST, covers, hash_of
from magnetar.metadata.store import MetadataStore

if TYPE_CHECKING:
    from magnetar.broker.ownership.owners import Owners


@dataclass(frozen=True, slots=True)
class NamespaceShare:
    """The bundles of one broker, as ranges of hashes."""

    own: frozenset[tuple[int, int]]
    others: frozenset[tuple[int, int]] | None
    """Bundles that other brokers own: the rest is this broker's. None: the rest is not."""

    @property
    def is_empty(self) -> bool:
        """Whether it is certain that the broker looks after no topic of the namespace."""
        if self.own:
            return False
        return self.others is None or sum(upper - lower for lower, upper in self.others) == LAST

    def has(self, topic: TopicName) -> bool:
        """Whether the broker looks after the topic, which is of this namespace."""
        place = hash_of(topic)
        if any(covers(each, place) for each in self.own):
            return True
        return self.others is not None and not any(covers(each, place) for each in self.others)


async def share_of(owners: Owners, store: MetadataStore, namespace: NamespaceName) -> NamespaceShare:
    """The topics of the broker's own bundles. The broker that leads also has those of bundles without an
    owner; so has every broker where none leads. Raises MetadataError."""
    owned = owners.ownership.having(BundleState.OWNED)
    own = frozenset((each.lower, each.upper) for each in owned if each.namespace == namespace)
    balance = owners.balance
    if balance is not None and balance.leader not in ("", owners.broker_id):
        return NamespaceShare(own, None)
    taken: set[tuple[int, int]] = set()
    for name in await store.children(f"{NAMESPACES}/{namespace}"):
        with contextlib.suppress(ValueError, InvalidNameError):  # the name is not a bundle's
            bundle = Bundle.parse(f"{namespace}/{name}")
            taken.add((bundle.lower, bundle.upper))
    return NamespaceShare(own, frozenset(taken) - own)
