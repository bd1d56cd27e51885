"""Decides which installation owns an object store, from the record in the store and the note in metadata.

A store belongs to one installation: to the metadata whose lists name its objects. A copy of that metadata (a
clone, an old backup) names the same objects and must not delete them. So the store has a record with a random
word that changes at each write, and metadata notes the word that it wrote last:

    note the next word in metadata  ─  change the record if it is as it was read  ─  write the object

If the record has a word that metadata has noted, this metadata is the newest copy. If it has another word,
another process has written since with another copy of the metadata; then nothing is written or deleted.

A crash between the steps leaves a noted word that is not in the record yet. Both words are valid until the
record has the new one. The new word is used before another one is noted, because the request that writes it
may still be under way. Pure.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Final

RECORD: Final = "magnetar-owner"
"""Name of the object that holds a store's record."""
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The record in a store."""

    installation: str
    """Id of the installation that owns the store; copies of its metadata have the same id."""
    word: str = ""
    """The word that the owner wrote last; "" in records of versions that knew only the installation."""
    epoch: int = 0
    """Number of changes of the record; shown to operators."""
    asked: str = ""
    """A process that knows the word asks whether its owner lives; a living owner changes the word."""
    released: bool = False
    """Whether the owner has stopped; a process that knows the word then need not ask."""

    def encode(self) -> bytes:
        """The record as JSON."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> OwnerRecord:
        """The inverse of `encode`; also accepts the plain id of earlier versions. Raises ValueError."""
        text = data.decode(errors="replace").strip()
        if not text.startswith("{"):
            return cls(text[:36])
        made = json.loads(text)
        if made.pop("format", None) != _FORMAT:
            raise ValueError("a later version wrote it")
        return cls(**{name: made[name] for name in ("installation", "word", "epoch", "asked", "released")})


@dataclass(frozen=True, slots=True)
class Holding:
    """The note about one store in metadata."""

    url: str
    word: str = ""
    """The word that the record had when it was last read or written."""
    next: str = ""
    """The word that the record has or is about to have."""
    epoch: int = 0
    adopted_ms: int = 0
    """Unix ms at which this installation took the store. Older objects that no list names are kept."""

    def encode(self) -> bytes:
        """The note as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Holding:
        """The inverse of `encode`. Raises ValueError."""
        made = json.loads(data)
        return cls(made["url"], made["word"], made["next"], made["epoch"], made["adopted_ms"])

    def stepping(self, said: str, word: str) -> Holding:
        """The note to write before the record is changed from `said` to `word`."""
        return replace(self, word=said, next=word, epoch=self.epoch + 1)


class OwnershipVerdict(Enum):
    """Owner of a store, as seen by this installation."""

    OURS = "ours"
    FREE = "free"
    """The store has no owner, or a record of this installation without a word."""
    FOREIGN = "foreign"


def judge(
    record: OwnerRecord | None, noted: Holding | None, installation: str, *, shared: bool = False
) -> OwnershipVerdict:
    """The owner according to the record and the note. `shared`: the installation has several brokers, which
    must all find the same store."""
    if shared and record is None and noted is not None and noted.word:
        # A folder that is not mounted on this machine, or another bucket.
        return OwnershipVerdict.FOREIGN
    if record is None or (not record.word and record.installation == installation):
        return OwnershipVerdict.FREE
    if record.word and noted is not None and record.word in (noted.word, noted.next):
        return OwnershipVerdict.OURS
    return OwnershipVerdict.FOREIGN


def why_foreign(record: OwnerRecord | None, noted: Holding | None, installation: str) -> str:
    """The likely cause of a foreign record, as a text for operators."""
    if record is None:
        return (
            "the record of this cluster is not in it: the folder is not mounted here, or it is another bucket"
        )
    if record.installation != installation:
        return "it belongs to another installation"
    if noted is None or not noted.word:
        return "a copy of this installation's metadata has taken it"
    behind = f"the store is at change {record.epoch}, this metadata knows {noted.epoch}"
    if record.epoch > noted.epoch:
        return f"a process with newer metadata has written to it: this metadata is an older copy ({behind})"
    return f"a copy of this installation has taken it over ({behind})"
