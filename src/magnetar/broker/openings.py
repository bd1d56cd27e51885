"""Producer and consumer ids of one connection that are being opened.

A client whose PRODUCER or SUBSCRIBE timed out closes the id, and may open it anew while the first
attempt still waits for storage. Only the newest attempt may attach: another one would stay behind,
holding messages or the topic, with nobody who closes it.
"""

from __future__ import annotations

from magnetar.broker.errors import ServiceNotReadyError


class Openings:
    """Ids of one kind; `kind` names it in errors."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._attempts: dict[int, int] = {}

    def begin(self, id_: int, request_id: int) -> bool:
        """Notes an attempt; False while another one is under way."""
        return self._attempts.setdefault(id_, request_id) == request_id

    def check(self, id_: int, request_id: int) -> None:
        """Raises ServiceNotReadyError when the client has closed the id since this attempt began."""
        if self._attempts.get(id_) != request_id:
            raise ServiceNotReadyError(f"{self._kind} {id_} was closed before it was opened")

    def closed(self, id_: int) -> None:
        """The client closes the id: an attempt under way will fail."""
        self._attempts.pop(id_, None)

    def ended(self, id_: int, request_id: int) -> None:
        """An attempt has ended, in whatever way."""
        if self._attempts.get(id_) == request_id:
            del self._attempts[id_]
