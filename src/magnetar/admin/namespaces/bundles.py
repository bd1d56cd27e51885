"""Bundles: the ranges of hashes of a namespace's topics (pure).

A single broker has all bundles; they still name parts of a namespace that can be unloaded and cleared one by
one. A namespace has four, as in Pulsar, unless it was created with another number.
Source: Pulsar places a topic by the CRC-32 of its full name; the last range includes its end.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from magnetar.admin.calls.call import whole
from magnetar.admin.calls.errors import BadRequestError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.policies.bundles import (
    DEFAULT_BUNDLES,
    LAST,
    WHOLE,
    covers,
    equal_parts,
    hash_of,
)
from magnetar.broker.policies.policies import Policies
from magnetar.metadata import keys

BUNDLES_MAX: Final = 1024
_NAME: Final = re.compile(r"0x([0-9a-fA-F]{1,8})_0x([0-9a-fA-F]{1,8})")
_BOUND: Final = re.compile(r"0x[0-9a-fA-F]{1,8}")


def wanted(document: object) -> dict[str, object]:
    """The bundles of a namespace created with `document`: `{"numBundles": n}`, `{"boundaries": [...]}` or
    both; 0 and nothing are Pulsar's default. Raises BadRequestError."""
    if document is None:
        return equal_parts(DEFAULT_BUNDLES)
    if not isinstance(document, dict):
        raise BadRequestError('bundles are {"numBundles": n} or {"boundaries": [...]}')
    bounds = document.get("boundaries") or []
    number = whole(document.get("numBundles") or max(0, len(bounds) - 1) or DEFAULT_BUNDLES)
    if number is None or not 0 < number <= BUNDLES_MAX:
        raise BadRequestError(f"numBundles must be from 1 to {BUNDLES_MAX}")
    if not bounds:
        return equal_parts(number)
    if not isinstance(bounds, list) or not all(isinstance(b, str) and _BOUND.fullmatch(b) for b in bounds):
        raise BadRequestError("boundaries must be a list of numbers like 0x00000000")
    found = sorted({int(bound, 16) for bound in bounds})
    if found[0] != 0 or found[-1] != LAST or len(found) != number + 1:
        raise BadRequestError(f"boundaries of {number} bundles are {number + 1}, from 0x0 to 0xffffffff")
    return {"boundaries": [f"0x{bound:08x}" for bound in found], "numBundles": number}


def bounds_of(bundle: str) -> tuple[int, int]:
    """The bounds in a bundle's name. Raises PreconditionFailedError."""
    found = _NAME.fullmatch(bundle)
    if found is None:
        raise PreconditionFailedError(
            f"Invalid bundle range: {bundle[:100]}", remedy="a bundle is written 0x00000000_0xffffffff"
        )
    return int(found[1], 16), int(found[2], 16)


def check_known(namespace: NamespaceName, bundle: str, policies: Policies) -> None:
    """Raises PreconditionFailedError unless the namespace's document has the bundle."""
    lower, upper = bounds_of(bundle)
    bounds = [int(bound, 16) for bound in (policies.get("bundles") or WHOLE)["boundaries"]]
    after = dict(itertools.pairwise(bounds))
    if after.get(lower) == upper:
        return
    named = f"{namespace}/{keys.bundle(lower, upper)}"
    if lower in after:
        reason = (
            f"Invalid upper boundary for bundle {named}."
            f" Expected upper boundary of {namespace}/{keys.bundle(lower, after[lower])}"
        )
    else:
        reason = f"Cannot find bundle {named} in the bundles list"
    known = ", ".join(keys.bundle(*pair) for pair in itertools.islice(after.items(), 8))
    raise PreconditionFailedError(reason, remedy=f"there are {known}")


def within(topic: TopicName, bundle: str) -> bool:
    """Whether the topic belongs to the bundle of this name. Raises PreconditionFailedError."""
    return covers(bounds_of(bundle), hash_of(topic))
