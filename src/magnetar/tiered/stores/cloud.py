"""S3, Google Cloud Storage and Azure, through obstore.

obstore finds credentials where each cloud's own tools do: in the environment, in files, and in roles of the
machine. Its requests run in its own threads. An object appears only after its upload is complete. Parts of an
incomplete upload stay in S3 until a lifecycle rule of the bucket (abort incomplete multipart uploads) removes
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
from obstore import exceptions

from magnetar.tiered.errors import (
    DamagedObjectError,
    MissingObjectError,
    StoreError,
    StoreSetupError,
    SwapLostError,
)
from magnetar.tiered.stores.object_store import StoredObject, Tagged
from magnetar.tiered.stores.redaction import redacted

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

_PART_BYTES: Final = 8 << 20
"""Bytes of a part of a multipart upload: S3 accepts 10,000 parts, so objects may have 78 GiB."""
_PARTS_AT_ONCE: Final = 4
_LISTED_AT_ONCE: Final = 500

_BEHIND_THE_END: Final = re.compile(r"\b416\b|InvalidRange|start offset|beyond")
"""Matches the errors of servers and of obstore for a range that begins after the end of the object."""

_T = TypeVar("_T")


class CloudStore:
    """A bucket or container, or a folder in it."""

    def __init__(
        self, url: str, store: S3Store | GCSStore | AzureStore, *, secrets: tuple[str, ...] = ()
    ) -> None:
        """`secrets`: values that are removed from the texts of errors."""
        self._url = url
        self._store = store
        self._secrets = secrets

    @property
    def url(self) -> str:
        return self._url

    async def _ask(self, name: str, answer: Awaitable[_T]) -> _T:
        what = f"{name} in {self._url}" if name else self._url
        try:
            return await answer
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise StoreSetupError(
                    what, "there is no such bucket", "make it, or correct offload_url"
                ) from None
            raise MissingObjectError(
                what, "the store has no such object", "restore it from a backup or an earlier version"
            ) from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError) as error:
            raise StoreSetupError(
                what,
                f"the store refuses the credentials ({self._reason(error)})",
                "check the credentials in the broker's environment and what they may do",
            ) from None
        except (exceptions.BaseError, OSError, ValueError) as error:
            # Not chained: the text of the cause is not free of secrets.
            raise StoreError(what, self._reason(error), "it is tried again") from None

    def _reason(self, error: Exception) -> str:
        text = redacted(" ".join(str(error).split()), self._secrets)
        return text if len(text) <= 400 else f"{text[:400]}…"

    async def put(self, name: str, file: Path) -> None:
        await self._ask(
            name,
            obstore.put_async(
                self._store, name, file, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            ),
        )

    async def get(self, name: str, start: int, length: int) -> bytes:
        try:
            data = await self._ask(
                name, obstore.get_range_async(self._store, name, start=start, length=length)
            )
        except StoreError as error:
            if _BEHIND_THE_END.search(error.detail):
                raise DamagedObjectError(
                    f"{name} in {self._url}", f"it ends before byte {start}, {start + length} are needed"
                ) from error
            raise
        if len(data) != length:
            raise DamagedObjectError(
                f"{name} in {self._url}", f"it ends at byte {start + len(data)}, {start + length} are needed"
            )
        return bytes(data)

    async def size(self, name: str) -> int:
        meta = await self._ask(name, obstore.head_async(self._store, name))
        return int(meta["size"])

    async def read(self, name: str) -> Tagged | None:
        try:
            found = await self._ask(name, obstore.get_async(self._store, name))
        except MissingObjectError:
            return None
        data = bytes(await self._ask(name, found.bytes_async()))
        meta = found.meta
        # Google's preconditions are about the version, the others' about the tag.
        return Tagged(data, json.dumps({key: meta[key] for key in ("e_tag", "version") if meta.get(key)}))

    async def swap(self, name: str, data: bytes, known: str | None) -> None:
        mode: Any = "create" if known is None else json.loads(known)
        try:
            # In one request: a multipart upload has no condition.
            await obstore.put_async(self._store, name, data, mode=mode, use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise SwapLostError(
                f"{name} in {self._url}", "another process has changed it", "look at it again"
            ) from None
        except (exceptions.NotSupportedError, NotImplementedError) as error:
            raise StoreSetupError(
                self._url,
                f"the store knows no conditional writes ({self._reason(error)})",
                "use a server that knows If-Match and If-None-Match",
            ) from None
        except exceptions.NotFoundError as error:
            if known is None or "NoSuchBucket" in str(error):
                await self._ask(name, _raising(error))
            raise SwapLostError(
                f"{name} in {self._url}", "another process has deleted it", "look at it again"
            ) from None
        except (exceptions.BaseError, OSError, ValueError) as error:
            await self._ask(name, _raising(error))

    async def list(self, folder: str) -> AsyncIterator[StoredObject]:
        stream = obstore.list(self._store, folder or None, chunk_size=_LISTED_AT_ONCE)
        while True:
            try:
                found = await self._ask(folder, anext(stream))
            except StopAsyncIteration:  # the listing has ended
                return
            for meta in found:
                modified_ms = int(meta["last_modified"].timestamp() * 1000)
                yield StoredObject(meta["path"], int(meta["size"]), modified_ms)

    async def delete(self, name: str) -> None:
        try:
            await self._ask(name, obstore.delete_async(self._store, name))
        except MissingObjectError:  # gone is what was asked for
            return

    def file_of(self, name: str) -> Path | None:
        return None

    async def close(self) -> None:
        """Does nothing: obstore closes its connections when they are idle."""


async def _raising(error: Exception) -> None:
    raise error
