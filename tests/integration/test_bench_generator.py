"""Publishers and readers over real sockets, against the server that stores nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the package `bench` is not installed

from bench import catchup, latency, start, topics  # noqa: E402  # needs the path above
from bench.broker import BrokerFailedError, Cpus, discard_command, magnetar_command, started  # noqa: E402  # needs the path above
from bench.meter import Meter  # noqa: E402  # needs the path above
from bench.publisher import Publisher  # noqa: E402  # needs the path above
from bench.pulsar_driver import PulsarDriver  # noqa: E402  # needs the path above
from bench.scenario import StartLoad, TopicsLoad  # noqa: E402  # needs the path above
from bench.throughput import publish_all, publish_for  # noqa: E402  # needs the path above

TOPIC = "persistent://public/default/t"

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with started(discard_command(), tmp_path_factory.mktemp("discard"), Cpus(None, None)) as broker:
            yield broker.service_url
    finally:
        os.chdir(before)


def publisher(url: str, *, per_entry: int = 1, entries: int | None = None) -> Publisher:
    lane = PulsarDriver(url).lane(TOPIC, payload_bytes=100, messages_per_entry=per_entry)
    return Publisher(lane, entries_max=entries)


@pytest.mark.parametrize("per_entry", [1, 50])
@pytest.mark.parametrize("entries", [1, 2, 2500])
def test_exactly_the_entries_asked_for_are_sent_and_acknowledged(
    url: str, per_entry: int, entries: int
) -> None:
    publishers = [publisher(url, per_entry=per_entry, entries=entries) for _ in range(2)]
    publish_all(publishers, Meter(None))
    assert [(p.entries_sent, p.entries_acknowledged) for p in publishers] == [(entries, entries)] * 2


def test_publishing_for_a_time_counts_acknowledged_messages(url: str) -> None:
    one = publisher(url)
    metrics = publish_for([one], Meter(os.getpid()), warm_up_s=0.01, seconds=0.05)
    assert 0 < metrics["messages"] <= one.entries_acknowledged == one.entries_sent
    assert metrics["broker_rss_mb"] > 0


def test_a_backlog_is_read_whole(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catchup, "PAUSE_S", 0.0)
    metrics = catchup.run(
        PulsarDriver(url),
        "persistent://public/default/backlog",
        Meter(None),
        messages=10_000,
        payload_bytes=100,
        messages_per_entry=10,
        queue_messages=500,
    )
    assert metrics["messages"] == 10_000
    assert metrics["checksums_verified"] >= 1


def test_an_open_loop_gets_a_receipt_for_every_message(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "LEAD_S", 0.0)
    run = latency.run(
        PulsarDriver(url),
        TOPIC,
        Meter(None),
        rate_per_s=20_000,
        payload_bytes=100,
        end_to_end=False,
        warm_up_s=0.01,
        seconds=0.05,
    )
    assert run.metrics["max_ms"] >= run.metrics["p50_ms"] > 0
    assert set(run.histograms) == {"publish", "late"}


def test_the_command_measures_and_writes_json(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    command = [
        sys.executable,
        "-m",
        "bench",
        "generator",
        "--runs",
        "1",
        "--seconds",
        "0.05",
        "--warm-up",
        "0",
    ]
    command += [
        "--no-device",
        "--free-memory",
        "--markdown",
        "--cpus",
        "free",
        "--json",
        str(output),
        "--data-dir",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "| generator | 100 B unbatched |" in done.stdout
    (scenario,) = json.loads(output.read_text())["scenarios"]
    assert all(case["median"]["messages_per_s"] > 0 for case in scenario["cases"])


def test_many_topics_are_opened_and_each_message_is_acknowledged(tmp_path: Path) -> None:
    load = TopicsLoad(topics=20, rate_per_s=50)
    with started(magnetar_command(), tmp_path, Cpus(None, None)) as broker:
        metrics = topics.run(
            broker.service_url,
            "persistent://public/default/many",
            Meter(broker.pid),
            load,
            warm_up_s=0,
            seconds=0.05,
        )
    assert metrics["open_s"] > 0
    assert metrics["max_ms"] >= metrics["p50_ms"] > 0
    assert metrics["messages"] == 50


@pytest.mark.parametrize("data", ["empty", "existing", "killed"])
def test_a_start_is_measured_after_every_kind_of_end(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(start, "IDLE_S", 0.01)
    load = StartLoad(data=data, messages_before=100)
    metrics = start.run(discard_command(), tmp_path, Cpus(None, None), load)
    assert metrics["first_acknowledged_s"] >= metrics["ready_s"] > 0
    assert metrics["processes"] == 1


def test_a_broker_that_does_not_start_shows_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('port 6650 is in use')"]
    with pytest.raises(BrokerFailedError) as caught, started(command, tmp_path, Cpus(None, None)):
        pass
    assert "port 6650 is in use" in caught.value.__notes__[0]
