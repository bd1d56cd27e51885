"""A broker of ours on a cluster of Apache's: its bookies, its ZooKeeper, its shell to look at it all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from support.apache_bookkeeper import ApacheBookKeeper
from support.official import connect, receive_all
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

ROOT = "/under-a-broker"
TOPIC = "persistent://public/default/on-apache"


@pytest.fixture(scope="module")
def bookies(apache: ApacheBookKeeper) -> Iterator[dict[str, str]]:
    """Names of bookies by their ids."""
    apache.shell("initnewcluster", root=ROOT)
    names = ["broker-first", "broker-second", "broker-third"]
    yield {apache.start_bookie(name, root=ROOT): name for name in names}
    for name in names:
        apache.stop_bookie(name)


def broker(apache: ApacheBookKeeper, folder: Path) -> StandaloneProcess:
    return StandaloneProcess(
        folder,
        options=("--metadata", f"zk://{apache.zookeeper}{ROOT}"),
        environment={
            "MAGNETAR_LEDGER_ENSEMBLE_SIZE": "3",
            "MAGNETAR_LEDGER_WRITE_QUORUM": "3",
            # ZooKeeper makes it as long as it allows at least.
            "MAGNETAR_METADATA_SESSION_TIMEOUT_SECONDS": "1",
        },
    )


def ledgers_of(process: StandaloneProcess) -> list[int]:
    stats = process.admin("GET", "persistent/public/default/on-apache/internalStats")
    return [ledger["ledgerId"] for ledger in stats["ledgers"]]


def test_topics_live_on_apaches_bookies(
    apache: ApacheBookKeeper, bookies: dict[str, str], tmp_path: Path
) -> None:
    payloads = [b"message %d" % number for number in range(300)]
    with broker(apache, tmp_path / "first") as process:
        client = connect(process)
        consumer = client.subscribe(TOPIC, "all", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(TOPIC, batching_enabled=False)
        results: list[pulsar.Result] = []
        for payload in payloads[:200]:
            producer.send_async(payload, lambda result, _: results.append(result))
        producer.flush()
        assert receive_all(consumer, 200) == payloads[:200]
        (ledger_id,) = ledgers_of(process)

        said = apache.shell("ledgermetadata", "-ledgerid", str(ledger_id), root=ROOT)
        assert "ensembleSize=3, writeQuorumSize=3, ackQuorumSize=2, state=OPEN, digestType=CRC32C" in said
        assert all(bookie in said for bookie in bookies)
        assert "pulsar/managed-ledger" in said
        assert re.search(rf"\b{ledger_id}\b", apache.shell("listledgers", root=ROOT))

        # No other bookie can take its place: the other two are enough.
        name = next(iter(bookies.values()))
        apache.stop_bookie(name)
        for payload in payloads[200:250]:
            producer.send_async(payload, lambda result, _: results.append(result))
        apache.start_bookie(name, root=ROOT)
        for payload in payloads[250:]:
            producer.send_async(payload, lambda result, _: results.append(result))
        producer.flush()
        wait_until(lambda: len(results) == len(payloads), 30, "all are acknowledged")
        assert set(results) == {pulsar.Result.Ok}
        assert receive_all(consumer, 100) == payloads[200:]
        client.close()
        process.kill()

    # Another machine: its data folder knows nothing.
    with broker(apache, tmp_path / "second") as process:
        client = connect(process)
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        assert [reader.read_next(10_000).data() for _ in payloads] == payloads
        assert ledgers_of(process)[0] == ledger_id
        client.close()
        said = apache.shell("ledgermetadata", "-ledgerid", str(ledger_id), root=ROOT)
        assert "state=CLOSED" in said
        read = apache.shell("readledger", "-ledgerid", str(ledger_id), "-m", root=ROOT)
        for payload in (payloads[0], payloads[199]):
            assert payload.decode() in read, read[:500]


def test_one_broker_at_a_time(apache: ApacheBookKeeper, bookies: dict[str, str], tmp_path: Path) -> None:
    with broker(apache, tmp_path / "first"):
        second = broker(apache, tmp_path / "second")
        with pytest.raises(
            AssertionError, match=r"/magnetar/standalone is served by .* process \d+: stop it"
        ):
            second.start()
