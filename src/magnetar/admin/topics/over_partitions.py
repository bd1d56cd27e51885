"""Calls about all partitions of a topic, when several brokers serve them: each owner is asked over HTTP for
its partitions, as in Pulsar. The broker that got the call puts the answers together.

Each question is a call about one partition, which any broker of any version answers. A call that changes
something may have changed some partitions when it fails, as in Pulsar; what can be refused for a reason that
is known beforehand is refused before anything is changed.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import quote, urlencode

from magnetar.admin.calls.call import AUTHORITATIVE, Call, Document, Handler
from magnetar.admin.calls.errors import status_of
from magnetar.admin.calls.other_brokers import BrokerCall
from magnetar.admin.calls.owners_asked import OwnersAsked
from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.owners import Owners
from magnetar.broker.ownership.records import BrokerUrls

Answers: TypeAlias = dict[TopicName, object]
"""By partition, in their order; one that is not there has none."""
Merge: TypeAlias = Callable[[Call, Answers, int], object]
"""The whole answer, from those of partitions. The last argument is the number of partitions."""
Partitions: TypeAlias = OwnersAsked[TopicName]


async def partitions_elsewhere(call: Call) -> Partitions | None:
    """The partitions of the path's topic when other brokers serve some of them; None when this broker
    serves all. Bundles without an owner come here.

    Raises OtherBrokerError when the caller's credentials cannot be shown to them, ServiceNotReadyError,
    MetadataError.
    """
    owners = call.broker.owners
    if owners is None:
        return None  # a broker alone checks the parts of a call in Pulsar's order
    name = call.topic()
    if name.partition >= 0:
        return None
    names = [name.with_partition(i) for i in range(await call.broker.policies.partitions(name))]
    places = await _places(owners, names)
    if all(broker is None for broker in places.values()):
        return None
    return OwnersAsked(call, places)


async def _places(owners: Owners, names: list[TopicName]) -> dict[TopicName, BrokerUrls | None]:
    # One look-up for all partitions of a bundle.
    found: dict[Bundle, BrokerUrls | None] = {}
    places: dict[TopicName, BrokerUrls | None] = {}
    for name in names:
        bundle = await owners.bundle_of(name)
        if bundle not in found:
            found[bundle] = (await owners.locate(name, authoritative=True)).urls
        places[name] = found[bundle]
    return places


def about(call: Call, method: str, name: TopicName, path: str = "", **query: str) -> BrokerCall:
    """The question about one partition. `path`: template, "" for that of the call; `query` in place of the
    call's own."""
    path = path or call.path
    for param, value in {**call.params, "topic": name.local}.items():
        path = path.replace(f"{{{param}}}", quote(value, safe=""))
    given = query or {key: value for key, value in call.query.items() if key != AUTHORITATIVE}
    return BrokerCall(method, f"{path}?{urlencode(given)}" if given else path, call.body)


def part_of(call: Call, name: TopicName, path: str = "") -> Call:
    """The same call about one partition."""
    return replace(call, params={**call.params, "topic": name.local}, path=path or call.path)


def spread(
    method: str,
    whole: Handler,
    merge: Merge,
    *,
    one: Handler | None = None,
    ends: tuple[str, str] = ("", ""),
    before: Callable[[Call, Partitions], Awaitable[None]] | None = None,
    may_be_empty: bool = False,
) -> Handler:
    """A handler that asks the owners of partitions when other brokers are among them; else it is `whole`.

    `one` answers for a partition of this broker, by default `whole` does. `ends`: end of the path, and that
    of the path for one partition. `before` raises what keeps the call from being made. `may_be_empty`: the
    answer is merged also when no partition is there.
    """
    single = whole if one is None else one

    @functools.wraps(whole)
    async def called(call: Call) -> object:
        found = await partitions_elsewhere(call)
        if found is None:
            return await whole(call)
        if before is not None:
            await before(call, found)
        path = call.path.removesuffix(ends[0]) + ends[1]
        names = found.parts
        try:
            answers = await found.each(
                lambda name: about(call, method, name, path),
                lambda name: single(part_of(call, name, path)),
                names,
            )
        except MagnetarError as error:
            if not may_be_empty or status_of(error) != 404:
                raise
            answers = {}
        return merge(call, answers, len(names))

    return called


def nothing(_call: Call, _answers: Answers, _count: int) -> None:
    """The answer of calls that only change something."""


def union(_call: Call, answers: Answers, _count: int) -> list[str]:
    """The names of all lists, sorted."""
    return sorted({str(name) for answer in answers.values() if isinstance(answer, list) for name in answer})


async def statistics(found: Partitions, call: Call, names: Iterable[TopicName]) -> dict[TopicName, Document]:
    """Statistics of these partitions of other brokers, as far as they are there."""
    path = f"/admin/v2/{call.domain}/{{tenant}}/{{namespace}}/{{topic}}/stats"
    bare = replace(call, body=b"")

    async def here(name: TopicName) -> None:
        raise AssertionError(f"{name} is of another broker")

    try:
        answers = await found.each(
            lambda name: about(bare, "GET", name, path, subscriptionBacklogSize="false"), here, names
        )
    except MagnetarError as error:
        if status_of(error) != 404:
            raise
        return {}
    return {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
