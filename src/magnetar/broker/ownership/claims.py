"""Records of owners in the metadata store: made, looked at, removed. Does what `ownership.py` decides."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MetadataError
from magnetar.broker.listeners import NOWHERE
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.closing import BundleTopics
from magnetar.broker.ownership.health_topics import health_topic
from magnetar.broker.ownership.listing import owners_in
from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.ownership.ownership_effects import Claim, Close, Delete, Effect
from magnetar.broker.ownership.ownership_rules import OWNERSHIP_RULES, OwnershipRules
from magnetar.broker.ownership.peers import Peers
from magnetar.broker.ownership.records import (
    NAMESPACES,
    BrokerUrls,
    encode_move,
    move_path,
    owner_path,
)
from magnetar.broker.ownership.states import BundleState
from magnetar.broker.policies.bundles import ranges
from magnetar.metadata import keys
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, NotFoundError, Value, delete_as_read
from magnetar.runtime.tasks import SingleFlight, pause

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker.ownership")

LOOK_S: Final = 0.02
"""Between two looks at a record that is to change."""
_AGAIN_S: Final = 0.1
"""Between two attempts to delete a record."""


class Claims:
    """The claims of one broker."""

    def __init__(
        self,
        broker: BrokerPort,
        urls: BrokerUrls,
        peers: Peers,
        spawn: Callable[[Coroutine[object, object, None]], None],
        rules: OwnershipRules = OWNERSHIP_RULES,
    ) -> None:
        """`urls`: of this broker."""
        self.ownership = Ownership(rules)
        self._rules = rules
        self._broker = broker
        self._store = broker.store
        self._urls = urls
        self._peers = peers
        self._spawn = spawn
        self._topics = BundleTopics(broker, health_topic(urls.broker_id))
        self._flights: SingleFlight[None] = SingleFlight()

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Does what the decisions want done; what takes time goes on in the background."""
        for effect in effects:
            match effect:
                case Claim():
                    self._spawn(self._claim(effect))
                case Close(bundle, lost, to):
                    report = self._peers.reports.get(to)
                    to_urls = NOWHERE if report is None else report.urls.addresses
                    self._topics.mark(bundle, lost=lost, to=to_urls)
                    self._spawn(self._close(bundle))
                case Delete():
                    self._spawn(self._delete(effect))

    # -- claims ------------------------------------------------------------------------------------

    async def claim(self, bundle: Bundle, *, stale: Value | None = None) -> None:
        """Claims the bundle, or joins a claim under way; whether that succeeded is for `ownership` to say.

        `stale`: the record of this broker from an earlier life, which is removed first.
        """

        async def work() -> None:
            if stale is not None and not stale.stat.created_by_self:
                await self.remove(bundle, stale)
            for effect in self.ownership.want(bundle):
                assert isinstance(effect, Claim)
                await self._claim(effect)

        await self._flights.run(bundle, work)
        if not self.ownership.serves(bundle):
            await pause(LOOK_S)

    async def settled(self, bundle: Bundle) -> None:
        """Returns when no claim of the bundle is under way."""
        await self._flights.settled(bundle)

    async def _claim(self, claim: Claim) -> None:
        bundle, session = claim.bundle, claim.session
        try:
            made = await self._make_record(bundle)
            alone = made and (not self._rules.must_be_alone() or await self._is_alone(bundle))
            if alone:
                with contextlib.suppress(NotFoundError):  # it did not come by a move
                    await self._store.delete(move_path(bundle))
        except MetadataError as error:
            # The record may be there all the same; the next claim finds it.
            _log.warning("%s could not be claimed: %s", bundle, error)
            self.ownership.not_claimed(bundle, session)
            return
        except BaseException:
            self.ownership.not_claimed(bundle, session)
            raise
        if not made:
            self.ownership.not_claimed(bundle, session)
            return
        self.carry_out(self.ownership.claimed(bundle, session, alone=alone))
        if self.ownership.serves(bundle):
            _log.info("%s is served here now", bundle)
            if self._rules.looks_again():
                await self.look_at(bundle)

    async def _make_record(self, bundle: Bundle) -> bool:
        """Whether the record is there and of this session."""
        path = owner_path(bundle)
        try:
            await self._store.put(path, self._urls.encode(), expected_version=MUST_NOT_EXIST, ephemeral=True)
        except BadVersionError:
            # The answer to an earlier claim may have been lost.
            value = await self._store.get(path)
            return value is not None and value.stat.created_by_self
        return True

    async def _is_alone(self, bundle: Bundle) -> bool:
        """Whether the bundle is one of its namespace's, and nothing that overlaps it has an owner."""
        document = await self._broker.policies.fresh_document(keys.namespace_policies(bundle.namespace))
        known = set() if document is None else set(ranges(document))
        if (bundle.lower, bundle.upper) not in known:
            return False
        parent = f"{NAMESPACES}/{bundle.namespace}"
        for name in await self._store.children(parent):
            with contextlib.suppress(ValueError):  # what names no bundle overlaps none
                other = Bundle.parse(f"{bundle.namespace}/{name}")
                if other != bundle and other.overlaps(bundle):
                    value = await self._store.get(owner_path(other))
                    if value is not None:
                        if (
                            not await self.free_if_dead(other, value)
                            and (other.lower, other.upper) not in known
                        ):
                            # The process that split it did not get to this.
                            await self._store.put(move_path(other), encode_move(""))
                        return False
        return True

    # -- what leaves this broker -------------------------------------------------------------------

    async def look_at(self, bundle: Bundle) -> None:
        """Loses the bundle when its record is not this session's any more."""
        session = self.ownership.session
        try:
            value = await self._store.get(owner_path(bundle))
        except MetadataError as error:
            # The fence of its ledgers holds; the connection's return asks again.
            _log.warning("the owner of %s could not be read: %s", bundle, error)
            return
        self._judge(bundle, session, value)

    async def confirm(self, bundle: Bundle) -> None:
        """As `look_at`, by what the store has at the time of this call or later. Raises MetadataError."""
        session = self.ownership.session
        await self._store.sync()
        self._judge(bundle, session, await self._store.get(owner_path(bundle)))

    def _judge(self, bundle: Bundle, session: int, value: Value | None) -> None:
        if value is None or not value.stat.created_by_self:
            if self.ownership.serves(bundle):
                _log.warning("%s is not this broker's any more: its record was taken away", bundle)
            self.carry_out(self.ownership.record_gone(bundle, session))

    async def _close(self, bundle: Bundle) -> None:
        await self._topics.close(bundle)
        _log.info("%s is not served here any more", bundle)
        self.carry_out(self.ownership.closed(bundle))

    async def _delete(self, delete: Delete) -> None:
        bundle, session = delete.bundle, delete.session
        path = owner_path(bundle)
        while self.ownership.session == session:
            try:
                value = await self._store.get(path)
                if value is not None and value.stat.created_by_self:
                    await delete_as_read(self._store, path, value.stat)
                break
            except (NotFoundError, BadVersionError):
                # Another process removed it.
                break
            except MetadataError as error:
                # It stands until it could be deleted, or the session ends.
                _log.warning("the record of %s could not be deleted: %s", bundle, error)
                await pause(_AGAIN_S)
        self.ownership.deleted(bundle, session)

    # -- bundles of others -------------------------------------------------------------------------

    async def free_if_dead(self, bundle: Bundle, value: Value) -> bool:
        """Takes the bundle from an owner whose process is gone; whether that was so. Raises MetadataError."""
        owner = urls_of(value)
        if owner is None or owner.broker_id == self._urls.broker_id or not await self._peers.is_dead(owner):
            return False
        _log.warning("%s leaves its owner %s, which refuses connections", bundle, owner.broker_id)
        await self.remove(bundle, value)
        return True

    async def remove_former(self) -> None:
        """Removes the records of bundles that a former process with this broker's id had: they get an owner
        at the next look-up, and clients are not sent here meanwhile. To be called while this process has the
        report of the id, and no bundle. Raises MetadataError.
        """
        for bundle, broker_id in (await owners_in(self._store)).items():
            if broker_id == self._urls.broker_id:
                value = await self._store.get(owner_path(bundle))
                if value is not None and self._is_former(value):
                    await self.remove(bundle, value)

    def _is_former(self, value: Value) -> bool:
        owner = urls_of(value)
        is_of_this_id = owner is not None and owner.broker_id == self._urls.broker_id
        return is_of_this_id and not value.stat.created_by_self

    async def remove_leftover(self, bundle: Bundle) -> None:
        """Removes this broker's record of a bundle that it does not have: of a claim whose answer was lost.

        A bundle that is there is claimed again by the next look-up; one that was split meanwhile is not, and
        its record keeps the parts from having owners. Raises MetadataError.
        """
        value = await self._store.get(owner_path(bundle))
        unowned = self.ownership.state(bundle) is BundleState.UNOWNED
        if value is not None and value.stat.created_by_self and unowned:
            await self.remove(bundle, value)

    async def remove(self, bundle: Bundle, value: Value) -> None:
        """Removes a record as it was read, and not that of a later owner, whose version is 0 too.

        Raises MetadataError.
        """
        with contextlib.suppress(NotFoundError, BadVersionError):  # it changed meanwhile: it is read again
            await delete_as_read(self._store, owner_path(bundle), value.stat)


def urls_of(value: Value) -> BrokerUrls | None:
    """The owner that a record names; None for a record that is not understood."""
    try:
        return BrokerUrls.decode(value.data)
    except ValueError:
        # No client can be sent to its owner; it goes with the session that made it.
        return None
