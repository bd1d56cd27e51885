"""Reads the settings of `magnetar proxy`: its own, and those that it has in common with a broker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

from magnetar.server.settings.loading import Loaded, load
from magnetar.server.settings.proxy_settings import ProxySettings

_OWN: Final = frozenset(field.name for field in fields(ProxySettings))


def load_proxy(
    overrides: Mapping[str, object],
    *,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Loaded, ProxySettings]:
    """Like `loading.load`. Raises StartupError."""
    own = {name: value for name, value in overrides.items() if name in _OWN and value is not None}
    others = {name: value for name, value in overrides.items() if name not in _OWN}
    return load(others, file=file, environment=environment), ProxySettings(**own)  # type: ignore[arg-type]  # click has the types
