"""Lists of topics by pattern and domain, asked for once or watched."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator
from typing import Any

import pytest

from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.lookup import visible_topics
from magnetar.broker.system_topics import is_system
from magnetar.broker.watchers import pattern as patterns
from magnetar.broker.watchers.pattern import Pattern
from magnetar.broker.watchers.selection import PATTERN_CHARS_MAX, MatchingTurns, matching, topics_digest
from magnetar.broker.watchers.topic_watchers import TopicWatchers
from magnetar.broker.watchers.watched import Update, WatchedNames
from magnetar.metadata.store import SessionEvent
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import Peer, Type, World, command, in_world

NAMESPACE = "public/default"
Mode = pb.CommandGetTopicsOfNamespace


def full(local: str, domain: str = "persistent") -> str:
    return f"{domain}://{NAMESPACE}/{local}"


async def listed(peer: Peer, **fields: Any) -> Any:
    number = 100 + len(peer.seen)
    return await peer.ask(Type.GET_TOPICS_OF_NAMESPACE, namespace=NAMESPACE, request_id=number, **fields)


async def watch(peer: Peer, pattern: str, request_id: int = 50, watcher_id: int = 1, **more: Any) -> Any:
    return await peer.ask(
        Type.WATCH_TOPIC_LIST,
        namespace=NAMESPACE,
        topics_pattern=pattern,
        watcher_id=watcher_id,
        request_id=request_id,
        **more,
    )


async def create(world: World, *names: str) -> None:
    for name in names:
        await world.broker.any_topic(TopicName.parse(name))


def test_lists_are_by_domain() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await create(world, full("a"), full("b", "non-persistent"))
        assert list((await listed(peer)).topics) == [full("a")]
        assert list((await listed(peer, mode=Mode.NON_PERSISTENT)).topics) == [full("b", "non-persistent")]
        assert len((await listed(peer, mode=Mode.ALL)).topics) == 2

    in_world(story)


def test_lists_are_filtered_by_short_patterns_and_marked() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await create(world, full("a-1"), full("b-1"))
        found = await listed(peer, topics_pattern="persistent://public/default/a-.*")
        assert (list(found.topics), found.filtered) == ([full("a-1")], True)
        long = "public/default/" + "a" * PATTERN_CHARS_MAX
        found = await listed(peer, topics_pattern=long)
        assert (len(found.topics), found.filtered) == (2, False)
        found = await listed(peer, topics_pattern="public/default/(?=a).*")
        assert (len(found.topics), found.filtered) == (2, False), "what is not matched safely is not matched"

    in_world(story)


def test_a_list_that_the_client_knows_is_not_sent() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await create(world, full("a"))
        first = await listed(peer)
        assert first.topics_hash == topics_digest([full("a")])
        again = await listed(peer, topics_hash=first.topics_hash)
        assert (again.changed, list(again.topics)) == (False, [])

    in_world(story)


def test_clients_see_no_system_topics() -> None:
    for local in (
        "__change_events",
        "__change_events-partition-3",
        "__transaction_buffer_snapshot_segments",
        "t-sub__transaction_pending_ack",
        "transaction_coordinator_assign-partition-1",
    ):
        assert is_system(TopicName.parse(local))
    assert not is_system(TopicName.parse("__mine"))


def test_a_watcher_hears_of_topics_that_come_and_go() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await create(world, full("a-1"), full("other"))
        begun = await watch(peer, "public/default/a-.*")
        assert list(begun.topic) == [full("a-1")]
        assert begun.topics_hash == topics_digest([full("a-1")])
        await create(world, full("a-2"), full("another"), full("a-3", "non-persistent"))
        (update,) = await world.until(lambda: peer.commands(Type.WATCH_TOPIC_UPDATE), "an update")
        assert (list(update.new_topics), list(update.deleted_topics)) == ([full("a-2")], [])
        assert update.topics_hash == topics_digest([full("a-1"), full("a-2")])
        await world.broker.delete_topic(TopicName.parse(full("a-1")))
        _, update = await world.until(
            lambda: len(found := peer.commands(Type.WATCH_TOPIC_UPDATE)) > 1 and found, "a second update"
        )
        assert (list(update.new_topics), list(update.deleted_topics)) == ([], [full("a-1")])
        assert update.watcher_id == 1

    in_world(story)


class _Listener:
    """A client that notes what it hears, and takes nothing while it is not `writable`."""

    def __init__(self) -> None:
        self.writable = True
        self.heard: list[tuple[list[str], list[str]]] = []

    def ask_output(self) -> bool:
        return self.writable

    def watching(self, request_id: int, watcher_id: int, topics: list[str], digest: str) -> None:
        self.heard.append((topics, []))

    def watching_failed(self, request_id: int, error: MagnetarError) -> None:
        raise AssertionError from error

    def topics_changed(self, watcher_id: int, update: Update) -> None:
        self.heard.append((update.new, update.deleted))


def test_a_watcher_hears_of_a_topic_that_was_made_anew_between_two_looks() -> None:
    """A consumer of a pattern stops at what is deleted, and goes on with what it hears is new."""

    async def story(world: World) -> None:
        quick, slow = _Listener(), _Listener()
        for client in (quick, slow):
            world.broker.watchers.watch(
                client, NamespaceName.parse(NAMESPACE), ".*", watcher_id=1, request_id=1, known_digest=""
            )
        await create(world, full("a"), full("b"))
        await world.settle()
        assert [topic for new, _ in quick.heard for topic in new] == [full("a"), full("b")]
        quick.heard, slow.heard, slow.writable = [], [], False
        for _ in range(2):
            quick.writable = False
            await world.broker.delete_topic(TopicName.parse(full("a")))
            await create(world, full("a"))
            await world.settle()
            quick.writable = True
            world.broker.watchers.resume(quick)
            await world.settle()
            assert quick.heard == [([], [full("a")]), ([full("a")], [])]
            quick.heard = []
        slow.writable = True
        world.broker.watchers.resume(slow)
        await world.settle()
        assert slow.heard == [([], [full("a")]), ([full("a")], [])]
        await create(world, full("c"))
        await world.settle()
        assert (quick.heard, slow.heard[2:]) == ([([full("c")], [])], [([full("c")], [])])

    in_world(story)


def test_a_topic_that_was_never_missing_in_a_list_may_be_another_one() -> None:
    async def story(world: World) -> None:
        listener, may_list = _Listener(), asyncio.Event()

        async def slow_list(namespace: NamespaceName) -> list[TopicName]:
            await may_list.wait()
            return await visible_topics(world.broker, namespace)

        watchers = TopicWatchers(world.store, slow_list, world.broker.tasks.spawn)
        namespace = NamespaceName.parse(NAMESPACE)
        watchers.watch(listener, namespace, ".*", watcher_id=1, request_id=1, known_digest="")
        may_list.set()
        await create(world, full("a"), full("b"))
        await world.until(lambda: len(watchers) and len(listener.heard) >= 1, "the watch")
        await world.settle()
        listener.heard = []
        may_list.clear()
        await create(world, full("c"))
        await world.broker.delete_topic(TopicName.parse(full("a")))
        await create(world, full("a"))
        may_list.set()
        await world.settle()
        assert listener.heard == [([full("c")], []), ([], [full("a")]), ([full("a")], [])]

    in_world(story)


def test_a_watcher_hears_of_partitions() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        topic = TopicName.parse("p")
        await watch(peer, "public/default/p")
        await world.broker.policies.create_partitioned(topic, 1)
        await world.until(lambda: len(peer.commands(Type.WATCH_TOPIC_UPDATE)) == 1, "an update")
        await world.broker.policies.grow_partitioned(topic, 3)
        _, update = await world.until(
            lambda: len(found := peer.commands(Type.WATCH_TOPIC_UPDATE)) > 1 and found, "a second update"
        )
        assert list(update.new_topics) == [full("p-partition-1"), full("p-partition-2")]

    in_world(story)


def test_a_watcher_that_knows_the_list_is_not_told() -> None:
    async def story(world: World) -> None:
        await create(world, full("a"))
        begun = await watch(world.peer(), "public/default/.*", topics_hash=topics_digest([full("a")]))
        assert list(begun.topic) == []

    in_world(story)


def test_the_same_watch_twice_is_one_watcher() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await create(world, full("a"))
        await watch(peer, "public/default/.*")
        again = await watch(peer, "public/default/.*", request_id=51)
        assert list(again.topic) == [full("a")]
        assert len(world.broker.watchers) == 1

    in_world(story)


def test_watches_end_with_their_client_or_when_it_says_so() -> None:
    async def story(world: World) -> None:
        first, second = world.peer(), world.peer()
        await watch(first, "public/default/.*")
        await watch(second, "public/default/.*")
        await first.ask(Type.WATCH_TOPIC_LIST_CLOSE, watcher_id=1, request_id=60)
        assert len(world.broker.watchers) == 1
        second.session.lost()
        assert len(world.broker.watchers) == 0
        await create(world, full("a"))
        await world.settle()
        assert not first.commands(Type.WATCH_TOPIC_UPDATE)

    in_world(story)


def test_patterns_that_are_too_long_or_unsafe_are_refused() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        assert (await watch(peer, "x" * (PATTERN_CHARS_MAX + 1))).error == pb.NotAllowedError
        assert (await watch(peer, r"(a)\1", request_id=51)).message
        assert len(world.broker.watchers) == 0

    in_world(story)


def test_a_namespace_may_come_after_its_watcher() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.ask(
            Type.WATCH_TOPIC_LIST,
            namespace="public/later",
            topics_pattern="public/later/.*",
            watcher_id=1,
            request_id=50,
        )
        await world.broker.policies.create_namespace(NamespaceName.parse("public/later"), {})
        await create(world, "persistent://public/later/t")
        await world.until(lambda: peer.commands(Type.WATCH_TOPIC_UPDATE), "an update")

    in_world(story)


async def turns_during(work: Any) -> tuple[Any, int]:
    """Its result, and how many turns others had."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(others())
    result = await work
    other.cancel()
    return result, turns


