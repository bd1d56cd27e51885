"""Regular expressions of clients, matched in time that grows with the text alone.

A client chooses the pattern and names of topics are chosen by other clients, so an engine that backtracks
could be kept busy for hours by fifty characters. Here a pattern becomes a nondeterministic automaton whose
sets of states are worked out once and remembered: a character costs one look into a table.

    alternation   a|b        classes      . [a-z] [^a] \\d \\D \\w \\W \\s \\S (ASCII)
    groups        (a) (?:a)  (?<name>a) (?P<name>a)
    repetition    * + ? {n} {n,} {n,m}, each also with a lazy "?" (which changes nothing here)
    quoting       \\. \\Q...\\E  \\t \\n \\r  anchors  ^ $  flags  (?i) at the start

What cannot be matched this way (back references, look-around, possessive repetition) is refused.

Source: R. Cox, "Regular Expression Matching Can Be Simple And Fast", 2007. Pulsar's brokers use RE2,
which refuses the same.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from magnetar.broker.errors import InvalidTopicError
from magnetar.broker.watchers.syntax import (
    Alternatives,
    Chars,
    Edge,
    Node,
    PatternSyntaxError,
    Repeat,
    Sequence,
    parse,
)

_NODES_MAX: Final = 500
"""States of one pattern's automaton: `{n,m}` multiplies them."""
_REMEMBERED_MAX: Final = 20_000
"""States in all cached sets, about a megabyte; beyond that the cache begins anew."""
_AT_REST_MAX: Final = 1_000
"""The same for a pattern that is not being matched: a connection may watch a thousand of them."""
_PIECE: Final = 10_000
"""Characters and states of a piece of work: one or two milliseconds."""
_WORK_MAX: Final = 3_000_000
"""Steps for one list of names. A pattern that a person writes needs some thousands, for any number of
names."""


class PatternError(InvalidTopicError):
    """A regular expression that is wrong or that this engine does not match."""


class _Automaton:
    """States are numbers; each has steps on characters, and free steps, some at an edge of the text only."""

    def __init__(self) -> None:
        self.on_chars: list[tuple[Chars, int] | None] = []
        self.free: list[list[tuple[int, Edge | None]]] = []

    def state(self) -> int:
        """A new state. Raises PatternSyntaxError when there are too many."""
        if len(self.free) >= _NODES_MAX:
            raise PatternSyntaxError("it is too large")
        self.on_chars.append(None)
        self.free.append([])
        return len(self.free) - 1

    def add(self, node: Node, start: int) -> int:
        """Appends the states that match `node` at the state `start`; returns the state after it."""
        if isinstance(node, Sequence):
            for part in node.parts:
                start = self.add(part, start)
            return start
        end = self.state()
        if isinstance(node, Chars):
            # The state may have free steps already: a step on characters needs one of its own.
            own = self.state()
            self.free[start].append((own, None))
            self.on_chars[own] = (node, end)
        elif isinstance(node, Edge):
            self.free[start].append((end, node))
        elif isinstance(node, Alternatives):
            for choice in node.choices:
                begin = self.state()
                self.free[start].append((begin, None))
                self.free[self.add(choice, begin)].append((end, None))
        else:
            self._repeat(node, start, end)
        return end

    def _repeat(self, node: Repeat, start: int, end: int) -> None:
        for _ in range(node.least):
            start = self.add(node.part, start)
        if node.most is None:
            begin = self.state()
            self.free[start].append((begin, None))
            self.free[self.add(node.part, begin)].append((begin, None))
            self.free[begin].append((end, None))
            return
        for _ in range(node.most - node.least):
            self.free[start].append((end, None))
            start = self.add(node.part, start)
        self.free[start].append((end, None))

    def reach(self, states: Iterable[int], edges: frozenset[Edge]) -> frozenset[int]:
        """The states and all that free steps lead to, including those of `edges`."""
        seen = set(states)
        waiting = list(seen)
        while waiting:
            for target, edge in self.free[waiting.pop()]:
                if target not in seen and (edge is None or edge in edges):
                    seen.add(target)
                    waiting.append(target)
        return frozenset(seen)


class Pattern:
    """A compiled regular expression."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        self.text = text
        self._automaton = _Automaton()
        try:
            begin = self._automaton.state()
            self._end = self._automaton.add(parse(text), begin)
        except PatternSyntaxError as error:
            raise PatternError(
                f"Invalid topics pattern: {error}", remedy=f"{text[:200]!r} is not supported"
            ) from None
        self._at_start = frozenset((begin,))
        self._first = self._automaton.reach(self._at_start, frozenset((Edge.START,)))
        self._steps: dict[frozenset[int], dict[str, frozenset[int]]] = {}
        self._final: dict[frozenset[int], bool] = {}
        self.remembered = 0
        """States in `_steps`."""
        self.work = 0
        """States that were walked through since it rested: grows by a few for each character that is new to a
        set."""

    def match(self, text: str) -> bool:
        """Whether the pattern matches the whole of `text`. Raises PatternError when that is too much work."""
        pieces = self.in_pieces(text)
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return bool(end.value)

    def in_pieces(self, text: str) -> Generator[None, None, bool]:
        """The same, with a pause after each piece of work."""
        if not text:
            both = frozenset((Edge.START, Edge.END))
            return self._end in self._automaton.reach(self._at_start, both)
        states = self._first
        pause_at = self.work + _PIECE
        for char in text:
            known = self._steps.get(states)
            following = None if known is None else known.get(char)
            if following is None:
                following = self._step(states, char)
                if self.work > pause_at:
                    if self.work > _WORK_MAX:
                        raise PatternError(
                            "Invalid topics pattern: it is too much work",
                            remedy=f"{self.text[:200]!r} has too many ways to match these names",
                        )
                    yield
                    pause_at = self.work + _PIECE
            if not following:
                return False
            states = following
        final = self._final.get(states)
        if final is None:
            final = self._end in self._automaton.reach(states, frozenset((Edge.END,)))
            self._final[states] = final
        return final

    def rest(self) -> None:
        """A list of names ends: work is counted anew, and the cache is reduced."""
        self.work = 0
        if self.remembered > _AT_REST_MAX:
            self._forget()

    def _forget(self) -> None:
        self._steps.clear()
        self._final.clear()
        self.remembered = 0

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        targets = []
        for state in states:
            step = self._automaton.on_chars[state]
            if step is not None and char in step[0]:
                targets.append(step[1])
        following = self._automaton.reach(targets, frozenset())
        self.work += len(states) + len(following)
        if self.remembered >= _REMEMBERED_MAX:
            self._forget()
        self.remembered += len(following) + 1
        self._steps.setdefault(states, {})[char] = following
        return following
