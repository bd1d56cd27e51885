"""Which broker serves a topic: the way in for look-ups (`locate`) and for what loads a topic (`admit`).

Both wait while the bundle changes its owner. What the metadata store tells comes in here too: sessions,
records, moves, brokers that come and go.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError, TopicNotFoundError
from magnetar.broker.ownership.bundle import Bundle, bundle_at
from magnetar.broker.ownership.claims import LOOK_S, Claims, urls_of
from magnetar.broker.ownership.health_topics import checked_broker, health_topic
from magnetar.broker.ownership.last_known import LastKnown
from magnetar.broker.ownership.moves import Moves
from magnetar.broker.ownership.ownership_rules import OWNERSHIP_RULES, OwnershipRules
from magnetar.broker.ownership.peers import Peers, Probe
from magnetar.broker.ownership.place import HERE, TopicPlace
from magnetar.broker.ownership.placement import SentBundles, least_loaded
from magnetar.broker.ownership.placement_rules import PlacementRules
from magnetar.broker.ownership.records import MOVES, NAMESPACES, BrokerUrls, Load, owner_path
from magnetar.broker.ownership.reporting import REPORT_S, ReportedProcess, Reporting
from magnetar.broker.ownership.states import BundleState
from magnetar.broker.policies.bundles import range_of
from magnetar.metadata.contact import Contact
from magnetar.metadata.store import Notification, SessionEvent
from magnetar.runtime.tasks import SingleFlight, TaskGroup, gathered, pause

if TYPE_CHECKING:
    from magnetar.broker.ports import BalancePort, BrokerPort

_log = logging.getLogger("magnetar.broker.ownership")


class Owners:
    """The owners of bundles, as one broker knows them."""

    balance: BalancePort | None = None
    """Keeps the load even; None: bundles stay where they are. Set before `begin`."""

    def __init__(
        self,
        broker: BrokerPort,
        urls: BrokerUrls,
        *,
        socket: str,
        probe: Probe,
        load: Callable[[], Awaitable[Load]],
        version: str,
        ownership_rules: OwnershipRules = OWNERSHIP_RULES,
    ) -> None:
        """`socket`: see `BrokerReport`. `load` says what this broker has to do, but for its bundles."""
        self.urls = urls
        self.tasks = TaskGroup("ownership")
        self._broker = broker
        self._store = broker.store
        self._sessions = 0
        self.contact = Contact(self._store)
        self._last_known = LastKnown(self.contact)
        self._drains: SingleFlight[None] = SingleFlight()
        self._sent = SentBundles()
        self.peers = Peers(
            broker.store,
            self.broker_id,
            socket=socket,
            clock=broker.clock,
            probe=probe,
            spawn=self.tasks.spawn,
            changed=self._peers_changed,
        )
        self.rules = PlacementRules(broker.policies, broker.store, self.tasks.spawn)
        self._claims = Claims(broker, urls, self.peers, self.tasks.spawn, ownership_rules)
        self._moves = Moves(broker.store, self._claims, self.broker_id, broker.clock)
        self.ownership = self._claims.ownership
        self.reporting = Reporting(
            ReportedProcess(urls, socket, version, broker.clock.now_ms()),
            self._claims.ownership,
            self.peers,
            self.contact,
            broker.clock,
            load,
        )
        self._cancel: tuple[Callable[[], None], ...] = ()

    @property
    def broker_id(self) -> str:
        """Id of this broker."""
        return self.urls.broker_id

    @property
    def health_topic(self) -> TopicName:
        """Where this broker checks itself: always its own, whatever bundles it has."""
        return health_topic(self.broker_id)

    @property
    def draining(self) -> bool:
        """Whether this broker takes no bundles."""
        return self.reporting.leaving or self.broker_id in self.peers.drained

    # -- life --------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Joins the cluster. Raises BrokerIdTakenError, MetadataError."""
        self._cancel = (
            self._store.watch_session(self._session_changed),
            self._store.watch(NAMESPACES, self._record_changed),
            self._store.watch(MOVES, self._move_changed),
        )
        self._session_began()
        await self.reporting.show()
        await self._claims.remove_former()
        await self.peers.load()
        await self.rules.load()
        self.tasks.every(REPORT_S, self.reporting.round)
        if self.balance is not None:
            self.balance.begin()

    async def drain(self) -> None:
        """Gives every bundle to another broker, or up where there is none, and leaves the cluster."""
        self.reporting.leaving = True
        try:
            if self.peers.shown:
                await self.reporting.show()
            if self.balance is not None:
                await self.balance.leave()
            await self._moves.give_all_away(self._chosen)
            if self.peers.shown:
                # Otherwise it may be the topic of another process that has this id.
                with contextlib.suppress(TopicNotFoundError):  # its health was never checked
                    await self._broker.delete_topic(self.health_topic, force=True)
            await self.peers.leave()
        except MagnetarError as error:
            # What could not be deleted goes with the session, and the session with the process.
            _log.warning("the cluster could not be left in order: %s", error)

    async def close(self) -> None:
        """Ends background work; records go with the session."""
        for cancel in self._cancel:
            cancel()
        if self.balance is not None:
            self.balance.close()
        self.peers.close()
        self.contact.close()
        await self.tasks.close()

    # -- what the store tells ----------------------------------------------------------------------

    def _session_began(self) -> None:
        self._sessions += 1
        self.ownership.session_began(self._sessions)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.SESSION_LOST:
            count = len(self.ownership)
            _log.error("the session with the metadata store is lost, and with it %d bundles", count)
            self.peers.session_lost()
            self._claims.carry_out(self.ownership.session_lost())
        elif event is SessionEvent.SESSION_RENEWED:
            if not self.ownership.session:
                self._session_began()
            self.tasks.spawn(self.reporting.rejoin())
        elif event is SessionEvent.RECONNECTED:
            # Changes made meanwhile were not reported.
            self.peers.look_again()
            for bundle in self.ownership.having(BundleState.OWNED):
                self.tasks.spawn(self._claims.look_at(bundle))
                self.tasks.spawn(self._moves.follow(bundle))

    def _record_changed(self, notification: Notification) -> None:
        if (bundle := bundle_at(notification.path, NAMESPACES)) is None:
            return
        self.rules.owner_changed(bundle)
        if self.ownership.state(bundle) in (BundleState.OWNED, BundleState.RELEASING):
            self.tasks.spawn(self._claims.look_at(bundle))

    def _move_changed(self, notification: Notification) -> None:
        if (bundle := bundle_at(notification.path, MOVES)) is not None:
            self.tasks.spawn(self._moves.follow(bundle))

    def _peers_changed(self) -> None:
        if self.draining and not self.reporting.leaving and len(self.ownership):
            self.tasks.spawn(self._drains.run("drain", self._give_all_away))

    async def _give_all_away(self) -> None:
        try:
            await self._moves.give_all_away(self._chosen)
        except MagnetarError as error:
            # The next change of the table begins anew; this broker's report is one, every few seconds.
            _log.warning("some bundles have not left yet: %s", error)

    # -- questions ---------------------------------------------------------------------------------

    async def intend(self, name: TopicName, broker_id: str) -> None:
        """See `Moves.intend`. Raises NamespaceNotFoundError, MetadataError."""
        await self._moves.intend(await self.bundle_of(name), broker_id)

    async def move(self, bundle: Bundle, to: str = "", *, owner: str = "") -> bool:
        """See `Moves.move`."""
        return await self._moves.move(bundle, to, owner=owner)

    async def expel(self, bundle: Bundle) -> bool:
        """Gives a bundle of this broker to one that may have it, if there is one; whether it left.

        Raises ServiceNotReadyError, MetadataError.
        """
        chosen = self._chosen(bundle)
        if chosen in ("", self.broker_id) or not self.ownership.serves(bundle):
            return False
        return await self._moves.move(bundle, chosen, owner=self.broker_id)

    async def gather(self, bundles: Iterable[Bundle]) -> None:
        """Has bundles move to this broker, which serves all of them on return.

        Raises ServiceNotReadyError when one is not here in time, or this broker is leaving; MetadataError.
        """
        if self.draining:
            raise ServiceNotReadyError("this broker is giving its bundles away; ask another one")
        await gathered(self._gather_one(bundle) for bundle in bundles)

    async def _gather_one(self, bundle: Bundle) -> None:
        until_ms = self._moves.deadline_ms()
        await self._moves.move(bundle, self.broker_id)
        await self._moves.take_over(bundle, until_ms)
        if not self.ownership.serves(bundle):
            raise ServiceNotReadyError(f"{bundle} did not move here; try again")

    def let_go(self, bundles: Iterable[Bundle]) -> None:
        """Gives up the bundles that this broker has, to no other one. Goes on in the background."""
        for bundle in bundles:
            self._claims.carry_out(self.ownership.release(bundle))

    async def require(self, names: Iterable[TopicName]) -> None:
        """Returns when this broker serves all these topics. Bundles without an owner come here, no others.

        To be asked before the first change of a call about several topics. Raises ServiceNotReadyError when
        another broker has one of them, NamespaceNotFoundError, MetadataError.
        """
        asked = list(names)
        for name in asked:
            place = await self.locate(name, authoritative=True)
            if place.urls is not None:
                raise ServiceNotReadyError(
                    f"{name} is served by broker {place.urls.broker_id}:"
                    " this call needs all its topics at one broker"
                )
        for name in asked:
            # One that was asked first may have left meanwhile.
            self.check_owned(name)

    async def bundle_of(self, name: TopicName) -> Bundle:
        """The bundle that the topic falls into. Raises NamespaceNotFoundError."""
        document = await self._broker.policies.namespace(name.namespace_name)
        return Bundle(name.namespace_name, *range_of(name, document))

    async def admit(self, name: TopicName) -> None:
        """Returns when topics of the bundle may be loaded here.

        Waits while this broker is getting the bundle. Raises ServiceNotReadyError when another broker has it.
        """
        keeper = self._keeper(name)
        if keeper == self.broker_id:
            return
        if keeper:
            raise ServiceNotReadyError(f"{name} is served by broker {keeper} only; look it up again")
        until_ms = self._moves.deadline_ms()
        while True:
            bundle = await self.bundle_of(name)
            state = self.ownership.state(bundle)
            if state is BundleState.OWNED:
                return
            if state is BundleState.CLAIMING:
                await self._claims.settled(bundle)
                await pause(LOOK_S)
            elif await self.contact.read(self._moves.destination(bundle)) == self.broker_id:
                await self._moves.take_over(bundle, until_ms)
            else:
                raise ServiceNotReadyError(f"{name} is not served by this broker; look it up again")
            self._moves.check_time(bundle, until_ms)

    def has(self, name: TopicName) -> bool:
        """Whether the topic may be served here now."""
        return self._keeper(name) == self.broker_id or self.ownership.has(name)

    def check_owned(self, name: TopicName) -> None:
        """Raises ServiceNotReadyError unless the topic's bundle is owned now."""
        if not self.has(name):
            raise ServiceNotReadyError(f"{name} is not served by this broker any more; look it up again")

    async def confirm(self, name: TopicName) -> None:
        """As `check_owned`, by what the store has now. Raises MetadataError, NamespaceNotFoundError too."""
        if not self._keeper(name):
            await self._claims.confirm(await self.bundle_of(name))
        self.check_owned(name)

    async def locate(self, name: TopicName, *, authoritative: bool) -> TopicPlace:
        """Where the topic is served; a bundle without an owner gets one.

        `authoritative`: another broker has chosen this one. Raises ServiceNotReadyError when no broker could
        get it in time, NamespaceNotFoundError, MetadataError.
        """
        if keeper := self._keeper(name):
            urls = self.peers.urls_of(keeper)
            return HERE if urls is None else TopicPlace(urls)
        # Asked anew each time: it may be split meanwhile.
        return await self._located(lambda: self.bundle_of(name), authoritative=authoritative)

    async def locate_bundle(self, bundle: Bundle, *, authoritative: bool) -> TopicPlace:
        """Where the topics of a bundle are served, as `locate` tells it. It is one of its namespace's."""

        async def itself() -> Bundle:
            return bundle

        return await self._located(itself, authoritative=authoritative)

    async def _located(
        self, bundle_now: Callable[[], Coroutine[object, object, Bundle]], *, authoritative: bool
    ) -> TopicPlace:
        until_ms = self._moves.deadline_ms()
        while True:
            bundle = await bundle_now()
            if self.ownership.serves(bundle):
                return HERE
            looking = self._look_for(bundle, authoritative=authoritative)
            place = await self._last_known.place(bundle, looking)
            if place is not None:
                return place
            self._moves.check_time(bundle, until_ms)
            await pause(LOOK_S)

    def _keeper(self, name: TopicName) -> str:
        """The broker that checks itself on the topic, if it is there; "": the topic's bundle decides."""
        checked = checked_broker(name)
        return checked if checked == self.broker_id or checked in self.peers.reports else ""

    async def _look_for(self, bundle: Bundle, *, authoritative: bool) -> TopicPlace | None:
        """None: it is to be looked for again."""
        value = await self._store.get(owner_path(bundle))
        if value is None:
            return await self._place(bundle, authoritative=authoritative)
        owner = urls_of(value)
        if owner is None:
            return None
        if owner.broker_id != self.broker_id:
            if await self._claims.free_if_dead(bundle, value):
                return None
            to = await self._moves.destination(bundle)
            # Where it goes, what clients ask is held until it is there.
            return None if to == self.broker_id else TopicPlace(self.peers.urls_of(to) or owner)
        if self.ownership.state(bundle) is BundleState.UNOWNED:
            # From this broker's former process, if it is known that no other one has its id.
            if self.peers.shown:
                await self._claims.claim(bundle, stale=value)
            return None
        # It is on its way to this broker, or away from it.
        target = self.peers.urls_of(await self._moves.destination(bundle))
        return None if target is None else TopicPlace(target)

    async def _place(self, bundle: Bundle, *, authoritative: bool) -> TopicPlace | None:
        """The best broker for a bundle without an owner."""
        target = self.peers.urls_of(await self._moves.destination(bundle))
        if target is not None and not await self.peers.is_gone(target):
            return TopicPlace(target)
        chosen = self._chosen(bundle)
        may_be_here = not self.draining and self.broker_id in self.allowed(bundle)
        if may_be_here and (authoritative or chosen in ("", self.broker_id)):
            await self._claims.claim(bundle)
            return None
        if not chosen:
            raise ServiceNotReadyError(
                f"no broker takes {bundle}: all are leaving, or isolation policies allow none; try again"
            )
        report = self.peers.reports[chosen]
        if await self.peers.is_gone(report.urls):
            return None
        self._sent.add(report)
        return TopicPlace(report.urls, redirect=True)

    def allowed(self, bundle: Bundle) -> frozenset[str]:
        """Ids of the brokers that may have it: they are there, and isolation policies allow them."""
        there = {each.broker_id for each in self.peers.able()}
        return self.rules.brokers_for(bundle.namespace, there | {self.broker_id})

    def _chosen(self, bundle: Bundle) -> str:
        """The broker that is to have it; "": there is none."""
        excluded = self.broker_id if self.draining else ""
        allowed = self.allowed(bundle) - {excluded}
        able = {each.broker_id: each for each in self.peers.able() if each.broker_id in allowed}
        if (own := able.get(self.broker_id)) is not None:
            # Its own load is known better than from its last report.
            able[self.broker_id] = replace(own, load=replace(own.load, bundles=len(self.ownership)))
        wanted = self.rules.groups.preferred(bundle.namespace, able)
        known = [each for name, each in able.items() if name in wanted]
        return least_loaded(bundle, known, self._sent, excluded=excluded)
