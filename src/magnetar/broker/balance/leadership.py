"""Which broker leads: the one whose session made `/loadbalance/leader`. Source: Pulsar's LeaderElection.

The leader only evens the load. Look-ups, failovers and splits need none, so nothing waits for an election.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Coroutine

from magnetar.base.errors import MetadataError
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.metadata import keys
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    MetadataStore,
    NotFoundError,
    SessionEvent,
    Value,
    delete_as_read,
)
from magnetar.runtime.tasks import Rounds

_log = logging.getLogger("magnetar.broker.balance")


class Leadership:
    """One broker's part in the election."""

    def __init__(
        self,
        store: MetadataStore,
        urls: BrokerUrls,
        *,
        takes_part: Callable[[], bool],
        spawn: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        """`urls`: of this broker. `takes_part`: whether it may lead now: its session lasts, its id is its
        own, and it is not being stopped."""
        self.leader = ""
        """Id of the leader as it was read last; "": there was none."""
        self._store = store
        self._urls = urls
        self._takes_part = takes_part
        self._rounds = Rounds(self._look, spawn)
        self._cancel: tuple[Callable[[], None], ...] = ()

    def begin(self) -> None:
        """Takes part, from now on."""
        self._cancel = (
            self._store.watch(keys.LEADER, lambda _: self._rounds.ask()),
            self._store.watch_session(self._session_changed),
        )
        self._rounds.ask()

    def close(self) -> None:
        """Stops watching; the record goes with the session."""
        for cancel in self._cancel:
            cancel()

    @property
    def leads(self) -> bool:
        """Whether this broker is the leader, as far as it knows."""
        return self.leader == self._urls.broker_id

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.SESSION_LOST:
            self.leader = ""
        elif event is not SessionEvent.CONNECTION_LOST:
            self._rounds.ask()

    async def _look(self) -> None:
        try:
            await self.confirm()
        except MetadataError as error:
            # The next round of the balance asks again.
            _log.warning("the leader could not be read: %s", error)

    async def confirm(self) -> bool:
        """Reads the record, or makes one where there is none; whether this broker leads.

        Raises MetadataError.
        """
        before = self.leader
        while True:
            value = await self._store.get(keys.LEADER)
            if value is None:
                if not self._takes_part():
                    self.leader = ""
                    return False
                with contextlib.suppress(BadVersionError):  # another one was faster
                    await self._store.put(
                        keys.LEADER, self._encoded(), expected_version=MUST_NOT_EXIST, ephemeral=True
                    )
                continue
            if not value.stat.ephemeral:
                # It is from a copy of the metadata: no session takes it along, so no broker would ever lead.
                with contextlib.suppress(NotFoundError, BadVersionError):  # another one was faster
                    await delete_as_read(self._store, keys.LEADER, value.stat)
                continue
            named = named_leader(value)
            if named == self._urls.broker_id and not value.stat.created_by_self and self._takes_part():
                # This broker's former process made it, and only one process has the report of an id.
                with contextlib.suppress(NotFoundError, BadVersionError):  # its session has ended
                    await delete_as_read(self._store, keys.LEADER, value.stat)
                continue
            # The record must also be of this session: the name alone may be of a former process.
            self.leader = named if named != self._urls.broker_id or value.stat.created_by_self else ""
            if self.leader != before:
                _log.info("broker %s leads", self.leader)
            return self.leads

    async def leave(self) -> None:
        """Removes the record if it is this broker's. Raises MetadataError."""
        value = await self._store.get(keys.LEADER)
        if value is not None and value.stat.created_by_self:
            with contextlib.suppress(NotFoundError, BadVersionError):  # the end of the session took it
                await delete_as_read(self._store, keys.LEADER, value.stat)
        self.leader = ""

    def _encoded(self) -> bytes:
        at = self._urls.addresses
        return json.dumps({"brokerId": self._urls.broker_id, "serviceUrl": at.http or at.https}).encode()


def named_leader(value: Value | None) -> str:
    """Id of the broker that the record names; "" when there is none, or it names none."""
    try:
        document = {} if value is None else json.loads(value.data)
    except (ValueError, RecursionError):
        return ""
    return str(document.get("brokerId") or "") if isinstance(document, dict) else ""
