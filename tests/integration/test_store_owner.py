"""Two installations over one store: real processes, a folder and a bucket, kill -9."""

from __future__ import annotations

import shutil
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("obstore")

from fakes.s3_server import FakeS3
from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, PATH, HistoryTopic
from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.one_process("history")

TAKE = """
import asyncio, os, sys, uuid
from pathlib import Path
from magnetar.runtime.clock import SystemClock
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.tiered.guarded import installation_id
from magnetar.tiered.owner import OwnerContext, StoreOwner
from magnetar.tiered.stores.local import LocalStore

folder, die_at = Path(sys.argv[1]), sys.argv[2]

def step(name):
    if name == die_at:
        os._exit(9)

async def main():
    metadata = EmbeddedMetadataStore.open(folder / "metadata.db", clock=SystemClock())
    context = OwnerContext(
        metadata, SystemClock(), lambda: installation_id(metadata, uuid.uuid4), uuid.uuid4,
        asyncio.sleep, 0.01, step=step,
    )
    owner = StoreOwner(context, LocalStore(Path(sys.argv[3])), "/magnetar/offload-stores/x", private=False)
    try:
        await owner.step()
        print("owner")
    except Exception as error:
        print(type(error).__name__)
    await metadata.close()

asyncio.run(main())
"""


def take(folder: Path, store: Path, die_at: str = "") -> tuple[int, str]:
    """A process that takes the store with this metadata; its exit code and what it says."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", TAKE, str(folder), die_at, str(store)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.strip() or done.stderr[-500:]


@pytest.mark.process
@pytest.mark.parametrize("where", ["asked", "noted", "changed"])
def test_kill_9_while_a_store_is_taken(where: str, tmp_path: Path) -> None:
    """With metadata and a folder on a disk: the same data folder goes on, a copy of it does not."""
    own, store = tmp_path / "own", tmp_path / "store"
    assert take(own, store) == (0, "owner")
    assert take(own, store, where)[0] == 9
    shutil.copytree(own, tmp_path / "clone")
    assert take(own, store) == (0, "owner")
    assert take(tmp_path / "clone", store) == (0, "ReadOnlyStoreError")
    assert take(tmp_path / "stranger", store) == (0, "ReadOnlyStoreError")
    assert take(own, store) == (0, "owner")


@pytest.fixture(params=["folder", "bucket"])
def store_url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "folder":
        yield (tmp_path / "store").as_uri()
        return
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with FakeS3() as server:
        yield server.url


@pytest.mark.process
def test_a_clone_deletes_nothing_of_its_original(store_url: str, tmp_path: Path) -> None:
    """A copy of the data folder with the same store, started beside the original and again after it."""
    environment = {**KEEP_EVERYTHING, "MAGNETAR_OFFLOAD_URL": store_url}
    original = StandaloneProcess(tmp_path / "original", environment=environment)
    clone = StandaloneProcess(tmp_path / "clone", environment=environment)
    try:
        original.start()
        history = HistoryTopic(original)
        history.fill_ledger(40)
        history.offload()
        history.delete_local()
        before = history.read()
        assert len(before) == 40
        original.kill()
        shutil.copytree(original.data_dir, clone.data_dir)
        original.start()
        assert store_of(original, "owner")
        clone.start()
        copied = HistoryTopic(clone)
        assert copied.read() == before, "what it has is read"
        assert store_of(clone, "read-only")
        with pytest.raises(urllib.error.HTTPError):
            clone.admin("DELETE", f"{PATH}?force=true")
        copied.fill_ledger(40)
        copied.request()
        wait_until(lambda: copied.status()["status"] == "ERROR", DEADLINE_S, "refused")
        assert "read-only" in copied.status()["lastError"]
        assert history.read() == before
        original.kill()
        clone.kill()
        clone.start()
        with pytest.raises(urllib.error.HTTPError):
            clone.admin("DELETE", f"{PATH}?force=true")
        original.start()
        assert history.read() == before
        # The original's own deletion works, without a command.
        original.admin("DELETE", f"{PATH}?force=true")
        claimed = clone.admin("POST", "offload/stores/claim")
        assert claimed["role"] == "owner"
        assert store_of(original, "read-only")
    finally:
        original.kill()
        clone.kill()


def store_of(process: StandaloneProcess, role: str) -> bool:
    def has_role() -> bool:
        return [each["role"] for each in process.admin("GET", "offload/stores")] == [role]

    wait_until(has_role, DEADLINE_S, f"the store is {role}")
    return True
