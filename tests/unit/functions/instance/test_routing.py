"""Which topics an instance reads, where its results go, and which numbers they have."""

from __future__ import annotations

from magnetar.base.names import TopicName
from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.batches_out import OutputMessage
from magnetar.functions.instance.endpoints import OUTPUTS_PER_MESSAGE_MAX
from magnetar.functions.instance.plan import EFFECTIVELY_ONCE, InputPlan, InstancePlan
from magnetar.functions.instance.routing import first_number, once_name, own_topics, partition_of, shares
from magnetar.wire import pulsar_pb2 as pb

TOPIC = TopicName.parse("in")
PARTS = [TOPIC.with_partition(number) for number in range(5)]


def plan(instance: int = 0, **fields: object) -> InstancePlan:
    return InstancePlan(
        name="f",
        instance=instance,
        parallelism=2,
        class_name="f",
        package="f.py",
        inputs=(InputPlan(topic="in"),),
        subscription="s",
        subscription_type="Shared",
        service_url="pulsar://nowhere:1",
        **fields,  # type: ignore[arg-type]  # the test's own fields
    )


def test_instances_share_partitions_or_each_partition_has_one() -> None:
    assert own_topics(PARTS, plan()) == PARTS
    for fields in ({"ordered": True}, {"guarantee": EFFECTIVELY_ONCE}):
        assert own_topics(PARTS, plan(0, **fields)) == PARTS[::2]
        assert own_topics(PARTS, plan(1, **fields)) == PARTS[1::2]
        assert own_topics([TOPIC], plan(0, **fields)) == [TOPIC]
        assert own_topics([TOPIC], plan(1, **fields)) == []


def test_results_without_a_key_go_together_and_those_with_one_by_it() -> None:
    keyed = OutputMessage(b"k", "key-1")
    outputs = [b"a", keyed, b"b", OutputMessage(b"c", None, {"p": "q"})]
    assert shares(outputs, 0, 7) == {-1: outputs}
    parts = shares(outputs, 3, 7)
    assert parts[partition_of("key-1", 3)][-1] is keyed or keyed in parts[partition_of("key-1", 3)]
    assert [each for each in parts[1] if each is not keyed] == [b"a", b"b", outputs[3]]


def test_keys_are_hashed_as_java_does() -> None:
    # "hello".hashCode() is 99162322, "😀".hashCode() is 1772899.
    assert partition_of("hello", 1_000_000) == 99_162_322 % 1_000_000
    assert partition_of("😀", 10_000_000) == 1_772_899
    assert partition_of("", 7) == 0


def test_inputs_and_functions_number_their_results_by_themselves() -> None:
    names = {
        once_name(plan(), TopicName.parse(topic))
        for topic in ("in", "other/default/in", "public/other/in", "in-partition-0", "in-partition-1")
    }
    assert len(names) == 5
    assert once_name(plan(), TOPIC) == "fn/public/default/f/default/in"


def test_numbers_come_from_the_index_alone() -> None:
    entry = TakenEntry(0, (1, 1, 9, 1), pb.MessageMetadata(), [b""] * 4)
    assert first_number(entry) == 6 * OUTPUTS_PER_MESSAGE_MAX
    one = TakenEntry(0, (1, 2, 10, 1), pb.MessageMetadata(), [b""])
    assert first_number(one) == first_number(entry) + 4 * OUTPUTS_PER_MESSAGE_MAX
