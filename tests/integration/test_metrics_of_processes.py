"""One scrape of the shared port shows all processes of a server, its storage and its bookies."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.sharing_processes import connected, is_there, process_of, processes, storage_pid
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

SENT = 5
NAMES = [f"topic-{number}" for number in range(6)]


def scrape(url: str) -> dict[str, dict[str, float]]:
    """Sums by metric and process."""
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            by = found[sample.name]
            process = sample.labels.get("process", "")
            by[process] = by.get(process, 0.0) + sample.value
    return found


def test_one_scrape_shows_all_processes(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path, options=("--processes", "3", "--bookies", "2")) as server:
        with connected(server) as client:
            for name in NAMES:
                producer = client.create_producer(name)
                for _ in range(SENT):
                    producer.send(b"x")
        everyone = {"1", "2", "3", "storage", "bookie-1", "bookie-2"}
        # Whichever process answers, all of them are in it, and each once.
        for _ in range(6):
            found = scrape(server.http_url)
            assert found["magnetar_process_up"] == dict.fromkeys(everyone, 1.0)
            assert found["process_resident_memory_bytes"].keys() == everyone
            assert sum(found["pulsar_in_messages_total"].values()) == SENT * len(NAMES)
        homes = {str(process_of(server, name)["number"]) for name in NAMES}
        assert {each for each, value in found["pulsar_in_messages_total"].items() if value} == homes
        assert found["magnetar_storage_sessions"] == {"storage": 3.0}
        assert found["magnetar_storage_calls_total"]["storage"] > 0
        assert found["magnetar_metadata_doubted"] == {"storage": 0.0}
        assert min(found["magnetar_segments"][name] for name in ("bookie-1", "bookie-2")) >= 1
        # The own port of a process has what it always had.
        own = scrape(processes(server)[0]["http_url"])
        assert own["process_resident_memory_bytes"].keys() == {""}
        assert "magnetar_process_up" not in own
        # One that does not answer is said to be away, and the others are shown.
        paused = processes(server)[0]["pid"]
        os.kill(paused, signal.SIGSTOP)
        try:
            wait_until(lambda: scrape(server.http_url)["magnetar_process_up"]["1"] == 0.0, 60, "it is away")
        finally:
            os.kill(paused, signal.SIGCONT)
        wait_until(lambda: scrape(server.http_url)["magnetar_process_up"]["1"] == 1.0, 60, "it is back")
        told = [*(each["pid"] for each in processes(server)), storage_pid(server)]
    assert not any(map(is_there, told))
