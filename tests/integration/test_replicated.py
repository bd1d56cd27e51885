"""`magnetar standalone --bookies 3`: messages on bookies beside the broker, with the official client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import urllib.request
from functools import partial
from pathlib import Path

import pulsar
import pytest

from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.observability.ledger_client_rows import LEDGER_CLIENT
from magnetar.runtime.clock import SystemClock
from magnetar.server.storage.datafolder import DataFolder
from support.official import connect, receive_all
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("folder")]

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


def ledgers_of(process: StandaloneProcess) -> list[LedgerMetadata]:
    """All ledgers of topics, of a process that has ended."""
    folder = DataFolder(process.data_dir)

    async def main() -> list[LedgerMetadata]:
        store = EmbeddedMetadataStore.open(folder.metadata_file, clock=SystemClock())
        registry = TreeLedgerRegistry(store, BookKeeperTree())
        try:
            stored = [(await registry.read(number)).metadata async for number in registry.ledger_ids()]
        finally:
            await store.close()
            folder.release()
        return [each for each in stored if each.custom.get("component") == b"managed-ledger"]

    return asyncio.run(main())


def test_the_persistence_policy_says_how_many_copies_there_are(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path, options=("--bookies", "3")) as process:
        listed = process.admin("GET", "bookies/all")
        assert len(listed["bookies"]) == 3
        client = connect(process)
        consumer = client.subscribe(TOPIC, "keeps")
        producer = client.create_producer(TOPIC)
        producer.send(b"two copies")
        copies = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 2}
        process.admin("POST", "namespaces/public/default/persistence", copies)
        producer.send(b"begins another ledger")
        stats = "persistent/public/default/replicated/internalStats"
        wait_until(lambda: len(process.admin("GET", stats)["ledgers"]) == 2, 30, "another ledger")
        producer.send(b"three copies")
        assert [consumer.receive(10_000).data()[:3] for _ in range(3)] == [b"two", b"beg", b"thr"]
        client.close()
        with urllib.request.urlopen(f"{process.http_url}/metrics", timeout=30) as answer:
            scrape = answer.read().decode()
        # The figures of the ledger client are here and nowhere else.
        assert [metric.name for metric in LEDGER_CLIENT.metrics if f"\n{metric.name}" not in scrape] == []
    found = [(each.ensemble_size, each.write_quorum, each.ack_quorum) for each in ledgers_of(process)]
    assert sorted(found) == [(2, 2, 2), (3, 3, 2)]


def test_the_copies_stand_in_two_racks(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path, options=("--bookies", "3")) as process:
        names = sorted(bookie["bookieId"] for bookie in process.admin("GET", "bookies/all")["bookies"])
        for name, rack in zip(names, ("/left", "/left", "/right"), strict=True):
            process.admin("POST", f"bookies/racks-info/{name}", {"rack": rack, "hostname": ""})
        client = connect(process)
        for number in range(8):
            # Ledgers that nothing was written to do not stay.
            client.create_producer(f"{TOPIC}-{number}").send(b"x")
            client.subscribe(f"{TOPIC}-{number}", "keeps")
        client.close()
    found = [each.ensembles[0][1] for each in ledgers_of(process)]
    assert len(found) == 8
    assert all(names[2] in ensemble for ensemble in found), "the others stand in one rack"


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
