"""Look-ups while the metadata service is away: answered with what was known last."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from magnetar.base.recent import Recent
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.place import TopicPlace
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.metadata.contact import Contact
from magnetar.metadata.store import StoreUnreachableError

_BUNDLES_KEPT: Final = 100_000


class LastKnown:
    """The last known owners of bundles that other brokers have. A hint is enough: see decision 0030."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self._owners: Recent[Bundle, BrokerUrls] = Recent(_BUNDLES_KEPT)

    async def place(self, bundle: Bundle, work: Awaitable[TopicPlace | None]) -> TopicPlace | None:
        """The answer of `work`, which looks for the bundle in the store.

        Raises ServiceNotReadyError, soon, when the store is away and no owner was known.
        """
        try:
            found = await self._contact.read(work)
        except StoreUnreachableError as error:
            known = self._owners.get(bundle)
            if known is None:
                raise ServiceNotReadyError(f"{error}: the owner of {bundle} is not known") from error
            return TopicPlace(known)
        if found is not None and found.urls is not None and not found.redirect:
            self._owners.put(bundle, found.urls)
        return found
