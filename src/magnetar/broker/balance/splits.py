"""Splits a bundle of this broker: the ranges first, then the owners of the parts, then the parent's record.

Source: Pulsar changes the ranges before the parent is given up, as claims rely on (decision 0030).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import encode_move, move_path
from magnetar.broker.policies.bundles import ranges
from magnetar.broker.policies.policies import Policies

if TYPE_CHECKING:
    from magnetar.broker.ownership.owners import Owners
    from magnetar.broker.ports import BrokerPort


class SplitTargets(NamedTuple):
    """Brokers that are to have the parts."""

    lower: str
    upper: str


def targets(own: str, other: str, *, upper: float, fits: Callable[[float], bool]) -> SplitTargets:
    """The other broker gets one part at most: one that is not larger than the load it can take.

    Args:
        own: the broker that splits.
        other: "": there is none.
        upper: fraction of the load that is in the upper part.
        fits: whether the other broker has time for such a fraction of the load.
    """
    if other and fits(upper):
        return SplitTargets(own, other)
    if other and fits(1.0 - upper):
        return SplitTargets(other, own)
    return SplitTargets(own, own)


async def split(
    broker: BrokerPort,
    owners: Owners,
    bundle: Bundle,
    at: int,
    targets: SplitTargets,
    may_split: Callable[[int], bool],
) -> bool:
    """Splits the bundle at the hash `at`; whether it was there to be split.

    `may_split`: whether a namespace of so many bundles may get one more.

    Clients of its topics are closed once and find the parts at their targets. When this fails half-way, the
    parts get their owners when they are looked up. Raises ServiceNotReadyError, MetadataError.
    """
    done = False

    def change(document: Policies) -> None:
        nonlocal done
        known = list(ranges(document))
        done = (bundle.lower, bundle.upper) in known and may_split(len(known))
        if done:
            bounds = sorted({each for pair in known for each in pair} | {at})
            document["bundles"] = {
                "boundaries": [f"0x{bound:08x}" for bound in bounds],
                "numBundles": len(bounds) - 1,
            }

    await broker.policies.update_namespace(bundle.namespace, change)
    if not done:
        return False
    lower = Bundle(bundle.namespace, bundle.lower, at)
    upper = Bundle(bundle.namespace, at, bundle.upper)
    for part, target in ((lower, targets.lower), (upper, targets.upper)):
        await broker.store.put(move_path(part), encode_move(target))
    await owners.move(bundle)
    return True
