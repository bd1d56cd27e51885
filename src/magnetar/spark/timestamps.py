"""Reads points in time and durations from options."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from magnetar.spark.errors import OptionError

_RELATIVE = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time(option: str, text: str, now_ms: int) -> int:
    """Unix milliseconds of `text`.

    Args:
        text: Unix milliseconds (`1735689600000`), RFC 3339 (`2025-01-01T00:00:00Z`; without a zone UTC;
            the time may be missing) or relative to now (`-90s`, `-1.5h`, `-7d`).

    Raises OptionError.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    relative = _RELATIVE.fullmatch(text)
    if relative is not None:
        return now_ms - round(float(relative[1]) * _UNIT_MS[relative[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{option}={text!r} is not a time: give Unix milliseconds, 2025-01-01T00:00:00Z, or -1h"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(option: str, text: str) -> int:
    """Milliseconds of `500ms`, `30s`, `15m`, `1h`, `1d`; a bare number is milliseconds.

    Raises OptionError.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"{option}={text!r} is not a duration: give 30s, 15m or 1h")
    return round(float(found[1]) * _UNIT_MS[found[2] or "ms"])
