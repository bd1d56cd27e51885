"""Questions about tables of transitions."""

from __future__ import annotations

from magnetar.base.machine import S, Transitions


def unreachable(table: Transitions[S], begin: S) -> set[S]:
    """States that no way leads to from `begin`."""
    seen = {begin}
    open_ = [begin]
    while open_:
        for state in table[open_.pop()]:
            if state not in seen:
                seen.add(state)
                open_.append(state)
    return set(table) - seen
