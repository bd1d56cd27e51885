"""What a broker and the process of a query say to each other. Pure.

The broker writes lines of JSON: a `WorkerQuestion`, and once the caller's rights are known, where to read
(`WorkerReading`).
The worker writes frames:

    kind u8 | size u32, big-endian | body

| Kind | Body |
|---|---|
| R | empty: the engine is loaded, and a question is awaited |
| T | the topics that the statement reads: a JSON list of full names |
| H | head: JSON with `engine` |
| D | bytes of the result |
| Z | the end: JSON with `rows`, `seconds`, `report` |
| E | instead of all that would follow: JSON with `status`, `reason` |

R comes first, before the question; then T, H, D as often as needed, Z.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field
from typing import Final

READY: Final = b"R"
TOPICS: Final = b"T"
HEAD: Final = b"H"
DATA: Final = b"D"
END: Final = b"Z"
ERROR: Final = b"E"

PREFIX: Final = struct.Struct(">cI")
BODY_BYTES_MAX: Final = 1 << 20
"""Most bytes of a frame's body."""
DATA_BYTES: Final = 256 << 10
"""Bytes of a result that are collected into one frame."""
TOPICS_MAX: Final = 1_000
"""Most topics of a statement: their rights are asked for one after the other, and their names are in one
frame."""
REASON_CHARS_MAX: Final = 2_000
"""Characters of an error's text: it may quote the statement, which may be longer than a frame."""

JSON_LINES: Final = "json"
ARROW: Final = "arrow"
FLIGHT: Final = "flight"
"""Messages of Arrow Flight, as gRPC frames them."""
SCHEMA: Final = "schema"
"""No rows: the columns of the result, as a message of Arrow's IPC format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerQuestion:
    """What is asked."""

    statement: str
    form: str
    """JSON_LINES, ARROW, FLIGHT or SCHEMA."""
    memory_mib: int
    """For the engine."""
    spill_mib: int
    seconds_max: float
    rows_max: int
    table: str = ""
    """In place of a statement: what a tool asks of Flight SQL (`flight_tables.py`)."""
    ids: list[int] = field(default_factory=list)
    """The facts of the table that are wanted; empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReading:
    """Where to read, and the credentials of the caller."""

    service_url: str
    admin_url: str
    """Empty: there is none."""
    token: str = field(default="", repr=False)
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    trust_certs: str = ""
    """PEM file of the authorities that sign brokers' certificates; empty: those that the system trusts."""
    rows: list[list[str]] = field(default_factory=list)
    """The names for the table that is asked for: those that the caller may know."""
    with_columns: bool = False
    """Whether the columns of each named table are wanted."""


def line_of(said: WorkerQuestion | WorkerReading) -> bytes:
    """What the broker writes."""
    return json.dumps(asdict(said)).encode() + b"\n"


def frame_of(kind: bytes, body: bytes) -> bytes:
    """A frame of the worker."""
    assert len(body) <= BODY_BYTES_MAX, "larger results go in several frames"
    return PREFIX.pack(kind, len(body)) + body


def size_of(prefix: bytes) -> tuple[bytes, int]:
    """Kind and size of the body that follows. Raises ValueError for what no worker writes."""
    kind, size = PREFIX.unpack(prefix)
    if kind not in (READY, TOPICS, HEAD, DATA, END, ERROR) or size > BODY_BYTES_MAX:
        raise ValueError(f"a query's process wrote a frame of kind {kind!r} with {size} bytes")
    return kind, size
