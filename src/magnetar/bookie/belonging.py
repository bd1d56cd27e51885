"""Whether the messages of a folder belong to the metadata, and whether that is the newest. Decides; does no
I/O.

Ledgers that the metadata does not name are deleted in the end, so the metadata must be known to belong to the
folder, and not to be an older copy. Both sides carry the same instance id and a generation:

    file BELONGS in the folder   instance, generation, begun, ...   see `encode`
    /ledgers/INSTANCEID          instance                           BookKeeper's node
    /magnetar/generation         generation: decimal

The generation grows at each start, while the process runs, and when it stops, in three steps:

    1. the file       generation g,   begun g+1
    2. metadata       generation g+1
    3. the file       generation g+1, begun g+1

A crash after step 1 leaves metadata at g, one after step 2 at g+1, which is `begun`: both belong together.
Metadata behind `generation` was restored from an older copy; metadata ahead of `begun` stands beside an older
copy of the folder. No crash leads to either. A process serves only after step 3.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from types import MappingProxyType
from typing import Final, NamedTuple

from magnetar.base.errors import StartupError, StorageError
from magnetar.base.ids import LedgerId

BELONGS_FILE: Final = "BELONGS"
_ACCEPT: Final = "`magnetar storage accept`"


class DamagedBelongingError(StorageError):
    """The file BELONGS is damaged."""


@dataclass(frozen=True, slots=True)
class Held:
    """A ledger in quarantine: it has entries here, and metadata does not name it."""

    since_ms: int
    """Since when, in Unix milliseconds; only shown to people."""
    observed_s: int = 0
    """Seconds that a running process has seen it unnamed. A wall clock that jumps does not end the grace
    period."""
    entries: int = 0
    size_bytes: int = 0


_NONE_GIVEN: Final = LedgerId(0)


@dataclass(frozen=True, slots=True)
class Belonging:
    """The content of the file BELONGS."""

    instance: str
    generation: int = 0
    """0: the folder does not belong to any metadata yet."""
    begun: int = 0
    """The generation that is being written; equals `generation` when none is."""
    ids_end: LedgerId = _NONE_GIVEN
    """All ledger ids below this may be in use."""
    doubt: str = ""
    """Why ledgers that the metadata does not name are kept until an operator decides; empty without a
    doubt."""
    held: Mapping[LedgerId, Held] = field(default_factory=lambda: MappingProxyType({}))
    """Ledgers in quarantine."""


def encode(belonging: Belonging) -> bytes:
    """Encodes the file: a line of JSON, a line with its CRC-32."""
    told = {each.name: getattr(belonging, each.name) for each in fields(belonging)}
    told["held"] = {str(ledger): astuple(held) for ledger, held in belonging.held.items()}
    line = json.dumps(told, sort_keys=True).encode()
    return b"%b\n%08x\n" % (line, zlib.crc32(line))


def decode(data: bytes) -> Belonging:
    """Decodes the file. Raises DamagedBelongingError."""
    line, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % zlib.crc32(line):
        raise DamagedBelongingError(f"{BELONGS_FILE} fails its checksum")
    told = json.loads(line)
    told["held"] = {LedgerId(int(ledger)): Held(*held) for ledger, held in told["held"].items()}
    return Belonging(**told)


class InMetadata(NamedTuple):
    """The identity and the generation in the metadata."""

    instance: str
    generation: int


def pair_in_words(mine: Belonging | DamagedBelongingError | None, theirs: InMetadata | None) -> str:
    """Describes the pair for the operator who accepts it; any change of the pair changes the text."""
    match mine:
        case None:
            messages = "the messages say nothing of their metadata"
        case Belonging():
            messages = f"the messages are of {mine.instance} at generation {mine.generation}"
        case _:
            messages = f"{BELONGS_FILE} of the messages is damaged"
    metadata = (
        "the metadata has no identity"
        if theirs is None
        else f"the metadata is of {theirs.instance} at generation {theirs.generation}"
    )
    doubt = f"; doubted: {mine.doubt}" if isinstance(mine, Belonging) and mine.doubt else ""
    return f"{messages}; {metadata}{doubt}"


class FoundPair(NamedTuple):
    """Further facts, which `judge` looks at only where they decide."""

    has_ledgers: bool
    """Whether entries of any ledger lie in the folder."""
    names_entries: bool
    """Whether metadata names a ledger that has entries."""
    names_ledgers: bool
    """Whether metadata names any ledger."""


class PairVerdict(NamedTuple):
    """Folder and metadata belong together."""

    instance: str
    generation: int
    """The generation that both sides get."""
    doubt: str
    """Why ledgers that the metadata does not name must be kept; empty when they may be deleted."""


def judge(
    mine: Belonging | None,
    theirs: InMetadata | None,
    found: FoundPair,
    *,
    new_instance: str,
    accepted: bool,
    folder: str,
) -> PairVerdict:
    """Judges the pair: `mine` of the folder, None without a file; `theirs` of the metadata. Raises
    StartupError.

    `accepted`: an operator accepted this pair. `folder` is named in errors.
    """
    known = mine
    if mine is not None and not mine.generation and (theirs is None or theirs.instance != mine.instance):
        # The first process was killed in its very first step 1: the metadata knows of no generation.
        known = None
    behind = 0 if known is None else known.generation
    generation = (
        max(behind, 0 if known is None else known.begun, 0 if theirs is None else theirs.generation) + 1
    )
    instance = theirs.instance if theirs is not None else new_instance if mine is None else mine.instance
    if accepted:
        return PairVerdict(instance, generation, "")
    if found.has_ledgers:
        _check_sides(known, theirs, found, folder)
    elif found.names_entries:
        raise StartupError(_MISSING_MESSAGES.format(folder=folder))
    if known is None or theirs is None or known.instance != theirs.instance:
        return PairVerdict(instance, generation, "")
    if theirs.generation > known.begun and found.has_ledgers:
        raise StartupError(
            f"{folder} is an older copy than its metadata (generation {known.begun}, metadata is at "
            f"{theirs.generation}): messages would be missing. Bring back the newer folder, or the metadata "
            f"of the same copy; or go on with what is there by {_ACCEPT}"
        )
    doubt = known.doubt
    if theirs.generation < known.generation:
        doubt = (
            f"the metadata was restored from an older copy: generation {theirs.generation}, the messages are "
            f"at {known.generation}"
        )
    return PairVerdict(instance, generation, doubt)


def _check_sides(known: Belonging | None, theirs: InMetadata | None, found: FoundPair, folder: str) -> None:
    """Raises StartupError when messages and metadata do not belong together."""
    if theirs is None and (known is not None or not found.names_ledgers):
        raise StartupError(
            f"the metadata of the messages in {folder} is missing, or was restored from before it had an "
            "identity. Nothing was changed. Restore metadata/metadata.db from a backup; or go on with the "
            f"metadata that is there by {_ACCEPT}: messages that it does not name are then kept aside"
        )
    if known is None and theirs is not None:
        raise StartupError(
            f"{folder} does not say which metadata it belongs to, and the metadata belongs to messages that "
            f"do: is it an older copy? Bring back the newer folder, or go on with what is there by {_ACCEPT}"
        )
    if known is not None and theirs is not None and known.instance != theirs.instance:
        raise StartupError(
            f"{folder} belongs to metadata {known.instance}, not to {theirs.instance} that is here. Nothing "
            "was changed. Bring the two together that belong together, or choose another folder with --data"
        )


_MISSING_MESSAGES: Final = (
    "the metadata names messages, and {folder} has none: was the folder lost, emptied or not mounted? Bring "
    "it back, or restore metadata and messages from one backup; or go on without these messages by " + _ACCEPT
)
