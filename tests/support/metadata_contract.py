"""The contract of a metadata store, as scripts that run against each backend.

`tests/unit/metadata/test_contract.py` runs them on the stores within the process,
`tests/integration/test_metadata_servers.py` on real servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import MetadataError
from magnetar.metadata.paths import InvalidPathError
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    OPERATIONS_MAX,
    BadVersionError,
    Change,
    Check,
    Delete,
    HasChildrenError,
    MetadataStore,
    NotFoundError,
    Notification,
    Put,
    StoreClosedError,
    delete_as_read,
)


@dataclass(frozen=True)
class Traits:
    """Where backends may differ."""

    clock: ManualClock | None = None
    """The store's; None: it has the server's times, or none at all."""
    alone: bool = True
    """Whether this is the only writer. Then the order of writes to different paths is kept, notifications are
    exact, counters of deleted parents continue, and every value is of this session."""
    ephemerals_with_children: bool = True
    first_versions: bool = True
    """A value that a transaction deletes and puts again begins with version 0."""


Script = Callable[[MetadataStore, Traits], Awaitable[None]]


def heard(told: list[Notification], expected: list[Notification], traits: Traits) -> bool:
    """Whether watchers were told what they should be; stores that others write to may tell more."""
    return told == expected if traits.alone else set(expected) <= set(told)


def created(path: str) -> Notification:
    return Notification(Change.CREATED, path)


def modified(path: str) -> Notification:
    return Notification(Change.MODIFIED, path)


def deleted(path: str) -> Notification:
    return Notification(Change.DELETED, path)


def children_changed(path: str) -> Notification:
    return Notification(Change.CHILDREN_CHANGED, path)


async def a_value_comes_back_with_its_stat(store: MetadataStore, traits: Traits) -> None:
    assert await store.get("/a/b") is None
    stat = await store.put("/a/b", b"one")
    assert (stat.path, stat.version, stat.ephemeral) == ("/a/b", 0, False)
    if traits.clock is not None:
        assert (stat.created_ms, stat.modified_ms) == (1000, 1000)
        traits.clock.advance(5)
    stat = await store.put("/a/b", b"two")
    assert stat.version == 1
    if traits.clock is not None:
        assert (stat.created_ms, stat.modified_ms) == (1000, 1005)
    value = await store.get("/a/b")
    assert value is not None
    assert value.data == b"two"
    assert value.stat == stat


async def an_empty_value_is_a_value(store: MetadataStore, traits: Traits) -> None:
    await store.put("/a", b"")
    value = await store.get("/a")
    assert value is not None
    assert value.data == b""
    assert await store.exists("/a")


async def versions_guard_writes(store: MetadataStore, traits: Traits) -> None:
    await store.put("/a", b"0", expected_version=MUST_NOT_EXIST)
    with pytest.raises(BadVersionError) as caught:
        await store.put("/a", b"x", expected_version=MUST_NOT_EXIST)
    assert (caught.value.expected, caught.value.actual) == (MUST_NOT_EXIST, 0)
    assert (await store.put("/a", b"1", expected_version=0)).version == 1
    with pytest.raises(BadVersionError):
        await store.put("/a", b"x", expected_version=0)
    with pytest.raises(BadVersionError) as caught:
        await store.put("/none", b"x", expected_version=0)
    assert caught.value.actual is None
    with pytest.raises(BadVersionError):
        await store.delete("/a", expected_version=0)
    value = await store.get("/a")
    assert value is not None
    assert value.data == b"1"
    await store.delete("/a", expected_version=1)
    assert await store.get("/a") is None
    assert (await store.put("/a", b"new", expected_version=MUST_NOT_EXIST)).version == 0


async def delete_refuses(store: MetadataStore, traits: Traits) -> None:
    await store.put("/a/b/c", b"")
    await store.put("/a", b"")
    with pytest.raises(NotFoundError):
        await store.delete("/none")
    with pytest.raises(NotFoundError):
        await store.delete("/a/b")
    with pytest.raises(HasChildrenError):
        await store.delete("/a")
    await store.delete("/a/b/c")
    await store.delete("/a")
    assert await store.children("/") == []


async def children_are_sorted_and_may_be_implied(store: MetadataStore, traits: Traits) -> None:
    for path in ("/t/z", "/t/a/deep/er", "/t/a-b", "/t/é", "/t/a/x", "/tt/other"):
        await store.put(path, b"")
    assert await store.children("/t") == ["a", "a-b", "z", "é"]
    assert await store.children("/t/a") == ["deep", "x"]
    assert await store.children("/") == ["t", "tt"]
    assert await store.children("/nowhere") == []
    assert not await store.exists("/t/a")
    assert await store.get("/t/a") is None
    await store.delete("/t/a/x")
    assert await store.children("/t") == ["a", "a-b", "z", "é"]
    await store.delete("/t/a/deep/er")
    assert await store.children("/t") == ["a-b", "z", "é"]


async def a_value_outlives_its_children(store: MetadataStore, traits: Traits) -> None:
    await store.put("/a/b", b"kept")
    await store.put("/a/b/c", b"")
    await store.delete("/a/b/c")
    assert await store.exists("/a/b")


async def delete_recursive(store: MetadataStore, traits: Traits) -> None:
    for path in ("/t/a", "/t/a/1", "/t/a/1/2", "/t/a0", "/t/a-", "/t/a.b/c"):
        await store.put(path, b"")
    await store.delete_recursive("/t/a")
    assert await store.children("/t") == ["a-", "a.b", "a0"]
    await store.delete_recursive("/t/a")
    await store.delete_recursive("/t")
    assert await store.children("/") == []
    await store.put("/x/y", b"")
    await store.delete_recursive("/")
    assert await store.children("/") == []


async def sequential_counters_never_go_back(store: MetadataStore, traits: Traits) -> None:
    first = await store.put("/ids/ID-", b"1", sequential=True)
    assert len(first.path) == len("/ids/ID-0000000000")
    number = int(first.path.removeprefix("/ids/ID-"))
    second = await store.put("/ids/other-", b"", sequential=True, ephemeral=True)
    assert second.path == f"/ids/other-{number + 1:010d}"
    assert second.ephemeral
    assert second.created_by_self
    await store.delete(first.path)
    await store.delete(second.path)
    if traits.alone:
        await store.delete_recursive("/ids")
    third = await store.put("/ids/ID-", b"", sequential=True)
    last = int(third.path.removeprefix("/ids/ID-"))
    assert last > number + 1
    assert (await store.put("/more/ID-", b"", sequential=True)).path == f"/more/ID-{number:010d}"
    await store.put(f"/ids/ID-{last + 1:010d}", b"")
    fourth = await store.put("/ids/ID-", b"", sequential=True)
    assert int(fourth.path.removeprefix("/ids/ID-")) > last + 1


async def transactions_are_all_or_nothing(store: MetadataStore, traits: Traits) -> None:
    stats = await store.transact([Put("/a", b"1"), Put("/b/c", b"2", MUST_NOT_EXIST)])
    assert [stat and stat.version for stat in stats] == [0, 0]
    told: list[Notification] = []
    store.watch("/", told.append)
    with pytest.raises(BadVersionError) as caught:
        await store.transact([Put("/a", b"x"), Delete("/b/c"), Put("/d/e/f", b"x"), Put("/g", b"", 4)])
    assert caught.value.path == "/g"
    assert told == []
    assert await store.children("/") == ["a", "b"]
    value = await store.get("/a")
    assert value is not None
    assert (value.data, value.stat.version) == (b"1", 0)
    assert await store.exists("/b/c")
    with pytest.raises(NotFoundError):
        await store.transact([Delete("/b/c"), Delete("/b/c")])
    stats = await store.transact([Delete("/b/c", 0), Put("/b/c", b"3", MUST_NOT_EXIST), Put("/a", b"2", 0)])
    assert stats[0] is None
    assert [stat and stat.version for stat in stats[1:]] == [0 if traits.first_versions else 1, 1]
    value = await store.get("/b/c")
    assert value is not None
    assert value.stat.version == (0 if traits.first_versions else 1)
    assert await store.transact([]) == []


async def a_transaction_takes_effect_on_a_condition(store: MetadataStore, traits: Traits) -> None:
    """A former owner of something writes elsewhere only while nothing has changed there."""
    await store.put("/owner/list", b"mine")
    stats = await store.transact([Check("/owner/list", 0), Put("/parts/1", b"a", MUST_NOT_EXIST)])
    assert [stat and stat.version for stat in stats] == [None, 0]
    told: list[Notification] = []
    store.watch("/owner", told.append)
    assert await store.transact([Check("/owner/list", 0)]) == [None]
    assert await store.transact([Put("/parts/1", b"b", 0), Check("/owner/list", 0), Delete("/parts/1")])
    assert told == [], "nothing was written there"
    await store.put("/owner/list", b"theirs")
    for operations in (
        [Check("/owner/list", 0), Put("/parts/1", b"c")],
        [Put("/parts/1", b"c"), Check("/owner/list", 0)],
    ):
        with pytest.raises(BadVersionError) as caught:
            await store.transact(operations)
        assert (caught.value.path, caught.value.expected, caught.value.actual) == ("/owner/list", 0, 1)
    for nothing in ("/owner", "/owner/none", "/none/at/all"):
        for version in (0, 3):
            with pytest.raises(BadVersionError) as caught:
                await store.transact([Check(nothing, version), Put("/parts/1", b"c")])
            assert (caught.value.path, caught.value.actual) == (nothing, None)
    assert await store.children("/parts") == []
    many = [Check("/owner/list", 1) for _ in range(OPERATIONS_MAX - 1)]
    assert len(await store.transact([*many, Put("/parts/1", b"d")])) == OPERATIONS_MAX
    # Each sees what those before it did.
    (changed, _) = await store.transact([Put("/owner/list", b"new", 1), Check("/owner/list", 2)])
    assert changed is not None
    assert changed.version == 2


async def a_transaction_makes_what_is_missing_above(store: MetadataStore, traits: Traits) -> None:
    """As parts of a transaction's topics in one namespace, none of which has another part."""
    paths = [f"/parts/namespace/{number}/part" for number in range(OPERATIONS_MAX)]
    stats = await store.transact([Put(path, b"", MUST_NOT_EXIST) for path in paths])
    assert [stat and stat.version for stat in stats] == [0] * OPERATIONS_MAX
    await store.transact([Put("/a/b", b"1"), Put("/a/b/c/d", b"2"), Put("/a/b/c/e/f", b"3", MUST_NOT_EXIST)])
    assert await store.children("/a/b/c") == ["d", "e"]
    value = await store.get("/a/b")
    assert value is not None
    assert value.data == b"1"
    with pytest.raises(BadVersionError):
        await store.transact([Put("/x/y/1", b""), Put("/x/z/1", b""), Put("/a/b", b"", MUST_NOT_EXIST)])
    assert await store.children("/x") == []


