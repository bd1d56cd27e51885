"""Streams over partitions that are empty, trimmed, deleted, made again, or on a broker that starts anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar.spark.errors import SparkSourceError, TopicDataLossError
from support.spark_queries import MicroBatches, plain, publish, values
from support.spark_topics import new_topic, set_partitions
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process]

KEPT = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


def unload(standalone: StandaloneProcess, topic: str) -> None:
    standalone.admin("PUT", f"persistent/public/default/{topic}/unload")


def again(standalone: StandaloneProcess, query: MicroBatches, topic: str, **more: str) -> MicroBatches:
    """The query after a restart of its driver, from its checkpoint."""
    return MicroBatches(standalone, topic, offset=query.offset, **more)


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_an_empty_partition_is_no_loss_after_an_unload(standalone: StandaloneProcess, start: str) -> None:
    """An unload opens another ledger and drops the empty one: the place changes, and nothing is lost."""
    topic = new_topic(standalone, partitions=3)
    publish(standalone, f"{topic}-partition-0", [plain("old")])
    more = {"startingOffsets": start}
    query = MicroBatches(standalone, topic, **more)
    first = values(query.batch())
    assert first == (["old"] if start == "earliest" else [])
    for number in range(3):
        for partition in range(3):
            unload(standalone, f"{topic}-partition-{partition}")
        assert query.batch() == []
        assert again(standalone, query, topic, **more).batch() == []
        publish(standalone, f"{topic}-partition-{number}", [plain(f"new-{number}")])
        unload(standalone, f"{topic}-partition-{number}")
        query = again(standalone, query, topic, **more)
        assert values(query.batch()) == [f"new-{number}"]


def test_an_empty_partition_is_no_loss_after_a_restart(standalone_folder: StandaloneProcess) -> None:
    broker = standalone_folder.start()
    broker.admin("POST", "namespaces/public/default/retention", KEPT)
    topic = "restarted"
    set_partitions(broker, topic, 2, method="PUT")
    query = MicroBatches(broker, topic, subscription="job")
    assert query.batch() == []
    for number in range(2):
        broker.kill()
        broker.start()
        query = again(broker, query, topic, subscription="job")
        assert query.batch() == []
        publish(broker, f"{topic}-partition-0", [plain(f"v{number}")])
        assert values(query.batch()) == [f"v{number}"]


def test_what_was_read_may_be_trimmed(standalone: StandaloneProcess) -> None:
    """Emptied behind the query, and opened anew: its count of messages shows that none is missing."""
    topic = new_topic(standalone)
    publish(standalone, topic, [plain("a"), plain("b")])
    query = MicroBatches(standalone, topic, startingOffsets="earliest")
    assert values(query.batch()) == ["a", "b"]
    _trim(standalone, topic)
    assert query.batch() == []
    unload(standalone, topic)
    query = again(standalone, query, topic)
    assert query.batch() == []
    publish(standalone, topic, [plain("c")])
    assert values(query.batch()) == ["c"]


@pytest.mark.parametrize("left", ["nothing", "more"])
def test_what_was_not_read_and_trimmed_is_told(standalone: StandaloneProcess, left: str) -> None:
    """Also when nothing is left behind it, which looked like a partition where nothing happened."""
    topic = new_topic(standalone)
    publish(standalone, topic, [plain("a")])
    query = MicroBatches(standalone, topic, startingOffsets="earliest")
    assert values(query.batch()) == ["a"]
    publish(standalone, topic, [plain("b"), plain("c")])
    _trim(standalone, topic)
    if left == "more":
        publish(standalone, topic, [plain("d")])
    with pytest.raises(TopicDataLossError, match=r"@1 to \d+:0@3 was removed"):
        query.batch()
    lax = again(standalone, query, topic, failOnDataLoss="false")
    assert values(lax.batch()) == (["d"] if left == "more" else [])
    publish(standalone, topic, [plain("e")])
    assert values(lax.batch()) == ["e"]


def _trim(standalone: StandaloneProcess, topic: str) -> None:
    """There is no subscription, so all of what is sealed goes."""
    unload(standalone, topic)
    standalone.admin("GET", f"persistent/public/default/{topic}/stats")
    standalone.admin("POST", f"persistent/public/default/{topic}/trim")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("subscription", ["", "job"])
def test_a_query_outlives_its_only_topic(
    standalone: StandaloneProcess, subscription: str, restarted: bool
) -> None:
    """Deleted, looked at several times, made again, and all of the new one is read."""
    topic = new_topic(standalone)
    publish(standalone, topic, [plain("a")])
    more = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    if subscription:
        more["subscription"] = subscription
    query = MicroBatches(standalone, topic, **more)

    def next_driver() -> MicroBatches:
        return again(standalone, query, topic, **more) if restarted else query

    assert values(query.batch()) == ["a"]
    for number in range(2):
        standalone.admin("DELETE", f"persistent/public/default/{topic}?force=true")
        # What Spark calls as it plans the next batch, of what was read before.
        query.reader.commit(query.offset)
        for _ in range(3):
            query = next_driver()
            assert query.batch() == []
            assert query.reader.reportLatestOffset() == {}
        names = standalone.admin("GET", "persistent/public/default")
        assert not any(topic in name for name in names), "reading makes no topic"
        publish(standalone, topic, [plain(f"b{number}"), plain("c")])
        query = next_driver()
        assert values(query.batch()) == [f"b{number}", "c"]


def test_a_query_that_ends_outlives_its_only_topic(standalone: StandaloneProcess) -> None:
    """`availableNow` over a checkpoint whose topic is gone ends, or says what is gone."""
    topic = new_topic(standalone)
    publish(standalone, topic, [plain("a")])
    query = MicroBatches(standalone, topic, startingOffsets="earliest")
    assert values(query.batch()) == ["a"]
    standalone.admin("DELETE", f"persistent/public/default/{topic}")
    lax = MicroBatches(standalone, topic, offset=query.offset, available_now=True, failOnDataLoss="false")
    assert lax.batch() == []
    strict = MicroBatches(standalone, topic, offset=query.offset, available_now=True)
    with pytest.raises(SparkSourceError, match="data loss: there is no"):
        strict.batch()


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("remade", [True, False])
def test_deleted_between_planning_and_reading(
    standalone: StandaloneProcess, strict: bool, remade: bool
) -> None:
    """A batch that was planned is read, or found to be gone; no error of the protocol gets through."""
    topic = new_topic(standalone)
    publish(standalone, topic, [plain("a"), plain("b")])
    more = {"startingOffsets": "earliest", "failOnDataLoss": str(strict)}
    query = MicroBatches(standalone, topic, **more)
    end = query.reader.latestOffset(query.offset, query.reader.getDefaultReadLimit())
    tasks = query.reader.partitions(query.offset, end)
    standalone.admin("DELETE", f"persistent/public/default/{topic}")
    if remade:
        publish(standalone, topic, [plain("z")])

    def rows() -> list[str]:
        return [
            row["value"] for task in tasks for part in query.reader.read(task) for row in part.to_pylist()
        ]

    def planned_again() -> object:
        """By a driver that was started again in the middle of the batch."""
        return again(standalone, query, topic, **more).reader.partitions(query.offset, end)

    _either(strict, rows)
    if strict:
        with pytest.raises(SparkSourceError, match="data loss"):
            planned_again()
    else:
        planned_again()


def _either(strict: bool, rows: Callable[[], list[str]]) -> None:
    if strict:
        with pytest.raises(TopicDataLossError, match="data loss"):
            rows()
    else:
        assert rows() == []
