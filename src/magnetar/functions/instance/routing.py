"""Which topics an instance reads, where its results go, and which numbers they have (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from magnetar.base.names import TopicName
from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.batches_out import Output, OutputMessage
from magnetar.functions.instance.endpoints import OUTPUTS_PER_MESSAGE_MAX
from magnetar.functions.instance.plan import InstancePlan


def own_topics(topics: Iterable[TopicName], plan: InstancePlan) -> list[TopicName]:
    """Those of topics and partitions that this instance reads: all, which it shares with the other
    instances, or where a partition has one instance, partition N that with N modulo the parallelism."""
    if plan.takes_all_parts:
        return list(topics)
    return [each for each in topics if max(each.partition, 0) % plan.parallelism == plan.instance]


def shares(outputs: Sequence[Output], partitions: int, turn: int) -> dict[int, Sequence[Output]]:
    """Messages by their partition, in their order; -1 of a topic that has none. Those with a key go by it,
    the others all to that with `turn` modulo the number of partitions."""
    if not partitions:
        return {-1: outputs}
    parts: dict[int, list[Output]] = {}
    for output in outputs:
        key = output.key if isinstance(output, OutputMessage) else None
        number = turn % partitions if key is None else partition_of(key, partitions)
        parts.setdefault(number, []).append(output)
    return dict(parts)


def partition_of(key: str, partitions: int) -> int:
    """Partition of a key as Java clients choose it: by the hash of its UTF-16, without the sign."""
    value = 0
    units = key.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % partitions


def once_name(plan: InstancePlan, source: TopicName) -> str:
    """Name of the producer of what one input leads to, with effectively once: two inputs, and two functions,
    number their results by themselves."""
    tenant = "" if source.tenant == plan.tenant else f"{source.tenant}/"
    return f"fn/{plan.full_name}/{tenant}{source.namespace}/{source.local}"


def first_number(entry: TakenEntry) -> int:
    """Number of the first result of an entry with effectively once: each message has
    `OUTPUTS_PER_MESSAGE_MAX` of them."""
    return (entry.index - len(entry.payloads) + 1) * OUTPUTS_PER_MESSAGE_MAX
