"""What clients of the log saw, and what must hold of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId, Position
from sim.story import Violation
from sim.world import World


@dataclass(slots=True)
class Appended:
    """One entry that an owner handed in."""

    payload: bytes
    opening: str
    """Which opening of the log by which owner."""
    number: int
    """Number of the entry among those of its opening."""
    appended: int
    """When, by the count of everything seen."""
    acknowledged: int | None = None


class History:
    """All owners' appends, acknowledgements and reads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._entries: dict[Position, Appended] = {}
        self._counts: dict[str, int] = {}
        self._seen = 0
        self.violations: list[Violation] = []

    @property
    def acknowledged(self) -> int:
        """How many entries were."""
        return sum(entry.acknowledged is not None for entry in self._entries.values())

    @property
    def appended(self) -> int:
        """How many entries were."""
        return len(self._entries)

    def note(self, *words: object) -> None:
        """One line of the world's log."""
        self._world.note(*words)

    def violation(self, rule: str, detail: str) -> None:
        """Something did not hold."""
        self._world.note("VIOLATION", rule, detail)
        self.violations.append(Violation(rule, detail))

    def appends(self, opening: str, first: Position, payloads: Iterable[bytes]) -> None:
        """An owner has appended."""
        for entry_id, payload in enumerate(payloads, first.entry_id):
            position = Position(first.ledger_id, entry_id)
            if position in self._entries:
                self.violation("one place", f"{position} was given away twice")
            number = self._counts[opening] = self._counts.get(opening, -1) + 1
            self._seen += 1
            self._entries[position] = Appended(payload, opening, number, self._seen)

    def acknowledges(self, opening: str, run: EntryRun) -> None:
        """An owner was told that entries are durable."""
        self._world.note(opening, "has", run.ledger_id, run.first_entry, len(run.entries))
        for entry_id, payload in enumerate(run.entries, run.first_entry):
            position = Position(run.ledger_id, entry_id)
            entry = self._entries.get(position)
            if entry is None or entry.payload != payload or entry.opening != opening:
                self.violation("acknowledged", f"{position} is not what {opening} appended")
                continue
            if entry.acknowledged is not None:
                self.violation("acknowledged", f"{position} twice")
            self._seen += 1
            entry.acknowledged = self._seen

    def reads(self, reader: str, run: EntryRun) -> None:
        """Checks entries that a reader got."""
        for entry_id, payload in enumerate(run.entries, run.first_entry):
            entry = self._entries.get(Position(run.ledger_id, entry_id))
            if entry is None or entry.payload != payload:
                self.violation("bytes", f"{reader} read {payload!r} at {run.ledger_id}:{entry_id}")

    def payload(self, ledger_id: LedgerId, entry_id: int) -> bytes:
        """The payload that was appended there; empty when the history does not have it."""
        entry = self._entries.get(Position(ledger_id, entry_id))
        return b"" if entry is None else entry.payload

    def is_whole(self, runs: Iterable[EntryRun]) -> None:
        """The whole log, read at the end: what was acknowledged is there, once and in order."""
        found: list[tuple[Position, Appended]] = []
        index = 0
        for run in runs:
            if run.base_index != index:
                at = f"{run.ledger_id}:{run.first_entry}"
                self.violation("index", f"{at} has index {run.base_index}, {index} is due")
            index = run.base_index + run.message_count
            for entry_id in range(run.first_entry, run.first_entry + len(run.entries)):
                position = Position(run.ledger_id, entry_id)
                if found and position <= found[-1][0]:
                    self.violation("order", f"{position} after {found[-1][0]}")
                if (entry := self._entries.get(position)) is not None:
                    found.append((position, entry))
        there = {position for position, _ in found}
        for position, entry in self._entries.items():
            if entry.acknowledged is not None and position not in there:
                self.violation("acknowledged", f"{position} of {entry.opening} is lost")
        self._in_order(found)

    def _in_order(self, found: list[tuple[Position, Appended]]) -> None:
        counts: dict[str, int] = {}
        for position, entry in found:
            due = counts.get(entry.opening, 0)
            if entry.number != due:
                self.violation("no gaps", f"{position} is entry {entry.number} of {entry.opening}, not {due}")
            counts[entry.opening] = entry.number + 1
        earliest: int | None = None
        for position, entry in reversed(found):
            if earliest is not None and earliest < entry.appended:
                self.violation(
                    "order", f"something behind {position} was acknowledged before it was appended"
                )
            if entry.acknowledged is not None and (earliest is None or entry.acknowledged < earliest):
                earliest = entry.acknowledged
