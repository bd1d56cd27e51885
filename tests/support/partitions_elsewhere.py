"""A topic whose partitions two brokers serve: one on fakes, and one that answers as a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from magnetar.base.names import TopicName
from magnetar.runtime.http_exchange import HttpAnswer
from support.admin_api import AdminApi, T
from support.shared_cluster import OTHER_URL, OtherBroker, on_a_shared_cluster, owners_of

PARTS = [TopicName.parse(f"persistent://public/default/p-partition-{i}") for i in range(8)]


class Asked:
    """The other broker's admin API: notes what it is asked, and answers as it was told to."""

    def __init__(self, api: AdminApi) -> None:
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []
        self.answer: Callable[[str, str], HttpAnswer | Exception] = lambda _method, _path: no_content()
        self.at_once = self.most_at_once = 0
        api.other_brokers = self._exchange

    async def _exchange(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        assert url.startswith(f"{OTHER_URL}/")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        self.calls.append((method, url.removeprefix(OTHER_URL)))
        self.bodies.append(body)
        self.headers.append(headers)
        found = self.answer(method, url.removeprefix(OTHER_URL))
        if isinstance(found, Exception):
            raise found
        return found


def no_content() -> HttpAnswer:
    return HttpAnswer(204, "", b"")


def shown(document: object, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, "", json.dumps(document).encode())


def stats_of(*, producers: int = 0, messages: int = 0) -> dict[str, Any]:
    return {
        "msgInCounter": messages,
        "publishers": [{"producerName": f"far-{number}"} for number in range(producers)],
        "subscriptions": {"far": {"consumers": [], "msgBacklog": 3}},
        "deduplicationStatus": "Disabled",
    }


Story = Callable[[AdminApi, Asked, list[TopicName]], Awaitable[None]]


def with_parts_elsewhere(story: Story, *, used: bool = True) -> None:
    """Runs a story about a topic `p` with 8 partitions. The last argument: those of the other broker."""

    async def run(api: AdminApi, other: OtherBroker) -> None:
        await api.done("PUT", f"{T}/p/partitions", 8)
        await owners_of(api).require(PARTS)
        for part in PARTS if used else []:
            await api.publish(str(part), b"message")
        bundle = await owners_of(api).bundle_of(PARTS[-1])
        await owners_of(api).move(bundle)
        await other.own(bundle)
        theirs = [part for part in PARTS if bundle.has(part)]
        assert 0 < len(theirs) < 8
        await story(api, Asked(api), theirs)

    on_a_shared_cluster(run)
