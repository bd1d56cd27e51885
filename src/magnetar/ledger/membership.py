"""Whether a folder is the known and newest folder of a bookie beside the broker. Decides; no I/O.

    file MEMBER in the bookie's folder     instance, bookie, generation, begun: see `encode_member`
    /magnetar/bookies-beside/BOOKIE        generation: decimal

The broker raises both at each start, while it runs, and when it stops, in the three steps of
`bookie/belonging.py`. An older copy of one folder would deny entries that its bookie acknowledged, and ledger
recovery believes denials.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from magnetar.bookie.belonging import DamagedBelongingError, InMetadata

MEMBER_FILE: Final = "MEMBER"
_NOTHING: Final = "Nothing was changed."


@dataclass(frozen=True, slots=True)
class Member:
    """The content of the file MEMBER."""

    instance: str
    """Instance id of the cluster of broker and bookies."""
    bookie: str
    generation: int = 0
    """0: the metadata does not know it yet."""
    begun: int = 0
    """The generation that is being written; equals `generation` when none is."""


def encode_member(member: Member) -> bytes:
    """Encodes the file: a line of JSON, a line with its CRC-32."""
    line = json.dumps(asdict(member), sort_keys=True).encode()
    return b"%b\n%08x\n" % (line, zlib.crc32(line))


def decode_member(data: bytes) -> Member:
    """Decodes the file. Raises DamagedBelongingError."""
    line, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % zlib.crc32(line):
        raise DamagedBelongingError(f"{MEMBER_FILE} fails its checksum")
    return Member(**json.loads(line))


class Ruling(NamedTuple):
    """The decision about one folder."""

    refusal: str = ""
    """Why its bookie must not start; empty: it may."""
    misses: bool = False
    """Whether an operator may accept the refusal: then entries missing in the folder are not certainly
    absent."""
    doubt: str = ""
    """Why ledgers that the metadata does not name must be kept; empty: they may be deleted."""


def rule(mine: Member | DamagedBelongingError | None, known: InMetadata | None, me: Member) -> Ruling:
    """What a bookie that starts may do with its folder.

    `mine`: the folder's file, None without one; `known`: the cluster and this bookie's generation in the
    metadata, None when it does not know the bookie; `me`: the cluster and the bookie that starts."""
    bookie = me.bookie
    if isinstance(mine, DamagedBelongingError):
        return Ruling(f"{bookie}: {mine}. {_NOTHING} Restore the file, or the folder", misses=True)
    if mine is None:
        if known is None:
            return Ruling()
        return Ruling(
            f"the folder of {bookie} is gone, or an older copy: metadata knows it at generation "
            f"{known.generation}. {_NOTHING} Mount it or bring it back",
            misses=True,
        )
    if mine.instance != me.instance:
        return Ruling(
            f"the folder of {bookie} belongs to metadata {mine.instance}, not to {me.instance} that is here. "
            f"{_NOTHING} Bring those together that belong together"
        )
    if mine.bookie != bookie:
        return Ruling(
            f"the folder of {bookie} is that of {mine.bookie}: were they swapped, or was one copied? "
            f"{_NOTHING} Give each its own name back"
        )
    if known is None:
        if not mine.generation:
            # The first process was killed in its very first step 1: the metadata knows of no generation.
            return Ruling()
        return Ruling(doubt=f"the metadata was restored from an older copy: it does not know {bookie}")
    if known.generation > mine.begun:
        return Ruling(
            f"the folder of {bookie} is an older copy (generation {mine.begun}, metadata is at "
            f"{known.generation}): it would deny messages that it acknowledged. {_NOTHING} Bring back the "
            "newer folder, or metadata and all folders of the same copy",
            misses=True,
        )
    if known.generation < mine.generation:
        return Ruling(
            doubt=f"the metadata was restored from an older copy: generation {known.generation}, {bookie} is "
            f"at {mine.generation}"
        )
    return Ruling()


def in_words(
    members: Mapping[str, Member | DamagedBelongingError | None],
    known: Mapping[str, InMetadata | None],
    doubt: str,
) -> str:
    """Describes the pair for the operator who accepts it; any change of the pair changes the text."""
    lines = []
    for bookie, member in sorted(members.items()):
        theirs = known.get(bookie)
        metadata = (
            "does not know it" if theirs is None else f"{theirs.instance} knows it at {theirs.generation}"
        )
        match member:
            case None:
                folder = "the folder says nothing"
            case Member():
                name = "" if member.bookie == bookie else f" {member.bookie}"
                folder = f"the folder is{name} of {member.instance} at generation {member.generation}"
            case _:
                folder = "the folder's note is damaged"
        lines.append(f"{bookie}: {folder}, metadata {metadata}")
    return "; ".join([*lines, *([f"doubted: {doubt}"] if doubt else [])])
