"""`/metrics` of functions: what their instances told last (pure).

A scrape does not wait for instances: it shows what they told since the one before, and asks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from magnetar.functions.ports import StoredFunction
from magnetar.functions.workers.figures import stats_of
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import Exposition, labels

_USER_METRICS_MAX = 100
"""Most names that an instance's code may record and that are shown: they are the code's to choose."""


class ToldFigures(NamedTuple):
    """One instance."""

    function: StoredFunction
    number: int
    told: Mapping[str, object]
    """What it told last; empty: nothing."""
    running: bool
    restarts: int


def collect(instances: Iterable[ToldFigures], cluster: str, out: Exposition) -> Iterator[None]:
    """Adds the samples of all instances; yields between two of them."""
    for each in instances:
        function = each.function
        pairs = (
            ("cluster", cluster),
            ("tenant", function.tenant),
            ("namespace", f"{function.tenant}/{function.namespace}"),
            ("name", function.name),
            ("instance_id", str(each.number)),
            ("fqfn", function.full_name),
        )
        labelled, stats = labels(*pairs), stats_of(each.number, each.told)
        for name, count in (
            ("pulsar_function_received_total", stats.total.received),
            ("pulsar_function_processed_successfully_total", stats.total.processed),
            ("pulsar_function_user_exceptions_total", stats.total.user_exceptions),
            ("pulsar_function_system_exceptions_total", stats.total.system_exceptions),
            ("magnetar_function_restarts_total", each.restarts),
        ):
            out.counter(name, text_of(name), count, labelled)
        for name, value in (
            ("pulsar_function_last_invocation", float(stats.last_invocation_ms or 0)),
            ("magnetar_function_call_seconds", (stats.total.average_latency_ms or 0.0) / 1000),
            ("magnetar_function_running", float(each.running)),
        ):
            out.gauge(name, text_of(name), value, labelled)
        name = "pulsar_function_user_metric"
        for metric, value in sorted(stats.user_metrics.items())[:_USER_METRICS_MAX]:
            out.gauge(name, text_of(name), value, labels(*pairs, ("metric", metric[:100])))
        yield
