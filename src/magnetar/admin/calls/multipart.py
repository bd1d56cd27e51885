"""Reads `multipart/form-data` as it arrives: bytes to parts (pure).

    body     = [ preamble CRLF ] *part "--" boundary "--" [ epilogue ]
    part     = "--" boundary [ blanks ] CRLF headers CRLF bytes CRLF
    headers  = *( name ":" value CRLF )

A parser is fed with pieces of any size and returns what is complete: the beginning of a part, bytes of it,
its end. It keeps at most a boundary's length of a part's bytes, and a bounded head of one.

Values of headers are trimmed: Go's admin client writes a blank behind a part's name.

Source: RFC 7578, RFC 2046 section 5.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from magnetar.admin.calls.errors import BadRequestError

HEAD_BYTES_MAX: Final = 8 << 10
"""Most bytes of the headers of one part."""
PARTS_MAX: Final = 16
"""Most parts of a body."""
_BOUNDARY_CHARS_MAX: Final = 70
_PREAMBLE_BYTES_MAX: Final = 1 << 10

_BOUNDARY: Final = re.compile(
    r"""multipart/form-data\s*;.*?\bboundary=(?:"([^"]+)"|([^\s;"]+))""", re.IGNORECASE
)
_PARAMETER: Final = re.compile(r"""(?:^|;)\s*([\w*-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))""")


@dataclass(frozen=True, slots=True)
class PartBegins:
    """The head of a part was read."""

    name: str
    file_name: str | None
    """None for a part that is a text."""


@dataclass(frozen=True, slots=True)
class PartBytes:
    """Bytes of the part that began last."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnds:
    """The part that began last is complete."""


Event = PartBegins | PartBytes | PartEnds


def boundary_of(content_type: str) -> bytes:
    """The boundary that a Content-Type names. Raises BadRequestError."""
    found = _BOUNDARY.match(content_type.strip()[:1_024])
    text = (found[1] or found[2]) if found else ""
    if not text or len(text) > _BOUNDARY_CHARS_MAX or not text.isascii():
        raise BadRequestError("the body must be multipart/form-data with a boundary")
    return text.encode()


class Multipart:
    """One body. `feed` its bytes, then call `end`."""

    def __init__(self, boundary: bytes) -> None:
        self._mark = b"\r\n--" + boundary
        # The first boundary has no line before it; a preamble, which may be there, ends with one.
        self._rest = bytearray(b"\r\n")
        self._state = self._preamble
        self._passed = 0
        self._parts = 0
        self._done = False

    def feed(self, data: bytes) -> list[Event]:
        """What is complete with `data`. Raises BadRequestError; the parser is of no use then."""
        events: list[Event] = []
        if self._done:
            return events  # An epilogue, which has no meaning.
        self._rest += data
        while self._state(events):
            pass
        return events

    def end(self) -> None:
        """The body has ended. Raises BadRequestError when it is not complete."""
        if not self._done:
            raise BadRequestError("the multipart body ends within a part, or has none")

    # Each step takes a piece from `_rest`; it returns False when it needs more bytes.

    def _preamble(self, events: list[Event]) -> bool:
        at = self._rest.find(self._mark)
        if at < 0:
            taken = max(0, len(self._rest) - len(self._mark))
            self._passed += taken
            if self._passed > _PREAMBLE_BYTES_MAX:
                raise BadRequestError("the multipart body does not begin with its boundary")
            del self._rest[:taken]
            return False
        del self._rest[: at + len(self._mark)]
        self._state = self._behind_boundary
        return True

    def _behind_boundary(self, events: list[Event]) -> bool:
        if self._rest[:2] == b"--":
            self._done = True
            self._rest.clear()
            return False
        at = self._rest.find(b"\r\n")
        if at < 0:
            if len(self._rest) > HEAD_BYTES_MAX:
                raise BadRequestError("a boundary of the multipart body is not at the end of its line")
            return False
        if self._rest[:at].strip(b" \t"):
            raise BadRequestError("a boundary of the multipart body is not at the end of its line")
        # The line's end stays: a part without headers has its empty line right behind it.
        del self._rest[:at]
        self._state = self._head
        return True

    def _head(self, events: list[Event]) -> bool:
        at = self._rest.find(b"\r\n\r\n")
        if at > HEAD_BYTES_MAX or (at < 0 and len(self._rest) > HEAD_BYTES_MAX):
            raise BadRequestError(f"the headers of a part have more than {HEAD_BYTES_MAX} bytes")
        if at < 0:
            return False
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise BadRequestError(f"the body has more than {PARTS_MAX} parts")
        events.append(_begins(bytes(self._rest[:at])))
        # An empty part has its boundary right behind the headers: their last line's end may be its first.
        del self._rest[: at + 2]
        self._state = self._take_first
        return True

    def _take_first(self, events: list[Event]) -> bool:
        if len(self._rest) < len(self._mark):
            return False
        if not self._rest.startswith(self._mark):
            del self._rest[:2]
        self._state = self._take_bytes
        return True

    def _take_bytes(self, events: list[Event]) -> bool:
        at = self._rest.find(self._mark)
        keep = at if at >= 0 else max(0, len(self._rest) - len(self._mark) + 1)
        if keep:
            events.append(PartBytes(bytes(self._rest[:keep])))
            del self._rest[:keep]
        if at < 0:
            return False
        del self._rest[: len(self._mark)]
        events.append(PartEnds())
        self._state = self._behind_boundary
        return True


def _begins(head: bytes) -> PartBegins:
    """Raises BadRequestError."""
    try:
        lines = head.decode().split("\r\n")
    except UnicodeDecodeError as error:
        raise BadRequestError("the headers of a part are not UTF-8") from error
    for line in lines:
        field, separator, value = line.partition(":")
        if separator and field.strip().lower() == "content-disposition":
            kind, _, rest = value.partition(";")
            found = {
                each[1].lower(): re.sub(r"\\(.)", r"\1", each[2]) if each[2] is not None else each[3]
                for each in _PARAMETER.finditer(rest)
            }
            if kind.strip().lower() == "form-data" and found.get("name", "").strip():
                return PartBegins(found["name"].strip(), found.get("filename"))
    raise BadRequestError("a part of the body has no name")
