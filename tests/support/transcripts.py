"""Transcripts: text files that read like a conversation, and are tests.

    # A line like this is for the reader.
    > what is said
    < what is answered, a line for each answer

What is said without an answer below it has none. A blank line separates steps and means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path


def replayed(file: Path, answer: Callable[[str], Iterable[str]]) -> list[str]:
    """The lines of the file with the answers that `answer` gives; equal to the file where it is right."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("< "):
            continue
        assert not line or line.startswith(("# ", "> ")), f"{file.name}: neither said nor answered: {line}"
        lines.append(line)
        if line.startswith("> "):
            lines += [f"< {each}" for each in answer(line[2:])]
    return lines


def answers_expected(file: Path) -> list[tuple[str, int]]:
    """What is said in the file, in order, and how many answers each has there."""
    steps: list[tuple[str, int]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("> "):
            steps.append((line[2:], 0))
        elif line.startswith("< "):
            said, count = steps[-1]
            steps[-1] = (said, count + 1)
    return steps
