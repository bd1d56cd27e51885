"""What a broker of a cluster is refused before anything is opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.membership import check
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.storage.datafolder import FolderPaths
from magnetar.server.tiering import places_of

CONFIG = StandaloneConfig(metadata_url="zk://127.0.0.1:2181/ledgers")


def test_history_needs_a_store_that_all_reach() -> None:
    check(CONFIG)
    for setting in (
        {"offload_threshold_bytes": 0},
        {"offload_threshold_seconds": 5},
        {"offload_max_age_seconds": 60},
        {"lake_catalog": "http://catalog"},
    ):
        config = replace(CONFIG, **setting)  # type: ignore[arg-type]
        with pytest.raises(StartupError, match="set offload_url"):
            check(config)
        check(replace(config, offload_url="s3://bucket"))
    check(replace(CONFIG, lake_catalog="none"))


def test_nothing_is_copied_into_the_folder_of_one_broker() -> None:
    assert not places_of(CONFIG, None, shares=True).offloads
    places = places_of(replace(CONFIG, offload_url="s3://bucket"), None, shares=True)
    assert (places.offloads, places.tables, places.url) == (True, False, "s3://bucket")
    assert places_of(replace(CONFIG, lake_catalog="http://c"), None, shares=True).tables
    assert places_of(CONFIG, None, shares=False).offloads, "a server alone may forget what it holds"


def test_processes_of_one_machine_keep_history_in_the_data_folder(tmp_path: Path) -> None:
    served = replace(CONFIG, metadata_url="served:/run/x", offload_threshold_bytes=0, transactions=True)
    check(served)
    beside = FolderPaths(tmp_path)
    places = places_of(served, None, beside, shares=True)
    assert (places.offloads, places.tables, places.shared, places.in_folder) == (True, True, True, True)
    assert places.url == (tmp_path / "offloaded").as_uri()
    assert places.catalog_file == tmp_path / "lake" / "catalog.db"
    assert places.work is None, "each has its own"
    elsewhere = places_of(replace(served, offload_url="s3://bucket"), None, beside, shares=True)
    assert (elsewhere.url, elsewhere.in_folder) == ("s3://bucket", False)
