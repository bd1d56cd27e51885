"""Times and ages as people write them."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
WORDS: Final = ("earliest", "latest")


def age_ms(text: str) -> int | None:
    """Milliseconds of an age such as `90s`, `2h`, `1.5d`; None for any other text."""
    found = _AGE.fullmatch(text)
    return None if found is None else int(float(found[1]) * _UNIT_MS[found[2]])


if TYPE_CHECKING:
    _Moment = click.ParamType[str | int]
else:
    # Older versions of click have no types here.
    _Moment = click.ParamType


class Moment(_Moment):
    """The type of options for a time: `earliest` and `latest` unchanged, a time or an age before now as Unix
    milliseconds."""

    name = "moment"

    def get_metavar(self, *args: object, **kwargs: object) -> str:
        return "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        """See click. A time without a zone is local time; a plain number is Unix milliseconds. An invalid
        text ends the command with an error of usage."""
        if isinstance(value, int):
            return value
        assert isinstance(value, str)
        if value in WORDS:
            return value
        if value == "now":
            return time.time_ns() // 1_000_000
        if (age := age_ms(value)) is not None:
            return time.time_ns() // 1_000_000 - age
        if value.isdigit():
            return int(value)
        try:
            return int(datetime.fromisoformat(value).astimezone().timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is not a time; write earliest, latest, an age as 90s, 2h, 7d or 2025-01-31T12:00",
                param,
                ctx,
            )
