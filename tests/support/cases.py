"""How many generated cases a property goes through."""

from __future__ import annotations

from hypothesis import settings


def cases(count: int) -> int:
    """`count` where cases are new, as in `./dev test nightly` and for some files of every run; a half of
    them where each run has the same: for properties whose cases take tens of milliseconds."""
    return count if settings.get_current_profile_name() == "new" else count // 2
