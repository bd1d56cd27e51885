"""Namespaces whose topics have changed in the metadata store since they were examined."""

from __future__ import annotations

from typing import Final

from magnetar.metadata.keys import MANAGED_LEDGERS
from magnetar.metadata.store import MetadataStore, Notification, SessionEvent

_TENANT: Final = MANAGED_LEDGERS.count("/") + 1
"""Place of the tenant among the parts of a path."""


class ChangedNamespaces:
    """What the store reports of lists of ledgers and of cursors."""

    def __init__(self, store: MetadataStore) -> None:
        self._names: set[str] = set()
        """As many as there are namespaces."""
        self._all = True
        self._cancel = (
            store.watch(MANAGED_LEDGERS, self._changed),
            store.watch_session(self._session_changed),
        )

    def close(self) -> None:
        """Stops watching."""
        for cancel in self._cancel:
            cancel()

    def take_all(self) -> bool:
        """Whether any may have changed; not from now on."""
        taken, self._all = self._all, False
        return taken

    def take(self, namespace: str) -> bool:
        """Whether the namespace has changed; not from now on."""
        changed = namespace in self._names
        self._names.discard(namespace)
        return changed

    def add(self, namespace: str) -> None:
        """Notes a change that the store does not report."""
        self._names.add(namespace)

    def _changed(self, notification: Notification) -> None:
        parts = notification.path.split("/", _TENANT + 2)
        if len(parts) > _TENANT + 1:
            self._names.add(f"{parts[_TENANT]}/{parts[_TENANT + 1]}")

    def _session_changed(self, event: SessionEvent) -> None:
        # What others changed without a connection is not reported.
        self._all = self._all or event is not SessionEvent.CONNECTION_LOST
