"""What a client that behaves feels of one that does not: latency alone, then beside an attack.

    python -m bench hostile                      every story, a fresh broker for each
    python -m bench hostile pings names          some of them
    python -m bench hostile --seconds 20 --json FILE
    python -m bench hostile --metadata URL       a bookie is attacked, beside this metadata service
    python -m bench hostile --steps FOLDER       what had the event loop for long, in time of a processor

The client that behaves is the official one: it publishes a message, waits for the receipt and until it has
received it, and again, up to a hundred times a second, in a tenant of its own. Each attack is a process of
its own, without any rights that matter, that does what it does as fast as it can. Told are p50 and p99 from
the publish until the message was received, the broker's resident memory before and after, the longest stall
of its event loop and its longest garbage collection since the start, and what the attack has done where it
counts that. With `--steps` the broker runs under `steps.py`, and the longest callback and the longest turn of
its loop are told in time of a processor; what they were stands in the folder, a file for each story.

Behind each story stands what it is held to (`hostile_bounds.py`); the exit code is 1 when one is beyond it.
Other work on the machine may break a bound, too: run a broken story again, alone.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pulsar

from bench import hostile_bookies, machine, steps
from bench.attacks import ATTACKS, COUNTING, OF_TLS
from bench.broker import Cpus, magnetar_command, started
from bench.gauges import longest_ms
from bench.hostile_bounds import bound_of
from bench.neighbours import said
from bench.tenants import QUIET, tenants
from magnetar.auth.authority import Authority, new_key

PACE_S: Final = 0.01
TOPIC: Final = f"persistent://{QUIET}/n/behaves"
FAILED_MS: Final = 30_000.0
STORIES: Final = (*ATTACKS, *COUNTING)
_NAMED: Final = f"{', '.join(STORIES)}; of a bookie {', '.join(hostile_bookies.ATTACKS)}"
_NOT_TOLD: Final = dict.fromkeys(("stall_max_ms", "gc_max_ms", "done", "refused"), float("nan"))
"""What a bookie, and its attacks, do not tell."""


def resident_mb(pid: int | None) -> float:
    """Resident memory of the broker's process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


