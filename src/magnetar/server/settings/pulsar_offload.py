"""Computes our `offload_url` from Pulsar's own settings.

Source: Pulsar's offload policies in broker.conf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from magnetar.base.errors import StartupError

DRIVER: Final = "managedLedgerOffloadDriver"
_S3: Final = ("s3ManagedLedgerOffloadBucket", "s3ManagedLedgerOffloadRegion")
_S3_ENDPOINT: Final = "s3ManagedLedgerOffloadServiceEndpoint"
_GCS: Final = "gcsManagedLedgerOffloadBucket"
_ANY: Final = ("managedLedgerOffloadBucket", "managedLedgerOffloadRegion")
_ANY_ENDPOINT: Final = "managedLedgerOffloadServiceEndpoint"
_FILES: Final = "fileSystemURI"

NAMES: Final = frozenset({DRIVER, *_S3, _S3_ENDPOINT, _GCS, *_ANY, _ANY_ENDPOINT, _FILES})
"""The settings of Pulsar that are read."""


class UnknownStoreError(StartupError):
    """The settings name an unsupported store, or lack its name. The text says what to do."""


def offload_url(said: Mapping[str, str]) -> str | None:
    """The URL, None when no driver is named. Raises UnknownStoreError.

    Credentials are not taken over: they would become part of the URL, which logs show.
    """
    driver = said.get(DRIVER, "").lower()
    if not driver:
        return None
    if driver in ("s3", "aws-s3"):
        bucket = said.get(_S3[0]) or said.get(_ANY[0])
        options = {
            "region": said.get(_S3[1]) or said.get(_ANY[1]),
            "endpoint": said.get(_S3_ENDPOINT) or said.get(_ANY_ENDPOINT),
        }
        query = "&".join(f"{name}={quote(text, safe=':/')}" for name, text in options.items() if text)
        return f"s3://{_given(bucket, driver)}" + (f"?{query}" if query else "")
    if driver == "google-cloud-storage":
        return f"gs://{_given(said.get(_GCS) or said.get(_ANY[0]), driver)}"
    if driver == "filesystem":
        return _given(said.get(_FILES), driver)
    raise UnknownStoreError(f"{DRIVER}={driver} is not offered; leave it out and set offload_url")


def _given(text: str | None, driver: str) -> str:
    if not text:
        raise UnknownStoreError(f"{DRIVER}={driver} needs a bucket or, for files, {_FILES}; give it")
    return text
