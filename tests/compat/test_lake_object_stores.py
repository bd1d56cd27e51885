"""Tables over history in real object stores: the servers are others' programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("obstore")

from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from magnetar.lake.locations import io_properties
from magnetar.lake.setup import FILE_IO
from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, HistoryTopic
from support.object_stores import SERVERS, RunningStore
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("history")]


@pytest.mark.parametrize("server", ["minio", "moto"])
def test_tables_of_history_in_s3(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if server == "moto" and "MAGNETAR_TEST_SERVERS" not in os.environ:
        # One that happens to be installed may be too old: 5.2.1 answers the end of an upload with an error.
        pytest.skip("name a folder with moto 5.2.5 or newer by MAGNETAR_TEST_SERVERS")
    with SERVERS[server](tmp_path / server) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        environment = {
            **KEEP_EVERYTHING,
            **store.environment,
            "MAGNETAR_OFFLOAD_URL": store.url,
            "MAGNETAR_LAKE_CATALOG": "",
        }
        with StandaloneProcess(tmp_path / "standalone", environment=environment) as process:
            history = HistoryTopic(process)
            history.fill_ledger(40)
            history.offload()
            wait_until(lambda: status(history)["upToDate"], DEADLINE_S, "the table up to date")
            read = [(seen.ledger_id, seen.entry_id, seen.batch_index, seen.data) for seen in history.read()]
            rows = opened(process, store).scan().to_arrow().to_pylist()
            columns = ("ledger_id", "entry_id", "batch_index", "payload")
            assert sorted(tuple(row[name] for name in columns) for row in rows) == sorted(read)
            process.admin("POST", f"{history.path}/lake/maintain?keepSeconds=0&keepSnapshots=1")
            wait_until(lambda: job(history, "maintain")["status"] != "RUNNING", DEADLINE_S, "upkeep done")
            assert job(history, "maintain")["status"] == "SUCCESS", job(history, "maintain")
            process.admin("POST", f"{history.path}/lake/verify")
            wait_until(lambda: job(history, "verify")["status"] != "RUNNING", DEADLINE_S, "checked")
            assert job(history, "verify")["result"]["problems"] == []
            process.admin("DELETE", f"{history.path}?force=true")
            wait_until(lambda: not process.admin("GET", "lake")["tables"], DEADLINE_S, "the table dropped")
            assert not store.secret or store.secret not in process.log_text()


def status(history: HistoryTopic) -> Any:
    # What a store refuses once is tried again half a minute later.
    lakes = history.process.admin("GET", "lake")
    if lakes["behind"] or not lakes["tables"]:
        return {"upToDate": False}
    return history.process.admin("GET", f"{history.path}/lake")


def job(history: HistoryTopic, kind: str) -> Any:
    return history.process.admin("GET", f"{history.path}/lake/{kind}")


def opened(process: StandaloneProcess, store: RunningStore) -> Table:
    catalog = load_catalog(
        "magnetar",
        type="sql",
        uri=f"sqlite:///{process.data_dir / 'lake' / 'catalog.db'}",
        **{"py-io-impl": FILE_IO, **io_properties(store.url)},
    )
    return catalog.load_table(("public__default", "history"))
