"""Object stores: what every one promises, URLs, secrets, attempts that are repeated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fakes.tiered import FaultyStore, refusal
from magnetar.base.clock import ManualClock
from magnetar.tiered.errors import (
    DamagedObjectError,
    MissingObjectError,
    StoreError,
    StoreSetupError,
    SwapLostError,
)
from magnetar.tiered.stores.local import LocalStore
from magnetar.tiered.stores.memory import MemoryStore
from magnetar.tiered.stores.object_store import ObjectStore
from magnetar.tiered.stores.redaction import redacted, secrets_of
from magnetar.tiered.stores.retrying import RetryingStore
from magnetar.tiered.stores.urls import check_url, open_store

pytestmark = pytest.mark.leaves("obstore starts its threads at the first call")

NAME = "public/default/persistent/a%2Fb/0000000000000000003-x.parquet"


@pytest.fixture(params=["local", "memory", "obstore", "hdfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return LocalStore(tmp_path / "objects")
    if request.param == "memory":
        return MemoryStore(ManualClock())
    if request.param == "hdfs":
        fs = pytest.importorskip("pyarrow.fs")
        from magnetar.tiered.stores.hdfs import HdfsStore

        # Another file system behind the same interface of pyarrow's.
        return HdfsStore("hdfs://stand-in/topics", fs.LocalFileSystem(), str(tmp_path / "topics"))
    obstore = pytest.importorskip("obstore")
    from magnetar.tiered.stores.cloud import CloudStore

    # The same calls as for a cloud, without a server.
    return CloudStore("memory://cloud", obstore.store.MemoryStore())


def file_with(folder: Path, data: bytes) -> Path:
    file = folder / "source"
    file.write_bytes(data)
    return file


_SOME_TAG = {
    "LocalStore": "0",
    "MemoryStore": "0",
    "CloudStore": '{"e_tag": "7"}',
    "HdfsStore": "7",
}


async def names(found: AsyncIterator[object]) -> list[str]:
    return sorted([each.name async for each in found])  # type: ignore[attr-defined]


def test_what_is_put_is_there(store: ObjectStore, tmp_path: Path) -> None:
    async def story() -> None:
        data = bytes(range(256)) * 100
        file = file_with(tmp_path, data)
        await store.put(NAME, file)
        await store.put("public/default/persistent/b/1", file)
        await store.put("public/default/persistent/a", file)
        file.unlink()
        assert await store.size(NAME) == len(data)
        assert await store.get(NAME, 0, len(data)) == data
        assert await store.get(NAME, 1000, 10) == data[1000:1010]
        assert await names(store.list("public/default/persistent/a%2Fb")) == [NAME]
        assert len(await names(store.list(""))) == 3
        assert await names(store.list("nothing")) == []
        found = [each async for each in store.list("public/default/persistent/b")]
        assert (found[0].size_bytes, found[0].modified_ms > 1_500_000_000_000) == (len(data), True)
        file = store.file_of(NAME) or file
        assert not file.exists() or file.read_bytes() == data
        await store.delete(NAME)
        await store.delete(NAME)
        assert await names(store.list("public/default/persistent/a%2Fb")) == []
        await store.close()

    asyncio.run(story())


def test_a_small_object_is_changed_by_one_at_a_time(store: ObjectStore) -> None:
    """A process that has not seen the last change changes nothing; one of several at once does."""

    async def story() -> None:
        assert await store.read("record") is None
        with pytest.raises(SwapLostError):
            await store.swap("record", b"0", _SOME_TAG[type(store).__name__])
        await store.swap("record", b"1", None)
        with pytest.raises(SwapLostError):
            await store.swap("record", b"2", None)
        first = await store.read("record")
        assert first is not None
        assert first.data == b"1"
        # The file system that stands in for Hadoop's lets one file replace another.
        tries_max = 1 if type(store).__name__ == "HdfsStore" else 5
        tries = [store.swap("record", b"by %d" % number, first.tag) for number in range(tries_max)]
        done = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == [
            "NoneType",
            *["SwapLostError"] * (tries_max - 1),
        ]
        second = await store.read("record")
        assert second is not None
        assert second.data == b"by %d" % done.index(None)
        assert second.tag != first.tag
        for number in range(20):
            known = await store.read("record")
            assert known is not None
            await store.swap("record", b"%d" % number, known.tag)
        with pytest.raises(SwapLostError):
            await store.swap("record", b"late", first.tag)
        last = await store.read("record")
        assert last is not None
        assert last.data == b"19"

    asyncio.run(story())


def test_what_is_missing_or_short_is_said(store: ObjectStore, tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(MissingObjectError, match="nothing"):
            await store.get("nothing", 0, 1)
        with pytest.raises(MissingObjectError, match="nothing"):
            await store.size("nothing")
        await store.put("short", file_with(tmp_path, b"12345"))
        with pytest.raises(DamagedObjectError, match="short"):
            await store.get("short", 3, 10)

    asyncio.run(story())


def test_a_folder_has_no_way_out(tmp_path: Path) -> None:
    async def story() -> None:
        store = LocalStore(tmp_path / "objects")
        for name in ("../outside", "/etc/passwd", "a/../../b", ""):
            with pytest.raises(StoreSetupError):
                await store.put(name, file_with(tmp_path, b"x"))

    asyncio.run(story())


def test_an_upload_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = LocalStore(tmp_path / "objects")

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(StoreError, match=r"No space left.*free some space"):
            await store.put(NAME, file_with(tmp_path, b"x"))
        assert await names(store.list("")) == []

    asyncio.run(story())


def test_folders_of_topics_that_are_gone_go(tmp_path: Path) -> None:
    async def story() -> None:
        store = LocalStore(tmp_path / "objects")
        await store.put(NAME, file_with(tmp_path, b"x"))
        await store.delete(NAME)

    asyncio.run(story())
    assert list((tmp_path / "objects").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://host/folder", "is not known"),
        ("/folder", "no scheme"),
        ("file://host/folder", "absolute folder"),
        ("s3:///folder", "names no bucket"),
        ("s3://user:geheim@bucket", "holds credentials"),
        ("s3://bucket?secret_access_key=geheim", "cannot be set in the URL"),
        ("s3://bucket?aws_access_key_id=geheim", "cannot be set in the URL"),
    ],
)
def test_urls_that_make_no_sense(url: str, reason: str) -> None:
    with pytest.raises(StoreSetupError, match=reason) as raised:
        check_url(url)
    assert "geheim" not in str(raised.value)


def test_stores_open_by_url(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}/a%20b", ManualClock()).url == f"file://{tmp_path}/a%20b"
    pytest.importorskip("obstore")
    for url in (
        "s3://bucket/folder?region=eu-west-1",
        "s3://bucket?endpoint=http://127.0.0.1:9&region=us-east-1",
        "gs://bucket/folder?endpoint=http://127.0.0.1:9",
        "az://account/container/folder",
    ):
        assert open_store(url, ManualClock()).url == url


SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


def test_secrets_are_taken_out_of_texts() -> None:
    environment = {
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AZURE_STORAGE_ACCOUNT_KEY": "YWJjZGVm",
        "AWS_REGION": "eu-central-1",
        "GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json",
        "PATH": "/usr/bin",
    }
    secrets = secrets_of(environment)
    assert secrets == (SECRET, "YWJjZGVm")
    text = (
        f"PUT https://me:pass@host/b?X-Amz-Signature=abc123&x=1&sig=QQ%3D with {SECRET} and YWJjZGVm:"
        ' "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/2026"'
    )
    clean = redacted(text, secrets)
    for secret in (SECRET, "YWJjZGVm", "pass", "abc123", "QQ%3D", "AKIA"):
        assert secret not in clean
    assert "&x=1" in clean


def test_a_store_that_refuses_tells_no_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    caplog.set_level(logging.DEBUG)

    async def story() -> str:
        # No process listens there.
        store = open_store("s3://bucket?endpoint=http://127.0.0.1:1&region=us-east-1", ManualClock())
        with pytest.raises(StoreError, match="bucket") as raised:
            await store.put(NAME, file_with(tmp_path, b"x"))
        assert raised.value.__cause__ is None
        return f"{raised.value} {raised.value!r}"

    said = asyncio.run(story()) + caplog.text
    assert SECRET not in said
    assert "AKIAIOSFODNN7EXAMPLE" not in said


def test_what_may_succeed_later_is_tried_again(tmp_path: Path) -> None:
    async def story() -> None:
        faulty = FaultyStore(MemoryStore(ManualClock()))
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)

        store = RetryingStore(faulty, pause)
        failures = [refusal(), refusal()]
        faulty.fault = lambda call, name: failures.pop() if failures else None
        await store.put("a", file_with(tmp_path, b"x"))
        assert (pauses, store.retries) == ([0.2, 1.0], 2)
        calls: list[str] = []

        def always(error: Callable[[], Exception]) -> Callable[[str, str], Exception]:
            def fault(call: str, name: str) -> Exception:
                calls.append(call)
                return error()

            return fault

        faulty.fault = always(refusal)
        with pytest.raises(StoreError, match="500"):
            await store.get("a", 0, 1)
        assert len(calls) == 4
        calls.clear()
        faulty.fault = always(lambda: StoreSetupError("a", "wrong credentials", "check them"))
        with pytest.raises(StoreSetupError):
            await store.size("a")
        assert len(calls) == 1, "what cannot succeed is not tried again"

    asyncio.run(story())
