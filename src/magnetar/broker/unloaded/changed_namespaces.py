"""Namespaces whose topics have changed in the metadata store since they were examined."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from magnetar.metadata.keys import MANAGED_LEDGERS
from magnetar.metadata.store import MetadataStore, Notification, SessionEvent

_TENANT: Final = MANAGED_LEDGERS.count("/") + 1
"""Place of the tenant among the parts of a path."""


class ChangedNamespaces:
    """What the store reports of lists of ledgers and of cursors."""

    def __init__(self, store: MetadataStore) -> None:
        """Follows all namespaces, until `follow_only` is called."""
        self._names: set[str] = set()
        """As many as there are namespaces."""
        self._all = True
        self._store = store
        self._cancels = {"": store.watch(MANAGED_LEDGERS, self._changed)}
        """By namespace; "": all."""
        self._cancel_session = store.watch_session(self._session_changed)

    def close(self) -> None:
        """Stops watching."""
        for cancel in (*self._cancels.values(), self._cancel_session):
            cancel()

    def follow_only(self, namespace: str, *, wanted: bool) -> None:
        """Follows from now on only the namespaces that were `wanted` when they were named last: a broker of
        many would get a note of each change of all topics of the cluster. What changes in the others is not
        reported; one that becomes wanted counts as changed."""
        if (cancel := self._cancels.pop("", None)) is not None:
            cancel()
        if wanted and namespace not in self._cancels:
            # Before it is read: what changes meanwhile is reported.
            self._cancels[namespace] = self._store.watch(f"{MANAGED_LEDGERS}/{namespace}", self._changed)
            self._names.add(namespace)
        elif not wanted and (cancel := self._cancels.pop(namespace, None)) is not None:
            cancel()

    def keep(self, namespaces: Collection[str]) -> None:
        """These are the namespaces that there are: others are followed no more."""
        for gone in self._cancels.keys() - set(namespaces) - {""}:
            self._cancels.pop(gone)()

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
