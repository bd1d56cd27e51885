"""The official Python client, unmodified, against a real standalone."""

from __future__ import annotations

import itertools
import uuid
from concurrent.futures import Future

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from support.official import TIMEOUT_MS, connect, receive_all
from support.standalone import StandaloneProcess

pytestmark = pytest.mark.process


def assert_empty(consumer: pulsar.Consumer) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)


COMPRESSIONS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


@pytest.mark.parametrize("batching", [False, True], ids=["unbatched", "batched"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_is_sent_is_received(
    client: pulsar.Client, topic: str, compression: str, batching: bool
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, batching_enabled=batching, compression_type=COMPRESSIONS[compression]
    )
    sent = [f"message {i} ".encode() * 20 for i in range(100)]
    for i, data in enumerate(sent):
        producer.send_async(
            data,
            lambda *_: None,
            properties={"n": str(i)},
            partition_key=f"k{i % 3}",
            event_timestamp=1000 + i,
        )
    producer.flush()
    for i, data in enumerate(sent):
        message = consumer.receive(TIMEOUT_MS)
        assert message.data() == data
        assert message.properties() == {"n": str(i)}
        assert message.partition_key() == f"k{i % 3}"
        assert message.event_timestamp() == 1000 + i
        assert message.redelivery_count() == 0
        consumer.acknowledge(message)


def test_large_messages_up_to_the_limit(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    sizes = [0, 1, 64 * 1024, 300_000, 1 << 20, 5 * 1024 * 1024 - 200]
    for size in sizes:
        producer.send(b"x" * size)
    assert [len(data) for data in receive_all(consumer, len(sizes))] == sizes


def test_exclusive_refuses_a_second_consumer(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")


def test_failover_hands_over_what_is_not_acknowledged(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", pulsar.ConsumerType.Failover, consumer_name="a")
    second = client.subscribe(topic, "s", pulsar.ConsumerType.Failover, consumer_name="b")
    producer = client.create_producer(topic)
    for i in range(10):
        producer.send(str(i).encode())
    assert receive_all(first, 5) == [str(i).encode() for i in range(5)]
    assert_empty(second)
    first.close()
    assert receive_all(second, 5) == [str(i).encode() for i in range(5, 10)]


def test_shared_gives_each_message_to_one_consumer(client: pulsar.Client, topic: str) -> None:
    consumers = [
        client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=10) for _ in range(3)
    ]
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(90):
        producer.send_async(str(i).encode(), lambda *_: None)
    producer.flush()
    got: list[bytes] = []
    shares = []
    for consumer in itertools.cycle(consumers):
        try:
            message = consumer.receive(500)
        except pulsar.Timeout:
            if len(got) == 90:
                break
            continue
        shares.append(consumer)
        got.append(message.data())
        consumer.acknowledge(message)
    assert sorted(got, key=int) == [str(i).encode() for i in range(90)]
    assert len({id(consumer) for consumer in shares}) == 3


def test_key_shared_keeps_a_key_with_one_consumer_in_order(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared) for _ in range(3)]
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(300):
        producer.send_async(str(i).encode(), lambda *_: None, partition_key=f"key-{i % 20}")
    producer.flush()
    owner: dict[str, int] = {}
    last: dict[str, int] = {}
    count = 0
    while count < 300:
        for number, consumer in enumerate(consumers):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            count += 1
            key = message.partition_key()
            assert owner.setdefault(key, number) == number
            assert last.get(key, -1) < int(message.data())
            last[key] = int(message.data())
            consumer.acknowledge(message)
    assert len(set(owner.values())) == 3


def test_negative_acknowledgement_redelivers_and_counts(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    producer = client.create_producer(topic)
    producer.send(b"again")
    for expected in range(3):
        message = consumer.receive(TIMEOUT_MS)
        assert message.redelivery_count() == expected
        consumer.negative_acknowledge(message)
    consumer.acknowledge(consumer.receive(TIMEOUT_MS))
    assert_empty(consumer)


def test_what_is_not_acknowledged_comes_to_the_next_consumer(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(10):
        producer.send(str(i).encode())
    for i in range(10):
        message = consumer.receive(TIMEOUT_MS)
        if i % 2:
            consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    assert sorted(receive_all(again, 5)) == [b"0", b"2", b"4", b"6", b"8"]
    assert_empty(again)


def test_parts_of_a_batch_can_be_acknowledged(client: pulsar.Client, topic: str) -> None:
    def subscribe() -> pulsar.Consumer:
        return client.subscribe(topic, "s", pulsar.ConsumerType.Shared, batch_index_ack_enabled=True)

    consumer = subscribe()
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=1000, batching_max_messages=10
    )
    for i in range(10):
        producer.send_async(str(i).encode(), lambda *_: None)
    producer.flush()
    messages = [consumer.receive(TIMEOUT_MS) for _ in range(10)]
    assert len({(m.message_id().ledger_id(), m.message_id().entry_id()) for m in messages}) == 1
    for message in messages[:7]:
        consumer.acknowledge(message)
    consumer.close()
    again = subscribe()
    assert receive_all(again, 3) == [b"7", b"8", b"9"]
    assert_empty(again)


def test_cumulative_acknowledgement(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(10):
        producer.send(str(i).encode())
    messages = [consumer.receive(TIMEOUT_MS) for _ in range(10)]
    consumer.acknowledge_cumulative(messages[5])
    consumer.close()
    again = client.subscribe(topic, "s")
    assert receive_all(again, 4) == [b"6", b"7", b"8", b"9"]


def test_seek_by_id_and_time(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(5):
        producer.send(str(i).encode())
    messages = [consumer.receive(TIMEOUT_MS) for _ in range(5)]
    consumer.acknowledge_cumulative(messages[-1])
    consumer.seek(pulsar.MessageId.earliest)
    assert receive_all(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]
    consumer.seek(messages[3].message_id())
    assert consumer.receive(TIMEOUT_MS).data() in (b"3", b"4")
    consumer.seek(messages[0].publish_timestamp() - 1000)
    assert receive_all(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]
    consumer.seek(pulsar.MessageId.latest)
    producer.send(b"new")
    assert receive_all(consumer, 1) == [b"new"]


@pytest.mark.parametrize("batching", [False, True], ids=["unbatched", "batched"])
def test_reader_from_everywhere(client: pulsar.Client, topic: str, batching: bool) -> None:
    producer = client.create_producer(topic, batching_enabled=batching)
    ids: list[Future[pulsar.MessageId]] = [Future() for _ in range(10)]
    for i, future in enumerate(ids):
        producer.send_async(str(i).encode(), lambda result, id_, f=future: f.set_result(id_))
    producer.flush()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(TIMEOUT_MS).data() for _ in range(10)] == [str(i).encode() for i in range(10)]
    assert not reader.has_message_available()
    middle = client.create_reader(topic, ids[4].result())
    assert middle.read_next(TIMEOUT_MS).data() == b"5"
    inclusive = client.create_reader(topic, ids[4].result(), start_message_id_inclusive=True)
    assert inclusive.read_next(TIMEOUT_MS).data() == b"4"
    latest = client.create_reader(topic, pulsar.MessageId.latest)
    assert not latest.has_message_available()
    producer.send(b"tail")
    assert latest.read_next(TIMEOUT_MS).data() == b"tail"


def test_partitioned_topic(client: pulsar.Client, standalone: StandaloneProcess, topic: str) -> None:
    path = topic.replace("://", "/")
    standalone.admin("PUT", f"{path}/partitions", 4)
    assert len(client.get_topic_partitions(topic)) == 4
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for i in range(100):
        producer.send_async(str(i).encode(), lambda *_: None, partition_key=str(i))
    producer.flush()
    messages = [consumer.receive(TIMEOUT_MS) for _ in range(100)]
    assert sorted((m.data() for m in messages), key=int) == [str(i).encode() for i in range(100)]
    assert {m.message_id().partition() for m in messages} == {0, 1, 2, 3}


def test_regular_expression_subscription(client: pulsar.Client) -> None:
    stem = uuid.uuid4().hex
    names = [f"persistent://public/default/{stem}-{i}" for i in range(3)]
    producers = [client.create_producer(name) for name in names]
    import re

    consumer = client.subscribe(re.compile(f"persistent://public/default/{stem}-.*"), "s")
    for producer in producers:
        producer.send(b"x")
    assert {consumer.receive(TIMEOUT_MS).topic_name() for _ in range(3)} == set(names)


def test_unsubscribe_deletes_the_cursor(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"gone")
    consumer.unsubscribe()
    assert_empty(client.subscribe(topic, "s"))


def test_deduplication_drops_what_is_sent_again(
    client: pulsar.Client, standalone: StandaloneProcess, topic: str
) -> None:
    path = topic.replace("://", "/")
    client.create_producer(topic).close()
    standalone.admin("POST", f"{path}/deduplicationEnabled", True)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
    for sequence in (0, 1, 2, 1, 2, 3):
        producer.send(str(sequence).encode(), sequence_id=sequence)
    producer.close()
    again = client.create_producer(topic, producer_name="p", batching_enabled=False)
    assert again.last_sequence_id() == 3
    again.send(b"3", sequence_id=3)
    again.send(b"4", sequence_id=4)
    assert receive_all(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]
    assert_empty(consumer)


class Flight(Record):
    carrier = String()
    delay = Integer()


@pytest.mark.parametrize("schema", [JsonSchema, AvroSchema])
def test_schemas_travel(client: pulsar.Client, topic: str, schema: type[JsonSchema]) -> None:
    consumer = client.subscribe(topic, "s", schema=schema(Flight))
    producer = client.create_producer(topic, schema=schema(Flight))
    producer.send(Flight(carrier="UA", delay=12))
    value = consumer.receive(TIMEOUT_MS).value()
    assert (value.carrier, value.delay) == ("UA", 12)


def test_two_producers_of_a_name_clash(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic, producer_name="p")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="p")


def test_a_missing_namespace_is_refused(client: pulsar.Client) -> None:
    with pytest.raises((pulsar.TopicNotFound, pulsar.PulsarException)):
        client.create_producer("persistent://nobody/nowhere/topic")


def test_a_restart_keeps_everything(standalone_folder: StandaloneProcess, topic: str) -> None:
    standalone_folder.start()
    client = connect(standalone_folder)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for i in range(50):
        producer.send_async(str(i).encode(), lambda *_: None)
    producer.flush()
    assert len(receive_all(consumer, 20)) == 20
    client.close()
    assert standalone_folder.stop() == 0
    standalone_folder.start()
    client = connect(standalone_folder)
    # Before the rest is acknowledged: from then on the log may be trimmed.
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert reader.has_message_available()
    consumer = client.subscribe(topic, "s")
    assert receive_all(consumer, 30) == [str(i).encode() for i in range(20, 50)]
    client.close()


def test_a_table_view_follows_a_topic(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for i in range(10):
        producer.send(str(i).encode(), partition_key=f"k{i % 3}")
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in ("k0", "k1", "k2")} == {"k0": b"9", "k1": b"7", "k2": b"8"}


def test_the_compacted_view_is_for_one_consumer_at_a_time(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s", pulsar.ConsumerType.Shared, is_read_compacted=True)