def test_ten_thousand_topics_let_others_have_their_turns() -> None:
    names = [TopicName.parse(f"public/default/topic-{number}") for number in range(10_000)]
    pattern = Pattern("(.*a?){9}!|public/default/topic-.*9")
    found, turns = asyncio.run(turns_during(matching(pattern, names)))
    assert len(found) == 1_000
    assert turns >= 5


DEAR = "public/default/.*a.{120}b"
"""Has another set of states after nearly every character of a name of a's and b's."""


def long_name(tenant: str = "public") -> TopicName:
    return TopicName.parse(f"{tenant}/default/" + "".join(random.Random(1).choices("ab", k=2_000)))


def test_one_long_name_lets_others_have_their_turns() -> None:
    """A pattern paused between names only: one of 2,000 characters took half a second."""
    _, turns = asyncio.run(turns_during(matching(Pattern(DEAR), [long_name()])))
    assert turns >= 20


def test_many_short_steps_are_work_too() -> None:
    names = [TopicName.parse(f"public/default/{'n' * 2_000}-{number}") for number in range(100)]
    found, turns = asyncio.run(turns_during(matching(Pattern(".*"), names)))
    assert len(found) == 100
    assert turns >= 15


class _Slow:
    """Counts in which turns of the loop it works."""

    work = 0

    def __init__(self, label: str, done: list[tuple[str, int]], now: list[int]) -> None:
        self._label = label
        self._done = done
        self._now = now

    def in_pieces(self, text: str) -> Generator[None, None, bool]:
        for _ in range(5):
            self._done.append((self._label, self._now[0]))
            yield
        return bool(text)

    def rest(self) -> None:
        self.work = 0


