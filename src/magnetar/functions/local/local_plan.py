"""A configuration and a file of this machine to the plan of an instance (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from magnetar.base.names import DEFAULT_NAMESPACE, DEFAULT_TENANT
from magnetar.functions.config.checks import check, with_runtime
from magnetar.functions.config.completing import config_of
from magnetar.functions.config.given import given_of, inputs_of
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.ports import StoredFunction
from magnetar.functions.workers.plans import WorkerPlace, plan_of

NOWHERE: Final = "pulsar://nowhere:6650"
"""Address of a broker that no function is connected to."""


def local_plan(
    document: dict[str, object], code: Path, folder: Path, *, inputs: Iterable[str] = (), url: str = NOWHERE
) -> InstancePlan:
    """The plan.

    Args:
        document: the configuration in Pulsar's JSON; class, name and namespace have defaults.
        code: file or folder of the code.
        folder: where the instance may write.
        inputs: topics that are read when the configuration names none.
        url: where the function reaches the broker by `get_pulsar_client`.

    Raises InvalidConfigError.
    """
    named: dict[str, object] = {
        "tenant": DEFAULT_TENANT,
        "namespace": DEFAULT_NAMESPACE,
        "name": code.stem,
        "className": code.stem,
        "py": code.name,
    }
    given = with_runtime(given_of({**named, **document}))
    if not inputs_of(given):
        given["inputs"] = list(inputs)
    check(given)
    config = config_of(given)
    function = StoredFunction(
        tenant=config.tenant,
        namespace=config.namespace,
        name=config.name,
        version=0,
        config=config,
        package=code,
    )
    place = WorkerPlace(service_url=url, admin_url="", folder=folder, confines=False)
    # The limits are those of this terminal.
    return replace(plan_of(function, 0, place), memory_bytes_max=0, file_bytes_max=0)
