"""Whether the disk is the one under which the cluster knows this bookie. Decides; reads and writes nothing.

A bookie that silently started with another disk, or an empty one, would deny entries that it acknowledged,
and forget fences: recovery believes both.

Source: BookKeeper's cookies.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, unique

from magnetar.base.errors import StartupError
from magnetar.metadata.bookkeeper.registry import Cookie


@unique
class Stamp(Enum):
    """What must be written before the bookie may serve."""

    NOTHING = "nothing"
    BOTH = "both"
    """First on the disk, then in the store."""
    STORE = "store"


def stamp_of(
    mine: Cookie,
    on_disk: Cookie | None,
    in_store: Cookie | None,
    *,
    disk_is_empty: bool,
    moves: bool = False,
) -> Stamp:
    """What to write. `disk_is_empty`: the disk has no entries. `moves`: cookies may name the folders of the
    bookie before it was moved, if disk and store name the same ones.

    Raises StartupError: the bookie must not serve.
    """
    bookie = mine.bookie_id
    if moves and (found := on_disk or in_store) is not None:
        mine = replace(mine, journal_folders=found.journal_folders, ledger_folders=found.ledger_folders)
    if on_disk is not None and on_disk != mine:
        raise StartupError(f"the data folder is not that of bookie {bookie}: {_difference(on_disk, mine)}")
    if in_store is not None and in_store != mine:
        raise StartupError(f"the cluster knows another bookie {bookie}: {_difference(in_store, mine)}")
    if in_store is None:
        if on_disk is None and disk_is_empty:
            return Stamp.BOTH
        if on_disk is not None and disk_is_empty:
            # The process was stopped between the two writes.
            return Stamp.STORE
        raise StartupError(
            f"the data folder has entries, and the cluster does not know bookie {bookie}: "
            "was it decommissioned, or is this another cluster?"
        )
    if on_disk is None:
        raise StartupError(
            f"the cluster knows bookie {bookie}, and its data folder is not here: was the disk lost? "
            "It must come back, or the bookie be recovered and its cookie deleted"
        )
    return Stamp.NOTHING


def _difference(found: Cookie, mine: Cookie) -> str:
    parts = [
        f"{name} is {getattr(found, name)}, not {getattr(mine, name)}"
        for name in ("bookie_id", "instance_id", "journal_folders", "ledger_folders")
        if getattr(found, name) != getattr(mine, name)
    ]
    return "; ".join(parts) or "its index folders differ"