def test_lists_that_are_asked_for_at_once_share_a_turn_tenant_after_tenant() -> None:
    done: list[tuple[str, int]] = []
    now = [0]

    async def story() -> None:
        async def clock() -> None:
            while True:
                now[0] += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(clock())
        turns = MatchingTurns()
        lists = [matching(_Slow("noisy", done, now), [long_name("noisy")], turns) for _ in range(20)]
        quiet = matching(_Slow("quiet", done, now), [long_name("quiet")], turns)
        await asyncio.gather(*lists, quiet)
        ticking.cancel()

    asyncio.run(story())
    times = [at for _, at in done]
    assert len(times) == 5 * 21
    assert len(set(times)) == len(times), "one piece in a turn of the loop"
    last_quiet = max(index for index, (label, _) in enumerate(done) if label == "quiet")
    assert last_quiet < 20, "a tenant that asks for one list does not wait for all of another's"


def test_what_a_pattern_remembers_is_bounded() -> None:
    """A connection may have a thousand watchers: each kept megabytes."""
    pattern = Pattern(DEAR)
    pattern.match(f"public/default/{long_name().local}")
    assert 0 < pattern.remembered < 21_000
    asyncio.run(matching(pattern, [long_name()]))
    assert pattern.remembered <= 1_000


def test_too_much_work_is_left_to_the_client_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_WORK_MAX", 50_000)
    name = str(long_name())

    async def story(world: World) -> None:
        peer = world.peer()
        await create(world, name, full("plain"))
        answer = await listed(peer, topics_pattern=DEAR)
        assert not answer.filtered
        assert sorted(answer.topics) == sorted((name, full("plain")))
        answer = await listed(peer, topics_pattern="public/default/pl.*")
        assert list(answer.topics) == [full("plain")]
        await watch(peer, "public/default/pl.*", watcher_id=1)
        refused = await watch(peer, DEAR, request_id=51, watcher_id=2)
        assert "too much work" in refused.message
        assert len(world.broker.watchers) == 1

    in_world(story)


