"""The part of a connection's driver that a session uses."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol


class Transport(Protocol):
    """The calls of a session to its driver."""

    def flush_soon(self) -> None:
        """Writes `out` at the end of this tick."""

    def unsent_bytes(self) -> int:
        """Bytes that were taken from `out` and that the socket has not taken yet."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: str) -> None:
        """Writes what waits, then closes. The reason is logged."""

    def abort(self, reason: str) -> None:
        """Closes at once."""

    def hand_over(self, place: Path) -> None:
        """Gives the socket, with all that was read from it, to the process that receives at `place`. Only
        from the handling of the first command on."""


class Gone:
    """Replaces the driver of a lost connection: session and driver do not refer to each other."""

    def flush_soon(self) -> None: ...

    def unsent_bytes(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: str) -> None: ...

    def abort(self, reason: str) -> None: ...

    def hand_over(self, place: Path) -> None: ...


GONE: Final = Gone()
