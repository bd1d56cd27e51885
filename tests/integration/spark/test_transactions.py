"""The source on topics with transactions: without Spark, against a real broker."""

from __future__ import annotations

import pytest

from magnetar.client.client import Client
from support.history_topics import HistoryTopic
from support.spark_queries import MicroBatches, batch_rows, values
from support.spark_topics import new_topic
from support.standalone import StandaloneProcess
from support.transactional_history import Writer, write_ledgers

pytestmark = [pytest.mark.spark, pytest.mark.process]


def history_of(standalone: StandaloneProcess) -> HistoryTopic:
    return HistoryTopic(standalone, f"persistent://public/default/{new_topic(standalone)}")


def texts(bodies: list[bytes]) -> list[str]:
    return [body.decode() for body in bodies]


def test_a_stream_does_not_pass_an_open_transaction(standalone: StandaloneProcess) -> None:
    """What it passed would be lost when that is committed, and so would what others published behind it."""
    topic = history_of(standalone)
    with Client(standalone.broker_url) as client:
        writer = Writer(client, topic.topic)
        # The first one holds back everything.
        first = writer.begin()
        writer.publish(3, first, kept=True)
        kept = writer.kept
        writer.close()
        stream = MicroBatches(standalone, topic.topic, startingOffsets="earliest")
        assert stream.batch() == []
        standalone.admin("PUT", f"{topic.path}/unload")
        assert stream.batch() == []
        assert batch_rows(standalone, topic.topic) == []
        writer = Writer(client, topic.topic)
        writer.end(first, commit=True)
        assert values(stream.batch()) == texts(kept)
        second = writer.begin()
        writer.publish(3, second, kept=True)
        writer.publish(2, None, kept=True)
        assert stream.batch() == []
        again = MicroBatches(standalone, topic.topic, offset=stream.offset)
        assert again.batch() == []
        writer.end(second, commit=True)
        assert values(again.batch()) == texts(writer.kept)
        writer.close()


def test_a_topic_of_nothing_but_aborted_messages_has_lost_none(standalone: StandaloneProcess) -> None:
    topic = history_of(standalone)
    assert write_ledgers(topic, [[False], [False]]) == []
    assert batch_rows(standalone, topic.topic) == []
    stream = MicroBatches(standalone, topic.topic, startingOffsets="earliest")
    assert stream.batch() == []
    assert [offset.partition("@")[2] for offset in stream.offset.values()] == ["8"]
    kept = write_ledgers(topic, [[True]])
    assert values(stream.batch()) == texts(kept)


def test_offsets_have_an_index_where_aborted_messages_are(standalone: StandaloneProcess) -> None:
    """It tells what was read from what was lost, when the ledger has been removed."""
    topic = history_of(standalone)
    kept = write_ledgers(topic)
    stream = MicroBatches(
        standalone, topic.topic, startingOffsets="earliest", available_now=True, maxRowsPerTrigger="5"
    )
    found: list[str] = []
    indexes: list[str] = []
    while True:
        end = stream.reader.latestOffset(stream.offset, stream.reader.getDefaultReadLimit())
        if end == stream.offset:
            break
        found += values(stream.batch())
        indexes += (offset.partition("@")[2] for offset in end.values())
    assert found == texts(kept)
    assert indexes == ["5", "10", "15", "20", "25", "30", "35", "40", "44"]
