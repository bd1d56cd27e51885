"""Lost entries that an operator of a cluster gave up: one value of its metadata, which all brokers follow.

/magnetar/given-up   [{"ledger", "first", "last", "at"}, …]: the entries `first` to `last` of a ledger,
                     and when that was decided last (ISO 8601); ascending, none next to another one
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from magnetar.base.errors import MetadataError, StartupError
from magnetar.base.ids import LedgerId
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore, SessionEvent
from magnetar.runtime.tasks import Rounds, TaskGroup

_log = logging.getLogger("magnetar.server")

RANGES_MAX: Final = 5_000
"""Ranges of entries in the value: 500 KB, and ZooKeeper takes 1 MiB."""
_ATTEMPTS_MAX: Final = 32


class GivenUpRange(NamedTuple):
    """Entries of one ledger that were given up."""

    ledger: LedgerId
    first: int
    last: int
    at: str


def decode_losses(data: bytes, path: str) -> list[GivenUpRange]:
    """The ranges in a stored value. Raises DamagedDocumentError."""
    try:
        return [_range(each) for each in json.loads(data)]
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise DamagedDocumentError(path, f"it does not list entries ({error!r})") from error


def _range(told: Mapping[str, object]) -> GivenUpRange:
    ledger, first, last = told["ledger"], told["first"], told["last"]
    if not (isinstance(ledger, int) and isinstance(first, int) and isinstance(last, int)):
        raise TypeError(told)
    if not 0 <= first <= last or ledger < 0:
        raise ValueError(told)
    return GivenUpRange(LedgerId(ledger), first, last, str(told["at"]))


def merged(ranges: Iterable[GivenUpRange]) -> list[GivenUpRange]:
    """The same entries in as few ranges as possible, ascending; one that was joined has its latest time."""
    found: list[GivenUpRange] = []
    for each in sorted(ranges):
        before = found[-1] if found else None
        if before is not None and before.ledger == each.ledger and each.first <= before.last + 1:
            last, at = max(before.last, each.last), max(before.at, each.at)
            found[-1] = before._replace(last=last, at=at)
        else:
            found.append(each)
    return found


async def accept_loss(store: MetadataStore, ledger: LedgerId, first: int, last: int) -> None:
    """Records that consumers may skip those entries from `first` to `last` of a ledger that cannot be read.

    Raises StartupError when the list is full, DamagedDocumentError, MetadataError.
    """
    new = GivenUpRange(ledger, first, last, datetime.now(UTC).isoformat(timespec="seconds"))
    for _ in range(_ATTEMPTS_MAX):
        value = await store.get(keys.GIVEN_UP)
        known = [] if value is None else decode_losses(value.data, keys.GIVEN_UP)
        ranges = merged([*known, new])
        if len(ranges) > RANGES_MAX:
            raise StartupError(
                f"{len(known)} ranges of entries are given up already, and {RANGES_MAX} are the most: give up"
                " whole ledgers, with --to, or set auto_skip_non_recoverable_data"
            )
        version = MUST_NOT_EXIST if value is None else value.stat.version
        data = json.dumps([each._asdict() for each in ranges]).encode()
        try:
            await store.put(keys.GIVEN_UP, data, expected_version=version)
        except BadVersionError:
            # Another operator was faster: both decisions count.
            continue
        return
    raise MetadataError(f"{keys.GIVEN_UP}: others changed it at each of {_ATTEMPTS_MAX} attempts")


class ClusterLosses:
    """What was given up in a cluster, as one broker knows it. `begin`, then `close`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._tasks = TaskGroup("entries that were given up")
        self._rounds = Rounds(self._read, self._tasks.spawn)
        self._ranges: dict[LedgerId, list[tuple[int, int]]] = {}
        self._cancels: tuple[Callable[[], None], ...] = ()

    async def begin(self) -> None:
        """Reads it, and again whenever it changes."""
        self._cancels = (
            self._store.watch(keys.GIVEN_UP, lambda _: self._rounds.ask()),
            self._store.watch_session(self._session_changed),
        )
        await self._read()
        # A change may have been read meanwhile, before this reading ended with what was there before it.
        self._rounds.ask()

    async def close(self) -> None:
        """Follows it no more."""
        for cancel in self._cancels:
            cancel()
        await self._tasks.close()

    def ranges(self) -> Mapping[LedgerId, Sequence[tuple[int, int]]]:
        """First and last entries by ledger, ascending; from the last value that could be read."""
        return self._ranges

    def _session_changed(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
            # Changes made meanwhile were not reported.
            self._rounds.ask()

    async def _read(self) -> None:
        try:
            value = await self._store.get(keys.GIVEN_UP)
            known = [] if value is None else decode_losses(value.data, keys.GIVEN_UP)
        except MetadataError as error:
            # An unreadable list must give up neither more nor fewer entries than the last one that was read.
            _log.error("the list of given-up entries is unchanged: %s", error)
            return
        found: dict[LedgerId, list[tuple[int, int]]] = {}
        for each in merged(known):
            found.setdefault(each.ledger, []).append((each.first, each.last))
        self._ranges = found
