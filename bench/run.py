"""Runs scenarios: a fresh broker for every case of every run, and the results put together."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import catchup, latency, modules, start, topics
from bench.broker import Broker, BrokerFailedError, Cpus, discard_command, magnetar_command, started
from bench.driver import Driver
from bench.flame import profile_start, profiled, slug
from bench.histogram import median_metrics
from bench.memory import PageCache
from bench.meter import Meter
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.scan import BrokerAnswerError
from bench.scenario import (
    Case,
    CatchupLoad,
    LatencyLoad,
    Load,
    ModuleLoad,
    OfficialLoad,
    PublishLoad,
    Scenario,
    StartLoad,
    TopicsLoad,
)
from bench.throughput import publish_for

BROKEN = (BrokerFailedError, BrokerAnswerError, modules.ModuleFailedError, OSError, ValueError)
"""What ends one case and not the whole program."""

OTHERS_SHARE_MAX: Final = 0.1
"""Cores that other processes may use before a run counts as disturbed."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure."""

    seconds: float
    warm_up_s: float
    cpus: Cpus
    data_folder: Path
    external: Broker | None
    """A broker that already runs, instead of one started for each case."""
    page_cache: PageCache | None = None
    """Filled before each case; None leaves the memory as it is."""
    flames: Path | None = None
    """Folder for a flame graph of the broker in each case."""


@dataclass(frozen=True, slots=True)
class CaseRun:
    """What one run of one case gave."""

    metrics: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: str = ""
    skipped: str = ""
    """Why it was left out."""


@dataclass
class CaseResult:
    """All runs of one case."""

    case: Case
    runs: list[CaseRun] = field(default_factory=list)

    @property
    def median(self) -> dict[str, float]:
        """Median of every metric over the runs that worked."""
        return median_metrics([run.metrics for run in self.runs if run.metrics])

    @property
    def remarks(self) -> list[str]:
        """Everything to say about the runs, each thing once."""
        others = max((run.metrics.get("other_cpu_share", 0.0) for run in self.runs), default=0.0)
        said = (
            [f"disturbed: other processes used up to {others:.2f} cores"] if others > OTHERS_SHARE_MAX else []
        )
        said += [
            text
            for run in self.runs
            for text in (*run.notes, run.skipped, run.error and f"failed: {run.error}")
        ]
        return list(dict.fromkeys(text for text in said if text))


@dataclass
class ScenarioResult:
    """All cases of one scenario."""

    scenario: Scenario
    cases: list[CaseResult]


def run_all(scenarios: Sequence[Scenario], options: Options, runs: int) -> list[ScenarioResult]:
    """Run everything `runs` times, interleaved, so that a slow minute of the machine hits all alike."""
    results = [ScenarioResult(s, [CaseResult(case) for case in s.cases]) for s in scenarios]
    for number in range(1, runs + 1):
        for result in results:
            for case in result.cases:
                print(
                    f"run {number}/{runs}  {result.scenario.name}: {case.case.name}",
                    file=sys.stderr,
                    flush=True,
                )
                graph = (
                    options.flames and options.flames / f"{slug(result.scenario.name, case.case.name)}.svg"
                )
                case.runs.append(run_case(case.case.load, options, graph))
    return results


def run_case(load: Load, options: Options, graph: Path | None = None) -> CaseRun:
    """Run one case on a broker of its own; what breaks it is in the result and on standard error.

    `graph`: where the flame graph of its broker goes, if it has one of its own.
    """
    if options.page_cache:
        options.page_cache.fill()
    try:
        return _run_case(load, options, graph)
    except BROKEN as error:
        text = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        print(f"  failed: {text}", file=sys.stderr, flush=True)
        return CaseRun(error=text)


def new_topic() -> str:
    """A new, random topic name."""
    return f"persistent://public/default/bench-{secrets.token_hex(6)}"


