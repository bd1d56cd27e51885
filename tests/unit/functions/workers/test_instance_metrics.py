"""Metrics of functions have Pulsar's names and labels."""

from __future__ import annotations

from pathlib import Path

from magnetar.functions.config.function_config import FunctionConfig
from magnetar.functions.ports import StoredFunction
from magnetar.functions.workers.instance_metrics import ToldFigures, collect
from magnetar.observability.metrics import Registry

CONFIG = FunctionConfig(tenant="t", namespace="n", name="f", class_name="f", inputs={})
FUNCTION = StoredFunction(tenant="t", namespace="n", name="f", version=0, config=CONFIG, package=Path("f.py"))
OF = '{cluster="c",tenant="t",namespace="t/n",name="f",instance_id="1",fqfn="t/n/f"'


def shown(*instances: ToldFigures) -> set[str]:
    registry = Registry()
    registry.collector(lambda out: collect(instances, "c", out))
    return set("".join(registry.scrape()).splitlines())


def test_an_instance_has_a_series_of_each() -> None:
    told = {
        "total": {
            "received": 5,
            "processed": 3,
            "user_exceptions": 1,
            "system_exceptions": 1,
            "average_ms": 2.0,
        },
        "last_invocation_ms": 7,
        "user_metrics": {"seen": 4.0},
    }
    lines = shown(ToldFigures(FUNCTION, 1, told, running=True, restarts=2))
    for name, value in (
        ("pulsar_function_received_total", "5"),
        ("pulsar_function_processed_successfully_total", "3"),
        ("pulsar_function_user_exceptions_total", "1"),
        ("pulsar_function_system_exceptions_total", "1"),
        ("pulsar_function_last_invocation", "7"),
        ("magnetar_function_call_seconds", "0.002"),
        ("magnetar_function_running", "1"),
        ("magnetar_function_restarts_total", "2"),
    ):
        assert any(line in lines for line in (f"{name}{OF}}} {value}", f"{name}{OF}}} {value}.0")), name
    assert any(line.startswith(f'pulsar_function_user_metric{OF},metric="seen"}} 4') for line in lines)


def test_one_that_has_told_nothing_yet_has_zeros() -> None:
    lines = shown(ToldFigures(FUNCTION, 1, {}, running=False, restarts=0))
    assert any(line.startswith(f"pulsar_function_received_total{OF}}} 0") for line in lines)


def test_names_that_the_code_chooses_are_bounded() -> None:
    told = {"user_metrics": {f"m{number}": 1.0 for number in range(500)}}
    lines = shown(ToldFigures(FUNCTION, 1, told, running=True, restarts=0))
    assert sum(line.startswith("pulsar_function_user_metric{") for line in lines) == 100
