"""Which broker should own a bundle without an owner (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import BrokerReport

CPU_BUSY_PERCENT: Final = 85.0
"""A broker with more to do gets no bundle while another one has less."""


class SentBundles:
    """How many bundles this broker has sent to each other one since that one's report.

    A report that is read anew counts what its broker has taken, so what was sent before it is forgotten.
    """

    def __init__(self) -> None:
        self._sent: dict[str, tuple[BrokerReport, int]] = {}

    def add(self, receiver: BrokerReport) -> None:
        """One more bundle was sent to this broker."""
        self._sent[receiver.broker_id] = receiver, self.since(receiver) + 1

    def since(self, report: BrokerReport) -> int:
        """Bundles that its broker has got beyond those of this report."""
        base, count = self._sent.get(report.broker_id, (report, 0))
        return count if base == report else 0


def least_loaded(
    bundle: Bundle, brokers: Iterable[BrokerReport], sent: SentBundles, *, excluded: str = ""
) -> str:
    """Id of the broker with the fewest bundles; of several, the one that a hash of bundle and broker chooses.

    Brokers that drain get none, nor does `excluded`. "" when there is none.
    """
    able = [each for each in brokers if not each.draining and each.broker_id != excluded]
    calm = [each for each in able if each.load.cpu_percent <= CPU_BUSY_PERCENT]

    def burden(report: BrokerReport) -> tuple[int, bytes]:
        return report.load.bundles + sent.since(report), _chance(bundle, report.broker_id)

    chosen = min(calm or able, key=burden, default=None)
    return "" if chosen is None else chosen.broker_id


def _chance(bundle: Bundle, broker_id: str) -> bytes:
    """So that all brokers choose the same, and not always the first (rendezvous hashing)."""
    return blake2b(f"{bundle} {broker_id}".encode(), digest_size=8).digest()
