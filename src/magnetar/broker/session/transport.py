"""What a session needs of the driver of its connection."""

from __future__ import annotations

from typing import Final, Protocol


class Transport(Protocol):
    """What a session may ask of its driver."""

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


class Gone:
    """In place of the driver of a connection that is lost: session and driver do not hold each other."""

    def flush_soon(self) -> None: ...

    def unsent_bytes(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: str) -> None: ...

    def abort(self, reason: str) -> None: ...


GONE: Final = Gone()
