"""Windows: messages that a function gets together (pure).

| Window | When the function is called | With |
|---|---|---|
| `length_count` | each `slide_count` messages | the last `length_count` |
| `length_ms` | each `slide_ms` milliseconds | those of the last `length_ms` |

Without a slide, windows do not overlap. A message is done when no later window can hold it, and is
acknowledged then: an instance that starts anew gets the messages of its open windows once more and builds
them again. Time is that of the arrival.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from magnetar.functions.instance.plan import WindowPlan

T = TypeVar("T")


class Fired(NamedTuple, Generic[T]):
    """A window whose function is to be called."""

    items: list[T]
    """In the order of their arrival; those that an earlier window had too are among them."""
    done: list[T]
    """Those that no later window has."""


class WindowBuffer(Generic[T]):
    """The messages of open windows."""

    def __init__(self, plan: WindowPlan, now_ms: int) -> None:
        self._plan = plan
        self._kept: deque[tuple[int, T]] = deque()
        self._fresh = 0
        """Messages since the last window of messages."""
        self._next_ms = now_ms + (plan.slide_ms or plan.length_ms)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def next_ms(self) -> int | None:
        """When the next window of time ends, Unix milliseconds; None: it is one of messages."""
        return self._next_ms if self._plan.length_ms else None

    def add(self, item: T, now_ms: int) -> Fired[T] | None:
        """A message has come; returns the window that is complete with it."""
        if not self._kept:
            self._pass_empty(now_ms)
        self._kept.append((now_ms, item))
        length = self._plan.length_count
        if not length:
            return None
        self._fresh += 1
        slide = self._plan.slide_count or length
        if self._fresh < slide or len(self._kept) < min(length, slide):
            return None
        self._fresh = 0
        items = [item for _, item in self._kept][-length:]
        # The next window has the last `length - slide` of these.
        left = max(0, length - slide)
        done = [self._kept.popleft()[1] for _ in range(len(self._kept) - left)]
        return Fired(items, done)

    def _pass_empty(self, now_ms: int) -> None:
        """Windows of time that have ended without a message hold none that comes later."""
        if self._plan.length_ms and now_ms >= self._next_ms:
            slide = self._plan.slide_ms or self._plan.length_ms
            self._next_ms += slide * (1 + (now_ms - self._next_ms) // slide)

    def elapsed(self, now_ms: int) -> Fired[T] | None:
        """Time has passed; returns the window of time that has ended, if it holds a message."""
        length = self._plan.length_ms
        if not length or now_ms < self._next_ms:
            return None
        end = self._next_ms
        slide = self._plan.slide_ms or length
        # After a long call some ends may have passed: one window stands for them.
        self._next_ms += slide * (1 + (now_ms - end) // slide)
        items = [item for at, item in self._kept if at >= end - length]
        keep_from = self._next_ms - length
        done: list[T] = []
        while self._kept and self._kept[0][0] < keep_from:
            done.append(self._kept.popleft()[1])
        return Fired(items, done) if items or done else None
