"""Deletes the entries of ledgers that no longer exist.

Deleting a ledger deletes its metadata; bookies learn of it because the ledger is missing in the listing of
all ledgers. So a listing deletes only while the metadata is certainly the bookie's own and the newest: it has
the instance id and the bookie's cookie, and its generation is not behind the one that this bookie saw before.
Otherwise, and when a listing is empty altogether, the ledgers that it does not name are kept in quarantine.

Fails safe: a ledger is deleted only when a whole listing did not name it and the metadata store certainly
lacks it right before the deletion, all within one connection to the store, over which the identity was read
too. Any error ends the round; nothing uncertain is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.belonging import Belonging
from magnetar.bookie.quarantine import look

_log = logging.getLogger("magnetar.bookie.network")

_NAMED_MAX = 20
"""Ledgers per round that are logged by name."""


class ExistingLedgers(Protocol):
    """The part of `BookieRegistry` that tells which ledgers exist."""

    def connection_id(self) -> int:
        """Changes after each interruption of the connection to the store."""

    async def ledger_exists(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger exists, for certain; sees all writes before the call."""

    def ledger_ids(self) -> AsyncIterator[LedgerId]:
        """All ledgers; an error is raised and ends the iteration."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The ledgers of this bookie that a whole listing did not name."""

    ledgers: list[LedgerId]
    listed: int
    """Ledgers that the listing named."""


async def missing_ledgers(known: set[LedgerId], existing: ExistingLedgers) -> Missing:
    """Lists the metadata and returns the missing ledgers. `known`: the ledgers of this bookie, taken before
    the listing: a ledger exists before its first entry, so a ledger of `known` that is not listed is not a
    new one. Raises MetadataError."""
    connection_id = existing.connection_id()
    missing = set(known)
    listed = 0
    async for ledger_id in existing.ledger_ids():
        listed += 1
        missing.discard(ledger_id)
    gone = []
    for ledger_id in sorted(missing):
        if await existing.ledger_exists(ledger_id):
            _log.error("ledger %d exists and was not listed", ledger_id)
        else:
            gone.append(ledger_id)
    _check_connection(existing, connection_id)
    return Missing(gone, listed)


def _check_connection(existing: ExistingLedgers, connection_id: int) -> None:
    if existing.connection_id() != connection_id:
        raise MetadataError("the connection to the metadata was interrupted: what was listed is not believed")


def looking_again(
    existing: ExistingLedgers, connection_id: int, delete: Callable[[LedgerId], Awaitable[None]]
) -> Callable[[LedgerId], Awaitable[bool]]:
    """Wraps `delete` so that it checks the metadata again first; returns whether it deleted.

    `connection_id`: of the start of the round. A listing from before an interruption may come from a server
    that lagged, or from another store that took its place: then MetadataError ends the round.
    """

    async def delete_what_is_gone(ledger_id: LedgerId) -> bool:
        exists = await existing.ledger_exists(ledger_id)
        _check_connection(existing, connection_id)
        if exists:
            _log.error("ledger %d exists again and is not deleted", ledger_id)
            return False
        await delete(ledger_id)
        return True

    return delete_what_is_gone


def doubt_of(state: Belonging, instance: str, generation: int | None) -> str:
    """Why a listing of this metadata must not delete anything; empty: it may. `generation`: None when the
    metadata does not know the bookie."""
    if state.instance and instance != state.instance:
        return f"the metadata is that of cluster {instance}, not of {state.instance}"
    if generation is None:
        return "the metadata does not know this bookie any more"
    if generation < state.generation:
        return (
            f"the metadata was restored from an older copy: generation {generation}, this bookie has seen "
            f"{state.generation}"
        )
    return state.doubt


async def collect(
    state: Belonging,
    missing: Missing,
    delete: Callable[[LedgerId], Awaitable[bool]],
    *,
    now_ms: int,
    elapsed_s: int,
    grace_s: int,
) -> tuple[Belonging, int]:
    """One round: deletes missing ledgers, or keeps them in quarantine; returns the new state and the number
    of deletions.

    `delete`: see `looking_again`. Raises StorageError, MetadataError.
    """
    unsure = bool(state.doubt) or not missing.listed
    # A ledger that was in doubt once waits for its grace period, also after the doubt is over.
    waiting = missing.ledgers if unsure else [each for each in missing.ledgers if each in state.held]
    found = look(state.held, waiting, now_ms=now_ms, elapsed_s=elapsed_s, grace_s=grace_s)
    _tell(found.entered, found.left)
    due = [] if state.doubt else found.due
    going = [*due, *(each for each in missing.ledgers if each not in found.held)]
    gone = {ledger_id for ledger_id in going if await delete(ledger_id)}
    for ledger_id in sorted(gone & set(due)):
        _log.warning("ledger %d is deleted from the quarantine: its grace period is over", ledger_id)
    held = {each: kept for each, kept in found.held.items() if each not in gone}
    return replace(state, held=held), len(gone)


def _tell(entered: list[LedgerId], left: list[LedgerId]) -> None:
    for ledger_id in entered[:_NAMED_MAX]:
        _log.error("ledger %d is not named by metadata that is in doubt: it is kept in quarantine", ledger_id)
    if len(entered) > _NAMED_MAX:
        _log.error("the same holds for %d more ledgers", len(entered) - _NAMED_MAX)
    for ledger_id in left:
        _log.warning("ledger %d leaves the quarantine: it is named again, or deleted", ledger_id)
