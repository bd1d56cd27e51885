"""Moves bundles from one broker to another.

A move is requested in writing. The owner sees the request, closes its topics and deletes its record; the
broker that is to have the bundle waits for that and claims it. Meanwhile clients wait there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.claims import LOOK_S, Claims, urls_of
from magnetar.broker.ownership.records import BrokerUrls, decode_move, encode_move, move_path, owner_path
from magnetar.broker.ownership.states import BundleState
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    MetadataStore,
    NotFoundError,
    delete_as_read,
)
from magnetar.runtime.tasks import gathered, pause

_log = logging.getLogger("magnetar.broker.ownership")

WAIT_S: Final = 25.0
"""Seconds that a request waits for an owner: shorter than the 30 s after which clients give up. A refused
client doubles its waits, which would prolong a failover."""
_MOVED_TOGETHER: Final = 8
"""Bundles that leave a broker at the same time."""


class Moves:
    """The moves of one broker."""

    def __init__(self, store: MetadataStore, claims: Claims, own_id: str, clock: Clock) -> None:
        self._store = store
        self._claims = claims
        self._own_id = own_id
        self._clock = clock

    def deadline_ms(self) -> float:
        """Until when a call that begins now may wait."""
        return self._clock.monotonic_ms() + WAIT_S * 1000

    def check_time(self, bundle: Bundle, until_ms: float) -> None:
        """Raises ServiceNotReadyError when the time is over."""
        if self._clock.monotonic_ms() >= until_ms:
            raise ServiceNotReadyError(f"{bundle} has no owner yet; look the topic up again")

    async def destination(self, bundle: Bundle) -> str | None:
        """The broker that the bundle moves to, "" for any; None: it does not move. Raises MetadataError."""
        value = await self._store.get(move_path(bundle))
        if value is None:
            return None
        try:
            return decode_move(value.data)
        except ValueError:
            # It is to leave its owner at least.
            return ""

    async def follow(self, bundle: Bundle) -> None:
        """Does this broker's part of a move: gives the bundle up, or takes it."""
        ownership = self._claims.ownership
        try:
            to = await self.destination(bundle)
            if to is None:
                return
            if ownership.state(bundle) is BundleState.OWNED and to != self._own_id:
                self._claims.carry_out(ownership.release(bundle, to))
            elif to == self._own_id:
                await self.take_over(bundle, self.deadline_ms())
                await self._forget(bundle)
            else:
                await self._claims.remove_leftover(bundle)
        except MagnetarError as error:
            # The next broker that is asked for the bundle goes on with it.
            _log.warning("the move of %s has not ended: %s", bundle, error)

    async def _forget(self, bundle: Bundle) -> None:
        """Removes a request for a move to this broker, which has the bundle.

        A claim removes the request that it follows. One that is written later would stay: a look-up gave a
        part of a split bundle to its target before the split wrote down that it should. Raises MetadataError.
        """
        value = await self._store.get(move_path(bundle))
        if value is None or not self._claims.ownership.serves(bundle):
            return
        with contextlib.suppress(NotFoundError, BadVersionError, ValueError):  # it is another request by now
            if decode_move(value.data) == self._own_id:
                await delete_as_read(self._store, move_path(bundle), value.stat)

    async def take_over(self, bundle: Bundle, until_ms: float) -> None:
        """Claims a bundle that is to come to this broker, once its owner has given it up.

        Raises ServiceNotReadyError when that takes too long, MetadataError.
        """
        while not self._claims.ownership.serves(bundle):
            value = await self._store.get(owner_path(bundle))
            if value is None or value.stat.created_by_self:
                await self._claims.claim(bundle)
            elif await self.destination(bundle) != self._own_id:
                return
            else:
                await self._claims.free_if_dead(bundle, value)
            self.check_time(bundle, until_ms)
            await pause(LOOK_S)

    async def move(self, bundle: Bundle, to: str = "", *, owner: str = "") -> bool:
        """Has the bundle leave its present owner; returns when it has left, whether it had to.

        `to`: the broker that gets it; "": the next one that is asked. A bundle without an owner stays so, and
        one of another owner than `owner` if that is given. Raises ServiceNotReadyError when it does not
        leave in WAIT_S, MetadataError.
        """
        value = await self._store.get(owner_path(bundle))
        present = None if value is None else urls_of(value)
        if present is None or present.broker_id == to or owner not in ("", present.broker_id):
            return False
        asked = await self._store.put(move_path(bundle), encode_move(to))
        self._claims.carry_out(self._claims.ownership.release(bundle, to))
        until_ms = self.deadline_ms()
        while await self._still_has(bundle, present):
            self.check_time(bundle, until_ms)
            await pause(LOOK_S)
        if not to:
            # Its next owner was faster, or a look-up has written down meanwhile which broker is to have it.
            with contextlib.suppress(NotFoundError, BadVersionError):
                await delete_as_read(self._store, move_path(bundle), asked)
        return True

    async def _still_has(self, bundle: Bundle, owner: BrokerUrls) -> bool:
        value = await self._store.get(owner_path(bundle))
        if value is None:
            return False
        now = urls_of(value)
        if now is None or now.broker_id != owner.broker_id:
            return False
        return not await self._claims.free_if_dead(bundle, value)

    async def intend(self, bundle: Bundle, to: str) -> None:
        """Writes down which broker is to have a bundle without an owner: it claims it, or waits for it when a
        client attaches there. Without effect when the bundle has an owner. Raises MetadataError.
        """
        if await self._store.get(owner_path(bundle)) is not None:
            return
        value = await self._store.get(move_path(bundle))
        version = MUST_NOT_EXIST if value is None else value.stat.version
        with contextlib.suppress(BadVersionError):  # another broker has decided meanwhile
            await self._store.put(move_path(bundle), encode_move(to), expected_version=version)

    async def give_all_away(self, chosen: Callable[[Bundle], str]) -> None:
        """Moves every bundle to the broker `chosen` for it; returns when all have left.

        Raises ServiceNotReadyError, MetadataError.
        """
        bundles = list(self._claims.ownership.having(BundleState.OWNED))
        for start in range(0, len(bundles), _MOVED_TOGETHER):
            await gathered(
                self.move(bundle, chosen(bundle)) for bundle in bundles[start : start + _MOVED_TOGETHER]
            )
