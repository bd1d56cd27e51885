"""Entry filters, as clients of a subscription see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.names import NamespaceName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.explain.reasons import DiagnosedState, diagnose
from magnetar.broker.filters.entry_filter import (
    PLAIN_BYTES_MAX,
    SINGLES_MAX,
    Candidate,
    Context,
    EntryFilter,
    Verdict,
)
from magnetar.broker.filters.expression import PROPERTY
from magnetar.broker.filters.filtered_source import FAILED_AGAIN_MS, RESCHEDULE_MS, _within
from magnetar.broker.filters.rules import BUILT_IN, FilterRules
from magnetar.broker.limits.limits import Limits
from magnetar.broker.subscription.subscription import Subscription
from magnetar.client.compression import compress
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.payload import build_batch, build_entry
from magnetar.wire.sends import encode_send
from support.sessions import TOPIC, Peer, World, in_world, send

KINDS = ("Exclusive", "Failover", "Shared", "Key_Shared")
RED = [pb.KeyValue(key=PROPERTY, value='properties.colour == "red"')]


def coloured(sequence_id: int, colour: str, *, key: str = "", producer_id: int = 1, batch: int = 0) -> bytes:
    """A SEND of a message, or of a batch that counts for `batch`, whose body is the colour."""
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=sequence_id,
        publish_time=1,
        properties=[pb.KeyValue(key="colour", value=colour)],
    )
    if key:
        metadata.partition_key = key
    if batch:
        metadata.num_messages_in_batch = batch
    entry = build_entry(metadata, colour.encode())
    return encode_send(producer_id, sequence_id, batch or 1, entry)


async def published(world: World, *colours: str) -> Peer:
    peer = world.peer()
    await peer.producer()
    peer.send(*(coloured(i, colour, key=colour) for i, colour in enumerate(colours)))
    await world.until(lambda: len(peer.receipts) == len(colours), "receipts")
    return peer


async def policy(world: World, names: str | None) -> None:
    """Sets the namespace's policy."""

    def change(document: dict[str, Any]) -> None:
        document.pop("entryFilters", None)
        if names is not None:
            document["entryFilters"] = {"entryFilterNames": names}

    await world.broker.policies.update_namespace(NamespaceName("public", "default"), change)
    await world.broker.apply_policies()


async def subscription(world: World) -> Subscription:
    return (await world.topic()).subscriptions["s"]


def pass_time(world: World, ms: int) -> None:
    world.clock.advance(ms)
    world.broker.alarms.ring()


