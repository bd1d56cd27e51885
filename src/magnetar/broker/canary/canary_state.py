"""The outcomes of a canary's messages (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.observability.histogram import Histogram

_NONE_YET = "no message has come back yet"


@dataclass(slots=True)
class _Out:
    """A message that is under way."""

    sent_s: float
    durable: bool = False


class CanaryState:
    """The messages of one canary. Times are seconds of a monotonic clock."""

    def __init__(self, *, timeout_s: float, interval_s: float = 0.0) -> None:
        """`timeout_s`: a message that is not back by then is lost, or was not taken. `interval_s`: between
        two messages."""
        self.sent = self.received = self.lost = self.refused = 0
        self.reason = _NONE_YET
        """Why it is down; "" when the newest message of which the end is known came back."""
        self.publish = Histogram()
        self.end_to_end = Histogram()
        self._timeout_s = timeout_s
        self._silence_s = timeout_s + 2 * interval_s
        self._received_s: float | None = None
        self._out: dict[int, _Out] = {}

    def down(self, now_s: float) -> str:
        """Why the canary is down; "" when it is up: the newest finished message came back, and one did
        recently.

        The age matters by itself: when rounds stop, no message is sent and none fails.
        """
        if self.reason or self._received_s is None:
            return self.reason
        silence_s = now_s - self._received_s
        return f"nothing came back for {silence_s:.0f} s" if silence_s > self._silence_s else ""

    @property
    def nothing_known(self) -> bool:
        """Whether no message has ended yet, well or badly."""
        return self.received == self.lost == self.refused == 0

    def begin(self, now_s: float) -> int:
        """A message is sent; returns its number."""
        number = self.sent
        self.sent += 1
        self._out[number] = _Out(now_s)
        return number

    def durable(self, number: int, now_s: float) -> None:
        """The broker has acknowledged it."""
        out = self._out.get(number)
        if out is not None and not out.durable:
            out.durable = True
            self.publish.add(now_s - out.sent_s)

    def delivered(self, number: int, now_s: float) -> None:
        """It came back; again, or too late, changes nothing."""
        out = self._out.pop(number, None)
        if out is not None:
            self.received += 1
            self.end_to_end.add(now_s - out.sent_s)
            self.reason, self._received_s = "", now_s

    def refuse(self, number: int, reason: str) -> None:
        """The broker did not take it."""
        if self._out.pop(number, None) is not None:
            self._failed(reason, lost=False)

    def expire(self, now_s: float) -> int:
        """Counts messages that are out for too long as lost; returns their number."""
        before = self.lost
        for number, out in list(self._out.items()):
            if now_s - out.sent_s >= self._timeout_s:
                del self._out[number]
                what = "delivered" if out.durable else "acknowledged"
                self._failed(f"not {what} within {self._timeout_s:g} s", lost=out.durable)
        return self.lost - before

    def _failed(self, reason: str, *, lost: bool) -> None:
        self.lost += lost
        self.refused += not lost
        self.reason = reason

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self.sent == self.received + self.lost + self.refused + len(self._out)
