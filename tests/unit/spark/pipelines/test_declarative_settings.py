"""Settings of a declarative project's run: the user's, the project's, this machine's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from magnetar.spark.errors import SparkSourceError
from magnetar.spark.pipelines.declarative import check_port, configuration
from magnetar.spark.pipelines.run import RunSettings

pytest.importorskip("yaml")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A project that sets two."""
    path = tmp_path / "spark-pipeline.yml"
    path.write_text("name: a\nconfiguration:\n  spark.sql.shuffle.partitions: 7\n  spark.x: project\n")
    return path


def test_tables_and_their_catalog_stay_in_the_project(spec: Path) -> None:
    found = configuration(spec, RunSettings(config={"spark.x": "user"}))
    assert found["spark.sql.catalogImplementation"] == "hive"
    assert found["spark.sql.warehouse.dir"] == f"{spec.parent}/spark-warehouse"
    assert f"databaseName={spec.parent}/metastore_db;" in found["spark.hadoop.javax.jdo.option.ConnectionURL"]
    assert (found["spark.sql.shuffle.partitions"], found["spark.x"]) == ("7", "user")
    given = {"spark.sql.catalogImplementation": "in-memory"}
    assert configuration(spec, RunSettings(config=given))["spark.sql.catalogImplementation"] == "in-memory"


def test_a_server_has_its_own(spec: Path) -> None:
    assert configuration(spec, RunSettings(master="sc://host")) == {
        "spark.sql.shuffle.partitions": "7",
        "spark.x": "project",
    }


@pytest.mark.parametrize("text", ["a: [", "[]", "configuration: x"])
def test_a_spec_that_is_wrong_is_told_by_who_runs_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "spark-pipeline.yml"
    path.write_text(text)
    assert configuration(path, RunSettings(master="sc://host")) == {}


def test_a_port_that_another_session_has_is_told_with_the_next_step() -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SparkSourceError, match=f"port {port} cannot be used.*another"):
            check_port(port)
    check_port(port)
