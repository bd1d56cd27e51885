"""Ledgers that lie here and that metadata does not name: kept for a while, then given up. Decides only.

Nobody asked for their deletion: what was asked for is noted before and done at once. So metadata lost them,
or is an older copy. They stay as they are until metadata names them again, somebody decides, or a running
process has seen them unnamed for the whole grace period.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from magnetar.bookie.belonging import Held


class Round(NamedTuple):
    """What one look came to."""

    held: dict[int, Held]
    """Who is in quarantine now."""
    entered: list[int]
    left: list[int]
    """Named again, or gone."""
    due: list[int]
    """Seen unnamed for the whole grace period."""


def look(
    before: Mapping[int, Held], unnamed: Collection[int], *, now_ms: int, elapsed_s: int, grace_s: int
) -> Round:
    """`unnamed`: what lies here without a name, now; `elapsed_s`: since this process's last look."""
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
