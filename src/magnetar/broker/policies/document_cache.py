"""Documents of the metadata store, read through a cache.

A document is dropped from the cache when the store reports its change, and all are when a connection comes
back: what changed without one was not reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from magnetar.base.recent import Recent
from magnetar.metadata import keys
from magnetar.metadata.store import (
    Change,
    MetadataStore,
    Notification,
    SessionEvent,
    StoreUnreachableError,
    Value,
)

if TYPE_CHECKING:
    from magnetar.metadata.contact import Contact

_D = TypeVar("_D")

_DOCUMENTS_KEPT: Final = 100_000
"""Documents in the cache. Missing documents are cached too, for every name that clients ask for: they must
not fill the memory."""


class DocumentCache(Generic[_D]):
    """The documents below `/admin` that were asked for lately."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._contact: Contact | None = None
        """With a shared store, else None."""
        self._documents: Recent[str, _D | None] = Recent(_DOCUMENTS_KEPT)
        self._missing: Recent[str, None] = Recent(_DOCUMENTS_KEPT)
        """Documents of a shared store that were missing when they were read last."""
        self._changes = 0
        self._listeners: list[Callable[[str], None]] = []
        self._cancels = [
            store.watch(keys.ADMIN, self._changed),
            store.watch_session(self._session_changed),
        ]

    @property
    def shared(self) -> bool:
        """Whether other brokers write documents too."""
        return self._contact is not None

    def share(self) -> None:
        """Other brokers write documents too. That there is none is not relied on then, as the note of its
        creation may be on its way, unless the store cannot be reached."""
        # A broker that is alone starts without it.
        from magnetar.metadata.contact import Contact

        self._contact = Contact(self._store)
        self._cancels.append(self._contact.close)

    def close(self) -> None:
        """Stops watching."""
        for cancel in self._cancels:
            cancel()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Calls back with its key after any document changed; with `keys.ADMIN` when it is not known which
        have: all may."""
        self._listeners.append(listener)

    def _changed(self, notification: Notification) -> None:
        if notification.change is Change.CHILDREN_CHANGED:
            # A child that was added or removed is reported by its own path.
            return
        self._changes += 1
        self._documents.forget(notification.path)
        self._missing.forget(notification.path)
        self._tell(notification.path)

    def _session_changed(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
            # Changes of other brokers without a connection were not reported.
            self._changes += 1
            self._documents = Recent(_DOCUMENTS_KEPT)
            self._missing = Recent(_DOCUMENTS_KEPT)
            self._tell(keys.ADMIN)

    def _tell(self, path: str) -> None:
        for listener in self._listeners:
            listener(path)

    async def read(self, path: str, decoded: Callable[[bytes], _D]) -> _D | None:
        """The document as `decoded` makes it of what is stored; None when there is none.

        Raises what `decoded` raises; MetadataError, soon where the store is shared and away. There, what was
        missing when it was read last is missing: a client attaches to a topic that is loaded here also then.
        """
        if path in self._documents:
            return self._documents[path]
        before = self._changes
        try:
            contact = self._contact
            value = await (self._store.get(path) if contact is None else contact.read(self._of_all(path)))
        except StoreUnreachableError:
            if path in self._missing and self._changes == before:
                return None
            raise
        document = None if value is None else decoded(value.data)
        if self._changes == before:
            # Otherwise it may have been read before the change, which would not be reported again.
            if document is None and self.shared:
                self._missing.put(path, None)
            else:
                self._documents.put(path, document)
        return document

    async def _of_all(self, path: str) -> Value | None:
        value = await self._store.get(path)
        if value is None:
            # The server that was asked may not have heard of it yet.
            await self._store.sync()
            value = await self._store.get(path)
        return value
