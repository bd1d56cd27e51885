"""`/admin/v2/worker` and `/admin/v2/worker-stats`: what runs functions here.

There is one worker, beside this broker; it leads, and there is nothing to move between workers.

Source: Pulsar's `WorkerImpl`; answers of Pulsar 4.2.
"""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Document, Route
from magnetar.admin.calls.errors import NotImplementedHereError
from magnetar.admin.functions.instance_documents import stats_document, worker_id
from magnetar.admin.functions.receiving import functions_of

_W: Final = "/admin/v2/worker"
_S: Final = "/admin/v2/worker-stats"


def _worker(call: Call) -> Document:
    host, _, port = call.broker.broker_id.rpartition(":")
    return {"workerId": worker_id(call.broker), "workerHostname": host, "port": int(port or 0)}


async def cluster(call: Call) -> object:
    """Workers that run functions."""
    await functions_of(call)
    return [_worker(call)]


async def leader(call: Call) -> object:
    """The worker that leads: the only one."""
    await functions_of(call)
    return _worker(call)


async def leader_ready(call: Call) -> object:
    """Whether functions can be created."""
    await functions_of(call)
    return True


async def assignments(call: Call) -> object:
    """Which worker has which instances."""
    names = [
        f"{function.tenant}/{function.namespace}/{function.name}:{number}"
        for function in await (await functions_of(call)).catalogue.functions()
        for number in range(function.config.parallelism)
        if number not in function.stopped
    ]
    return {worker_id(call.broker): sorted(names)}


async def function_stats(call: Call) -> object:
    """Statistics of all instances."""
    functions = await functions_of(call)
    found = await functions.catalogue.functions()
    if not found:
        return []
    return [
        {
            "name": f"{function.tenant}/{function.namespace}/{function.name}:{each.instance}",
            "metrics": stats_document(each),
        }
        for function in found
        for each in await (await functions.workers()).stats(function)
    ]


async def monitoring_metrics(call: Call) -> object:
    """Metrics of the worker's process in Pulsar's older form; there are none, `/metrics` has all."""
    await functions_of(call)
    return []


async def rebalance(call: Call) -> None:
    """Refused: there is one worker."""
    raise NotImplementedHereError("there is one worker for functions: there is nothing to rebalance or drain")


ROUTES: list[Route] = [
    ("GET", f"{_W}/cluster", cluster),
    ("GET", f"{_W}/cluster/leader", leader),
    ("GET", f"{_W}/cluster/leader/ready", leader_ready),
    ("GET", f"{_W}/assignments", assignments),
    ("PUT", f"{_W}/rebalance", rebalance),
    ("PUT", f"{_W}/drain", rebalance),
    ("GET", f"{_S}/functionsmetrics", function_stats),
    ("GET", f"{_S}/metrics", monitoring_metrics),
]
