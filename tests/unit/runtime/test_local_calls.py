"""Calls between processes of one machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magnetar.base.errors import StorageError
from magnetar.runtime.local_calls import CallFailedError, CallServer, call


async def echo(said: Mapping[str, str]) -> object:
    return dict(said)


async def refuse(said: Mapping[str, str]) -> object:
    raise StorageError(f"no room for {said['what']}")


async def never(said: Mapping[str, str]) -> object:
    await asyncio.Event().wait()
    return said


@asynccontextmanager
async def serving(place: Path) -> AsyncIterator[None]:
    server = CallServer({"echo": echo, "refuse": refuse, "never": never})
    await server.start(place)
    try:
        yield
    finally:
        await server.close()


def test_an_answer_and_a_refusal_come_back(tmp_path: Path) -> None:
    async def story() -> None:
        place = tmp_path / "calls.sock"
        place.touch()
        async with serving(place):
            assert place.stat().st_mode & 0o777 == 0o600
            assert await call(place, "echo", within_s=60, a="1", b="") == {"a": "1", "b": ""}
            with pytest.raises(CallFailedError, match=r"^no room for two$"):
                await call(place, "refuse", within_s=60, what="two")
            with pytest.raises(CallFailedError, match="does not answer 'other'"):
                await call(place, "other", within_s=60)

    asyncio.run(story())


def test_one_that_is_late_or_gone_is_said_so(tmp_path: Path) -> None:
    async def story() -> None:
        place = tmp_path / "calls.sock"
        with pytest.raises(CallFailedError, match="does not answer just now"):
            await call(place, "echo", within_s=60)
        async with serving(place):
            with pytest.raises(CallFailedError, match=r"did not answer in 0\.01 s"):
                await call(place, "never", within_s=0.01)

    asyncio.run(story())


def test_one_that_ends_meanwhile_is_said_so(tmp_path: Path) -> None:
    async def story() -> None:
        place = tmp_path / "calls.sock"
        came = asyncio.Event()

        async def end(said: Mapping[str, str]) -> object:
            came.set()
            return await never(said)

        server = CallServer({"end": end})
        await server.start(place)
        asked = asyncio.ensure_future(call(place, "end", within_s=60))
        await came.wait()
        await server.close()
        with pytest.raises(CallFailedError, match=r"has ended before it answered|does not answer"):
            await asked

    asyncio.run(story())


@pytest.mark.parametrize("said", [b"{}\n", b"[1]\n", b"no\n", b'{"call": 1}\n', b"x" * 100_000])
def test_what_is_no_call_gets_no_answer(tmp_path: Path, said: bytes) -> None:
    async def story() -> bytes:
        place = tmp_path / "calls.sock"
        async with serving(place):
            reader, writer = await asyncio.open_unix_connection(str(place))
            writer.write(said)
            try:
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()

    answered = asyncio.run(story())
    assert b"answer" not in answered.replace(b"does not answer", b"")
