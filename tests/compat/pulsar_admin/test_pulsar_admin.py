"""Pulsar's own command line tool, unmodified, against a real standalone: every command of every group.

What is needed: a JDK of version 17 or newer, Maven, and once a registry that Maven can fetch the tool from.
With MAGNETAR_ADMIN_TABLE=FILE the table of the results is written there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar import __version__
from support import java_client, pulsar_admin
from support.pulsar_admin import TRANSCRIPTS, Outcome, PulsarAdmin
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow]

ALL = sorted(TRANSCRIPTS.glob("*.txt"))
PAGE = Path(__file__).parents[3] / "docs" / "compatibility" / "pulsar-admin.md"


def version() -> str:
    """Of the tool."""
    found = re.search(r"<artifactId>pulsar-client-tools</artifactId>\s*<version>(.*?)<", _pom())
    assert found is not None
    return found[1]


def _pom() -> str:
    return (pulsar_admin.HERE / "pom.xml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("admin"), ephemeral=True) as process:
        yield process


@pytest.fixture(scope="module")
def tool(broker: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarAdmin]:
    try:
        admin = PulsarAdmin(tmp_path_factory.mktemp("classes"), broker.broker_url, broker.http_url)
    except java_client.NotHereError as reason:
        pytest.skip(f"no pulsar-admin: {reason}")
    try:
        yield admin
    finally:
        admin.close()


@pytest.fixture(scope="module")
def outcomes(
    tool: PulsarAdmin, broker: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory
) -> list[Outcome]:
    known = {
        "broker": broker.http_url.removeprefix("http://"),
        "version": __version__,
        "here": str(pulsar_admin.HERE),
        "scratch": str(tmp_path_factory.mktemp("scratch")),
        "bundle": "0x00000000_0xffffffff",
    }
    found = [outcome for transcript in ALL for outcome in tool.play(transcript, known)]
    wanted = os.environ.get("MAGNETAR_ADMIN_TABLE")
    if wanted:
        Path(wanted).write_text(pulsar_admin.table(found, version()), encoding="utf-8")
    return found


@pytest.mark.parametrize("transcript", [path.stem for path in ALL])
def test_transcript(outcomes: list[Outcome], transcript: str) -> None:
    problems = [
        f"line {outcome.step.line}: {outcome.step.command}: {outcome.problem[:600]}"
        for outcome in outcomes
        if outcome.transcript == transcript and outcome.problem
    ]
    assert not problems, "\n\n".join(problems)


def test_every_command_is_in_a_transcript_or_has_a_reason_not_to_be(
    tool: PulsarAdmin, outcomes: list[Outcome]
) -> None:
    run = {outcome.step.name for outcome in outcomes}
    missing = set(tool.names()) - run - set(pulsar_admin.NOT_RUN)
    assert not missing, sorted(missing)


def test_the_page_of_the_documents_is_what_was_found(outcomes: list[Outcome]) -> None:
    assert PAGE.read_text(encoding="utf-8") == pulsar_admin.table(outcomes, version())
