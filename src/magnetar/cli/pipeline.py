"""`magnetar pipeline`: PySpark jobs and declarative pipelines over topics."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from magnetar.cli.given import given_as


@click.group()
def pipeline() -> None:
    """Run PySpark jobs and declarative pipelines over topics (docs/pipelines.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    file: Path
    arguments: tuple[str, ...]
    master: str
    config: tuple[str, ...]
    service_url: str | None
    admin_url: str | None
    metrics_file: Path | None
    metrics_port: int | None
    log_file: Path | None
    show_traceback: bool
    quiet: bool
    refresh: str | None
    full_refresh: str | None
    full_refresh_all: bool
    dry_run: bool


@pipeline.command(context_settings={"ignore_unknown_options": True})
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--master", default="local[*]", help="Address of Spark's master.  [local[*]]")
@click.option(
    "--conf", "config", multiple=True, metavar="KEY=VALUE", help="Setting of Spark; may be repeated.  [none]"
)
@click.option(
    "--service-url",
    envvar="MAGNETAR_SERVICE_URL",
    help="Broker to ask for the age and bytes of unread messages.  [not asked]",
)
@click.option(
    "--admin-url", envvar="MAGNETAR_ADMIN_URL", help="Admin API of --service-url.  [port 8080 of the broker]"
)
@click.option(
    "--metrics-file",
    type=click.Path(path_type=Path),
    help="File for metrics as Prometheus text, replaced after each batch.  [none]",
)
@click.option("--metrics-port", type=int, help="Port on loopback that serves metrics at /metrics.  [none]")
@click.option(
    "--log-file",
    type=click.Path(path_type=Path),
    help="File for the output of Spark and its workers.  [a temporary file]",
)
@click.option(
    "--traceback", "show_traceback", is_flag=True, help="Show errors completely, with Java's stacks."
)
@click.option("--quiet", is_flag=True, help="Show no progress and no summary.")
@click.option("--refresh", help="Declarative: refresh only these datasets, separated by commas.  [all]")
@click.option(
    "--full-refresh", help="Declarative: full refresh of these datasets, separated by commas.  [none]"
)
@click.option("--full-refresh-all", is_flag=True, help="Declarative: full refresh of all datasets.")
@click.option("--dry-run", is_flag=True, help="Declarative: only check the project.")
@given_as(_Given)
def run(given: _Given) -> None:
    """Run FILE: a PySpark program, or the spec (or the folder) of a declarative project.

    Java, the connector and Spark's settings are in place; ARGUMENTS go to the program. Ends when the program
    and its queries have ended.
    """
    try:
        from magnetar.spark.pipelines.declarative import Selection, find_spec, run_project
        from magnetar.spark.pipelines.run import RunSettings
        from magnetar.spark.pipelines.script import run_script
    except ImportError as error:
        raise click.ClickException(f"{error.name} is missing: pip install '.[spark]' in a clone") from error
    connection = {"service.url": given.service_url, "admin.url": given.admin_url}
    settings = RunSettings(
        master=given.master,
        config=dict(_setting(text) for text in given.config),
        connection={name: url for name, url in connection.items() if url and given.service_url},
        metrics_file=given.metrics_file,
        metrics_port=given.metrics_port,
        log_file=given.log_file,
        show_traceback=given.show_traceback,
        quiet=given.quiet,
    )
    spec = find_spec(given.file)
    if spec is not None:
        selection = Selection(
            refresh=_names(given.refresh),
            full_refresh=_names(given.full_refresh),
            full_refresh_all=given.full_refresh_all,
            dry=given.dry_run,
        )
        sys.exit(run_project(spec, settings, selection))
    if given.file.is_dir():
        raise click.UsageError(f"{given.file} has no spark-pipeline.yml")
    if given.refresh or given.full_refresh or given.full_refresh_all or given.dry_run:
        raise click.UsageError("--refresh, --full-refresh, --full-refresh-all and --dry-run are for projects")
    sys.exit(run_script(given.file, given.arguments, settings))


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.UsageError(f"--conf {text}: expected KEY=VALUE")
    return key, value


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