async def of_two_that_rely_on_each_other_one_writes(store: MetadataStore, traits: Traits) -> None:
    """Each changes what the other one expects not to change, at the same time."""
    for number in range(10):
        one, other = f"/one/{number}", f"/other/{number}"
        await store.transact([Put(one, b""), Put(other, b"")])
        outcomes = await asyncio.gather(
            store.transact([Check(one, 0), Put(other, b"x", 0)]),
            store.transact([Check(other, 0), Put(one, b"x", 0)]),
            return_exceptions=True,
        )
        failed = [each for each in outcomes if isinstance(each, BaseException)]
        assert [type(each) for each in failed] == [BadVersionError]
        values = [await store.get(path) for path in (one, other)]
        assert sorted(value.stat.version for value in values if value is not None) == [0, 1]


async def a_transaction_has_a_bound(store: MetadataStore, traits: Traits) -> None:
    names = [f"/many/{number}" for number in range(OPERATIONS_MAX)]
    await store.transact([Put(name, b"", MUST_NOT_EXIST) for name in names])
    with pytest.raises(MetadataError, match="at most"):
        await store.transact([Put(f"/more/{number}", b"") for number in range(OPERATIONS_MAX + 1)])
    assert await store.children("/more") == []
    await store.transact([Delete(name) for name in names])
    assert await store.children("/many") == []


