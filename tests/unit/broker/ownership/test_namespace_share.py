"""Which topics a broker looks after while they are not loaded."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import cast

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.namespace_share import NamespaceShare, share_of
from magnetar.broker.ownership.owners import Owners
from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.ownership.records import owner_path
from magnetar.metadata.memory import MemoryMetadataStore

NAMESPACE = NamespaceName.parse("public/default")
BOUNDS = (0, 1 << 30, 2 << 30, 3 << 30, 0xFFFFFFFF)
OWN, TAKEN, FREE, LAST = (Bundle(NAMESPACE, lower, upper) for lower, upper in itertools.pairwise(BOUNDS))


def topic_in(bundle: Bundle) -> TopicName:
    names = (TopicName.parse(f"persistent://{NAMESPACE}/t{number}") for number in range(1_000))
    return next(name for name in names if bundle.has(name))


def owners_of(leader: str | None) -> Owners:
    ownership = Ownership()
    ownership.session_began(1)
    for bundle in (OWN, Bundle(NamespaceName.parse("public/other"), 0, 0xFFFFFFFF)):
        ownership.want(bundle)
        ownership.claimed(bundle, 1, alone=True)
    balance = None if leader is None else SimpleNamespace(leader=leader)
    return cast(Owners, SimpleNamespace(ownership=ownership, balance=balance, broker_id="me:1"))


async def share(leader: str | None) -> NamespaceShare:
    store = MemoryMetadataStore(ManualClock())
    await store.put(owner_path(OWN), b"")
    await store.put(owner_path(TAKEN), b"")
    await store.put(f"{owner_path(TAKEN)}x", b"")
    return await share_of(owners_of(leader), store, NAMESPACE)


@pytest.mark.parametrize(
    ("leader", "expected"),
    [
        ("other:1", {OWN}),
        ("me:1", {OWN, FREE, LAST}),
        ("", {OWN, FREE, LAST}),
        (None, {OWN, FREE, LAST}),
    ],
)
def test_bundles_without_an_owner_are_the_leaders(leader: str | None, expected: set[Bundle]) -> None:
    found = asyncio.run(share(leader))
    assert {each for each in (OWN, TAKEN, FREE, LAST) if found.has(topic_in(each))} == expected


def test_another_share_is_unequal() -> None:
    assert asyncio.run(share("me:1")) == asyncio.run(share("me:1"))
    assert asyncio.run(share("me:1")) != asyncio.run(share("other:1"))


def test_a_share_is_empty_when_no_topic_can_be_in_it() -> None:
    others = frozenset((each.lower, each.upper) for each in (OWN, TAKEN, FREE, LAST))
    own = frozenset([(OWN.lower, OWN.upper)])
    assert NamespaceShare(frozenset(), None).is_empty
    assert NamespaceShare(frozenset(), others).is_empty
    assert not NamespaceShare(frozenset(), others - own).is_empty, "some have no owner"
    assert not NamespaceShare(own, None).is_empty
