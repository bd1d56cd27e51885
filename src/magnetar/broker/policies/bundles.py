"""Bundles: the ranges of hashes that divide a namespace's topics (pure).

Source: Pulsar places a topic by the CRC-32 of its full name. Without explicit ranges it divides 2^32, rounds
down, and lets the last range end at 0xffffffff, which it includes.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.policies.policy_shapes import Document
from magnetar.metadata import keys

LAST: Final = 0xFFFFFFFF
DEFAULT_BUNDLES: Final = 4
"""Bundles of a namespace that is created without a number, as in Pulsar. An existing namespace keeps its
own."""


def equal_parts(number: int) -> dict[str, object]:
    """This many bundles of equal size, in the form of a namespace's document."""
    size = (LAST + 1) // number
    bounds = [*(size * i for i in range(number)), LAST]
    return {"boundaries": [f"0x{bound:08x}" for bound in bounds], "numBundles": number}


WHOLE: Final[Document] = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
"""The bundles of a namespace whose document names none, as older ones may."""


def hash_of(topic: TopicName) -> int:
    """The hash of a topic."""
    return zlib.crc32(str(topic).encode())


def ranges(policies: Document) -> Iterator[tuple[int, int]]:
    """Bounds of the bundles of a namespace, in order; `policies` is its document."""
    return itertools.pairwise(int(bound, 16) for bound in (policies.get("bundles") or WHOLE)["boundaries"])


def range_of(topic: TopicName, policies: Document) -> tuple[int, int]:
    """Bounds of the topic's bundle; `policies` is its namespace's document."""
    place = hash_of(topic)
    for bounds in ranges(policies):
        if covers(bounds, place):
            return bounds
    raise AssertionError(f"the bundles of {topic.namespace_name} do not end at the last hash")


def bundle_of(topic: TopicName, policies: Document) -> str:
    """Name of the topic's bundle; `policies` is its namespace's document."""
    return keys.bundle(*range_of(topic, policies))


def covers(bounds: tuple[int, int], place: int) -> bool:
    """Whether a hash lies between these bounds."""
    lower, upper = bounds
    return lower <= place < upper + (upper == LAST)