async def watchers_hear_before_the_writer_continues(store: MetadataStore, traits: Traits) -> None:
    told: list[Notification] = []
    below: list[Notification] = []
    store.watch("/", told.append)
    cancel = store.watch("/a", below.append)
    await store.put("/a/b", b"")
    assert heard(told, [created("/a/b"), children_changed("/a"), children_changed("/")], traits)
    assert heard(below, [created("/a/b"), children_changed("/a")], traits)
    assert children_changed("/") not in below
    told.clear()
    await store.put("/a/b", b"")
    assert told == [modified("/a/b")]
    told.clear()
    await store.put("/a/c", b"")
    assert heard(told, [created("/a/c"), children_changed("/a")], traits)
    told.clear()
    cancel()
    cancel()
    below.clear()
    await store.put("/ab", b"")
    await store.delete("/a/b")
    expected = [created("/ab"), children_changed("/"), deleted("/a/b"), children_changed("/a")]
    assert heard(told, expected, traits)
    told.clear()
    await store.delete_recursive("/a")
    assert heard(told, [deleted("/a/c"), children_changed("/a"), children_changed("/")], traits)
    assert below == []


async def a_failed_write_is_not_announced(store: MetadataStore, traits: Traits) -> None:
    told: list[Notification] = []
    store.watch("/", told.append)
    with pytest.raises(NotFoundError):
        await store.delete("/a")
    assert told == []


