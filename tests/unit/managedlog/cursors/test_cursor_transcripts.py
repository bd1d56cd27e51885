"""Conversations with the state of a cursor: acknowledgements in, mark-delete and ranges out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.base.ids import Position
from magnetar.managedlog.cursors.cursor_state import CursorState
from magnetar.managedlog.ledger_list import Ledger, LedgerList
from support.transcripts import replayed

FILES = sorted((Path(__file__).parent / "transcripts").glob("cursor-*.txt"))


def position(word: str) -> Position:
    """`5:3` is entry 3 of ledger 5."""
    ledger_id, entry_id = word.split(":")
    return Position(int(ledger_id), int(entry_id))


class Conversation:
    """A cursor of a log, and what its words mean."""

    def __init__(self) -> None:
        self.ledgers = LedgerList()
        self.state = CursorState(self.ledgers, Position(-1, -1))

    def answer(self, said: str) -> Iterator[str]:
        """Says something; where the cursor stands after it, when that changed or was asked for."""
        verb, *words = said.split()
        if verb == "ledgers":
            # 2:5 is ledger 2 of five entries.
            for ledger_id, entries in map(position, words):
                self.ledgers.add(
                    Ledger.sealed(ledger_id, 0, entries=entries, size_bytes=entries, timestamp_ms=1)
                )
            self.state = CursorState(self.ledgers, Position(next(iter(self.ledgers)).ledger_id, -1))
            return
        before = self.state.version
        if verb == "ack":
            self.state.ack([position(word) for word in words])
        elif verb == "ack-batch":
            # 2:1 101 of 3: of three messages the first and the last are left, the first on the right.
            self.state.ack_batch(position(words[0]), [int(words[1], 2)], int(words[3]))
        elif verb == "ack-between":
            self.state.ack_between(position(words[0]), position(words[1]))
        elif verb == "ack-all-to":
            self.state.ack_cumulative(position(words[0]))
        elif verb == "reset":
            self.state.reset(position(words[0]))
        elif verb == "next":
            following = self.state.next_unacked(position(words[0]))
            yield f"next {following.ledger_id}:{following.entry_id}"
            return
        else:
            raise AssertionError(f"no such word: {verb}")
        self.state.check()
        yield from self.standing() if self.state.version != before else ["ignored"]

    def standing(self) -> Iterator[str]:
        """Mark-delete, acknowledged ranges after it, and what is left of batches."""
        mark = self.state.mark_delete
        yield f"mark-delete {mark.ledger_id}:{mark.entry_id}"
        for ledger_id, first, last in self.state.ranges():
            yield f"acknowledged {ledger_id}:{first}-{last}"
        for at, left in sorted(self.state.partial.items()):
            yield f"left of {at.ledger_id}:{at.entry_id} {left:b}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_as_the_transcript_says(file: Path) -> None:
    assert replayed(file, Conversation().answer) == file.read_text(encoding="utf-8").splitlines()


def test_transcripts_are_there() -> None:
    assert len(FILES) >= 4
