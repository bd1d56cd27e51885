"""Where tables and files are, as other readers know it."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.lake.locations import NoLakeHereError, io_properties, location_of
from magnetar.lake.setup import catalog_settings, check_catalog


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("file:///srv/my%20history", "file:///srv/my history"),
        ("s3://bucket/topics?region=eu-central-1", "s3://bucket/topics"),
        ("s3://bucket?endpoint=http%3A//127.0.0.1:9000", "s3://bucket"),
        ("gs://bucket/a/", "gs://bucket/a"),
        ("az://account/container/a", "abfss://container@account.dfs.core.windows.net/a"),
        ("hdfs://name:8020/a", "hdfs://name:8020/a"),
    ],
)
def test_locations(url: str, location: str) -> None:
    assert location_of(url) == location


@pytest.mark.parametrize("url", ["memory://", "file:///a%3Fb", "file:///a%23b"])
def test_no_tables_where_nobody_else_reads(url: str) -> None:
    with pytest.raises(NoLakeHereError):
        location_of(url)


def test_files_are_opened_as_the_store_is() -> None:
    assert io_properties("s3://b?region=r&endpoint=http://h:1") == {
        "s3.region": "r",
        "s3.endpoint": "http://h:1",
        "s3.force-virtual-addressing": "false",
    }
    assert io_properties("s3://b?endpoint=http://h:1")["s3.region"] == "us-east-1"
    assert io_properties("file:///a") == {}
    assert io_properties("hdfs://h:8020/a?user=u") == {
        "hdfs.host": "h",
        "hdfs.port": "8020",
        "hdfs.user": "u",
    }


def test_catalogs() -> None:
    def of(catalog: str) -> dict[str, str]:
        return dict(catalog_settings(catalog, store_url="file:///s", file=Path("/d/catalog.db")).properties)

    assert of("")["uri"] == "sqlite:////d/catalog.db"
    assert of("")["warehouse"] == "file:///s/magnetar-lake"
    assert (of("http://h:1")["type"], of("http://h:1")["uri"]) == ("rest", "http://h:1")
    assert "warehouse" not in of("http://h:1")
    assert of("postgresql+psycopg2://h/db")["type"] == "sql"
    assert "uri" not in of("environment")
    with pytest.raises(NoLakeHereError):
        of("none")


def test_catalogs_with_secrets_are_refused() -> None:
    for good in ("", "none", "environment", "https://h/path", "postgresql+psycopg2://user@h/db"):
        check_catalog(good)
    with pytest.raises(ValueError, match="password") as error:
        check_catalog("postgresql+psycopg2://user:hunter2@h/db")
    assert "hunter2" not in str(error.value)
    with pytest.raises(ValueError, match="URL"):
        check_catalog("sqlite")