def test_a_watch_that_becomes_too_much_work_ends_with_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No client was told: the protocol has no command for a client that waits for no answer."""
    monkeypatch.setattr(patterns, "_WORK_MAX", 50_000)

    async def story(world: World) -> None:
        peer = world.peer()
        await create(world, full("plain"))
        await watch(peer, DEAR, watcher_id=1)
        assert len(world.broker.watchers) == 1
        await create(world, str(long_name()))
        await world.until(lambda: len(world.broker.watchers) == 0, "ended")

    in_world(story)
    assert "a client's watch of topics" in caplog.text
    assert "too much work" in caplog.text


def test_watchers_of_a_namespace_share_the_names() -> None:
    """A connection may have a thousand watchers, each of which kept all that matched, of 4,096 characters."""

    def held(world: World) -> list[set[str]]:
        clients = world.broker.watchers._clients.values()
        return [watcher.watched.topics for own in clients for _, watcher in own.values()]

    async def story(world: World) -> None:
        peer = world.peer()
        await create(world, full("a-1"), full("a-2"))
        await watch(peer, "public/default/a-.*", watcher_id=1)
        await watch(peer, "public/default/.*", watcher_id=2, request_id=51)
        first, second = held(world)
        assert first == second == {full("a-1"), full("a-2")}
        assert {id(name) for name in first} == {id(name) for name in second}
        await world.broker.delete_topic(TopicName.parse(full("a-1")), force=True)
        await create(world, full("a-3"))
        wanted = {full("a-2"), full("a-3")}
        for _ in range(1_000):
            if all(names == wanted for names in held(world)):
                break
            await asyncio.sleep(0.01)
        assert [*held(world)] == [wanted, wanted]
        (entry,) = world.broker.watchers._namespaces.values()
        assert set(entry.texts.values()) == wanted, "what is gone is not kept"

    in_world(story)


def test_what_a_watcher_is_told_adds_up() -> None:
    watched = WatchedNames(Pattern("a.*"))
    assert watched.change(["a1", "a2"], []) is not None
    assert watched.change(["a1"], ["b"]) is None, "nothing new, and what went was never known"
    update = watched.change(["a3"], ["a1"])
    assert update is not None
    assert (update.new, update.deleted) == (["a3"], ["a1"])
    assert watched.topics == {"a2", "a3"}
    assert update.digest == watched.digest == topics_digest(["a3", "a2"])


def test_who_does_not_read_hears_of_all_changes_at_once_later() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await watch(peer, "persistent://public/default/.*")
        peer.take_output = False
        peer.session.transport_writable = False
        for number in range(5):
            await create(world, full(f"new-{number}"))
            await world.settle()
        assert not peer.session.out
        peer.take_output = peer.session.transport_writable = True
        peer.session.pump()
        await world.until(lambda: peer.commands(Type.WATCH_TOPIC_UPDATE), "the update")
        (update,) = peer.commands(Type.WATCH_TOPIC_UPDATE)
        assert list(update.new_topics) == [full(f"new-{number}") for number in range(5)]

    in_world(story)


def test_a_watcher_asked_for_again_and_again_is_answered_while_there_is_room() -> None:
    async def story(world: World) -> None:
        await create(world, *(full(f"t-{number}") for number in range(20)))
        peer = world.peer()
        await world.until(lambda: peer.commands(Type.CONNECTED), "CONNECTED")
        peer.take_output = False
        for number in range(100):
            peer.send(
                command(
                    Type.WATCH_TOPIC_LIST,
                    namespace=NAMESPACE,
                    topics_pattern=".*",
                    watcher_id=1,
                    request_id=number,
                )
            )
            await world.settle()
        assert len(peer.session.out) <= 2
        peer.take_output = True
        peer.flush()
        kind = Type.WATCH_TOPIC_LIST_SUCCESS
        await world.until(lambda: len(peer.commands(kind)) + len(peer.commands(Type.ERROR)) == 100, "answers")
        assert peer.commands(kind)

    in_world(story, BrokerConfig(connection_output_bytes_max=64))


@pytest.mark.parametrize("event", [SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED])
def test_topics_of_a_time_without_a_connection_are_told_after_it(event: SessionEvent) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await create(world, full("old"))
        await watch(peer, "public/default/.*")
        world.store.away = True
        await create(world, full("new"))
        await world.broker.delete_topic(TopicName.parse(full("old")))
        await world.settle()
        assert not peer.commands(Type.WATCH_TOPIC_UPDATE)
        world.store.back(event)
        await world.until(lambda: peer.commands(Type.WATCH_TOPIC_UPDATE), "an update")
        (update,) = peer.commands(Type.WATCH_TOPIC_UPDATE)
        assert (list(update.new_topics), list(update.deleted_topics)) == ([full("new")], [full("old")])
        told = len(world.store._told)
        peer.send(command(Type.WATCH_TOPIC_LIST_CLOSE, watcher_id=1, request_id=60))
        await world.settle()
        assert len(world.store._told) == told - 1

    in_world(story)
