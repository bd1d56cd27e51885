"""Reads one entry from a member with a good copy. Sync, no I/O.

Copies are requested one after the other, the best first: the next one at once when a copy is missing, damaged
or unreachable, and also after a while of silence.

Source: BookKeeper replication protocol, reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final, TypeAlias

from magnetar.ledger.quorum.effects import SendRead
from magnetar.wire.bookkeeper.digests import Digester, DigestMismatchError, LedgerEntry
from magnetar.wire.bookkeeper.status import Status

SILENCE: Final = Status.TOO_MANY_REQUESTS
"""Stands for no answer. An error that a bookie returns tells something of its copy, silence does not."""


@unique
class Unread(Enum):
    """Why the entry could not be read."""

    ABSENT = "absent"
    """Every copy is certainly missing."""
    DAMAGED = "damaged"
    """A copy was damaged, and no other one was readable."""
    UNREACHABLE = "unreachable"
    """Not every copy could be requested."""
    UNAUTHORIZED = "unauthorized"


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """The entry."""

    entry: LedgerEntry
    bad: tuple[int, ...]
    """Indexes of members whose copies are missing or damaged."""
    absent: frozenset[int]
    """Of these, the members that certainly have none: in an open ledger the copy may be on its way."""


@dataclass(frozen=True, slots=True)
class NotFound:
    """No copy was readable."""

    reason: Unread


ReadEffect: TypeAlias = SendRead | FoundEntry | NotFound


class EntryRead:
    """The rules for reading one entry. Every method returns what the driver has to do, in order."""

    __slots__ = (
        "_absent",
        "_asked",
        "_bad",
        "_digester",
        "_entry_id",
        "_members",
        "_order",
        "_results",
        "_silent",
        "is_over",
    )

    def __init__(
        self, entry_id: int, members: Sequence[str], order: Sequence[int], digester: Digester
    ) -> None:
        """`members`: the ensemble of the entry; `order`: indexes of its copies, the best first."""
        self._entry_id = entry_id
        self._members = members
        self._order = order
        self._digester = digester
        self._asked = 0
        self._silent = 0
        self._results: list[Status] = []
        self._bad: list[int] = []
        self._absent: set[int] = set()
        self.is_over = False

    def start(self) -> list[ReadEffect]:
        """The first thing to do; once."""
        return self._ask_next()

    def _ask_next(self) -> list[ReadEffect]:
        if self._asked == len(self._order):
            return []
        index = self._order[self._asked]
        self._asked += 1
        self._silent += 1
        return [SendRead(self._members[index], index, self._entry_id)]

    def is_silent(self) -> list[ReadEffect]:
        """No answer for long: the next copy is requested as well."""
        return [] if self.is_over or self._results else self._ask_next()

    def read(self, index: int, status: Status, entry: bytes | None) -> list[ReadEffect]:
        """Result of SendRead; SILENCE when there will be none."""
        if self.is_over:
            return []
        self._silent -= 1
        if status is Status.OK:
            try:
                opened = self._digester.open(entry or b"", self._entry_id)
            except DigestMismatchError:
                status = Status.BAD_REQUEST
            else:
                self.is_over = True
                return [FoundEntry(opened, tuple(self._bad), frozenset(self._absent))]
        if status in _BAD_COPIES:
            self._bad.append(index)
        if status in _ABSENT:
            self._absent.add(index)
        self._results.append(status)
        effects = self._ask_next()
        if effects or self._silent:
            return effects
        self.is_over = True
        return [NotFound(self._reason())]

    def _reason(self) -> Unread:
        if all(status in _ABSENT for status in self._results):
            return Unread.ABSENT
        if Status.UNAUTHORIZED in self._results:
            return Unread.UNAUTHORIZED
        # All members have answered or are silent, and none has the entry: a silent one may still have a good
        # copy.
        damaged = all(status in _WITHOUT_COPY for status in self._results)
        return Unread.DAMAGED if damaged else Unread.UNREACHABLE


_ABSENT = frozenset((Status.NO_ENTRY, Status.NO_LEDGER))
_BAD_COPIES = _ABSENT | {Status.BAD_REQUEST, Status.IO_ERROR}
"""BAD_REQUEST stands for a digest that does not match: no bookie answers a read of an entry with it."""
_WITHOUT_COPY = _BAD_COPIES | {Status.UNKNOWN_LEDGER_STATE}
"""UNKNOWN_LEDGER_STATE: the bookie lost entries, and does not know which."""
