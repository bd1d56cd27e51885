"""Whether a folder is that of the bookie beside the broker that metadata knows, and as new. Decides; no I/O.

    file MEMBER in the bookie's folder    instance, bookie, generation, begun: see `encode_member`
    /magnetar/bookies-beside/BOOKIE       generation: decimal

Both are raised by the broker at each start, while it runs, and when it stops, in the three steps of
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
    """What the file says."""

    instance: str
    """Of the cluster that broker and bookies are."""
    bookie: str
    generation: int = 0
    """0: metadata has not heard of it yet."""
    begun: int = 0
    """The generation that is being written; equal to `generation` when none is."""


def encode_member(member: Member) -> bytes:
    """The file: a line of JSON, a line with its CRC-32."""
    line = json.dumps(asdict(member), sort_keys=True).encode()
    return b"%b\n%08x\n" % (line, zlib.crc32(line))


def decode_member(data: bytes) -> Member:
    """What the file says. Raises DamagedBelongingError."""
    line, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % zlib.crc32(line):
        raise DamagedBelongingError(f"{MEMBER_FILE} fails its checksum")
    return Member(**json.loads(line))


class Ruling(NamedTuple):
    """What is to become of one folder."""

    refusal: str = ""
    """Why its bookie must not start; empty: it may."""
    misses: bool = False
    """Somebody may accept the refusal: then what the folder does not hold is not certain to be absent."""
    doubt: str = ""
    """Why an absence in metadata says nothing; empty: it may be believed."""


def rule(mine: Member | DamagedBelongingError | None, known: InMetadata | None, me: Member) -> Ruling:
    """`mine`: what the folder says, None where it says nothing; `known`: the cluster and this bookie's
    generation in metadata, None where it does not know the bookie; `me`: the cluster and bookie to be."""
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
            # Stopped within its very first step 1: metadata heard nothing of it.
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
    """What there is, for people who accept it; another text as soon as anything of it changes."""
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
