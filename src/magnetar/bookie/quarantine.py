"""Ledgers on the disk that the metadata does not name: kept for a while, then deleted. Decides only.

These were not deleted on purpose: a deletion is recorded first and done at once. So the metadata lost them,
or is an older copy. They are kept until the metadata names them again, an operator decides, or a running
process has seen them unnamed for the whole grace period.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from magnetar.base.ids import LedgerId
from magnetar.bookie.belonging import Held


class Round(NamedTuple):
    """The result of one round."""

    held: dict[LedgerId, Held]
    """The ledgers in quarantine now."""
    entered: list[LedgerId]
    left: list[LedgerId]
    """Ledgers that are named again, or no longer exist."""
    due: list[LedgerId]
    """Ledgers that were unnamed for the whole grace period."""


def look(
    before: Mapping[LedgerId, Held],
    unnamed: Collection[LedgerId],
    *,
    now_ms: int,
    elapsed_s: int,
    grace_s: int,
) -> Round:
    """`unnamed`: the unnamed ledgers on the disk now; `elapsed_s`: seconds since this process's last
    round."""
    held = {
        ledger: replace(before[ledger], observed_s=before[ledger].observed_s + elapsed_s)
        if ledger in before
        else Held(now_ms)
        for ledger in sorted(unnamed)
    }
    return Round(
        held,
        entered=[ledger for ledger in held if ledger not in before],
        left=sorted(set(before) - set(held)),
        due=[ledger for ledger, each in held.items() if each.observed_s >= grace_s],
    )
