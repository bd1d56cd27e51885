"""Whose an object store is: the record in the store, the note in metadata, and what they say together.

A store belongs to one installation: to the metadata whose lists name its objects. A copy of that metadata (a
clone, an old backup) names the same objects and must not delete them. So the store has a record with a word
that changes at each write, and metadata notes which word it wrote last:

    note the next word in metadata  ─  change the record, if it is what was read  ─  write the object

The record says a word that metadata has noted: metadata is the newest there is. It says another one: another
process has written since, from the same past or another one; then nothing is written and nothing is deleted.

What a crash leaves between the steps: a noted word that is not in the record yet. Both count until the record
says the new one, and it is used before there is another: the request that was to write it may still be on its
way. Pure.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Final

RECORD: Final = "magnetar-owner"
"""Object of a store that says whose it is."""
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """What a store says."""

    installation: str
    """Id of the metadata that it belongs to; copies of metadata have the same."""
    word: str = ""
    """What the owner wrote last; "" in records of versions that knew only the installation."""
    epoch: int = 0
    """How often it has changed; for people."""
    asked: str = ""
    """A process that knows the word asks whether its owner lives; a living owner changes the word."""
    released: bool = False
    """The owner has stopped: a process that knows the word need not ask."""

    def encode(self) -> bytes:
        """JSON, for people to read as well."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> OwnerRecord:
        """The inverse of `encode`; takes the plain id of earlier versions. Raises ValueError."""
        text = data.decode(errors="replace").strip()
        if not text.startswith("{"):
            return cls(text[:36])
        made = json.loads(text)
        if made.pop("format", None) != _FORMAT:
            raise ValueError("a later version wrote it")
        return cls(**{name: made[name] for name in ("installation", "word", "epoch", "asked", "released")})


@dataclass(frozen=True, slots=True)
class Holding:
    """What metadata notes of one store."""

    url: str
    word: str = ""
    """The record said this, by what is known."""
    next: str = ""
    """The record says this, or is about to."""
    epoch: int = 0
    adopted_ms: int = 0
    """What was in the store before came from elsewhere: what no list names of it stays. Unix ms."""

    def encode(self) -> bytes:
        """JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Holding:
        """The inverse of `encode`. Raises ValueError."""
        made = json.loads(data)
        return cls(made["url"], made["word"], made["next"], made["epoch"], made["adopted_ms"])

    def stepping(self, said: str, word: str) -> Holding:
        """Before the record is changed from `said` to `word`."""
        return replace(self, word=said, next=word, epoch=self.epoch + 1)


class OwnershipVerdict(Enum):
    """Whose the store is."""

    OURS = "ours"
    FREE = "free"
    """Without an owner, or this installation's since before there were words."""
    FOREIGN = "foreign"


def judge(record: OwnerRecord | None, noted: Holding | None, installation: str) -> OwnershipVerdict:
    """What a record and a note say together."""
    if record is None or (not record.word and record.installation == installation):
        return OwnershipVerdict.FREE
    if record.word and noted is not None and record.word in (noted.word, noted.next):
        return OwnershipVerdict.OURS
    return OwnershipVerdict.FOREIGN


def why_foreign(record: OwnerRecord | None, noted: Holding | None, installation: str) -> str:
    """For people: what seems to have happened."""
    if record is None or record.installation != installation:
        return "it belongs to another installation"
    if noted is None or not noted.word:
        return "a copy of this installation's metadata has taken it"
    behind = f"the store is at change {record.epoch}, this metadata knows {noted.epoch}"
    if record.epoch > noted.epoch:
        return f"a process with newer metadata has written to it: this metadata is an older copy ({behind})"
    return f"a copy of this installation has taken it over ({behind})"
