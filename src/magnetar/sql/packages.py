"""Whether the packages for SQL are installed. They are an extra, so most installations have none of them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from magnetar.sql.errors import SqlPackagesError

PACKAGES: Final = ("duckdb", "pyarrow", "numpy", "cramjam")
"""Packages that each query imports; obstore is only for history in an object store."""


def check_packages() -> None:
    """Call it before another module of this room is imported. Raises SqlPackagesError, which names what
    is not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise SqlPackagesError(", ".join(missing))
