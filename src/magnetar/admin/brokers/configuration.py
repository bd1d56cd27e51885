"""`/admin/v2/brokers/configuration`: settings in force, and those that may change while the broker runs."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Final

from magnetar.admin.calls.call import Call, Route
from magnetar.broker import dynamic
from magnetar.broker.dynamic_names import KEPT
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.policies.policies import Policies

_log = logging.getLogger("magnetar.admin")

_C: Final = "/admin/v2/brokers/configuration"


async def names(call: Call) -> object:
    """Names of the settings that may be changed; some of them are stored without effect."""
    return sorted({*dynamic.NAMES, *KEPT})


async def values(call: Call) -> object:
    """Changed settings."""
    return await call.broker.policies.configuration()


async def in_force(call: Call) -> object:
    """Settings in force, by Pulsar's names if they have one, else by ours."""
    config = call.broker.config
    own = {name: "" if value is None else str(value) for name, value in asdict(config).items()}
    return {**own, "clusterName": config.cluster, **dynamic.shown(config)}


def _name(call: Call, verb: str) -> str:
    name = call.params["name"]
    if name not in dynamic.NAMES and name not in KEPT:
        raise PreconditionFailedError(
            f"Can't {verb} non-dynamic configuration", remedy=f"{name} is a setting of the broker's start"
        )
    return name


async def change(call: Call) -> None:
    """Changes a setting; in force on return, also on loaded topics."""
    name, value = _name(call, "update"), call.params["value"]
    if name in KEPT:
        _log.info("%s is stored and has no effect on this broker", name)
    elif not dynamic.is_valid(name, value):
        raise PreconditionFailedError(f"{value[:100]!r} is not a value of {name}")

    def put(document: Policies) -> None:
        document[name] = value

    await call.broker.policies.update_configuration(put)
    await call.broker.apply_policies()


async def reset(call: Call) -> None:
    """Resets a setting to its value at the broker's start."""
    name = _name(call, "delete")

    def forget(document: Policies) -> None:
        document.pop(name, None)

    await call.broker.policies.update_configuration(forget)
    await call.broker.apply_policies()


async def check_quotas(call: Call) -> None:
    """Checks message ages and backlog quotas now."""
    await call.broker.enforce_limits()


ROUTES: list[Route] = [
    ("GET", _C, names),
    ("GET", f"{_C}/values", values),
    ("GET", f"{_C}/runtime", in_force),
    ("POST", f"{_C}/{{name}}/{{value}}", change),
    ("DELETE", f"{_C}/{{name}}", reset),
    ("GET", "/admin/v2/brokers/backlog-quota-check", check_quotas),
]
