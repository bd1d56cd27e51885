"""What went wrong in a job, beginning with the line to look at. Pure.

Spark wraps an error of Python code that ran in a worker into messages of the JVM, with stacks of both. What a
user needs of it is the line of the program, what it says, and the reason.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FRAME: Final = re.compile(
    r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>\S+))?', re.MULTILINE
)
_TRACEBACK: Final = "Traceback (most recent call last):"
_ERROR_LINE: Final = re.compile(
    r"^(?:[A-Za-z_][\w.]*)(?:Error|Exception|Exit|Interrupt|Warning)\b.*$", re.MULTILINE
)
_STACK: Final = re.compile(r"^\s*(?:at [\w.$/]+\(|\.\.\. \d+ more|JVM stacktrace:|Caused by: |org\.apache\.)")
_PLAN: Final = re.compile(r"^\s*(?:'?[A-Z]\w+ [\['#]|'?[A-Z]\w+$|[+:]- )")
_SQL: Final = re.compile(
    r"== SQL(?: \(line (?P<line>\d+), position \d+\))?[^\n]* ==\n(?P<text>.*?)(?:\n\n|\Z)",
    re.DOTALL,
)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5};?")
_QUERY: Final = re.compile(r"^Identifier: (?!\[)(?P<name>.+?) \[id = ", re.MULTILINE)
_QUERY_STATE: Final = "=== Streaming Query ==="
_REASON_LINES_MAX: Final = 12
_NO_WORKER: Final = "Python worker failed to connect back"
_NO_WORKER_HINT: Final = (
    "Spark gives a Python worker ten seconds to start, and this machine was too busy. Run it again, with less"
    " beside it: queries go on where they stopped. On a local master without PYSPARK_PYTHON workers connect"
    " before they load anything, and this does not happen"
)


@dataclass(frozen=True, slots=True)
class FailurePlace:
    """A line of a program."""

    file: str
    line: int
    name: str = ""
    """Function; empty for the program's own level."""
    text: str = ""
    """The line itself; empty when the file cannot be read."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" + (f", in {self.name}" if self.name else "")
        return f"{where}\n    {self.text}" if self.text else where


def explain(error: BaseException, folder: Path, sql: str = "") -> list[str]:
    """Lines for a user: place, SQL when that is where it is, reason.

    Args:
        folder: the program's; lines of files in it are preferred to those of libraries.
        sql: what Spark says of the place in a query, `QueryContext.summary()`.
    """
    message = str(error)
    near, own = _place_of(error, folder)
    if not own:
        # A line of a library that awaited a query says nothing.
        near = None
    far = worker_traceback(message)
    if far is None:
        reason = _named(error, reason_of(message))
    else:
        places, reason = far
        place, far_own = _innermost(places, folder)
        if far_own or not own:
            near = place
    lines = [] if near is None else [str(near)]
    if query := _QUERY.search(message):
        lines.append(f"query {query['name']}")
    found = None if far is not None else _SQL.search(message) or _SQL.search(sql)
    if found is not None and found["text"].strip():
        where = f"SQL line {found['line']}:" if found["line"] else "SQL:"
        lines.append(where + "\n" + "\n".join(f"    {line}" for line in found["text"].rstrip().splitlines()))
    hints = [_NO_WORKER_HINT] if is_worker_missing(message) else []
    return [*lines, reason, *hints]


def is_worker_missing(message: str) -> bool:
    """Whether a program ended because a worker took too long to start: the same may do well the next time."""
    return _NO_WORKER in message


def worker_traceback(message: str) -> tuple[list[FailurePlace], str] | None:
    """The frames and the last line of the Python traceback in a message of the JVM; None without one."""
    at = message.rfind(_TRACEBACK)
    if at < 0:
        return None
    text = message[at:]
    places = [_place(found["file"], int(found["line"]), found["name"]) for found in _FRAME.finditer(text)]
    reasons = _ERROR_LINE.findall(text)
    reason = reasons[-1] if reasons else text.strip().splitlines()[-1]
    return places, _STATE.sub("", reason).strip()


def reason_of(message: str) -> str:
    """A message of Spark without plans, stacks and states."""
    message = _SQL.sub("", message)
    kept: list[str] = []
    for line in message.strip().splitlines():
        if line == _QUERY_STATE or _STACK.match(line) or (kept and _PLAN.match(line)):
            break
        kept.append(line)
    return _STATE.sub("", "\n".join(kept[:_REASON_LINES_MAX])).strip().rstrip(";")


def _named(error: BaseException, reason: str) -> str:
    """Errors of Spark name themselves in brackets; others by their class."""
    if reason.startswith("["):
        return reason
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def _place_of(error: BaseException, folder: Path) -> tuple[FailurePlace | None, bool]:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return FailurePlace(error.filename, error.lineno, "", (error.text or "").strip()), True
    frames = traceback.extract_tb(error.__traceback__)
    return _innermost([_place(frame.filename, frame.lineno or 0, frame.name) for frame in frames], folder)


def _innermost(places: Sequence[FailurePlace], folder: Path) -> tuple[FailurePlace | None, bool]:
    """The innermost line of the program, and True; else the innermost there is."""
    own = [place for place in places if _is_in(place.file, folder)]
    return next(iter(own[::-1] or places[::-1]), None), bool(own)


def _is_in(file: str, folder: Path) -> bool:
    path = Path(file)
    if "site-packages" in path.parts:
        return False
    return path.resolve().is_relative_to(folder.resolve()) if path.is_absolute() else (folder / path).exists()


def _place(file: str, number: int, name: str | None) -> FailurePlace:
    try:
        text = Path(file).read_text(errors="replace").splitlines()[number - 1].strip()
    except (OSError, IndexError):
        text = ""
    # The program's own level is called <module>, expressions <lambda> and the like.
    return FailurePlace(file, number, "" if not name or name.startswith("<") else name, text)
