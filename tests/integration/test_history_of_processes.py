"""History of a standalone server of several processes: one store in the data folder, which all of them use.

A process is killed in the middle of an upload; the storage process is killed; one process alone goes on with
the same folder.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from magnetar.tiered.context import parse_object_name
from support.files import files_in
from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, HistoryTopic, appears
from support.lake_history import rows_of, wait_for_files
from support.sharing_processes import TOPIC, is_there, process_of, processes, storage_pid
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

ONE_COPY = {f"MAGNETAR_LEDGER_{name}": "1" for name in ("ENSEMBLE_SIZE", "WRITE_QUORUM", "ACK_QUORUM")}
NAMES = [f"kept{number}" for number in range(4)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandaloneProcess]:
    process = StandaloneProcess(tmp_path, options=("--processes", "3"), environment=KEEP_EVERYTHING)
    yield process.start()
    told = [*(each["pid"] for each in processes(process)), storage_pid(process)] if process.running else []
    process.kill()
    wait_until(lambda: not any(map(is_there, told)), 60, "all processes have ended")


def attempts_named(topics: list[HistoryTopic]) -> set[str]:
    named = set()
    for topic in topics:
        for ledger in topic.process.admin("GET", f"{topic.path}/internalStats")["ledgers"]:
            for segment in ledger.get("offloadedTo", {}).get("segments", ()):
                parsed = parse_object_name(segment["name"])
                assert parsed is not None
                named.add(str(parsed[2]))
    return named


def attempts_stored(folder: Path) -> set[str]:
    names = (path.relative_to(folder).as_posix() for path in files_in(folder, "*.parquet*"))
    return {str(parsed[2]) for name in names if (parsed := parse_object_name(name)) is not None}


def answers(topic: HistoryTopic) -> bool:
    try:
        topic.process.admin("GET", f"{topic.path}/internalStats")
    except OSError:
        return False
    return True


def test_topics_of_all_processes_have_history_in_the_data_folder(server: StandaloneProcess) -> None:
    topics = [HistoryTopic(server, TOPIC + name) for name in NAMES]
    for topic in topics:
        topic.fill_ledger(40)
        topic.fill_ledger(40)
    assert len({process_of(server, name)["number"] for name in NAMES}) > 1
    before = [topic.read() for topic in topics]
    store = server.data_dir / "offloaded"
    # The owner of the first one is killed while it makes its files.
    topics[0].request()
    appears(store, "*.parquet*")
    os.kill(process_of(server, NAMES[0])["pid"], signal.SIGKILL)
    for topic in topics[1:]:
        # The killed process may have owned it too, and was asked until the others knew.
        wait_until(partial(answers, topic), DEADLINE_S, "it has an owner")
        topic.offload()
    wait_until(lambda: process_of(server, NAMES[0])["pid"] > 0, DEADLINE_S, "it has an owner again")
    topics[0].offload()
    os.kill(storage_pid(server), signal.SIGKILL)
    for topic in topics:
        topic.delete_local()
    assert [topic.read() for topic in topics] == before
    wait_until(
        lambda: attempts_named(topics) == attempts_stored(store), DEADLINE_S, "what is stored is named"
    )
    roles = [each["role"] for each in server.admin("GET", "offload/stores")]
    assert set(roles) <= {"owner"}
    # One process goes on with the same folder, and writes to the store at once.
    assert server.stop() == 0
    alone = StandaloneProcess(
        server.folder, options=("--bookies", "1"), environment={**KEEP_EVERYTHING, **ONE_COPY}
    )
    with alone:
        for topic in topics:
            topic.process = alone
        assert [topic.read() for topic in topics] == before
        topics[1].fill_ledger(20)
        topics[1].offload()
        assert len(topics[1].read()) == len(before[1]) + 20


def test_topics_of_all_processes_have_tables_in_the_catalog_of_the_folder(tmp_path: Path) -> None:
    """All processes make tables in one SQLite file at the same time."""
    pytest.importorskip("pyiceberg")
    environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": ""}
    with StandaloneProcess(tmp_path, options=("--processes", "3"), environment=environment) as server:
        topics = [HistoryTopic(server, TOPIC + name) for name in NAMES]
        for topic in topics:
            topic.fill_ledger(40)
        assert len({process_of(server, name)["number"] for name in NAMES}) > 1
        for topic in topics:
            topic.request()
        for name, topic in zip(NAMES, topics, strict=True):
            assert rows_of(wait_for_files(topic, 1, name)) == topic.read()
        told = [*(each["pid"] for each in processes(server)), storage_pid(server)]
    assert not any(map(is_there, told))