@contextmanager
def _scratch(options: Options) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="magnetar-bench-", dir=options.data_folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _broker(options: Options, folder: Path, *, discard: bool) -> Iterator[Broker]:
    if options.external and not discard:
        yield options.external
        return
    with started(discard_command() if discard else magnetar_command(), folder, options.cpus) as broker:
        yield broker


def _run_case(load: Load, options: Options, graph: Path | None) -> CaseRun:
    with _scratch(options) as folder:
        if isinstance(load, StartLoad):
            if options.external:
                return CaseRun(skipped="left out: the broker was not started here")
            if graph is not None:
                profile_start([*magnetar_command(), "--data", str(folder / "profiled")], graph)
            return CaseRun(start.run(magnetar_command(), folder, options.cpus, load))
        if isinstance(load, ModuleLoad):
            return _module(load, options, folder, graph)
        discard = isinstance(load, PublishLoad | CatchupLoad) and load.discard
        with (
            _broker(options, folder, discard=discard) as broker,
            profiled(broker, graph, after_s=options.warm_up_s, seconds=options.seconds),
        ):
            return with_broker(load, options, broker, PulsarDriver(broker.service_url))


def _module(load: ModuleLoad, options: Options, folder: Path, graph: Path | None) -> CaseRun:
    if not modules.exists(load.module):
        return CaseRun(skipped=f"left out: there is no {load.module}")
    argument, seconds = load.argument, options.seconds
    if not load.needs_broker:
        return CaseRun(modules.run(load.module, None, argument=argument, seconds=seconds, folder=folder))
    with (
        _broker(options, folder, discard=False) as broker,
        profiled(broker, graph, after_s=options.warm_up_s, seconds=options.seconds),
    ):
        return CaseRun(modules.run(load.module, broker, argument=argument, seconds=seconds, folder=folder))


def with_broker(
    load: PublishLoad | LatencyLoad | CatchupLoad | TopicsLoad | OfficialLoad,
    options: Options,
    broker: Broker,
    driver: Driver,
) -> CaseRun:
    """Run one case on a broker that runs; TopicsLoad and OfficialLoad need one of the Pulsar protocol."""
    meter = Meter(broker.pid)
    url, topic = broker.service_url, new_topic()
    match load:
        case PublishLoad():
            lanes = [
                driver.lane(
                    topic, payload_bytes=load.payload_bytes, messages_per_entry=load.messages_per_entry
                )
                for _ in range(load.producers)
            ]
            publishers = [Publisher(lane, window_messages=load.window_messages) for lane in lanes]
            return CaseRun(
                publish_for(publishers, meter, warm_up_s=options.warm_up_s, seconds=options.seconds)
            )
        case LatencyLoad():
            result = latency.run(
                driver,
                topic,
                meter,
                rate_per_s=load.rate_per_s,
                payload_bytes=load.payload_bytes,
                messages_per_entry=load.messages_per_entry,
                end_to_end=load.end_to_end,
                warm_up_s=options.warm_up_s,
                seconds=options.seconds,
            )
            return CaseRun(result.metrics, result.histograms, result.notes)
        case CatchupLoad():
            return CaseRun(
                catchup.run(
                    driver,
                    topic,
                    meter,
                    messages=load.messages,
                    payload_bytes=load.payload_bytes,
                    messages_per_entry=load.messages_per_entry,
                    queue_messages=load.queue_messages,
                )
            )
        case TopicsLoad():
            return CaseRun(
                topics.run(url, topic, meter, load, warm_up_s=options.warm_up_s, seconds=options.seconds)
            )
        case OfficialLoad():
            command = [sys.executable, "-m", "bench.official", "--service-url", url, "--topic", topic]
            command += ["--payload-bytes", str(load.payload_bytes)] + ["--batching"] * load.batching
            command += ["--warm-up", str(options.warm_up_s), "--seconds", str(options.seconds)]
            if broker.pid:
                command += ["--broker-pid", str(broker.pid)]
            return CaseRun(modules.call(command, None))
