"""Set-up of the process's log: one record, one line.

Text:  `2026-01-31T12:00:00.123Z INFO  magnetar.broker message`
JSON:  `{"time": ..., "level": ..., "logger": ..., "message": ..., "error": ...}`

Line breaks within a record (a traceback, a client's text) are written as `\\n`, so that no peer can
forge a record. Records leave in the caller's thread: log what is rare.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import IO, Final

from magnetar.base.errors import StartupError

LEVELS: Final = ("debug", "info", "warning", "error")
"""What may be asked for."""

_ROOT: Final = "magnetar"


class _LineFormatter(logging.Formatter):
    """Text records."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_time_of(record)} {record.levelname:<7} {record.name} {record.getMessage()}"
        error = _error_of(self, record)
        return _one_line(f"{text}\n{error}" if error else text)


class _JsonFormatter(logging.Formatter):
    """JSON records; the encoder escapes line breaks."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        error = _error_of(self, record)
        if error:
            document["error"] = error
        return json.dumps(document, ensure_ascii=False)


def _time_of(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _error_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def configure(*, level: str = "info", path: Path | None = None, as_json: bool = False) -> logging.Handler:
    """Sends the records of this package to stderr, or to the end of the file at `path`.

    May be called again: the handler of the call before is replaced and closed. Returns the handler.
    Raises StartupError when the level is unknown or the file cannot be opened.
    """
    if level.lower() not in LEVELS:
        raise StartupError(f"log level {level!r} is unknown; take one of {', '.join(LEVELS)}")
    handler = _handler(path)
    handler.setFormatter(_JsonFormatter() if as_json else _LineFormatter())
    logger = logging.getLogger(_ROOT)
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    # The application that embeds us may log too: records must not appear twice.
    logger.propagate = False
    # The caller's file and line, thread and process are in no format above: looking them up costs.
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
