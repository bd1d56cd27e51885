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
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.commands import message_id_data
from support import java_client, pulsar_admin
from support.pulsar_admin import TRANSCRIPTS, Outcome, PulsarAdmin
from support.raw_client import RawClient
from support.seen import Type
from support.serving import serving
from support.sessions import encode_payload, entry, send
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("inside")]

ALL = sorted(TRANSCRIPTS.glob("*.txt"))
PAGE = Path(__file__).parents[3] / "docs" / "compatibility" / "pulsar-admin.md"


def version() -> str:
    """The version of the tool."""
    found = re.search(r"<artifactId>pulsar-client-tools</artifactId>\s*<version>(.*?)<", _pom())
    assert found is not None
    return found[1]


def _pom() -> str:
    return (pulsar_admin.HERE / "pom.xml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    on = {"MAGNETAR_TRANSACTIONS": "true"}
    with serving(tmp_path_factory.mktemp("admin"), ephemeral=True, environment=on) as process:
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


def with_transactions(url: str) -> dict[str, str]:
    """Two open transactions of coordinator 0; what the second one wrote to, and acknowledged."""
    topic = "persistent://public/default/txn"
    with RawClient(url) as client:
        client.open_producer(topic)
        client.open_consumer(topic, request_id=2)
        client.send(send(1, 0), encode_flow(1, 10))
        client.wait(lambda: client.messages, "a message")
        for request in (3, 4):
            begun = client.ask(Type.NEW_TXN, request_id=request, txn_ttl_seconds=3_600_000, tc_id=0)
        ids = {"txnid_most_bits": begun.txnid_most_bits, "txnid_least_bits": begun.txnid_least_bits}
        client.ask(Type.ADD_PARTITION_TO_TXN, request_id=5, partitions=[topic], **ids)
        acks = [pb.Subscription(topic=topic, subscription="s")]
        client.ask(Type.ADD_SUBSCRIPTION_TO_TXN, request_id=6, subscription=acks, **ids)
        sending = pb.CommandSend(producer_id=1, sequence_id=1, **ids)
        client.send(encode_payload(pb.BaseCommand(type=Type.SEND, send=sending), entry(b"of it", 1)))
        client.wait(lambda: len(client.receipts) == 2, "both receipts")
        position = client.messages[0].position
        ack = {
            "consumer_id": 1,
            "ack_type": pb.CommandAck.Individual,
            "message_id": [message_id_data(position)],
        }
        assert not client.ask(Type.ACK, request_id=7, **ack, **ids).HasField("error")
    return {
        "txn_most": str(begun.txnid_most_bits),
        "txn_least": str(begun.txnid_least_bits),
        "ledger": str(position.ledger_id),
        "entry": str(position.entry_id),
    }


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
        **with_transactions(broker.broker_url),
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