async def a_failing_watcher_harms_nobody_else(store: MetadataStore, traits: Traits) -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    told: list[Notification] = []

    def fail(notification: Notification) -> None:
        raise RuntimeError("watcher's own fault")

    store.watch("/a", fail)
    store.watch("/a", told.append)
    await store.put("/a", b"")
    assert told == [created("/a")]
    assert len(reported) == 1


async def concurrent_writes_keep_the_order_of_the_calls(store: MetadataStore, traits: Traits) -> None:
    told: list[Notification] = []
    store.watch("/", told.append)
    outcomes = await asyncio.gather(
        store.put("/a", b"1", expected_version=MUST_NOT_EXIST),
        store.put("/a", b"2", expected_version=MUST_NOT_EXIST),
        store.put("/a", b"3", expected_version=0),
        store.delete("/none"),
        store.put("/b", b"4"),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], BadVersionError)
    assert isinstance(outcomes[3], NotFoundError)
    value = await store.get("/a")
    assert value is not None
    assert (value.data, value.stat.version) == (b"3", 1)
    values = [n for n in told if n.change is not Change.CHILDREN_CHANGED]
    if traits.alone:
        assert values == [created("/a"), modified("/a"), created("/b")]
    assert [n for n in values if n.path == "/a"] == [created("/a"), modified("/a")]


async def many_writes_at_once(store: MetadataStore, traits: Traits) -> None:
    count = 1000 if traits.alone else 200
    stats = await asyncio.gather(*(store.put("/q/n-", b"", sequential=True) for _ in range(count)))
    if traits.alone:
        assert [stat.path for stat in stats] == [f"/q/n-{i:010d}" for i in range(count)]
    assert await store.children("/q") == sorted(stat.path.removeprefix("/q/") for stat in stats)
    assert len({stat.path for stat in stats}) == count


async def bad_paths_are_refused(store: MetadataStore, traits: Traits) -> None:
    for path in ("", "a", "a/b", "/a/", "//a", "/a//b", "/"):
        with pytest.raises(InvalidPathError):
            await store.put(path, b"")
        with pytest.raises(InvalidPathError):
            await store.get(path)
        with pytest.raises(InvalidPathError):
            await store.delete(path)


