"""Named clusters with their addresses and credentials.

    {"current": "prod", "contexts": {"prod": {"url": "...", "admin_url": "...", "token_file": "..."}}}

The file is `contexts.json` in $XDG_CONFIG_HOME/magnetar or ~/.config/magnetar. Only its owner may read it,
because it may hold tokens. MAGNETAR_CONTEXTS names another file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final

from magnetar.base.errors import MagnetarError

VARIABLE: Final = "MAGNETAR_CONTEXTS"
SECRETS: Final = frozenset({"token"})
"""Fields of a context that are not shown."""


class ContextError(MagnetarError):
    """A context does not exist, or the file of contexts cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlace:
    """One cluster. Empty fields are not set."""

    url: str = ""
    """pulsar://host:6650, pulsar+ssl://, http:// or https://."""
    admin_url: str = ""
    """http://host:8080 or https://."""
    token: str = ""
    token_file: str = ""
    trust_certs: str = ""

    def shown(self) -> dict[str, str]:
        """The fields that are set, without secrets."""
        return {
            name: "..." if name in SECRETS else value for name, value in asdict(self).items() if value != ""
        }


@dataclass(slots=True)
class Contexts:
    """All contexts, and the name of the current one."""

    current: str = ""
    places: dict[str, ContextPlace] = field(default_factory=dict)

    def place(self, name: str = "") -> ContextPlace:
        """The named context, else the current one, else an empty one. Raises ContextError for an unknown
        name."""
        chosen = name or self.current
        if not chosen:
            return ContextPlace()
        if chosen not in self.places:
            known = ", ".join(self.places) or "none exists"
            raise ContextError(
                f"there is no context {chosen!r} ({known}); make it with `magnetar context add`"
            )
        return self.places[chosen]


def file_of(environment: Mapping[str, str]) -> Path:
    """The file of contexts."""
    if named := environment.get(VARIABLE):
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME", "")
    # Only absolute ones count, by the specification of base directories.
    base = Path(home) if home.startswith("/") else Path.home() / ".config"
    return base / "magnetar" / "contexts.json"


def load(file: Path) -> Contexts:
    """Reads the contexts; empty without a file. Raises ContextError for an unreadable one."""
    try:
        document = json.loads(file.read_text("utf-8"))
        known = {each.name for each in fields(ContextPlace)}
        places = {
            str(name): ContextPlace(**{key: str(value) for key, value in place.items() if key in known})
            for name, place in document["contexts"].items()
        }
        return Contexts(str(document.get("current", "")), places)
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ContextError(
            f"contexts in {file} cannot be read: {error}; correct or remove the file"
        ) from error


def save(file: Path, contexts: Contexts) -> None:
    """Replaces the file atomically; only its owner may read it. Raises ContextError."""
    document: dict[str, object] = {
        "current": contexts.current,
        "contexts": {
            name: {key: value for key, value in asdict(place).items() if value}
            for name, place in contexts.places.items()
        },
    }
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as out:
            json.dump(document, out, indent=2)
            out.write("\n")
        unfinished.replace(file)
    except OSError as error:
        raise ContextError(f"contexts cannot be written to {file}: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)
