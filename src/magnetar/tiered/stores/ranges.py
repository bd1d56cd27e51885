"""Blocking ranged reads of objects in any store, for processes that read history without a broker.

Credentials are found in the same places as the broker's, in the environment of the reading process, for
instance of an executor. They are removed from the libraries' error texts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from magnetar.tiered.errors import StoreError, StoreSetupError
from magnetar.tiered.parquet.parquet_history import ByteSource
from magnetar.tiered.stores.redaction import redacted, secrets_of
from magnetar.tiered.stores.urls import check_url, open_cloud, open_hadoop

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

    from magnetar.tiered.stores.urls import Cloud

_STORES_MAX: Final = 8
"""Most stores that a process keeps open. An open store holds connections and, for a while, credentials of
roles."""
_DETAIL_MAX: Final = 400


def open_ranges(url: str, name: str, size: int) -> ByteSource:
    """Opens the object `name`, of `size` bytes, of the store at `url`, without a request to a cloud.

    Raises StoreError, also from its reads; StoreSetupError when the URL or a library is wrong.
    """
    parts = check_url(url)
    if parts.scheme in ("s3", "gs", "az"):
        return _CloudObject(_cloud(url), url, name, size)
    if parts.scheme == "hdfs":
        with _told(url, name):
            folder = unquote(parts.path).rstrip("/")
            return _FileObject(_hadoop(url).open_input_file(f"{folder}/{name}"), url, name)
    raise StoreSetupError(url, "no objects to read in ranges", "read files by their paths")


@lru_cache(_STORES_MAX)
def _cloud(url: str) -> Cloud:
    parts = check_url(url)
    return open_cloud(url, parts, dict(parse_qsl(parts.query)), os.environ)


@lru_cache(_STORES_MAX)
def _hadoop(url: str) -> FileSystem:
    parts = check_url(url)
    return open_hadoop(url, parts, dict(parse_qsl(parts.query)))


@contextmanager
def _told(url: str, name: str) -> Iterator[None]:
    """Translates errors of the libraries into StoreError, without secrets."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001  # of every cloud's library; the text may hold secrets
        text = redacted(" ".join(str(error).split()), secrets_of(os.environ))[:_DETAIL_MAX]
        raise StoreError(f"{name} in {url}", text, "the broker is asked") from None


class _CloudObject:
    """See `ByteSource`."""

    def __init__(self, store: Cloud, url: str, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self._url = url
        self._store = store

    def read_at(self, offset: int, length: int) -> bytes:
        import obstore

        with _told(self._url, self.name):
            data = bytes(obstore.get_range(self._store, self.name, start=offset, length=length))
            if len(data) != length:
                raise StoreError(f"{self.name} in {self._url}", f"it ends at byte {offset + len(data)}", "")
            return data


class _FileObject:
    """See `ByteSource`."""

    def __init__(self, file: NativeFile, url: str, name: str) -> None:
        self.name = name
        self.size: int = file.size()
        self._url = url
        self._file = file

    def read_at(self, offset: int, length: int) -> bytes:
        with _told(self._url, self.name):
            return bytes(self._file.read_at(length, offset))
