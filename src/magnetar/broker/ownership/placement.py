"""Which broker should own a bundle without an owner (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import BrokerReport

CPU_BUSY_PERCENT: Final = 85.0
"""A broker with more to do gets no bundle while another one has less."""


def least_loaded(
    bundle: Bundle, brokers: Iterable[BrokerReport], sent: Mapping[str, int], *, excluded: str = ""
) -> str:
    """Id of the broker with the fewest bundles; of several, the one that a hash of bundle and broker chooses.

    `sent`: how many bundles this broker has sent to each one since its report. Brokers that drain get none,
    nor does `excluded`. "" when there is none.
    """
    able = [each for each in brokers if not each.draining and each.broker_id != excluded]
    calm = [each for each in able if each.load.cpu_percent <= CPU_BUSY_PERCENT]

    def burden(report: BrokerReport) -> tuple[int, bytes]:
        count = report.load.bundles + sent.get(report.broker_id, 0)
        return count, _chance(bundle, report.broker_id)

    chosen = min(calm or able, key=burden, default=None)
    return "" if chosen is None else chosen.broker_id


def _chance(bundle: Bundle, broker_id: str) -> bytes:
    """So that all brokers choose the same, and not always the first (rendezvous hashing)."""
    return blake2b(f"{bundle} {broker_id}".encode(), digest_size=8).digest()
