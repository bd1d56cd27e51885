"""The command line that the programs of Spark's scenarios share: a broker, a folder, the figures."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import machine
from bench.broker import Cpus, magnetar_command, started


class Amount(NamedTuple):
    """The option that says how much: its name, default and meaning."""

    name: str
    default: int
    help: str


class Given(NamedTuple):
    """What a measurement is given."""

    service_url: str
    http_url: str
    amount: int
    seconds: float
    folder: Path
    """Empty, and gone afterwards."""
    pid: int | None = None
    """Process id of the broker; None when this program did not start it."""


def main(
    description: str | None,
    amount: Amount,
    seconds: float,
    measure: Callable[[Given], Mapping[str, float]],
    *,
    form: str = ",.0f",
) -> None:
    """Measures against the broker that is named, or one that is started for it; prints in `form`."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    add = parser.add_argument
    add(f"--{amount.name}", dest="amount", type=int, default=amount.default, help=amount.help)
    add("--seconds", type=float, default=seconds, help="measured time in all (%(default)s)")
    add("--service-url", default="", help="a broker that runs; else one is started")
    add("--http-url", default="")
    add("--broker-pid", type=int, help="taken as every measuring module does; not used")
    add("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service_url, http_url, pid = arguments.service_url, arguments.http_url, None
        if not service_url:
            broker = stack.enter_context(started(magnetar_command(), folder, Cpus(None, None)))
            service_url, http_url, pid = broker.service_url, broker.http_url, broker.pid
        results = measure(Given(service_url, http_url, arguments.amount, arguments.seconds, folder, pid))
        described = machine.describe(folder)
    print(json.dumps(described))
    for name, value in results.items():
        print(f"{name:36} {value:12{form}}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))
