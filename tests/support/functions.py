"""Functions and packages over a broker on fakes: a folder of files, the admin API, stand-in workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from magnetar.functions.catalogue.package_files import FileLimits, PackageFiles, StoredFile
from magnetar.functions.config.checks import check, with_runtime
from magnetar.functions.config.completing import config_of
from magnetar.functions.config.function_config import FunctionConfig
from magnetar.functions.config.given import given_of
from magnetar.functions.ports import InstanceStats, InstanceStatus, OutputPart, StateValue, StoredFunction
from magnetar.functions.service import Functions, opened
from support.admin_api import AdminApi, Answer, with_api

V3 = "/admin/v3/functions"
F = f"{V3}/public/default/ex"
P = "/admin/v3/packages/function/public/default"
GIVEN: dict[str, Any] = {
    "className": "ex.Ex",
    "inputs": ["in"],
    "output": "out",
    "py": "ex.py",
}
"""What the tools send of a small function."""
CODE = b"def process(input):\n    return input\n"
BOUNDARY = "--boundary-of-tests"


def config(**more: object) -> FunctionConfig:
    """A checked configuration: GIVEN with changes."""
    names = {"tenant": "public", "namespace": "default", "name": "ex"}
    given = with_runtime(given_of({**GIVEN, **names, **more}))
    check(given)
    return config_of(given)


def form(parts: dict[str, bytes | str | tuple[str, bytes]]) -> bytes:
    """A multipart body: texts, and files as `(name, bytes)`."""
    body = b""
    for name, value in parts.items():
        file = f'; filename="{value[0]}"' if isinstance(value, tuple) else ""
        data = value[1] if isinstance(value, tuple) else value.encode() if isinstance(value, str) else value
        body += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode()
        body += data + b"\r\n"
    return body + f"--{BOUNDARY}--\r\n".encode()


class Workers:
    """A stand-in for what runs functions: notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.result: bytes | None = None
        self.error: Exception | None = None
        self.written = b""
        self.states: dict[str, StateValue] = {}
        self.statuses: list[InstanceStatus] = []
        self.stats_of: list[InstanceStats] = []

    async def status(self, function: StoredFunction) -> list[InstanceStatus]:
        return self.statuses

    async def stats(self, function: StoredFunction) -> list[InstanceStats]:
        return self.stats_of

    def output(self, function: StoredFunction, instance: int, start: int) -> OutputPart:
        return OutputPart(start, start + len(self.written), self.written)

    async def restart(self, function: StoredFunction, instance: int | None) -> None:
        self.asked.append((function.full_name, instance))
        if self.error is not None:
            raise self.error

    async def end(self, function: StoredFunction, *, forget: bool) -> None:
        self.asked.append((function.full_name, "end", forget))

    async def trigger(self, function: StoredFunction, topic: str | None, value: bytes) -> bytes | None:
        self.asked.append((function.full_name, topic, value))
        if self.error is not None:
            raise self.error
        return self.result

    async def state_get(self, function: StoredFunction, key: str) -> StateValue | None:
        return self.states.get(key)

    async def state_put(self, function: StoredFunction, key: str, value: bytes) -> None:
        self.states[key] = StateValue(value, None, 0)


class FunctionsApi:
    """The admin API of functions."""

    def __init__(self, api: AdminApi, functions: Functions) -> None:
        self.api = api
        self.functions = functions
        self.workers = Workers()

    async def send(
        self,
        method: str,
        path: str,
        parts: dict[str, bytes | str | tuple[str, bytes]],
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Sends a multipart body."""
        kind = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
        return await self.api.call(method, path, form(parts), headers={**kind, **(headers or {})})

    async def create(self, path: str = F, *, code: bytes = CODE, **more: object) -> Answer:
        """Creates a function of GIVEN."""
        given = json.dumps({**GIVEN, **more})
        return await self.send("POST", path, {"functionConfig": given, "data": ("ex.py", code)})

    async def update(self, path: str = F, *, code: bytes | None = None, **given: object) -> Answer:
        """Updates a function."""
        parts: dict[str, bytes | str | tuple[str, bytes]] = {"functionConfig": json.dumps(given)}
        if code is not None:
            parts["data"] = ("ex.py", code)
        return await self.send("PUT", path, parts)

    def kept(self) -> list[str]:
        """Names of all files in the folder."""
        return sorted(file.name for file in self.functions.files.folder.rglob("*") if file.is_file())


def files_in(folder: Path, **limits: int) -> PackageFiles:
    """A folder of files; nothing is synced."""
    return PackageFiles(folder / "functions", FileLimits(**limits), durable=False)


async def stored(files: PackageFiles, name: str = "ex.py", data: bytes = CODE) -> StoredFile:
    """A file in the folder."""
    arriving = files.begin(name)
    await arriving.write(data)
    return await arriving.finish()


def with_functions(
    folder: Path, story: Callable[[FunctionsApi], Awaitable[None]], *, running: bool = False, **more: Any
) -> None:
    """Runs a story with an admin API that offers functions; `running`: with workers."""

    async def told(api: AdminApi) -> None:
        functions = await opened(api.broker.store, files_in(folder), api.clock)
        found = FunctionsApi(api, functions)
        if running:
            functions.running = found.workers

        async def offered() -> Functions:
            return functions

        api.broker.functions = offered
        try:
            await story(found)
        finally:
            functions.close()

    with_api(told, **more)


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Runs a story without a broker."""

    async def told() -> None:
        await story()

    asyncio.run(told())
