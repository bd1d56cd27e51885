"""Distributes changes to their watchers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from magnetar.metadata import paths
from magnetar.metadata.store import Notification, SessionEvent


class Watches:
    """Callbacks by prefix, called in the order in which they were added."""

    def __init__(self, on_error: Callable[[Exception, Notification], None]) -> None:
        """`on_error` gets what a callback raised; the other callbacks are still called."""
        self._callbacks: dict[int, Callable[[Notification], None]] = {}
        self._by_prefix: dict[str, set[int]] = {}
        """Which of them are called for a prefix. A broker may watch thousands."""
        self._next_id = 0
        self._on_error = on_error

    def add(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        """Returns the cancel, which may be called at any time and more than once."""
        paths.check(prefix)
        watch_id = self._next_id
        self._next_id += 1
        self._callbacks[watch_id] = callback
        self._by_prefix.setdefault(prefix, set()).add(watch_id)

        def cancel() -> None:
            if self._callbacks.pop(watch_id, None) is None:
                # It was cancelled, or all were forgotten.
                return
            self._by_prefix[prefix].discard(watch_id)
            if not self._by_prefix[prefix]:
                del self._by_prefix[prefix]

        return cancel

    def announce(self, notifications: Iterable[Notification], *, to: str | None = None) -> None:
        """Calls every callback whose prefix covers a notification's path; `to`: only those of this prefix."""
        if not self._callbacks:
            return
        for notification in notifications:
            path = notification.path
            prefixes = paths.covering(path) if to is None else [to] if paths.covers(to, path) else []
            for watch_id in sorted(id_ for each in prefixes for id_ in self._by_prefix.get(each, ())):
                # One that was called before in this round may have cancelled this one.
                if (callback := self._callbacks.get(watch_id)) is not None:
                    try:
                        callback(notification)
                    except Exception as error:  # noqa: BLE001 - the writer must not fail for a watcher
                        self._on_error(error, notification)

    def clear(self) -> None:
        """Forgets every callback."""
        self._callbacks.clear()
        self._by_prefix.clear()


class SessionWatches:
    """Callbacks for changes of a store's session."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[SessionEvent], None]] = {}
        self._next_id = 0

    def add(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """Returns the cancel, which may be called at any time and more than once."""
        watch_id = self._next_id
        self._next_id += 1
        self._callbacks[watch_id] = callback

        def cancel() -> None:
            self._callbacks.pop(watch_id, None)

        return cancel

    def announce(self, event: SessionEvent) -> None:
        """Calls every callback."""
        for callback in list(self._callbacks.values()):
            callback(event)

    def clear(self) -> None:
        """Forgets every callback."""
        self._callbacks.clear()
