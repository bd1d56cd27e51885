"""URLs of stores in the form that Iceberg's readers use.

    file:///folder                    file:///folder
    s3://bucket/folder?region=r       s3://bucket/folder
    gs://bucket/folder                gs://bucket/folder
    az://account/container/folder     abfss://container@account.dfs.core.windows.net/folder
    hdfs://host:port/folder           hdfs://host:port/folder

Paths in Iceberg's metadata are plain text, in which readers do not decode percent signs: names are not
encoded.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from magnetar.lake.lake_values import LakeError

FOLDER: Final = "magnetar-lake"
"""Folder of the store that holds the metadata of tables."""
_ODD: Final = frozenset("?#")


class NoLakeHereError(LakeError):
    """Other programs cannot open files of this store."""


def location_of(url: str) -> str:
    """URL of a store for Iceberg's metadata, without a slash at the end. Raises NoLakeHereError."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if parts.scheme == "file":
        folder = unquote(path)
        if _ODD & set(folder):
            raise NoLakeHereError(f"readers of Iceberg take no folder with ? or # in its name: {folder}")
        return f"file://{folder}"
    if parts.scheme in ("s3", "gs", "hdfs"):
        return f"{parts.scheme}://{parts.netloc}{path}"
    if parts.scheme == "az":
        container, _, folder = path.strip("/").partition("/")
        return f"abfss://{container}@{parts.netloc}.dfs.core.windows.net/{folder}".rstrip("/")
    raise NoLakeHereError(f"other programs cannot read files in {parts.scheme}://")


def io_properties(url: str) -> dict[str, str]:
    """Properties with which pyiceberg opens files of a store, besides its environment variables."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    found = {}
    if parts.scheme == "s3":
        if "region" in options:
            found["s3.region"] = options["region"]
        if "endpoint" in options:
            found["s3.endpoint"] = options["endpoint"]
            found.setdefault("s3.region", "us-east-1")
            found["s3.force-virtual-addressing"] = options.get("virtual_hosted_style_request", "false")
    elif parts.scheme == "gs" and "endpoint" in options:
        found["gcs.service.host"] = options["endpoint"]
    elif parts.scheme == "az":
        found["adls.account-name"] = parts.netloc
    elif parts.scheme == "hdfs":
        found["hdfs.host"] = parts.hostname or "default"
        found["hdfs.port"] = str(parts.port or 0)
        if "user" in options:
            found["hdfs.user"] = options["user"]
    return found


def file_location(url: str, name: str) -> str:
    """URL of an object for Iceberg's metadata. Raises NoLakeHereError."""
    return f"{location_of(url)}/{name}"
