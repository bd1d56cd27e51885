"""Lists the quarantine of a data folder, and records an operator's decisions about it.

The server may run meanwhile: it reads the file of decisions every few seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from magnetar.base.errors import StartupError
from magnetar.base.ids import LedgerId
from magnetar.bookie.belonging import (
    BELONGS_FILE,
    Belonging,
    DamagedBelongingError,
    InMetadata,
    decode,
    pair_in_words,
)
from magnetar.bookie.decisions import DECISIONS_FILE, Decisions, decode_decisions, encode_decisions
from magnetar.ledger.beside import read_member
from magnetar.ledger.membership import Member, in_words
from magnetar.ledger.paths import INSTANCE_ID
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.folder_registry import FolderBookieRegistry
from magnetar.metadata.keys import BOOKIES_BESIDE, GENERATION
from magnetar.metadata.sqlite_file import peek
from magnetar.runtime.durable_file import write_durably


class Quarantined(TypedDict):
    """A ledger that metadata does not name."""

    ledger: LedgerId
    entries: int
    bytes: int
    since_ms: int
    seen_seconds: int
    decided: str
    """`delete`, or empty while it is open."""


class FolderDecisions:
    """Decisions for the data folder of a standalone server or of one bookie."""

    def __init__(self, data: Path) -> None:
        """Raises StartupError when the folder has no messages."""
        self._metadata = data / "metadata" / "metadata.db"
        self._beside = (data / "bookies" / "instance").exists()
        if self._beside:
            self._folder = data / "bookies"
            return
        self._folder = data / "bookie" if (data / "bookie").is_dir() else data
        if not (self._folder / "FORMAT").exists():
            raise StartupError(f"{data} is not a folder of messages: name that of the server with --data")

    def state(self) -> dict[str, object]:
        """The owner of the messages, and why metadata is doubted."""
        known = self._known()
        return {
            "instance": known.instance,
            "generation": known.generation,
            "doubt": known.doubt,
            "ledgers": len(known.held),
            "bytes": sum(held.size_bytes for held in known.held.values()),
        }

    def quarantine(self) -> list[Quarantined]:
        """A row for each ledger that metadata does not name."""
        if self._beside:
            raise StartupError(f"each bookie has a quarantine: name a folder in {self._folder} with --data")
        waiting = self._waiting().delete
        return [
            {
                "ledger": ledger,
                "entries": held.entries,
                "bytes": held.size_bytes,
                "since_ms": held.since_ms,
                "seen_seconds": held.observed_s,
                "decided": "delete" if ledger in waiting else "",
            }
            for ledger, held in sorted(self._known().held.items())
        ]

    def delete(self, ledgers: Collection[LedgerId]) -> None:
        """Allows the deletion of ledgers. Raises StartupError for one that is not in quarantine."""
        unknown = sorted(set(ledgers) - set(self._known().held))
        if unknown:
            raise StartupError(
                f"not in quarantine: {', '.join(map(str, unknown))};"
                " `magnetar storage quarantine list` has all"
            )
        waiting = self._waiting()
        self._decide(replace(waiting, delete=waiting.delete | set(ledgers)))

    def found(self) -> str:
        """Description of the doubt, as the argument of `accept`."""
        if self._beside:
            return self._found_beside()
        mine = self._belonging()
        if not self._metadata.parent.exists():
            # A bookie of a cluster asks the cluster whose metadata it is.
            return mine.doubt if isinstance(mine, Belonging) else ""
        instance, generation = self._peek(INSTANCE_ID), self._peek(GENERATION)
        known = instance is not None and generation is not None
        return pair_in_words(mine, InMetadata(str(instance), int(generation or 0)) if known else None)

    def _found_beside(self) -> str:
        instance = self._peek(INSTANCE_ID)
        members = {bookie: read_member(self._folder / bookie) for bookie in self._bookies()}
        known = {
            bookie: InMetadata(str(instance), int(generation))
            for bookie in members
            if (generation := self._peek(f"{BOOKIES_BESIDE}/{bookie}")) is not None
        }
        return in_words(members, known, self._registry().doubt())

    def accept(self, found: str) -> None:
        """Ends the doubt described by `found`; a different doubt that arises before a server reads this
        stays."""
        self._decide(replace(self._waiting(), accept=True, accepted=found))

    def readmit(self, bookie: str) -> None:
        """Lets a bookie that lost messages take entries again. Raises StartupError for an unknown name."""
        if not self._beside:
            raise StartupError(
                f"{self._folder} has no bookies beside a broker: name such a data folder with --data."
                " A bookie of a cluster is decommissioned, and starts again with an empty folder "
                "(docs/auto-recovery.md)"
            )
        if bookie not in self._bookies():
            raise StartupError(f"no bookie {bookie} is here: there are {', '.join(self._bookies())}")
        waiting = self._waiting()
        self._decide(replace(waiting, readmit=waiting.readmit | {bookie}))

    def _bookies(self) -> list[str]:
        return sorted(each.name for each in (self._folder / "cookies").iterdir())

    def _registry(self) -> FolderBookieRegistry:
        return FolderBookieRegistry(self._folder, self._metadata, BookKeeperTree())

    def _peek(self, path: str) -> str | None:
        """A value of metadata; None when it is missing or cannot be read."""
        try:
            value = peek(self._metadata, path)
        except sqlite3.Error:
            return None
        return None if value is None else value.decode()

    def _known(self) -> Belonging:
        if not self._beside:
            mine = self._belonging()
            return mine if isinstance(mine, Belonging) else Belonging("")
        found = [read_member(self._folder / bookie) for bookie in self._bookies()]
        members = [member for member in found if isinstance(member, Member)]
        instance = (self._folder / "instance").read_text()
        newest = max((member.generation for member in members), default=0)
        return Belonging(instance, newest, newest, doubt=self._registry().doubt())

    def _belonging(self) -> Belonging | DamagedBelongingError | None:
        file = self._folder / BELONGS_FILE
        try:
            return decode(file.read_bytes()) if file.exists() else None
        except DamagedBelongingError as error:
            return error

    def _waiting(self) -> Decisions:
        file = self._folder / DECISIONS_FILE
        return decode_decisions(file.read_bytes()) if file.exists() else Decisions()

    def _decide(self, decisions: Decisions) -> None:
        write_durably(self._folder / DECISIONS_FILE, encode_decisions(decisions))
