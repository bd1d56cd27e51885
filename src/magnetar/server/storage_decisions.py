"""What is in quarantine in a data folder, and what an operator decides about it.

The server may run meanwhile: it reads the file of decisions every few seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from magnetar.base.errors import StartupError
from magnetar.bookie.belonging import BELONGS_FILE, Belonging, decode
from magnetar.bookie.decisions import DECISIONS_FILE, Decisions, decode_decisions, encode_decisions
from magnetar.runtime.durable_file import write_durably


class FolderDecisions:
    """Of the data folder of a standalone server, or of one bookie."""

    def __init__(self, data: Path) -> None:
        """Raises StartupError: there are no messages."""
        self._folder = data / "bookie" if (data / "bookie").is_dir() else data
        if not (self._folder / "FORMAT").exists():
            raise StartupError(f"{data} is no folder of messages: name that of the server with --data")

    def state(self) -> dict[str, Any]:
        """Whom the messages belong to, and why metadata is doubted."""
        known = self._known()
        return {
            "instance": known.instance,
            "generation": known.generation,
            "doubt": known.doubt,
            "ledgers": len(known.held),
            "bytes": sum(held.size_bytes for held in known.held.values()),
        }

    def quarantine(self) -> list[dict[str, Any]]:
        """A row for each ledger that metadata does not name."""
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

    def delete(self, ledgers: Collection[int]) -> None:
        """They may go. Raises StartupError for one that is not in quarantine."""
        unknown = sorted(set(ledgers) - set(self._known().held))
        if unknown:
            raise StartupError(
                f"not in quarantine: {', '.join(map(str, unknown))};"
                " `magnetar storage quarantine list` has all"
            )
        waiting = self._waiting()
        self._decide(replace(waiting, delete=waiting.delete | set(ledgers)))

    def accept(self) -> None:
        """The metadata that is there is right."""
        self._decide(replace(self._waiting(), accept=True))

    def _known(self) -> Belonging:
        file = self._folder / BELONGS_FILE
        return decode(file.read_bytes()) if file.exists() else Belonging("")

    def _waiting(self) -> Decisions:
        file = self._folder / DECISIONS_FILE
        return decode_decisions(file.read_bytes()) if file.exists() else Decisions()

    def _decide(self, decisions: Decisions) -> None:
        write_durably(self._folder / DECISIONS_FILE, encode_decisions(decisions))
