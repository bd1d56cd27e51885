"""History in real object stores: the servers are others' programs, the protocol is the cloud's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("obstore")

from magnetar.base.clock import ManualClock
from magnetar.tiered.errors import DamagedObjectError, MissingObjectError, StoreError, StoreSetupError
from magnetar.tiered.stores.urls import open_store
from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, HistoryTopic
from support.object_stores import SERVERS, RunningStore
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("history")]


async def names(store: RunningStore) -> list[str]:
    opened = open_store(store.url, ManualClock())
    return sorted([found.name async for found in opened.list("public")])


@pytest.mark.parametrize("server", SERVERS)
def test_history_lies_in_a_store(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SERVERS[server](tmp_path / server) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        asyncio.run(_keeps_its_promises(store, tmp_path))
        environment = {**KEEP_EVERYTHING, **store.environment, "MAGNETAR_OFFLOAD_URL": store.url}
        process = StandaloneProcess(tmp_path / "standalone", environment=environment)
        history = HistoryTopic(process)
        try:
            process.start()
            history.fill_ledger()
            history.fill_ledger()
            before = history.read()
            history.offload()
            history.delete_local()
            process.kill()
            process.start()
            assert history.read() == before
            attempts = {ledger["offloadedTo"]["attempt"] for ledger in history.ledgers()}
            found = asyncio.run(names(store))
            assert {name.rpartition("/")[2][20:56] for name in found} == attempts
            process.admin("DELETE", f"{history.path}?force=true")
            wait_until(lambda: not asyncio.run(names(store)), DEADLINE_S, "no object is left")
            assert not (process.data_dir / "offloaded").exists()
            assert not store.secret or store.secret not in process.log_text()
        finally:
            process.kill()


async def _keeps_its_promises(running: RunningStore, folder: Path) -> None:
    """What `ObjectStore` says, with an object of several parts and a name of a topic that is encoded."""
    store = open_store(running.url, ManualClock())
    file = folder / "object"
    data = bytes(range(256)) * (9 << 12)
    file.write_bytes(data)
    name = "public/default/persistent/a%2Fb c/0000-1.parquet"
    await store.put(name, file)
    assert await store.size(name) == len(data)
    assert await store.get(name, 0, 100) == data[:100]
    assert await store.get(name, len(data) - 7, 7) == data[-7:]
    assert [found.name async for found in store.list("public/default/persistent/a%2Fb c")] == [name]
    with pytest.raises(DamagedObjectError):
        await store.get(name, len(data) - 7, 8)
    with pytest.raises(DamagedObjectError):
        await store.get(name, len(data) + 7, 8)
    with pytest.raises(MissingObjectError, match="nothing"):
        await store.get("nothing", 0, 1)
    await store.delete(name)
    await store.delete(name)
    with pytest.raises(MissingObjectError):
        await store.size(name)


def test_wrong_credentials_are_said_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SERVERS["minio"](tmp_path / "minio") as running:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-0123456789")

        async def ask() -> StoreError:
            store = open_store(running.url, ManualClock())
            with pytest.raises(StoreSetupError, match="credentials") as raised:
                await store.size("x")
            return raised.value

        said = str(asyncio.run(ask()))
        assert "wrong-secret" not in said
        assert "somebody-else" not in said
