"""Which broker leads: the one whose session made `/loadbalance/leader`. Does what `election.py` decides.

The leader only evens the load. Look-ups, failovers and splits need none, so nothing waits for an election.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Coroutine

from magnetar.base.errors import MetadataError
from magnetar.broker.balance.balance_rules import RULES, BalanceRules
from magnetar.broker.balance.election import LeaderRecord, LeaderStep, judge
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
        rules: BalanceRules = RULES,
    ) -> None:
        """`urls`: of this broker. `takes_part`: whether it may lead now: its session lasts, its id is its
        own, and it is not being stopped."""
        self.leader = ""
        """Id of the leader as it was read last; "": there was none."""
        self._store = store
        self._urls = urls
        self._takes_part = takes_part
        self._rules = rules
        self._looks = Rounds(self._look, spawn)
        self._cancel: tuple[Callable[[], None], ...] = ()

    def begin(self) -> None:
        """Takes part, from now on."""
        self._cancel = (
            self._store.watch(keys.LEADER, lambda _: self._looks.ask()),
            self._store.watch_session(self._session_changed),
        )
        self._looks.ask()

    def close(self) -> None:
        """Stops watching; the record goes with the session."""
        for cancel in self._cancel:
            cancel()

    @property
    def leads(self) -> bool:
        """Whether this broker is the leader, as far as it knows."""
        return self._rules.leads(self.leader, self._urls.broker_id)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.SESSION_LOST:
            self.leader = ""
        elif event is not SessionEvent.CONNECTION_LOST:
            self._looks.ask()

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
            own_id, takes_part = self._urls.broker_id, self._takes_part()
            verdict = judge(_record(value), own_id, takes_part=takes_part, rules=self._rules)
            if verdict.step is LeaderStep.FOLLOW:
                self.leader = verdict.leader
                if self.leader != before:
                    _log.info("broker %s leads", self.leader)
                return self.leads
            with contextlib.suppress(NotFoundError, BadVersionError):  # another one was faster
                if value is not None:
                    await delete_as_read(self._store, keys.LEADER, value.stat)
                else:
                    await self._store.put(
                        keys.LEADER, self._encoded(), expected_version=MUST_NOT_EXIST, ephemeral=True
                    )

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


def _record(value: Value | None) -> LeaderRecord | None:
    if value is None:
        return None
    return LeaderRecord(named_leader(value), value.stat.ephemeral, value.stat.created_by_self)


def named_leader(value: Value | None) -> str:
    """Id of the broker that the record names; "" when there is none, or it names none."""
    try:
        document = {} if value is None else json.loads(value.data)
    except (ValueError, RecursionError):
        return ""
    return str(document.get("brokerId") or "") if isinstance(document, dict) else ""
