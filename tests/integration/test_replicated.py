"""`magnetar standalone --bookies 3`: messages on bookies beside the broker, with the official client."""

from __future__ import annotations

import json
import os
import signal
import threading
from functools import partial
from pathlib import Path

import pulsar
import pytest

from support.official import connect, receive_all
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

TOPIC = "persistent://public/default/replicated"


def pid_of(process: StandaloneProcess, bookie: str) -> int:
    told = json.loads((process.data_dir / "bookies" / "alive" / bookie).read_bytes())
    assert isinstance(told["pid"], int)
    return told["pid"]


def kill(process: StandaloneProcess, bookie: str) -> int:
    pid = pid_of(process, bookie)
    os.kill(pid, signal.SIGKILL)
    return pid


def is_back(process: StandaloneProcess, bookie: str, old_pid: int) -> bool:
    alive = process.data_dir / "bookies" / "alive"
    try:
        return bool(json.loads((alive / bookie).read_bytes())["pid"] != old_pid)
    except FileNotFoundError:
        return False


def test_publishing_goes_on_while_bookies_are_killed(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path, options=("--bookies", "3")) as process:
        client = connect(process)
        producer = client.create_producer(TOPIC, batching_enabled=False, block_if_queue_full=True)
        consumer = client.subscribe(TOPIC, "all", initial_position=pulsar.InitialPosition.Earliest)
        sent: list[bytes] = []
        results: list[pulsar.Result] = []
        sending = threading.Event()
        sending.set()

        def publish() -> None:
            while sending.is_set():
                data = b"%d" % len(sent)
                sent.append(data)
                producer.send_async(data, lambda result, _: results.append(result))
                if len(sent) - len(results) > 500:
                    wait_until(lambda: len(sent) - len(results) < 100, 30, "acknowledged")

        def acknowledged_more(count: int) -> None:
            goal = len(results) + count
            wait_until(lambda: len(results) >= goal, 30, f"{goal} messages acknowledged")

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            for bookie in ("bookie-1", "bookie-2", "bookie-3"):
                acknowledged_more(300)
                old = kill(process, bookie)
                acknowledged_more(300)
                # It comes back with what it had, so that the next one may go.
                wait_until(partial(is_back, process, bookie, old), 30, f"{bookie} is back")
        finally:
            sending.clear()
            thread.join(60)
        producer.flush()
        wait_until(lambda: len(results) == len(sent), 30, "all are acknowledged")
        assert set(results) == {pulsar.Result.Ok}
        assert "is replaced by" in process.log_text()
        assert receive_all(consumer, len(sent)) == sent
        client.close()
        process.kill()
        process.start()
        client = connect(process)
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        assert [reader.read_next(10_000).data() for _ in sent] == sent
        client.close()


def test_the_start_says_what_does_not_fit_the_data_folder(tmp_path: Path) -> None:
    alone = StandaloneProcess(tmp_path)
    alone.start()
    alone.stop()
    with pytest.raises(AssertionError, match="keeps messages in the broker's own process: start without"):
        StandaloneProcess(tmp_path, options=("--bookies", "3")).start()
    beside = tmp_path / "beside"
    with StandaloneProcess(beside, options=("--bookies", "2")) as process:
        connect(process).close()
    with pytest.raises(AssertionError, match="keeps messages on bookies: start with --bookies"):
        StandaloneProcess(beside).start()
    fewer = StandaloneProcess(
        beside, options=("--bookies", "1"), environment={"MAGNETAR_LEDGER_ENSEMBLE_SIZE": "1"}
    )
    with pytest.raises(AssertionError, match="must be in descending order"):
        fewer.start()