class Behaves:
    """A client that publishes, and receives what it published."""

    def __init__(self, service_url: str) -> None:
        self._client = pulsar.Client(
            service_url, io_threads=1, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        self._consumer = self._client.subscribe(TOPIC, "behaves")
        self._producer = self._client.create_producer(TOPIC, batching_enabled=False)

    def times_ms(self, seconds: float) -> tuple[list[float], list[float]]:
        """How long each message took until its receipt was there, and until it was received; one that failed
        counts as half a minute."""
        receipts, received = [], []
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            try:
                self._producer.send(b"x" * 100)
                receipts.append((time.perf_counter() - began) * 1000)
                self._consumer.acknowledge(self._consumer.receive(timeout_millis=int(FAILED_MS)))
                received.append((time.perf_counter() - began) * 1000)
            except pulsar.PulsarException:
                received.append(FAILED_MS)
            time.sleep(max(0.0, began + PACE_S - time.perf_counter()))
        return receipts or [FAILED_MS], received

    def close(self) -> None:
        """Ends its connections."""
        self._client.close()


def _settings(name: str, folder: Path) -> dict[str, str]:
    """Settings of the broker of a story: a TLS port for the stories that attack one."""
    if name not in OF_TLS:
        return {}
    now, key, certificate = datetime.datetime.now(datetime.UTC), folder / "key.pem", folder / "broker.pem"
    authority = Authority.new(new_key(), name="bench", now=now, days=1)
    key.write_bytes(new_key())
    certificate.write_bytes(authority.for_broker(key.read_bytes(), hosts=["127.0.0.1"], now=now, days=1))
    return {
        "MAGNETAR_TLS_CERTIFICATE": str(certificate),
        "MAGNETAR_TLS_KEY": str(key),
        "MAGNETAR_BROKER_TLS_PORT": "0",
        "MAGNETAR_HTTPS_PORT": "0",
    }


def run_story(name: str, seconds: float, noted: Path | None = None) -> dict[str, float]:
    """One attack against a broker of its own; into `noted` goes what took long."""
    command = magnetar_command()
    if noted is not None:
        noted.write_bytes(b"")
        command = [sys.executable, "-m", "bench.steps", str(noted), *command[-5:]]
    with (
        tempfile.TemporaryDirectory(prefix="bench-hostile-") as scratch,
        started(command, Path(scratch), Cpus(None, None), settings=_settings(name, Path(scratch))) as broker,
    ):
        tenants(broker.http_url)
        client = Behaves(broker.service_url)
        client.times_ms(1.0)
        alone = client.times_ms(seconds)
        before_mb = resident_mb(broker.pid)
        begin = noted.stat().st_size if noted is not None else 0
        attacked = broker.tls_url or broker.service_url
        attacked_http = broker.https_url or broker.http_url
        words = [sys.executable, "-m", "bench.attacks", name, attacked, attacked_http]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as attack:
            try:
                assert attack.stdout is not None
                attack.stdout.readline()
                beside = client.times_ms(seconds)
                found = {
                    "before_mb": before_mb,
                    "after_mb": resident_mb(broker.pid),
                } | longest_ms(broker.http_url)
                if noted is not None:
                    longest = steps.noted_longest_ms(noted, begin)
                    found |= {f"longest_{kind}_ms": took_ms for kind, took_ms in longest.items()}
            finally:
                attack.kill()
            found |= {key: float(value) for key, value in said(attack.stdout).items()}
        for when, (receipts, received) in (("alone", alone), ("beside", beside)):
            for what, times in (("receipt_", receipts), ("", received)):
                found[f"{when}_{what}p50_ms"] = float(np.percentile(times, 50))
                found[f"{when}_{what}p99_ms"] = float(np.percentile(times, 99))
                found[f"{when}_{what}max_ms"] = max(times)
        client.close()
        return found


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench hostile", description="Attacks a broker.")
    parser.add_argument("story", nargs="*", help=f"of {_NAMED}; all of the target when none is named")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (10)")
    parser.add_argument(
        "--metadata", metavar="URL", help="attack a bookie: zk://… or etcd://HOST:PORT/ledgers"
    )
    parser.add_argument("--steps", type=Path, metavar="FOLDER", help="note what had the event loop for long")
    parser.add_argument("--json", type=Path, help="write everything measured there")
    chosen = parser.parse_args(words)
    if chosen.metadata and chosen.steps:
        parser.error("--steps is for a broker")
    stories = tuple(hostile_bookies.ATTACKS) if chosen.metadata else STORIES
    if unknown := set(chosen.story) - set(stories):
        parser.error(f"there is no story {', '.join(sorted(unknown))} of this kind of target")
    print("  ".join(str(value) for value in machine.describe(Path(tempfile.gettempdir())).values()))
    print(f"{'story':<25}{'alone p50':>10}{'p99':>8}{'beside p50':>12}{'p99':>8}{'longest':>9}", end="")
    print(f"{'MB before':>11}{'after':>7}{'stall ms':>10}{'GC ms':>7}{'done':>9}{'refused':>9}", end="")
    print(f"{'step ms':>9}{'turn ms':>9}" if chosen.steps else "")
    if chosen.steps is not None:
        chosen.steps.mkdir(parents=True, exist_ok=True)
    results = {}
    is_broken = False
    for name in chosen.story or stories:
        noted = chosen.steps / f"{name}.txt" if chosen.steps is not None else None
        if chosen.metadata:
            measured = hostile_bookies.run_story(name, chosen.seconds, chosen.metadata, resident_mb)
            found = results[name] = _NOT_TOLD | measured
        else:
            found = results[name] = run_story(name, chosen.seconds, noted)
        print(f"{name:<25}{found['alone_p50_ms']:>10.1f}{found['alone_p99_ms']:>8.1f}", end="")
        print(f"{found['beside_p50_ms']:>12.1f}{found['beside_p99_ms']:>8.1f}", end="")
        print(f"{found['beside_max_ms']:>9.1f}{found['before_mb']:>11.0f}{found['after_mb']:>7.0f}", end="")
        print(f"{found['stall_max_ms']:>10.0f}{found['gc_max_ms']:>7.1f}", end="")
        print(f"{found['done']:>9.0f}{found['refused']:>9.0f}", end="")
        if noted is not None:
            print(f"{found['longest_step_ms']:>9.1f}{found['longest_turn_ms']:>9.1f}", end="")
        print()
        bound = bound_of(name)
        broken = bound.broken(found)
        is_broken |= bool(broken)
        print(f"  {'BROKEN: ' + '; '.join(broken) if broken else 'held'} ({bound.told()})", flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
