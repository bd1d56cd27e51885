"""Object stores by URL.

    file:///folder                                  a folder
    memory://                                       in memory; lost when the process ends
    s3://bucket/folder?region=…&endpoint=…          S3 and stores with its protocol
    gs://bucket/folder?endpoint=…                   Google Cloud Storage
    az://account/container/folder?endpoint=…        Azure Blob Storage
    hdfs://host:port/folder                         Hadoop

URLs appear in statistics and logs, so they must not hold credentials.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from magnetar.base.clock import Clock
from magnetar.tiered.errors import StoreSetupError
from magnetar.tiered.stores.local import LocalStore
from magnetar.tiered.stores.object_store import ObjectStore
from magnetar.tiered.stores.redaction import redacted, secrets_of

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store
    from pyarrow.fs import FileSystem

    Cloud: TypeAlias = S3Store | GCSStore | AzureStore

_OPTIONS: Final = {
    "file": frozenset[str](),
    "memory": frozenset[str](),
    "s3": frozenset(
        {"region", "endpoint", "virtual_hosted_style_request", "server_side_encryption", "sse_kms_key_id"}
    ),
    "gs": frozenset({"endpoint"}),
    "az": frozenset({"endpoint"}),
    "hdfs": frozenset({"user", "replication"}),
}
"""Options that may follow the question mark, by scheme."""


def check_url(url: str) -> SplitResult:
    """Checks a URL and returns its parts; opens nothing. Raises StoreSetupError."""
    # The part after the question mark may hold a secret by mistake.
    shown = redacted(url.partition("?")[0])
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise StoreSetupError(shown, f"not a URL: {error}", "correct offload_url") from None
    if parts.scheme not in _OPTIONS:
        known = ", ".join(sorted(_OPTIONS))
        raise StoreSetupError(shown, f"{parts.scheme or 'no scheme'}:// is not known", f"use one of {known}")
    if parts.username or parts.password:
        raise StoreSetupError(
            shown, "the URL holds credentials", "give them to the broker by its environment or by files"
        )
    for option, _ in parse_qsl(parts.query, keep_blank_values=True):
        if option not in _OPTIONS[parts.scheme]:
            known = ", ".join(sorted(_OPTIONS[parts.scheme])) or "none"
            raise StoreSetupError(
                shown, f"{option} cannot be set in the URL", f"known are {known}; credentials go elsewhere"
            )
    if parts.scheme in ("s3", "gs", "az") and not parts.netloc:
        raise StoreSetupError(shown, "the URL names no bucket", "write it as scheme://bucket/folder")
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise StoreSetupError(shown, "not an absolute folder", "write it as file:///folder")
    return parts


def open_store(url: str, clock: Clock, environment: Mapping[str, str] = os.environ) -> ObjectStore:
    """Opens the store at a URL, without a request to it. Raises StoreSetupError."""
    parts = check_url(url)
    if parts.scheme == "file":
        return LocalStore(Path(unquote(parts.path)))
    if parts.scheme == "memory":
        from magnetar.tiered.stores.memory import MemoryStore

        return MemoryStore(clock)
    options = dict(parse_qsl(parts.query))
    if parts.scheme == "hdfs":
        files = open_hadoop(url, parts, options)
        from magnetar.tiered.stores.hdfs import HdfsStore

        return HdfsStore(url, files, unquote(parts.path))
    opened = open_cloud(url, parts, options, environment)
    from magnetar.tiered.stores.cloud import CloudStore

    return CloudStore(url, opened, secrets=secrets_of(environment))


def open_cloud(
    url: str, parts: SplitResult, options: dict[str, str], environment: Mapping[str, str]
) -> Cloud:
    """obstore's store at a checked URL, with the options after its question mark.

    Raises StoreSetupError.
    """
    secrets = secrets_of(environment)
    try:
        return _CLOUDS[parts.scheme](parts, options)
    except ImportError as error:
        raise _missing(url, error) from error
    except Exception as error:  # noqa: BLE001  # obstore's errors of configuration have no common class
        raise StoreSetupError(
            url, redacted(str(error), secrets), "correct offload_url or the broker's environment"
        ) from None


def _missing(url: str, error: ImportError) -> StoreSetupError:
    return StoreSetupError(
        url, f"a library is missing ({error.name})", "install it with: pip install '.[lake]' in a clone"
    )


def _client(endpoint: str) -> dict[str, object]:
    # Seconds of one request, its body included: a part of 8 MiB, or a read of as much. A caller waits for
    # four of these at most when a store hangs.
    return {"allow_http": endpoint.startswith("http://"), "timeout": "30s", "connect_timeout": "5s"}


def _patience() -> dict[str, object]:
    from datetime import timedelta

    # `retrying.py` tries again, and counts it.
    return {"max_retries": 0, "retry_timeout": timedelta(seconds=30)}


def _s3(parts: SplitResult, options: dict[str, str]) -> S3Store:
    from obstore.store import S3Store

    settings = {"region": "us-east-1", **options} if "endpoint" in options else dict(options)
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        config=settings,  # type: ignore[arg-type]  # a TypedDict
        client_options=_client(options.get("endpoint", "")),  # type: ignore[arg-type]  # a TypedDict
        retry_config=_patience(),  # type: ignore[arg-type]  # a TypedDict
    )


def _gs(parts: SplitResult, options: dict[str, str]) -> GCSStore:
    from obstore.store import GCSStore

    endpoint = options.get("endpoint", "")
    # A server at another address than Google's takes no credentials of Google's.
    settings = {"base_url": endpoint, "bearer_token": "anonymous"} if endpoint else {}
    return GCSStore(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        config=settings,  # type: ignore[arg-type]  # a TypedDict
        client_options=_client(endpoint),  # type: ignore[arg-type]  # a TypedDict
        retry_config=_patience(),  # type: ignore[arg-type]  # a TypedDict
    )


def _az(parts: SplitResult, options: dict[str, str]) -> AzureStore:
    from obstore.store import AzureStore

    container, _, folder = parts.path.strip("/").partition("/")
    return AzureStore(
        container,
        prefix=folder or None,
        account_name=parts.netloc,
        client_options=_client(options.get("endpoint", "")),  # type: ignore[arg-type]  # a TypedDict
        retry_config=_patience(),  # type: ignore[arg-type]  # a TypedDict
        **options,  # type: ignore[arg-type]  # a TypedDict
    )


_CLOUDS: Final[dict[str, Callable[[SplitResult, dict[str, str]], Cloud]]] = {"s3": _s3, "gs": _gs, "az": _az}


def open_hadoop(url: str, parts: SplitResult, options: dict[str, str]) -> FileSystem:
    """pyarrow's file system at a checked URL. Raises StoreSetupError."""
    try:
        from pyarrow import fs
    except ImportError as error:
        raise _missing(url, error) from error
    try:
        return fs.HadoopFileSystem(
            parts.hostname or "default",
            parts.port or 0,
            user=options.get("user"),
            replication=int(options.get("replication", "3")),
        )
    except (OSError, ValueError) as error:
        raise StoreSetupError(
            url, str(error), "set HADOOP_HOME, JAVA_HOME and CLASSPATH (hadoop classpath --glob)"
        ) from error
