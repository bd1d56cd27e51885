"""Makes `from pulsar import Function` work where the package `pulsar-client` is not installed.

When it is installed, it is used as it is: its classes have no behaviour that matters here. A stand-in has the
names that functions import; asking it for more says what to install.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Final

from magnetar.functions.sdk import function, serde

_NAMES: Final = {
    "Function": function.Function,
    "SerDe": serde.SerDe,
    "IdentitySerDe": serde.IdentitySerDe,
    "PickleSerDe": serde.PickleSerDe,
}


class _StandIn(ModuleType):
    """A module `pulsar` with the names of functions alone."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"`pulsar.{name}` needs Pulsar's client, which is not installed here: pip install pulsar-client"
        )


def provide() -> bool:
    """Adds the stand-in unless the package is installed or was added before; returns whether it did."""
    if "pulsar" in sys.modules or importlib.util.find_spec("pulsar") is not None:
        return False
    from magnetar.functions.sdk.context import FunctionContext

    names: dict[str, object] = {**_NAMES, "Context": FunctionContext}
    stand_in = _StandIn("pulsar", "Names of Pulsar's functions, of Magnetar.")
    inner = _StandIn("pulsar.functions")
    for where in (stand_in, inner):
        where.__dict__.update(names)
        where.__dict__["__path__"] = []
    modules: dict[str, ModuleType] = {"pulsar": stand_in, "pulsar.functions": inner}
    for part in ("function", "context", "serde"):
        module = _StandIn(f"pulsar.functions.{part}")
        module.__dict__.update(names)
        inner.__dict__[part] = module
        modules[module.__name__] = module
    stand_in.__dict__["functions"] = inner
    sys.modules.update(modules)
    return True
