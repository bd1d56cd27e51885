"""A cluster of the real Apache Pulsar is adopted: its broker stops, ours serves all that it left, and writes;
then ours stops, and Pulsar's broker serves what ours left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from click.testing import CliRunner, Result

from magnetar.cli.main import magnetar
from support import pulsar_estate as estate
from support.apache_bookkeeper import apache_bookkeeper
from support.apache_pulsar import CLUSTER, ApachePulsar, apache_pulsar
from support.drivers import NotHereError
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

ONE_COPY = {f"MAGNETAR_LEDGER_{name}": "1" for name in ("ENSEMBLE_SIZE", "WRITE_QUORUM", "ACK_QUORUM")} | {
    "MAGNETAR_METADATA_SESSION_TIMEOUT_SECONDS": "4"
}


class Estate:
    """A cluster on ZooKeeper and a bookie of Apache's, which brokers of either kind serve in turn."""

    def __init__(self, folder: Path, zookeeper: str, pulsar_broker: ApachePulsar) -> None:
        self.pulsar = pulsar_broker
        self.metadata = f"zk://{zookeeper}/ledgers"
        self._folder = folder

    def adopt(self, *options: str) -> Result:
        """Runs `magnetar cluster adopt`."""
        words = ["cluster", "adopt", "--metadata", self.metadata, "--cluster", CLUSTER, *options]
        return CliRunner().invoke(magnetar, words)

    def broker(self, name: str) -> StandaloneProcess:
        """A broker of ours, not started."""
        return StandaloneProcess(
            self._folder / name,
            role="broker",
            options=("--metadata", self.metadata, "--cluster", CLUSTER),
            environment=ONE_COPY,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    folder = tmp_path_factory.mktemp("adoption")
    (folder / "bookkeeper").mkdir()
    try:
        with (
            apache_bookkeeper(folder / "bookkeeper") as bookkeeper,
            apache_pulsar(folder / "pulsar", bookkeeper.zookeeper) as broker,
        ):
            broker.setup()
            bookkeeper.start_bookie("one")
            broker.start()
            yield Estate(folder, bookkeeper.zookeeper, broker)
    except NotHereError as reason:
        pytest.skip(f"no Apache Pulsar: {reason}")


def check_backlogs(client: pulsar.Client, left: estate.Left) -> None:
    """Each subscription gets what it has not acknowledged, in order, and nothing else."""
    for (topic, subscription), expected in left.items():
        found = estate.backlog(client, topic, subscription, len(expected))
        if subscription == "key-shared":
            # Messages without a key have no order among each other.
            found, expected = sorted(found), sorted(expected)
        assert found == expected, f"{topic} {subscription}"
    for partition in range(estate.PARTITIONS):
        expected = estate.left_of({partition, 7}, 10)
        assert estate.backlog(client, f"parts-partition-{partition}", "all", len(expected)) == expected


def check_rest(broker: estate.Admin, client: pulsar.Client) -> None:
    """Schemas, policies, tenants."""
    assert [each[:2] for each in estate.versions_of(broker, "typed")][:2] == [(0, "AVRO"), (1, "AVRO")]
    for path, (_, value) in estate.POLICIES.items():
        assert broker.admin("GET", f"namespaces/{estate.NAMESPACE}/{path}") == value
    for path, value in estate.TOPIC_POLICIES_FOUND.items():
        assert broker.admin("GET", f"persistent/{estate.NAMESPACE}/plain/{path}") == value
    assert broker.admin("GET", "tenants/acme")["adminRoles"] == ["boss"]
    assert broker.admin("GET", f"persistent/{estate.NAMESPACE}/parts/partitions")["partitions"] == 3


def test_a_cluster_goes_over_and_back(cluster: Estate) -> None:
    theirs = cluster.pulsar
    estate.fill(theirs)

    refused = cluster.adopt()
    assert refused.exit_code == 6, refused.output
    assert "a broker of Apache Pulsar runs" in cluster.adopt("--check", "-o", "json").output
    theirs.stop()
    assert cluster.adopt("--check").exit_code == 0
    adopted = cluster.adopt()
    assert adopted.exit_code == 0, adopted.output

    with cluster.broker("ours") as ours:
        client = estate.client_of(ours)
        check_backlogs(client, estate.LEFT)
        check_rest(ours, client)
        assert estate.compacted(client) == estate.COMPACTED
        left = estate.write_on(ours, client)
        check_backlogs(client, left)
        estate.check_written_on(ours, client)
        client.close()
        assert "brokers run" in str(cluster.adopt("--give-back").exception)
        ours.stop()

    # Another one finds what the first one wrote, and changes nothing.
    with cluster.broker("second") as ours:
        client = estate.client_of(ours)
        check_backlogs(client, left)
        client.close()
        ours.stop()

    assert cluster.adopt("--give-back").exit_code == 0
    theirs.start()
    client = estate.client_of(theirs)
    check_backlogs(client, estate.delivered_by_pulsar(left))
    check_rest(theirs, client)
    estate.check_written_on(theirs, client)
    # Pulsar compacts what ours has compacted, together with a message of its own.
    topic = f"{estate.TOPIC}compacted"
    client.create_producer(topic, batching_enabled=False).send(b"newest", partition_key="key 1")
    estate.compact(theirs)
    assert estate.compacted(client) == {**estate.COMPACTED_LATER, "key 1": b"newest"}
    client.close()
    theirs.stop()