class Scripted:
    """A filter that decides as the test says; notes the vectors that it saw."""

    def __init__(self, decide: Callable[[str], Verdict]) -> None:
        self.decide = decide
        self.vectors: list[list[str]] = []

    def __call__(self, context: Context) -> EntryFilter:
        return self

    def judge(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        bodies = [bytes(each.payload).decode() for each in candidates]
        self.vectors.append(bodies)
        return [self.decide(body) for body in bodies]


def with_filters(*scripted: Scripted, **more: Any) -> BrokerConfig:
    """A broker whose subscriptions all have these filters."""
    known = {**BUILT_IN, **{f"f{i}": each for i, each in enumerate(scripted)}}
    names = tuple(name for name in known if name.startswith("f"))
    return BrokerConfig(limits=Limits(entry_filters=FilterRules(names=names, known=known, **more)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_subscription_gets_what_its_expression_wants(kind: str) -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        await published(world, "red", "blue", "red", "blue", "blue")
        peer = world.peer()
        await peer.consumer(kind=kind, permits=100, subscription_properties=RED)
        await world.until(lambda: len(peer.messages) == 2, "messages")
        await world.settle()
        assert peer.bodies == [b"red", b"red"]
        found = await subscription(world)
        assert found.backlog_entries == 2
        peer.ack(1, *(message.position for message in peer.messages))
        await world.settle()
        assert found.backlog_entries == 0
        assert found.filtered is not None
        assert (found.filtered.processed, found.filtered.accepted, found.filtered.rejected) == (5, 2, 3)

    in_world(story)


@pytest.mark.parametrize("kind", KINDS)
def test_few_permits_and_what_comes_again_change_nothing(kind: str) -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        await published(world, *["blue", "blue", "red"] * 20)
        peer = world.peer()
        await peer.consumer(kind=kind, subscription_properties=RED)
        for _ in range(20):
            peer.send(encode_flow(1, 1))
            await world.settle()
        assert peer.bodies == [b"red"] * 20
        found = await subscription(world)
        assert found.filtered is not None
        assert found.filtered.processed == 60  # each once, however often it was read
        peer.session.lost()
        again = world.peer()
        await again.consumer(kind=kind, permits=100)
        await world.until(lambda: len(again.messages) == 20, "messages again")
        await world.settle()
        assert again.bodies == [b"red"] * 20

    in_world(story)


def test_without_an_expression_everything_comes() -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        await published(world, "red", "blue")
        peer = world.peer()
        await peer.consumer(permits=10)
        await world.until(lambda: len(peer.messages) == 2, "messages")

    in_world(story)


def test_the_policy_is_in_force_when_it_is_set_and_over_when_it_is_removed() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer(permits=100, subscription_properties=RED)
        producer = await published(world, "blue")
        await world.until(lambda: peer.bodies == [b"blue"], "unfiltered")
        await policy(world, "expression")
        producer.send(coloured(5, "blue"), coloured(6, "red"))
        await world.until(lambda: peer.bodies[1:] == [b"red"], "filtered")
        await policy(world, None)
        producer.send(coloured(7, "blue"))
        await world.until(lambda: peer.bodies[2:] == [b"blue"], "unfiltered again")
        assert (await subscription(world)).filtered is not None

    in_world(story)


def test_a_seek_has_everything_judged_again() -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        await published(world, "blue", "red", "blue")
        peer = world.peer()
        await peer.consumer(permits=10, subscription_properties=RED)
        await world.until(lambda: len(peer.messages) == 1, "messages")
        topic = await world.topic()
        await topic.subscriptions["s"].seek(topic.log.first_position)
        again = world.peer()
        await again.consumer(permits=10)
        await world.until(lambda: len(again.messages) == 1, "messages")
        await world.settle()
        assert again.bodies == [b"red"]
        counts = topic.subscriptions["s"].filtered
        assert counts is not None
        assert counts.processed == 6

    in_world(story)


def test_an_expression_that_is_changed_counts_at_once() -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        peer = world.peer()
        await peer.consumer(permits=10, subscription_properties=RED)
        producer = await published(world, "red")
        await world.until(lambda: peer.bodies == [b"red"], "red")
        await (await subscription(world)).cursor.set_cursor_properties({PROPERTY: 'key == "k"'})
        producer.send(coloured(5, "red"), coloured(6, "blue", key="k"))
        await world.until(lambda: peer.bodies[1:] == [b"blue"], "the key")

    in_world(story)


def test_an_expression_that_is_none_holds_the_subscription_up() -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        await published(world, "red")
        peer = world.peer()
        await peer.consumer(permits=10, subscription_properties=[pb.KeyValue(key=PROPERTY, value="colour =")])
        await world.settle()
        found = await subscription(world)
        assert not peer.messages
        assert found.backlog_entries == 1
        diagnosis = diagnose(found.view())
        assert diagnosis.state is DiagnosedState.READ_ERROR
        assert PROPERTY in diagnosis.sentence
        await found.cursor.set_cursor_properties({})
        pass_time(world, FAILED_AGAIN_MS)
        await world.until(lambda: peer.bodies == [b"red"], "the message")

    in_world(story)


def test_a_topic_that_ended_says_so_when_the_rest_is_rejected() -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        await published(world, "red", "blue")
        topic = await world.topic()
        await topic.terminate()
        peer = world.peer()
        await peer.consumer(subscription_properties=RED)
        peer.send(encode_flow(1, 1))
        await world.until(lambda: len(peer.messages) == 1, "messages")
        peer.ack(1, peer.messages[0].position)
        peer.send(encode_flow(1, 1))
        consumer = topic.subscriptions["s"].consumers[0]
        await world.until(lambda: consumer.told_end, "the end")

    in_world(story)


def batch_of(sequence_id: int, *colours: str, body: bytes = b"body", **more: Any) -> bytes:
    """A SEND of a batch, each of whose messages has a colour among its own properties."""
    singles = (
        pb.SingleMessageMetadata(properties=[pb.KeyValue(key="colour", value=colour)]) for colour in colours
    )
    plain = build_batch((single, body) for single in singles)
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=sequence_id,
        publish_time=1,
        num_messages_in_batch=len(colours),
        uncompressed_size=len(plain),
    )
    metadata.MergeFrom(pb.MessageMetadata(**more))
    entry = build_entry(metadata, compress(metadata.compression, plain))
    return encode_send(1, sequence_id, len(colours), entry)


def test_a_batch_is_sent_when_any_of_its_messages_is_wanted_and_counted_in_messages() -> None:
    """Its properties are its messages': those of the batch as a whole are none, or its first message's."""

    async def story(world: World) -> None:
        await policy(world, "expression")
        producer = world.peer()
        await producer.producer()
        first = [pb.KeyValue(key="colour", value="red")]
        producer.send(
            batch_of(0, "blue", "red", "green"),
            batch_of(3, "blue", "blue", "blue", "green", properties=first),
            batch_of(7, "red"),
            *(batch_of(8 + 2 * kind, "blue", "red", compression=kind) for kind in range(1, 5)),
            batch_of(20, "green", "green", compression=pb.ZSTD),
        )
        peer = world.peer()
        await peer.consumer(permits=100, subscription_properties=RED)
        await world.until(lambda: len(peer.messages) == 6, "messages")
        found = await subscription(world)
        assert found.filtered is not None
        assert (found.filtered.accepted, found.filtered.rejected) == (12, 6)

    in_world(story)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_much_for_one_go_is_judged_in_the_next(kind: str) -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        producer = world.peer()
        await producer.producer()
        large = bytes(150_000)
        colours = ["blue", "blue", "red", "blue", "green", "red", "blue", "red"]
        for row, colour in enumerate(colours):
            producer.send(batch_of(2 * row, colour, "green", compression=pb.ZLIB, body=large))
        await world.until(lambda: len(producer.receipts) == len(colours), "receipts")
        peer = world.peer()
        await peer.consumer(kind=kind, permits=100, subscription_properties=RED)
        await world.until(lambda: len(peer.messages) == 3, "messages")
        found = await subscription(world)
        await world.until(lambda: found.filtered is not None and found.filtered.rejected == 10, "rejections")
        assert [each.position.entry_id for each in peer.messages] == [2, 5, 7]

    in_world(story)


def test_a_batch_that_cannot_be_opened_is_sent() -> None:
    """Encrypted, damaged, larger than it says, larger than is opened here: what is in it is unknown."""

    async def story(world: World) -> None:
        await policy(world, "expression")
        producer = world.peer()
        await producer.producer()
        key = [pb.EncryptionKeys(key="k", value=b"v")]
        odd = [
            batch_of(0, "blue", "blue", encryption_keys=key),
            batch_of(2, "blue", "blue", compression=pb.ZLIB, uncompressed_size=20),
            batch_of(4, "blue", "blue", compression=pb.LZ4, body=bytes(PLAIN_BYTES_MAX)),
            batch_of(6, *["blue"] * (SINGLES_MAX + 1)),
        ]
        producer.send(*odd, batch_of(10_000, "blue", "blue"))
        await world.until(lambda: len(producer.receipts) == 5, "receipts")
        peer = world.peer()
        await peer.consumer(permits=100_000, subscription_properties=RED)
        await world.until(lambda: len(peer.messages) == len(odd), "messages")
        await world.settle()
        assert len(peer.messages) == len(odd)

    in_world(story)


def test_a_go_judges_a_bounded_number_of_messages() -> None:
    def run(first: int, counts: list[int] | None, entries: int = 0) -> EntryRun:
        return EntryRun(1, first, [b"x"] * (entries or len(counts or ())), counts, 0, 0)

    def sizes(*runs: EntryRun) -> list[int]:
        return [len(each.entries) for each in _within(list(runs))]

    assert sizes(run(0, None, 400), run(400, [1] * 100)) == [400, 100]
    assert sizes(run(0, [400, 400, 400])) == [2]
    assert sizes(run(0, [5000, 1])) == [1]
    assert sizes(run(0, [900]), run(1, [900, 1])) == [1]
    assert sizes(run(0, [900]), run(1, [50, 900])) == [1, 1]


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_what_is_put_off_comes_later(kind: str) -> None:
    ready = False
    later = Scripted(lambda body: Verdict.RESCHEDULE if body == "late" and not ready else Verdict.ACCEPT)

    async def story(world: World) -> None:
        nonlocal ready
        await published(world, "late", "a", "late", "b")
        peer = world.peer()
        await peer.consumer(kind=kind, permits=100)
        await world.until(lambda: peer.bodies == [b"a", b"b"], "the others")
        pass_time(world, RESCHEDULE_MS + 64)
        await world.settle()
        assert len(peer.bodies) == 2
        ready = True
        pass_time(world, RESCHEDULE_MS + 64)
        await world.until(lambda: len(peer.bodies) == 4, "the late ones")
        assert peer.bodies[2:] == [b"late", b"late"]
        found = await subscription(world)
        assert found.filtered is not None
        assert (found.filtered.rescheduled, found.filtered.accepted) == (4, 4)
        peer.ack(1, *(message.position for message in peer.messages))
        await world.settle()
        assert found.backlog_entries == 0

    in_world(story, with_filters(later))


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_what_is_given_back_can_be_put_off(kind: str) -> None:
    verdict = Verdict.ACCEPT
    changing = Scripted(lambda body: verdict)

    async def story(world: World) -> None:
        nonlocal verdict
        await published(world, "a", "b")
        peer = world.peer()
        await peer.consumer(kind=kind, permits=100)
        await world.until(lambda: len(peer.bodies) == 2, "messages")
        peer.session.lost()
        found = await subscription(world)
        # Filters that are set anew have everything judged again.
        found.keep((await world.topic()).limits.of_subscription("s"))
        await policy(world, "f0,expression")
        verdict = Verdict.RESCHEDULE
        again = world.peer()
        await again.consumer(kind=kind, permits=100)
        await world.settle()
        assert not again.messages
        verdict = Verdict.ACCEPT
        pass_time(world, RESCHEDULE_MS + 64)
        await world.until(lambda: len(again.bodies) == 2, "messages again")

    in_world(story, with_filters(changing))


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_where_order_counts_the_next_ones_wait_too(kind: str) -> None:
    ready = False
    later = Scripted(lambda body: Verdict.RESCHEDULE if body == "late" and not ready else Verdict.ACCEPT)

    async def story(world: World) -> None:
        nonlocal ready
        producer = await published(world, "a", "late", "b")
        peer = world.peer()
        await peer.consumer(kind=kind, permits=100)
        await world.until(lambda: peer.bodies == [b"a"], "the first")
        producer.send(coloured(9, "c"))
        await world.settle()
        assert len(later.vectors) == 1  # it is not asked again before its time
        ready = True
        pass_time(world, RESCHEDULE_MS)
        await world.until(lambda: peer.bodies == [b"a", b"late", b"b", b"c"], "the others")

    in_world(story, with_filters(later))


def test_the_first_that_does_not_accept_decides() -> None:
    first = Scripted(lambda body: Verdict.REJECT if body == "x" else Verdict.ACCEPT)
    second = Scripted(lambda body: Verdict.REJECT if body == "y" else Verdict.ACCEPT)

    async def story(world: World) -> None:
        await published(world, "x", "y", "z")
        peer = world.peer()
        await peer.consumer(permits=10)
        await world.until(lambda: peer.bodies == [b"z"], "what both accept")
        assert (first.vectors, second.vectors) == ([["x", "y", "z"]], [["y", "z"]])

    in_world(story, with_filters(first, second))


def test_a_filter_that_fails_is_asked_again_later() -> None:
    broken = True

    def decide(body: str) -> Verdict:
        if broken:
            raise ValueError("no database")
        return Verdict.ACCEPT

    failing = Scripted(decide)

    async def story(world: World) -> None:
        nonlocal broken
        producer = await published(world, "a")
        peer = world.peer()
        await peer.consumer(kind="Shared", permits=10)
        await world.settle()
        producer.send(send(1, 7, b"b"))
        await world.settle()
        assert len(failing.vectors) == 1
        assert "no database" in diagnose((await subscription(world)).view()).sentence
        broken = False
        pass_time(world, FAILED_AGAIN_MS)
        await world.until(lambda: peer.bodies == [b"a", b"b"], "messages")

    in_world(story, with_filters(failing))


def test_a_filter_that_takes_long_is_asked_again_in_the_next_turn() -> None:
    """An expression made to be slow took 30 ms for 500 entries, all in one turn of the loop."""
    worlds: list[World] = []
    loops: list[int] = []
    turn = 0

    def slow(body: str) -> Verdict:
        worlds[0].clock.advance(1)
        loops.append(turn)
        return Verdict.ACCEPT

    async def story(world: World) -> None:
        nonlocal turn
        worlds.append(world)
        await published(world, *(f"m{number}" for number in range(200)))
        peer = world.peer()
        await peer.consumer(permits=1_000)

        def all_came() -> bool:
            nonlocal turn
            turn += 1
            return len(peer.messages) == 200

        await world.until(all_came, "all messages, in their order")
        assert peer.bodies == [f"m{number}".encode() for number in range(200)]
        assert max(map(loops.count, loops)) <= 50

    in_world(story, with_filters(Scripted(slow)))


def test_a_slow_filter_is_named(caplog: pytest.LogCaptureFixture) -> None:
    worlds: list[World] = []

    def slow(body: str) -> Verdict:
        worlds[0].clock.advance(20)
        return Verdict.ACCEPT

    async def story(world: World) -> None:
        worlds.append(world)
        await published(world, "a")
        peer = world.peer()
        await peer.consumer(permits=10)
        await world.until(lambda: len(peer.messages) == 1, "messages")

    in_world(story, with_filters(Scripted(slow)))
    assert "entry filter f0 took 20.0 ms for 1 entries" in caplog.text


def test_messages_that_are_not_kept_are_filtered_too() -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        topic = TOPIC.replace("persistent", "non-persistent")
        peer = world.peer()
        await peer.consumer(topic=topic, permits=10, subscription_properties=RED)
        producer = world.peer()
        await producer.producer(topic=topic)
        producer.send(coloured(0, "blue"), coloured(1, "red"))
        await world.until(lambda: len(peer.messages) == 1, "messages")
        await world.settle()
        assert peer.bodies == [b"red"]

    in_world(story)
