"""Sets up the process's log, with one line per record.

    Text:   `2026-01-31T12:00:00.123Z INFO magnetar.broker message`
    JSON:   `{"time": ..., "level": ..., "event": ..., "logger": ..., "message": ..., "error": ...}`

One of several processes writes its number behind the level, `INFO    [2] magnetar.broker message`, and in
JSON as `"process": 2`.

`events.py` defines events. Each event has a bounded number of records per minute, see `configure`; the next
record tells how many were dropped. In the audit log only refusals are limited, per refused client, so that no
client can fill the disk with them or hide those of other clients.

Line breaks and other control characters within a record (a traceback, a client's text) are written as
escapes, and very long records are cut: no peer can forge or bloat a record. Records are written in the
caller's thread: log rare events only.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

from magnetar.base.errors import StartupError
from magnetar.observability.events import event_of
from magnetar.observability.log_limit import EventLimit
from magnetar.observability.metrics import Exposition, labels

LEVELS: Final = ("debug", "info", "warning", "error")
"""The levels that may be configured."""

PER_MINUTE_MAX: Final = 600
"""Default for records of one event per minute: some MiB an hour."""

_ROOT: Final = "magnetar"
_AUDIT: Final = "magnetar.audit"
_EVENT: Final = "event"
SUBJECT: Final = "subject"
"""Attribute of a refusal's record: the refused client."""
_REFUSED: Final = "refused"
_ALL_REFUSED: Final = 10
"""Limit of all refusals together, as a multiple of the limit of one subject."""
_MESSAGE_CHARS_MAX: Final = 4_096
_ERROR_CHARS_MAX: Final = 32_768
_CONTROLS: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    **{
        code: f"\\u{code:04x}"
        for code in (0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
    },
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
"""Characters that move a terminal's cursor, break lines or change the direction of text, with their
escapes."""


class _LineFormatter(logging.Formatter):
    """Text records."""

    def __init__(self, process: int) -> None:
        super().__init__()
        self._process = f" [{process}]" if process else ""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_time_of(record)} {record.levelname:<7}{self._process} {record.name} {_message_of(record)}"
        error = _error_of(self, record)
        return f"{text}\\n{error.translate(_CONTROLS)}" if error else text


class _JsonFormatter(logging.Formatter):
    """JSON records; line breaks of an error are escaped by the encoder."""

    def __init__(self, process: int) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname,
            "event": _event_of(record),
            "logger": record.name,
            "message": _message_of(record),
        }
        if self._process:
            document["process"] = self._process
        error = _error_of(self, record)
        if error:
            document["error"] = error
        return json.dumps(document, ensure_ascii=False)


def _event_of(record: logging.LogRecord) -> str:
    """The event of a record; it is stored on the record, so that later changes of the message do not
    matter."""
    known = record.__dict__.get(_EVENT)
    if known is None:
        known = record.__dict__[_EVENT] = event_of(record.name, str(record.msg), record.funcName or "")
    return str(known)


class _Limiter(logging.Filter):
    """Counts records, and drops those of too frequent events."""

    def __init__(self, per_minute_max: int) -> None:
        super().__init__()
        self._limit = EventLimit(per_minute_max)
        self._subjects = EventLimit(per_minute_max)
        self._refusals = EventLimit(_ALL_REFUSED * per_minute_max)

    def filter(self, record: logging.LogRecord) -> bool:
        level = record.levelname.lower()
        _FIGURES.records[level] = _FIGURES.records.get(level, 0) + 1
        event = _event_of(record)
        if record.name != _AUDIT:
            left_out = self._limit.admit(event, time.monotonic())
        elif str(record.msg).startswith(_REFUSED):
            left_out = self._refusal(event, str(record.__dict__.get(SUBJECT)), time.monotonic())
        else:
            return True
        if left_out is None:
            _FIGURES.suppressed += 1
            return False
        if left_out:
            record.msg = f"{record.getMessage()} (before it {left_out} of {event} were left out)"
            record.args = None
        return True

    def _refusal(self, event: str, subject: str, now_s: float) -> int | None:
        of_subject = self._subjects.admit(f"{event} {subject}", now_s)
        if of_subject is None:
            return None
        of_all = self._refusals.admit(event, now_s)
        return None if of_all is None else of_subject + of_all


class _Figures:
    """Counters of the log for `/metrics`."""

    def __init__(self) -> None:
        self.records = dict.fromkeys(("info", "warning", "error", "critical"), 0)
        self.suppressed = 0


_FIGURES: Final = _Figures()
"""The counts of the process, which has one log."""


def collect(exposition: Exposition) -> Iterable[None]:
    """A collector of `/metrics`."""
    # Loaded here: a process that shows no metrics need not load the registry.
    from magnetar.observability.catalogue import text_of

    name = "magnetar_log_records_total"
    for level, count in sorted(_FIGURES.records.items()):
        exposition.counter(name, text_of(name), count, labels(("level", level)))
    name = "magnetar_log_suppressed_total"
    exposition.counter(name, text_of(name), _FIGURES.suppressed)
    return ()


def _time_of(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _error_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(record.stack_info)
    return _cut("\n".join(parts), _ERROR_CHARS_MAX)


def _message_of(record: logging.LogRecord) -> str:
    return _cut(record.getMessage(), _MESSAGE_CHARS_MAX).translate(_CONTROLS)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[:chars_max]}… ({len(text)} characters)"


def configure(
    *,
    level: str = "info",
    path: Path | None = None,
    as_json: bool = False,
    per_minute_max: int = PER_MINUTE_MAX,
    process: int = 0,
) -> logging.Handler:
    """Sends the records of this package to stderr, or to the end of the file at `path`; of one event at most
    `per_minute_max`, 0 for all. `process`: the number of this one among several; 0: it is alone.

    May be called again: the handler of the call before is replaced and closed. Returns the handler.
    Raises StartupError when the level is unknown or the file cannot be opened.
    """
    if level.lower() not in LEVELS:
        raise StartupError(f"log level {level!r} is unknown; take one of {', '.join(LEVELS)}")
    handler = _handler(path)
    handler.addFilter(_Limiter(per_minute_max))
    handler.setFormatter(_JsonFormatter(process) if as_json else _LineFormatter(process))
    logger = logging.getLogger(_ROOT)
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    # An embedding application may log too: records must not appear twice.
    logger.propagate = False
    # Thread and process are in no format above: looking them up costs.
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False
    return handler


def _handler(path: Path | None) -> logging.Handler:
    if path is None:
        stream: logging.StreamHandler[IO[str]] = logging.StreamHandler(sys.stderr)
        return stream
    try:
        return logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise StartupError(f"log file {path} cannot be opened: {error.strerror}; choose another") from error
