"""The canaries of a broker: which run, their rounds, and their `/metrics`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName
from magnetar.broker.canary.canary_state import CanaryState
from magnetar.broker.canary.choice import CanarySettings, topic_of, wanted
from magnetar.broker.canary.lane import Lane
from magnetar.broker.errors import ConflictError, NamespaceNotFoundError
from magnetar.metadata import keys
from magnetar.observability.catalogue import text_of
from magnetar.observability.metrics import Exposition, labels
from magnetar.runtime.tasks import yield_loop

if TYPE_CHECKING:
    from magnetar.broker.service import Broker

_log = logging.getLogger("magnetar.broker.canary")

_NAMESPACES_PER_TURN: Final = 50
"""Namespaces examined before other tasks run."""


@dataclass(slots=True)
class _Canary:
    """One namespace's."""

    namespace: NamespaceName
    lane: Lane
    state: CanaryState
    complained: bool = False
    """Whether the log has reported that it is down."""


class Canaries:
    """Made before the broker starts, begun after."""

    def __init__(self, broker: Broker, settings: CanarySettings) -> None:
        self._broker = broker
        self._settings = settings
        self._running: dict[NamespaceName, _Canary] = {}
        self._changed: set[NamespaceName] = set()
        self._all_changed = False
        """Whether any namespace may have changed, and none was examined since."""

    async def begin(self) -> None:
        """Examines all namespaces once, then only those that change; begins the rounds."""
        broker = self._broker
        broker.policies.on_change(self._policies_changed)
        await self._choose_all()
        broker.tasks.every(self._settings.interval_s, self.round)

    async def _choose_all(self) -> None:
        policies = self._broker.policies
        for namespace in list(self._running):
            # Those that are gone are in no list.
            await self._choose(namespace)
        number = 0
        for tenant in await policies.tenants():
            for name in await policies.namespaces(tenant):
                await self._choose(NamespaceName.parse(name))
                number += 1
                if number % _NAMESPACES_PER_TURN == 0:
                    await yield_loop()

    def _policies_changed(self, path: str) -> None:
        if path == keys.ADMIN:
            self._all_changed = True
            return
        tenant, slash, name = path.removeprefix(f"{keys.POLICIES}/").partition("/")
        if path.startswith(f"{keys.POLICIES}/") and slash and "/" not in name:
            self._changed.add(NamespaceName(tenant, name))

    async def _choose(self, namespace: NamespaceName) -> None:
        """Begins or ends the canary of a namespace by what holds now."""
        try:
            policies = await self._broker.policies.namespace(namespace)
        except NamespaceNotFoundError:
            self._end(namespace)
            return
        if not wanted(namespace, policies, self._settings.namespaces):
            self._end(namespace)
        elif namespace not in self._running:
            state = CanaryState(timeout_s=self._settings.timeout_s, interval_s=self._settings.interval_s)
            lane = Lane(f"canary-{self._broker.new_producer_name()}", state)
            self._running[namespace] = _Canary(namespace, lane, state)

    def _end(self, namespace: NamespaceName) -> None:
        ended = self._running.pop(namespace, None)
        if ended is not None:
            ended.lane.close()

    async def round(self) -> None:
        """One round: follows changed policies, counts late messages, and sends one message per canary."""
        if self._all_changed:
            self._all_changed = False
            try:
                await self._choose_all()
            except BaseException:
                self._all_changed = True
                raise
        changed, self._changed = self._changed, set()
        for namespace in changed:
            await self._choose(namespace)
        for canary in list(self._running.values()):
            await self._sing(canary)

    async def _sing(self, canary: _Canary) -> None:
        state, now_s = canary.state, asyncio.get_running_loop().time()
        lost = state.expire(now_s)
        if lost:
            _log.error("canary of %s: %d messages were acknowledged and lost", canary.namespace, lost)
        try:
            if not canary.lane.is_open:
                await self._open(canary)
            canary.lane.publish(self._broker.clock.now_ms())
        except MagnetarError as error:
            state.refuse(state.begin(now_s), str(error))
        except Exception as error:  # noqa: BLE001  # a bug counts as a failure, and other canaries still sing
            canary.lane.close()
            state.refuse(state.begin(now_s), f"{type(error).__name__}: {error}")
            if not canary.complained:
                _log.exception("canary of %s cannot publish", canary.namespace)
        self._tell(canary, state.down(now_s))

    def _tell(self, canary: _Canary, reason: str) -> None:
        """A line when it fails, and one when it is well again; none before its first message has ended."""
        if bool(reason) == canary.complained or canary.state.nothing_known:
            return
        canary.complained = bool(reason)
        level = logging.WARNING if reason else logging.INFO
        _log.log(level, "canary of %s: %s", canary.namespace, reason or "it is well again")

    async def _open(self, canary: _Canary) -> None:
        canary.lane.close()
        broker, name = self._broker, topic_of(canary.namespace)
        if not await broker.exists(name):
            # Also where clients may create none.
            try:
                await broker.create_topic(name)
            except ConflictError:  # another process made it between the two calls
                _log.debug("%s was created meanwhile", name)
        await canary.lane.open(await broker.topic(name), broker.clock.now_ms())

    def collect(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`."""
        cluster = ("cluster", self._broker.config.cluster)
        for namespace, canary in sorted(self._running.items(), key=lambda item: str(item[0])):
            state = canary.state
            labelled = labels(cluster, ("namespace", str(namespace)))
            for name, value in (
                ("magnetar_canary_sent_total", state.sent),
                ("magnetar_canary_received_total", state.received),
                ("magnetar_canary_lost_total", state.lost),
                ("magnetar_canary_refused_total", state.refused),
            ):
                out.counter(name, text_of(name), value, labelled)
            up = not state.down(asyncio.get_running_loop().time())
            out.gauge("magnetar_canary_up", text_of("magnetar_canary_up"), int(up), labelled)
            for name, histogram in (
                ("magnetar_canary_publish_seconds", state.publish),
                ("magnetar_canary_end_to_end_seconds", state.end_to_end),
            ):
                histogram.collect(out, name, text_of(name), labelled)
            yield
