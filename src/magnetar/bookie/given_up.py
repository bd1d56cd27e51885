"""Entries lost by damage that an operator gave up, so that consumers skip them.

A file beside the segments, or in the data folder of a broker whose messages are on bookies. Written by
`magnetar doctor storage salvage` and `magnetar storage accept-loss`, never by a broker:

    <folder>/GIVEN-UP.json   {"version": 1, "entries": [{"ledger", "first", "last", "topic", "file", "offset",
                             "why", "at"}, ...]}: the entries `first` to `last` of a ledger; the rest tells
                             people where they were
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.base.errors import StartupError
from magnetar.base.ids import LedgerId
from magnetar.runtime.durable_file import write_durably

_log = logging.getLogger("magnetar.bookie")

GIVEN_UP_FILE: Final = "GIVEN-UP.json"
_VERSION: Final = 1


class GivenUp(NamedTuple):
    """Entries of one ledger that were given up."""

    ledger: LedgerId
    first: int
    last: int
    topic: str
    """The topic of the ledger; empty when the ledger belongs to none."""
    file: str
    offset: int
    why: str
    at: str
    """Time of the decision, as ISO 8601."""


def read_given_up(folder: Path) -> list[GivenUp]:
    """The entries given up in this folder. Raises StartupError when the file cannot be read."""
    path = folder / GIVEN_UP_FILE
    try:
        said = json.loads(path.read_bytes())
        if said["version"] != _VERSION:
            raise ValueError(f"version {said['version']}")
        return [GivenUp(**each) for each in said["entries"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StartupError(
            f"{path} cannot be read ({error}): restore it, or move it away and run"
            " `magnetar doctor storage salvage` again"
        ) from error


def write_given_up(folder: Path, entries: Iterable[GivenUp]) -> None:
    """Replaces the file, durably. Raises OSError."""
    said = {"version": _VERSION, "entries": [each._asdict() for each in entries]}
    write_durably(folder / GIVEN_UP_FILE, json.dumps(said, indent=1).encode())


class GivenUpFile:
    """The current content of the file of one folder: an operator may write it while the broker runs."""

    def __init__(self, folder: Path) -> None:
        """Raises StartupError."""
        self._folder = folder
        self._stamp = self._look()
        self._ranges = ranges(read_given_up(folder))

    def _look(self) -> tuple[int, int] | None:
        try:
            found = (self._folder / GIVEN_UP_FILE).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def ranges(self) -> Mapping[LedgerId, Sequence[tuple[int, int]]]:
        """See the function; from the last version that could be read."""
        if (stamp := self._look()) != self._stamp:
            self._stamp = stamp
            try:
                self._ranges = ranges(read_given_up(self._folder))
            except StartupError as error:
                # An unreadable list must not give up more or fewer entries than the last one that was read.
                _log.error("the list of given-up entries is unchanged: %s", error)
        return self._ranges


def ranges(entries: Iterable[GivenUp]) -> dict[LedgerId, list[tuple[int, int]]]:
    """First and last entries by ledger, ascending."""
    found: dict[LedgerId, list[tuple[int, int]]] = {}
    for each in sorted(entries, key=lambda each: (each.ledger, each.first)):
        found.setdefault(each.ledger, []).append((each.first, each.last))
    return found
