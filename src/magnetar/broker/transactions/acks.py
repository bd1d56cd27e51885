"""The acknowledgements of one transaction in one subscription (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog.cursors.ack_words import ACK_SET_WORDS_MAX, WORD_BITS, bits_of_words, words_of_bits

Part = tuple[int, int]
"""Messages of a batch that are acknowledged, one bit each, and how many messages the batch has."""


_POSITION: Final = itemgetter(0)
STORED_MAX: Final = 1 << 17
"""Entries and batches of a stored header: more than a transaction takes, so that a damaged one takes no
memory."""
_MESSAGES_MAX: Final = WORD_BITS * ACK_SET_WORDS_MAX
"""Messages of a stored batch, for the same reason: they become as many bits."""


def position_of(stored: Sequence[object]) -> Position:
    """A stored position. Raises ValueError when it is not two numbers."""
    ledger_id, entry_id = stored
    if type(ledger_id) is not int or type(entry_id) is not int:
        raise ValueError(f"a position of {stored!r}")
    return Position(LedgerId(ledger_id), entry_id)


class TxnAcks:
    """Acknowledgements that count when their transaction commits."""

    __slots__ = ("parts", "upto", "upto_part", "whole")

    whole: set[Position]
    """Entries."""
    parts: dict[Position, Part]
    """Messages of batches."""
    upto: Position | None
    """All entries up to and including it (cumulative); only those before it, where `upto_part` covers a
    part."""
    upto_part: Part | None
    """Messages of the batch at `upto` that a cumulative acknowledgement covers."""

    def __init__(self) -> None:
        self.whole = set()
        self.parts = {}
        self.upto = None
        self.upto_part = None

    def __len__(self) -> int:
        """Entries and batches that it names."""
        return len(self.whole) + len(self.parts) + (self.upto is not None)

    # Stored form: JSON, runs of entries as one item each.

    def stored(self) -> dict[str, object]:
        """The document that `of_stored` reads."""
        document: dict[str, object] = {}
        if self.whole:
            document["w"] = list(_runs(sorted(self.whole)))
        if self.parts:
            document["b"] = [
                [*position, size, *words_of_bits(bits)]
                for position, (bits, size) in sorted(self.parts.items(), key=_POSITION)
            ]
        if self.upto is not None:
            part = self.upto_part
            document["c"] = [*self.upto] if part is None else [*self.upto, part[1], *words_of_bits(part[0])]
        return document

    @classmethod
    def of_stored(cls, document: dict[str, Any], entries_max: int) -> TxnAcks:
        """Raises KeyError, TypeError, ValueError for an invalid document, or one that names more than
        `entries_max` entries."""
        acks = cls()
        for ledger_id, first, last in document.get("w", ()):
            position_of((ledger_id, first))
            if last - first >= entries_max - len(acks.whole):
                raise ValueError(f"more than {entries_max} entries are named")
            acks.whole.update(Position(ledger_id, entry) for entry in range(first, last + 1))
        for ledger_id, entry, size, *words in document.get("b", ()):
            acks.parts[position_of((ledger_id, entry))] = _part_of(words, size)
        if (upto := document.get("c")) is not None:
            acks.upto = position_of(upto[:2])
            if len(upto) > 2:
                acks.upto_part = _part_of(upto[3:], upto[2])
        return acks


def _part_of(words: Sequence[int], size: object) -> Part:
    if type(size) is not int or not 0 < size <= _MESSAGES_MAX or len(words) > ACK_SET_WORDS_MAX:
        raise ValueError(f"a batch of {size!r} messages in {len(words)} words")
    return bits_of_words(words) & ((1 << size) - 1), size


def acked_bits(words: Sequence[int], size: int) -> int:
    """Messages that an ack set of the protocol acknowledges: there a set bit is an unacknowledged one.
    `size`: from the log, never from a client: it becomes the number of bits."""
    return ~bits_of_words(words[: -(-size // WORD_BITS)]) & ((1 << size) - 1)


def _runs(positions: Iterable[Position]) -> Iterator[list[int]]:
    """[ledger, first, last], bounds included, of ascending positions."""
    run: list[int] = []
    for ledger_id, entry in positions:
        if run and run[0] == ledger_id and run[2] == entry - 1:
            run[2] = entry
            continue
        if run:
            yield run
        run = [ledger_id, entry, entry]
    if run:
        yield run
