"""The line between an instance and the worker that started it: lines of JSON over a socket pair. Driver.

| From the worker | |
|---|---|
| the plan | the first line, see `plan` |
| `{"do": "status"}` | answer with the figures |
| `{"do": "publish", "topic": T, "value": V, "trigger": ID}` | publish to an input topic |
| `{"do": "stop"}` | finish what is under way, then end |

| From the instance | |
|---|---|
| `{"is": "running"}` | it reads its input |
| `{"is": "status", …}` | figures, see `counters` |
| `{"is": "triggered", "id": ID, "value": V}` | the result of a triggered message; no value: none |
| `{"is": "failed", "text": T}` | it ends for this reason |

Values are base64. When the worker's end is closed, the instance stops: no instance outlives its worker.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Final

from magnetar.base.closing import Closing

_READ_BYTES: Final = 1 << 16
LINE_BYTES_MAX: Final = 16 << 20
"""Longest line that is taken."""
_TELL_S: Final = 5.0
"""Seconds that the worker may take to read."""

Said = dict[str, object]


class LineReader:
    """Bytes to lines of JSON (pure)."""

    def __init__(self) -> None:
        self._rest = b""

    def lines(self, data: bytes) -> list[bytes]:
        """The complete lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes")
        return lines


class ControlLine(Closing):
    """The instance's end."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._reader = LineReader()
        self._early: list[Said] = []
        self.is_over = False
        """Whether the worker is gone."""

    def fileno(self) -> int:
        """Descriptor, for `poll`."""
        return self._socket.fileno()

    def first_line(self) -> bytes:
        """Waits for the first line. Raises ConnectionError when the worker is gone."""
        while True:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the worker has gone before it said what to run")
            lines = self._reader.lines(data)
            if lines:
                self._early = [json.loads(line) for line in lines[1:]]
                return lines[0]

    def read(self) -> list[Said]:
        """What the worker has said since, without waiting."""
        said, self._early = self._early, []
        while not self.is_over:
            try:
                data = self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break  # Nothing more has come.
            except ConnectionError:
                data = b""
            self.is_over = not data
            said += [json.loads(line) for line in self._reader.lines(data)]
        return said

    def tell(self, what: Mapping[str, object]) -> None:
        """Says something. A worker that is gone, or does not read, ends the line."""
        if self.is_over:
            return
        try:
            self._socket.settimeout(_TELL_S)
            self._socket.sendall(json.dumps(what, separators=(",", ":")).encode() + b"\n")
            self._socket.settimeout(None)
        except OSError:
            self.is_over = True

    def close(self) -> None:
        self._socket.close()
