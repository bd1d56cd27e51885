"""Filters that an operator has installed: Python classes by entry points, which the settings must allow too.

A package names its class in the group `magnetar.entry_filters` of its metadata; that alone does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import StartupError
from magnetar.broker.filters.entry_filter import FilterFactory
from magnetar.broker.filters.rules import BUILT_IN
from magnetar.broker.filters.time_limit import TimeLimit

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "magnetar.entry_filters"


def known_filters(allowed: Sequence[str]) -> Mapping[str, FilterFactory]:
    """Ours, and the installed ones with these names. Raises StartupError when one cannot be had."""
    if not allowed:
        return BUILT_IN
    # Its import takes longer than all others here, and most brokers do not need it.
    from importlib.metadata import entry_points

    installed = entry_points(group=GROUP)
    known = dict(BUILT_IN)
    for name in allowed:
        if name in BUILT_IN:
            raise StartupError(f"entry_filters_allowed names {name!r}, which is built in; drop it")
        found = [point for point in installed if point.name == name]
        if len(found) != 1:
            raise StartupError(
                f"entry_filters_allowed names {name!r}, and {len(found)} packages install such a filter"
                f" in the group {GROUP}; there must be one"
            )
        known[name] = TimeLimit(name, _loaded(found[0]))
    return known


def _loaded(point: EntryPoint) -> FilterFactory:
    try:
        factory = point.load()
    except Exception as error:  # a third-party module may raise any error
        raise StartupError(
            f"the entry filter {point.name!r} cannot be loaded: {error}; correct it"
        ) from error
    if not callable(factory):
        raise StartupError(
            f"the entry filter {point.name!r} is {point.value}, which is not a class; correct it"
        )
    made: FilterFactory = factory
    return made
