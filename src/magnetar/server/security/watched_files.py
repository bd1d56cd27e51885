"""The files that credentials are made of: read at start, and anew when they change.

    a look finds         then
    nothing changed      nothing
    a file changed       what is made of it is made anew, and counts from then on
    ... and is broken    the old one goes on; the log and a metric say so until a look finds good files

A look compares names, sizes and times, so that it costs next to nothing. Certificate and key are two files: a
look between the two writes finds them broken, the next one whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.observability.catalogue import text_of
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
    """What is made of some files."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Callable[[], None]]
    """Makes it, in a thread; the result puts it into effect, in the loop. Raises StartupError."""
    seen: Signature = ()
    stale: bool = False
    """Whether the files as they are now cannot be used."""

    def signature(self) -> Signature:
        """The present signature of the files."""
        return tuple(_signature(file) for file in self.files)


@dataclass(slots=True)
class CredentialFiles:
    """Everything that is made of files, and reads them anew."""

    watched: Sequence[Watched]
    secret: Sequence[Path] = ()
    """Files that only their owner may read."""
    changed: Callable[[], None] = field(default=lambda: None)
    """Called after something else has come into effect."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the look that is under way: what it has read must not replace what a later one read."""
    _waiting: bool = False
    """Whether a check waits for its turn. It sees the files as they are when it begins, for all callers until
    then."""
    _all_due: bool = False
    """Whether the next look reads everything."""

    def begin(self) -> None:
        """Reads everything for the first time. Raises StartupError."""
        for each in self.watched:
            each.seen = each.signature()
            each.read()()
        for file in self.secret:
            if file.stat().st_mode & stat.S_IROTH:
                _log.warning(
                    "all users of this machine may read %s, which is secret: run chmod o-r %s", file, file
                )

    async def look(self, *, always: bool = False) -> None:
        """Reads what has changed; `always`: also what has not. Returns at once while another look waits for
        its turn, which then does so."""
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
        """Adds what metrics say of it."""
        for each in self.watched:
            labelled = labels(("credential", each.name))
            exposition.gauge(_STALE, text_of(_STALE), float(each.stale), labelled)
            yield


def _signature(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
