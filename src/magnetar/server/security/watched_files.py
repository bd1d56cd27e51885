"""Reads the files of credentials at start, and again when they change.

    a check finds        then
    no change            nothing happens
    a changed file       the object built from it is replaced
    a broken file        the old object stays in force; log and metric report it until the files are usable

A check compares names, sizes and times, which is cheap. Certificate and key are two files: a check between
the two writes finds them broken, the next check finds them whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.observability.metrics import Exposition, labels
from magnetar.runtime.threads import in_thread

_log = logging.getLogger("magnetar.server")

TLS: Final = "serving tls"
"""Certificate, key and trust of a listener."""
_STALE: Final = "magnetar_credentials_stale"

Signature = tuple[tuple[int, int, int, int] | None, ...]
"""For each file the values that change when it is written or replaced; None: it does not exist."""


@dataclass(slots=True)
class Watched:
    """An object that is built from files."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Callable[[], None]]
    """Builds the object, in a thread; the returned function puts it into effect, on the loop. Raises
    StartupError."""
    seen: Signature = ()
    stale: bool = False
    """Whether the present files cannot be used."""

    def signature(self) -> Signature:
        """The present signature of the files."""
        return tuple(_signature(file) for file in self.files)


@dataclass(slots=True)
class CredentialFiles:
    """All objects that are built from files of credentials."""

    watched: Sequence[Watched]
    secret: Sequence[Path] = ()
    """Files that only their owner may read."""
    changed: Callable[[], None] = field(default=lambda: None)
    """Called after a new object has come into effect."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the running check, so that its result cannot replace that of a later check."""
    _waiting: bool = False
    """Whether a check waits for its turn. It sees the files as they are when it begins, for all callers until
    then."""
    _all_due: bool = False
    """Whether the next check reads all files."""

    def begin(self) -> None:
        """Reads all files for the first time. Raises StartupError."""
        for each in self.watched:
            each.seen = each.signature()
            each.read()()
        for file in self.secret:
            if file.stat().st_mode & stat.S_IROTH:
                _log.warning(
                    "all users of this machine may read %s, which is secret: run chmod o-r %s", file, file
                )

    async def look(self, *, always: bool = False) -> None:
        """Reads changed files; with `always`, all files. Returns at once while another check waits for its
        turn, which then does the work."""
        self._all_due |= always
        if self._waiting:
            return
        self._waiting = True
        try:
            await self._turn.acquire()
        finally:
            self._waiting = False
        try:
            always, self._all_due = self._all_due, False
            read = await in_thread(lambda: self._read(always=always))
            for each, effect in read:
                effect()
                _log.info("credentials: %s read again", each.name)
            if read:
                self.changed()
        finally:
            self._turn.release()

    def _read(self, *, always: bool) -> list[tuple[Watched, Callable[[], None]]]:
        effects = []
        for each in self.watched:
            # Before the content: what is written meanwhile is found by the next look.
            now = each.signature()
            known = now == each.seen
            # What could not be read is tried again: too many open files leave no trace on the file itself.
            if known and not always and not each.stale:
                continue
            each.seen = now
            try:
                effects.append((each, each.read()))
            except StartupError as error:
                if not (known and each.stale):
                    _log.error(
                        "credentials: %s cannot be read again, the old ones stay in force: %s",
                        each.name,
                        error,
                    )
                each.stale = True
                continue
            each.stale = False
        return effects

    def collect(self, exposition: Exposition) -> Iterator[None]:
        """Adds the metrics of stale credentials."""
        # The catalogue has the texts of all metrics, which a start does not need.
        from magnetar.observability.catalogue import text_of

        for each in self.watched:
            labelled = labels(("credential", each.name))
            exposition.gauge(_STALE, text_of(_STALE), float(each.stale), labelled)
            yield


async def read_anew(all_files: Iterable[CredentialFiles]) -> None:
    """Reads all of them, whether they have changed or not."""
    for files in all_files:
        await files.look(always=True)


def _signature(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
