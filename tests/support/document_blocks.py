"""The blocks of a document, and what a comment above each says of following it.

A reader takes the blocks of a page from top to bottom. `sh` and `python` blocks are followed as they stand,
of `console` blocks the lines behind `$`. A comment in the line above says otherwise:

    <!-- follow: serves -->            runs until the page ends; the next block waits until it takes clients
    <!-- follow: shows TEXT -->        its output must hold TEXT
    <!-- follow: until TEXT -->        is asked again until its output holds TEXT
    <!-- follow: fails TEXT -->        must end with an error that says TEXT
    <!-- follow: as FILE -->           is what the reader writes into FILE
    <!-- follow: elsewhere, WHY -->    needs what the page cannot bring along
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)```(\S*)\s*$")
DIRECTIVE = re.compile(r"^ *<!-- follow: (\w+),? ?(.*?) -->$")
COMMAND = re.compile(r"^ *(?:\$ )?(?:\w+=\S+ )*(?:magnetar|curl|pip|\./dev|python -m|docker|export)\b")
"""Matches a line that readers are meant to type."""
WORDS = {"", "serves", "shows", "until", "fails", "as", "elsewhere"}
FOLLOWED = {"sh", "console", "python"}


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    document: str
    line: int
    """Line of the fence, from 1."""
    language: str
    text: str
    word: str
    """Of WORDS; empty: followed, and must succeed."""
    argument: str

    @property
    def place(self) -> str:
        """Document and line, for messages."""
        return f"{self.document}:{self.line}"

    @property
    def is_followed(self) -> bool:
        """Whether a test does what the block says."""
        return self.word == "as" or (self.language in FOLLOWED and self.word != "elsewhere")

    @property
    def script(self) -> str:
        """The commands of the block."""
        if self.language != "console":
            return self.text
        lines: list[str] = []
        goes_on = False
        for line in self.text.splitlines():
            if line.startswith("$ ") or goes_on:
                lines.append(line.removeprefix("$ "))
                goes_on = line.endswith("\\")
        return "\n".join(lines)


def blocks_of(path: Path, *, named: str) -> list[Block]:
    """The fenced blocks of a document, from top to bottom."""
    blocks: list[Block] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    above = ""
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence is None:
            above = lines[at]
            at += 1
            continue
        end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
        directive = DIRECTIVE.match(above)
        indent = len(fence[1])
        blocks.append(
            Block(
                document=named,
                line=at + 1,
                language=fence[2],
                text="\n".join(line[indent:] for line in lines[at + 1 : end]),
                word=directive[1] if directive else "",
                argument=directive[2] if directive else "",
            )
        )
        above = ""
        at = end + 1
    return blocks


def commands_outside(path: Path, *, named: str) -> list[str]:
    """The places of blocks with commands that no test follows and no directive excuses."""
    found = [
        block.place
        for block in blocks_of(path, named=named)
        if not block.is_followed and not block.word and any(map(COMMAND.match, block.text.splitlines()))
    ]
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and line.startswith("    ") and COMMAND.match(line):
            found.append(f"{named}:{number}")
    return found
