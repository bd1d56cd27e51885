"""Runs a project of Spark Declarative Pipelines in a Connect session of this machine, or a remote one."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.spark.errors import SparkSourceError
from magnetar.spark.pipelines.run import PipelineRun, RunSettings, stderr_to, terminated_as_interrupted
from magnetar.spark.session import LOCAL_DEFAULTS, prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from magnetar.spark.progress import LagListener

CONNECT_PORT: Final = 15_002
"""The port of Spark Connect, the only one of a session on this machine."""
FREE_PORT: Final = "SPARK_TESTING"
"""A variable of Spark: the session takes a free port instead."""
SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
_NEEDED: Final = ("grpc", "grpc_status", "yaml", "zstandard", "pandas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of the project to run."""

    refresh: Sequence[str] = ()
    full_refresh: Sequence[str] = ()
    full_refresh_all: bool = False
    dry: bool = False
    """Only look whether the graph is right."""


def find_spec(path: Path) -> Path | None:
    """The project's spec when `path` is one, or a folder with one."""
    if path.is_dir():
        return next((path / name for name in SPEC_NAMES if (path / name).is_file()), None)
    return path if path.suffix in (".yml", ".yaml") else None


def run_project(spec: Path, settings: RunSettings, selection: Selection) -> int:
    """Runs the project until its flows have ended.

    Returns the exit code: 0, 1 after an error, 130 when it was interrupted.
    Raises NoJavaError; SparkSourceError without the packages that Connect needs.
    """
    _check_packages()
    run = PipelineRun(spec, settings)
    with terminated_as_interrupted():
        with stderr_to(run.log_file):
            spark = _session(spec, settings)
        listener = run.listener()
        spark.streams.addListener(listener)
        if not settings.quiet:
            run.say(f"{spec.name} on {settings.master}, Spark {spark.version}")

        def heard() -> LagListener:
            return listener

        return run.guarded(lambda: _execute(spec, selection), heard)


def _check_packages() -> None:
    from importlib.util import find_spec as find_module

    missing = [name for name in _NEEDED if find_module(name) is None]
    if missing:
        raise SparkSourceError(
            f"declarative pipelines run over Spark Connect, which lacks {', '.join(missing)}: install them by"
            " pip install '.[pipelines]' in a clone"
        )


def check_port(port: int = CONNECT_PORT) -> None:
    """Raises SparkSourceError when another process has the port: Spark's own error has a hundred lines, and
    names a setting that its Python client does not know."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise SparkSourceError(
                f"port {port} cannot be used ({error.strerror}), and a Connect session on this machine has no"
                " other: another declarative project runs here. Wait for its end, or give --master sc://HOST"
            ) from error


def _session(spec: Path, settings: RunSettings) -> SparkSession:
    prepare(settings.master)
    if settings.master.startswith("local") and FREE_PORT not in os.environ:
        check_port()
    # Definitions that Spark imports look for their session by this name.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(settings.master).appName(spec.resolve().parent.name)
    for key, value in configuration(spec, settings).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def configuration(spec: Path, settings: RunSettings) -> dict[str, str]:
    """Spark's settings for a run: the user's, else the project's, else defaults for this machine."""
    given = {**_of_project(spec), **settings.config}
    if not settings.master.startswith("local"):
        return given
    folder = spec.resolve().parent
    return {
        **LOCAL_DEFAULTS,
        # Tables are files in a folder and names in a catalog. Spark's own catalog ends with the session, the
        # files stay, and the next run refuses them: LOCATION_ALREADY_EXISTS. So both stay, in the project.
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={folder / 'metastore_db'};create=true"
        ),
        # Else the catalog's database leaves a log where the user stands; its errors come as Spark's.
        "spark.driver.defaultJavaOptions": "-Dderby.stream.error.file=/dev/null",
        **given,
    }


def _of_project(spec: Path) -> dict[str, str]:
    """What the spec sets. Spark's program would do so when there is a session, too late for some settings."""
    import yaml

    try:
        document = yaml.safe_load(spec.read_text())
    except (OSError, yaml.YAMLError):
        # Spark's program reads it too, and says what is wrong.
        return {}
    found = document.get("configuration") if isinstance(document, dict) else None
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _execute(spec: Path, selection: Selection) -> int:
    from pyspark.pipelines import cli

    cli.run(
        spec_path=spec,
        full_refresh=selection.full_refresh,
        full_refresh_all=selection.full_refresh_all,
        refresh=selection.refresh,
        dry=selection.dry,
    )
    return 0
