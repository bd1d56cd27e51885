"""Reads regular expressions into trees (pure). Which ones: see `pattern.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from magnetar.base.errors import BrokerError

_DEPTH_MAX: Final = 50
"""Groups within groups."""
_REPEAT_MAX: Final = 1_000
"""Largest number within braces (RE2's)."""


class PatternSyntaxError(BrokerError):
    """The text is not a regular expression that this package supports; the message names the fault."""


class Edge(Enum):
    """A place that matches no character."""

    START = "^"
    END = "$"


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: tuple[tuple[str, str], ...]
    """First and last character of each range."""
    negated: bool = False
    any_case: bool = False

    def __contains__(self, char: str) -> bool:
        found = self._holds(char)
        if not found and self.any_case:
            found = self._holds(char.lower()) or self._holds(char.upper())
        return found is not self.negated

    def _holds(self, char: str) -> bool:
        return any(first <= char <= last for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class Sequence:
    """All parts, one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of the choices."""

    choices: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part, `least` to `most` times."""

    part: Node
    least: int
    most: int | None
    """None: without limit."""


Node: TypeAlias = "Chars | Edge | Sequence | Alternatives | Repeat"

_DIGIT: Final = (("0", "9"),)
_WORD: Final = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: Final = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_LAST: Final = "\U0010ffff"


def _complement(ranges: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The ranges outside of sorted ranges."""
    found = []
    after = 0
    for first, last in ranges:
        if ord(first) > after:
            found.append((chr(after), chr(ord(first) - 1)))
        after = ord(last) + 1
    return (*found, (chr(after), _LAST))


def parse(text: str) -> Node:
    """Raises PatternSyntaxError."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._any_case = False

    def whole(self) -> Node:
        if self._take("(?i)"):
            self._any_case = True
        node = self._alternatives()
        if self._at < len(self._text):
            raise PatternSyntaxError("a closing parenthesis has no opening one")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise PatternSyntaxError("it ends too early")
        self._at += 1
        return char

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _alternatives(self) -> Node:
        choices = [self._sequence()]
        while self._take("|"):
            choices.append(self._sequence())
        return choices[0] if len(choices) == 1 else Alternatives(tuple(choices))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._take("\\Q"):
                quoted, _, rest = self._text[self._at :].partition("\\E")
                self._at = len(self._text) - len(rest)
                parts.extend(self._one(char) for char in quoted)
                continue
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _one(self, char: str) -> Chars:
        return Chars(((char, char),), any_case=self._any_case)

    def _atom(self) -> Node:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == ".":
            return Chars((("\n", "\n"),), negated=True)
        if char in "^$":
            return Edge(char)
        if char == "\\":
            return self._escape()
        if char in "*+?":
            raise PatternSyntaxError(f"there is nothing for {char} to repeat")
        return self._one(char)

    def _group(self) -> Node:
        if self._take("?") and not self._take(":"):
            named = self._take("P<") or self._take("<")
            if not named or self._peek() in ("=", "!"):
                raise PatternSyntaxError("look-around and flags within it are not possible")
            name, separator, _ = self._text[self._at :].partition(">")
            if not separator or not name.isidentifier():
                raise PatternSyntaxError("a group has no proper name")
            self._at += len(name) + 1
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise PatternSyntaxError("its groups are nested too deep")
        node = self._alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise PatternSyntaxError("a parenthesis is not closed")
        return node

    def _escape(self) -> Node:
        char = self._next()
        if char.lower() in _CLASSES:
            return Chars(_CLASSES[char.lower()], negated=char.isupper())
        return self._one(self._literal(char))

    def _literal(self, char: str) -> str:
        """The meaning of a backslash and `char`."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isascii() and char.isalnum():
            raise PatternSyntaxError(f"\\{char} is not possible")
        return char

    def _class(self) -> Node:
        negated = self._take("^")
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._member(ranges)
            if low is None:
                continue
            rest = self._text[self._at : self._at + 2]
            if not rest.startswith("-") or rest in ("-", "-]"):
                ranges.append((low, low))
                continue
            self._at += 1
            high = self._member(ranges)
            if high is None or high < low:
                raise PatternSyntaxError("a range of a class is not in order")
            ranges.append((low, high))
        self._at += 1
        return Chars(tuple(ranges), negated, self._any_case)

    def _member(self, ranges: list[tuple[str, str]]) -> str | None:
        """One character of a class; None for a class within it, which is added to `ranges`."""
        char = self._next()
        if char == "[" and self._peek() in (":", "="):
            raise PatternSyntaxError("named classes are not possible")
        if char != "\\":
            return char
        char = self._next()
        known = _CLASSES.get(char.lower())
        if known is None:
            return self._literal(char)
        ranges.extend(_complement(known) if char.isupper() else known)
        return None

    def _repeated(self, part: Node) -> Node:
        while True:
            least, most = 0, None
            if self._take("*"):
                pass
            elif self._take("+"):
                least = 1
            elif self._take("?"):
                most = 1
            elif self._peek() == "{":
                least, most = self._bounds()
            else:
                return part
            self._take("?")
            if self._peek() == "+":
                raise PatternSyntaxError("possessive repetition is not possible")
            part = Repeat(part, least, most)

    def _bounds(self) -> tuple[int, int | None]:
        inside, separator, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        numbers = (low, high) if high else (low,)
        if not separator or not all(each.isascii() and each.isdigit() for each in numbers):
            raise PatternSyntaxError("braces must hold one or two numbers")
        least = int(low)
        most = int(high) if high else (None if comma else least)
        if max(least, most or 0) > _REPEAT_MAX or (most is not None and most < least):
            raise PatternSyntaxError("the numbers in braces are too large or not in order")
        self._at += len(inside) + 2
        return least, most
