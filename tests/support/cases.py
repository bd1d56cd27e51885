"""How many generated cases a property goes through."""

from __future__ import annotations

from hypothesis import settings


def cases(count: int) -> int:
    """`count` for generated cases that are new, as in `./dev test nightly` and for some files of every run;
    half of it for cases that each run repeats. For properties whose cases take tens of milliseconds."""
    return count if settings.get_current_profile_name() == "new" else count // 2
