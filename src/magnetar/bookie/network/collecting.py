"""Deletes what lies here of ledgers that do not exist any more.

Whoever deletes a ledger deletes its metadata; bookies find out by what is missing in the listing of all. So a
listing deletes only while the metadata is certainly the bookie's own and the newest: it has the instance id
and the bookie's cookie, and its generation is not behind what this bookie saw before. Otherwise, and where a
listing is empty altogether, what it does not name is kept in quarantine.

Fails safe: only a ledger that a whole listing did not name, and that the store certainly does not have right
before it would go, is gone; all of that within one connection to the store, which the identity was read over
as well. Any error ends the round with nothing deleted that was not certain.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from magnetar.base.errors import MetadataError
from magnetar.bookie.belonging import Belonging
from magnetar.bookie.quarantine import look

_log = logging.getLogger("magnetar.bookie.network")

_NAMED_MAX = 20
"""Ledgers of one round that get a line of their own in the log."""


class ExistingLedgers(Protocol):
    """The part of `BookieRegistry` that tells which ledgers exist."""

    def connection_id(self) -> int:
        """Another number after each interruption of the connection to the store."""

    async def ledger_exists(self, ledger_id: int) -> bool:
        """Whether it exists certainly or certainly not; sees what others wrote before the call."""

    def ledger_ids(self) -> AsyncIterator[int]:
        """Every ledger; an error ends the iteration by its exception."""


@dataclass(frozen=True, slots=True)
class Missing:
    """What a whole listing did not name of the ledgers here."""

    ledgers: list[int]
    listed: int
    """How many ledgers it named."""


async def missing_ledgers(known: set[int], existing: ExistingLedgers) -> Missing:
    """`known`: what lies here, taken before: a ledger exists before its first entry comes, so one that is not
    listed is no new one. Raises MetadataError."""
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
    existing: ExistingLedgers, connection_id: int, delete: Callable[[int], Awaitable[None]]
) -> Callable[[int], Awaitable[bool]]:
    """Makes `delete` look first; says whether it deleted.

    `connection_id`: of when the round began. What was listed before an interruption may have been told by a
    server that was behind, or by another store that came in its place: MetadataError ends the round then.
    """

    async def delete_what_is_gone(ledger_id: int) -> bool:
        exists = await existing.ledger_exists(ledger_id)
        _check_connection(existing, connection_id)
        if exists:
            _log.error("ledger %d exists again and is not deleted", ledger_id)
            return False
        await delete(ledger_id)
        return True

    return delete_what_is_gone


def doubt_of(state: Belonging, instance: str, generation: int | None) -> str:
    """Why a listing of this metadata says nothing; empty: it may be believed. `generation`: None where the
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
    delete: Callable[[int], Awaitable[bool]],
    *,
    now_ms: int,
    elapsed_s: int,
    grace_s: int,
) -> tuple[Belonging, int]:
    """One round: deletes, or keeps in quarantine; what the state is then, and how many were deleted.

    `delete`: see `looking_again`. Raises StorageError, MetadataError.
    """
    unsure = bool(state.doubt) or not missing.listed
    # What was doubtful once waits for its grace period, also when the doubt is over.
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


def _tell(entered: list[int], left: list[int]) -> None:
    for ledger_id in entered[:_NAMED_MAX]:
        _log.error("ledger %d is not named by metadata that is in doubt: it is kept in quarantine", ledger_id)
    if len(entered) > _NAMED_MAX:
        _log.error("the same holds for %d more ledgers", len(entered) - _NAMED_MAX)
    for ledger_id in left:
        _log.warning("ledger %d leaves the quarantine: it is named again, or deleted", ledger_id)
