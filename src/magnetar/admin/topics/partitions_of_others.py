"""Deletes the partitions of other brokers, for the deletion of a partitioned topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from magnetar.admin.calls.call import Call
from magnetar.admin.calls.errors import status_of
from magnetar.admin.calls.other_brokers import BrokerCall
from magnetar.admin.topics.over_partitions import Partitions, about, statistics
from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.broker.registry.partitioned import OtherOwners
from magnetar.broker.topic.any_topic import check_unused

_PATH: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"


class PartitionsOfOthers(OtherOwners):
    """The partitions that other brokers serve, for one call."""

    def __init__(self, call: Call, found: Partitions) -> None:
        self._call = call
        self._found = found

    def is_here(self, name: TopicName) -> bool:
        """See `OtherOwners`."""
        return self._found.is_here(name)

    async def check_deletable(self, names: list[TopicName]) -> None:
        """See `OtherOwners`."""
        # To ask about one that was never used would make it.
        used = [name for name in names if not name.persistent or await self._exists(name)]
        for shown in (await statistics(self._found, self._call, used)).values():
            check_unused(
                producers=len(shown["publishers"]),
                consumers=sum(len(each["consumers"]) for each in shown["subscriptions"].values()),
            )

    async def delete(self, names: list[TopicName], *, force: bool) -> None:
        """See `OtherOwners`."""
        # One without a log has no data. It is deleted too: its broker may be making the log.
        forced = {name: force or (name.persistent and not await self._exists(name)) for name in names}
        call = replace(self._call, params={**self._call.params, "domain": self._call.domain}, body=b"")

        def question(name: TopicName) -> BrokerCall:
            return about(call, "DELETE", name, _PATH, force=str(forced[name]).lower())

        async def here(name: TopicName) -> None:
            raise AssertionError(f"{name} is of another broker")

        try:
            await self._found.each(question, here, names)
        except MagnetarError as error:
            if status_of(error) != 404:
                raise

    async def _exists(self, name: TopicName) -> bool:
        return await self._call.broker.logs.exists(name.log_name)
