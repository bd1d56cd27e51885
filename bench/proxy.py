"""What does a proxy cost? The same load straight to a broker, and through `magnetar proxy`, in turn.

    nice -n 10 python -m bench.proxy [--rounds N] [--seconds S]

Broker and proxy are processes with one core each. The load is the official client's (`bench.official`):
batched messages of 1 KiB, published and then received. Each round measures both ways one after the other, so
that what else the machine does is in both. The medians of the rounds' ratios are printed, without the first
round, in which the processes warm up.

On two cores the client takes from both what it needs. So `one_core_each` is computed from the CPU time of the
two processes: the rate that the slower one of them could do alone, through the proxy, divided by the rate
that the broker could do directly. `ratios` are those of the measured rates.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench import proc

_START_S: Final = 60.0
_PAYLOAD_BYTES: Final = 1024
_RATES: Final = ("produce_messages_per_s", "consume_messages_per_s")


def _started(folder: Path, name: str, core: int, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    ready = folder / f"{name}.json"
    command = [sys.executable, "-m", "magnetar", name, *arguments, "--port", "0", "--http-port", "0"]
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=log, stderr=log)
    os.sched_setaffinity(process.pid, {core})
    end = time.monotonic() + _START_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit((folder / f"{name}.log").read_text())
        time.sleep(0.05)  # the file is the only sign; _START_S bounds the wait
    return process, json.loads(ready.read_text())["broker_url"]


def _measured(url: str, topic: str, seconds: float) -> dict[str, float]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.official", "--service-url", url, "--topic", topic, "--batching"),
            *("--payload-bytes", str(_PAYLOAD_BYTES), "--seconds", str(seconds)),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    # Lines of the client's log may come before.
    found: dict[str, float] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def _cpu_s(process: subprocess.Popen[bytes]) -> float:
    return proc.usage(process.pid).cpu_s


def main() -> None:
    """Prints JSON: for each way rates and the CPU time per message, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    rounds: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker, direct = _started(folder, "standalone", cores[0], "--ephemeral")
        proxy, through = _started(folder, "proxy", cores[-1], "--brokers", direct)
        try:
            for number in range(options.rounds):
                ways = [("direct", direct), ("proxy", through)]
                found: dict[str, dict[str, float]] = {}
                for way, url in ways if number % 2 else reversed(ways):
                    before = _cpu_s(broker), _cpu_s(proxy)
                    measured = _measured(url, f"{way}-{number}", options.seconds)
                    messages = measured["consume_messages"]
                    found[way] = {kind: measured[kind] for kind in _RATES} | {
                        "broker_cpu_us": 1e6 * (_cpu_s(broker) - before[0]) / messages,
                        "proxy_cpu_us": 1e6 * (_cpu_s(proxy) - before[1]) / messages,
                    }
                rounds.append(found)
        finally:
            for process in (proxy, broker):
                process.terminate()
                process.wait()
    ratios = {
        kind: statistics.median(each["proxy"][kind] / each["direct"][kind] for each in rounds)
        for kind in _RATES
    }
    one_core_each = statistics.median(
        each["direct"]["broker_cpu_us"] / max(each["proxy"]["broker_cpu_us"], each["proxy"]["proxy_cpu_us"])
        for each in rounds[1:]
    )
    print(json.dumps({"rounds": rounds, "ratios": ratios, "one_core_each": one_core_each}, indent=1))


if __name__ == "__main__":
    main()