async def closing_ends_the_session(store: MetadataStore, traits: Traits) -> None:
    told: list[Notification] = []
    store.watch("/e", told.append)
    stat = await store.put("/e/1", b"", ephemeral=True)
    assert stat.ephemeral
    assert stat.created_by_self
    await store.put("/e/1", b"again")
    told.clear()
    await store.close()
    if traits.alone:
        assert told == [deleted("/e/1"), children_changed("/e")]
    await store.close()
    with pytest.raises(StoreClosedError):
        await store.get("/e/1")
    with pytest.raises(StoreClosedError):
        await store.put("/e/1", b"")
    with pytest.raises(StoreClosedError):
        store.watch("/", told.append)


async def an_ephemeral_value_is_replaced_in_its_place(store: MetadataStore, traits: Traits) -> None:
    """At no moment others see that it is not there: the report of a broker that misses makes it a new one."""
    made = await store.put("/e/1", b"first", ephemeral=True)
    told: list[Notification] = []
    store.watch("/e", told.append)
    replaced = await store.put("/e/1", b"second", expected_version=made.version, ephemeral=True)
    assert replaced.version == made.version + 1
    assert (replaced.ephemeral, replaced.created_by_self) == (True, True)
    value = await store.get("/e/1")
    assert value is not None
    assert (value.data, value.stat.version, value.stat.ephemeral) == (b"second", replaced.version, True)
    assert deleted("/e/1") not in told
    with pytest.raises(BadVersionError):
        await store.put("/e/1", b"late", expected_version=made.version, ephemeral=True)
    await store.delete("/e/1")
    with pytest.raises(BadVersionError):
        await store.put("/e/1", b"gone", expected_version=replaced.version, ephemeral=True)
    assert await store.get("/e/1") is None


async def a_removal_spares_a_later_value(store: MetadataStore, traits: Traits) -> None:
    """A stale look at the record of a dead owner would take that of the next one: both have version 0."""
    first = await store.put("/e/1", b"the same", ephemeral=True)
    seen = await store.get("/e/1")
    assert seen is not None
    await store.delete("/e/1")
    if traits.clock is not None:
        traits.clock.advance(1)
    await store.put("/e/1", b"the same", ephemeral=True)
    later = await store.get("/e/1")
    assert later is not None
    assert later.stat.version == seen.stat.version == first.version
    assert seen.stat.creation != later.stat.creation
    with pytest.raises(BadVersionError, match="made anew"):
        await delete_as_read(store, "/e/1", seen.stat)
    with pytest.raises(BadVersionError, match="made anew"):
        await store.transact([Delete("/e/1", expected_creation=seen.stat.creation)])
    assert await store.get("/e/1") == later
    await delete_as_read(store, "/e/1", later.stat)
    with pytest.raises(NotFoundError):
        await delete_as_read(store, "/e/1", later.stat)


async def an_ephemeral_value_with_children_leaves_them(store: MetadataStore, traits: Traits) -> None:
    if not traits.ephemerals_with_children:
        return
    await store.put("/e", b"", ephemeral=True)
    await store.put("/e/child", b"kept")
    await store.delete("/e/child")
    await store.delete("/e")
    assert await store.children("/") == []


CONTRACT: list[Script] = [
    a_value_comes_back_with_its_stat,
    an_empty_value_is_a_value,
    versions_guard_writes,
    delete_refuses,
    children_are_sorted_and_may_be_implied,
    a_value_outlives_its_children,
    delete_recursive,
    sequential_counters_never_go_back,
    transactions_are_all_or_nothing,
    a_transaction_takes_effect_on_a_condition,
    a_transaction_makes_what_is_missing_above,
    of_two_that_rely_on_each_other_one_writes,
    a_transaction_has_a_bound,
    watchers_hear_before_the_writer_continues,
    a_failed_write_is_not_announced,
    a_failing_watcher_harms_nobody_else,
    concurrent_writes_keep_the_order_of_the_calls,
    many_writes_at_once,
    bad_paths_are_refused,
    closing_ends_the_session,
    an_ephemeral_value_is_replaced_in_its_place,
    a_removal_spares_a_later_value,
    an_ephemeral_value_with_children_leaves_them,
]
"""Every script; each finds the store empty."""
