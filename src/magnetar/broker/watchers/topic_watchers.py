"""Tells clients which topics are created and deleted: one task for each watched namespace that changes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final, Protocol

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import RequestId
from magnetar.base.names import PERSISTENT, NamespaceName, TopicName
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.watchers.pattern import PatternError
from magnetar.broker.watchers.selection import (
    PATTERN_CHARS_MAX,
    Matcher,
    MatchingTurns,
    compiled,
    matching,
)
from magnetar.broker.watchers.watched import Update, WatchedNames
from magnetar.metadata import keys
from magnetar.metadata.store import Change, MetadataStore, Notification, SessionEvent

_log = logging.getLogger("magnetar.broker.watchers")

_WATCHERS_MAX: Final = 1_000
"""Watchers of one connection."""
_UNANSWERED_MAX: Final = 16
"""Requests for one watcher that may wait for their answers: clients ask again when they time out."""


class WatchingClient(Protocol):
    """A watching client: a connection."""

    def ask_output(self) -> bool:
        """Whether it accepts more now; if not, `TopicWatchers.resume` follows when it does."""

    def watching(self, request_id: RequestId, watcher_id: int, topics: list[str], digest: str) -> None:
        """The watch has begun; `topics` are those that match now."""

    def watching_failed(self, request_id: RequestId, error: MagnetarError) -> None:
        """The watch could not begin."""

    def topics_changed(self, watcher_id: int, update: Update) -> None:
        """Topics were created or deleted."""


class _Watcher:
    """One watcher of one client."""

    def __init__(self, client: WatchingClient, watcher_id: int, watched: WatchedNames) -> None:
        self.client = client
        self.watcher_id = watcher_id
        self.watched = watched
        self.requests: list[tuple[RequestId, str]] = []
        """Requests to be answered, each with the digest of its client's list."""
        self.seen: frozenset[TopicName] = frozenset()
        """The namespace's topics that were compared last."""
        self.look = 0
        """The number of the list that they were in."""
        self.held = False
        """Whether there is something to tell that the client could not take."""
        self.closed = False


class _Namespace:
    """A namespace that is being watched."""

    def __init__(self, name: NamespaceName) -> None:
        self.name = name
        self.topics: frozenset[TopicName] = frozenset()
        self.look = 0
        """How often they were listed."""
        self.deleted: set[str] = set()
        """Encoded local names of topics that were deleted since they were listed."""
        self.anew: dict[TopicName, int] = {}
        """Topics that were created, perhaps again, since some watcher was told, with the number of the
        list."""
        self.texts: dict[TopicName, str] = {}
        """Full names that some watcher has matched: thousands of watchers share them, as they may be long."""
        self.watchers: list[_Watcher] = []
        self.stale = True
        """Whether something changed since `topics` were listed."""
        self.pending = True
        """Whether some watcher may lack some of `topics`."""
        self.running = False
        self.cancels: list[Callable[[], None]] = []

    def text(self, name: TopicName) -> str:
        """The full name."""
        found = self.texts.get(name)
        if found is None:
            found = self.texts[name] = str(name)
        return found

    def now_has(self, topics: list[TopicName], deleted: set[str]) -> None:
        """Records the present topics, and that those before were `deleted` meanwhile."""
        before, self.topics = self.topics, frozenset(topics)
        self.look += 1
        for gone in before - self.topics:
            self.texts.pop(gone, None)
            self.anew.pop(gone, None)
        self.anew.update((name, self.look) for name in self.topics - before)
        if deleted:
            stayed = before & self.topics
            self.anew.update((name, self.look) for name in stayed if name.encoded_local in deleted)

    def made_anew(self, watcher: _Watcher) -> set[str]:
        """The topics of a watcher that were deleted and created again under the same names."""
        others = [name for name in self.anew.keys() & watcher.seen if self.anew[name] > watcher.look]
        return watcher.watched.topics.intersection(map(self.text, others))

    def all_told(self) -> None:
        """Forgets changes that every watcher was told."""
        heard = min((each.look for each in self.watchers), default=self.look)
        self.anew = {name: look for name, look in self.anew.items() if look > heard}


class TopicWatchers:
    """All watchers of a broker."""

    def __init__(
        self,
        store: MetadataStore,
        topics_of: Callable[[NamespaceName], Awaitable[list[TopicName]]],
        spawn: Callable[[Coroutine[object, object, object]], None],
    ) -> None:
        """`topics_of` lists the persistent topics of a namespace that clients may see."""
        self._store = store
        self._topics_of = topics_of
        self._spawn = spawn
        self._namespaces: dict[NamespaceName, _Namespace] = {}
        self._clients: dict[WatchingClient, dict[int, tuple[_Namespace, _Watcher]]] = {}
        self.turns = MatchingTurns()
        """Shared by all lists that are matched."""

    def __len__(self) -> int:
        """Watchers of all clients."""
        return sum(len(watchers) for watchers in self._clients.values())

    # -- commands ----------------------------------------------------------------------------------

    def watch(
        self,
        client: WatchingClient,
        namespace: NamespaceName,
        pattern: str | Matcher,
        *,
        watcher_id: int,
        request_id: RequestId,
        known_digest: str,
    ) -> None:
        """Begins a watch; the client gets the list, unless `known_digest` matches it, and then every change.
        Raises NotAllowedError, PatternError."""
        own = self._clients.get(client, {})
        if watcher_id in own:
            entry, watcher = own[watcher_id]
        else:
            if isinstance(pattern, str) and len(pattern) > PATTERN_CHARS_MAX:
                raise NotAllowedError(f"a pattern to watch has at most {PATTERN_CHARS_MAX} characters")
            if len(own) >= _WATCHERS_MAX:
                raise NotAllowedError(f"a connection may have {_WATCHERS_MAX} watchers")
            watcher = _Watcher(
                client, watcher_id, WatchedNames(compiled(pattern) if isinstance(pattern, str) else pattern)
            )
            entry = self._entry(namespace)
            entry.watchers.append(watcher)
            self._clients.setdefault(client, {})[watcher_id] = (entry, watcher)
        if len(watcher.requests) >= _UNANSWERED_MAX:
            raise NotAllowedError(f"watcher {watcher_id} has {_UNANSWERED_MAX} requests without an answer")
        watcher.requests.append((request_id, known_digest))
        self._wake(entry)

    def watches_of(self, client: WatchingClient) -> dict[int, NamespaceName]:
        """The watches of a client, by watcher id."""
        return {number: entry.name for number, (entry, _) in self._clients.get(client, {}).items()}

    def close(self, client: WatchingClient, watcher_id: int) -> None:
        """Ends a watch, if there is one."""
        own = self._clients.get(client, {})
        if watcher_id not in own:
            return
        entry, watcher = own.pop(watcher_id)
        if not own:
            del self._clients[client]
        watcher.closed = True
        entry.watchers.remove(watcher)
        if not entry.watchers:
            del self._namespaces[entry.name]
            for cancel in entry.cancels:
                cancel()

    def resume(self, client: WatchingClient) -> None:
        """The client accepts bytes again: it gets all changes since at once."""
        for entry, watcher in self._clients.get(client, {}).values():
            if watcher.held:
                self._wake(entry)

    def leave(self, client: WatchingClient) -> None:
        """The client is gone."""
        for watcher_id in list(self._clients.get(client, ())):
            self.close(client, watcher_id)

    # -- changes -----------------------------------------------------------------------------------

    def _entry(self, name: NamespaceName) -> _Namespace:
        entry = self._namespaces.get(name)
        if entry is None:
            entry = self._namespaces[name] = _Namespace(name)
            logs, partitioned = keys.managed_ledgers(name), keys.partitioned_topics(name, PERSISTENT)
            for folder in (logs, partitioned):
                entry.cancels.append(self._store.watch(folder, self._listener(entry, folder)))
            entry.cancels.append(self._store.watch_session(partial(self._session_changed, entry)))
        return entry

    def _session_changed(self, entry: _Namespace, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
            # Topics that were created and deleted without a connection were not reported.
            entry.stale = True
            self._wake(entry)

    def _listener(self, entry: _Namespace, folder: str) -> Callable[[Notification], None]:
        logs = keys.managed_ledgers(entry.name)

        def changed(notification: Notification) -> None:
            # A log's own value changes with each of its ledgers, a partitioned topic's only when it grows.
            grows = "partitioned" in folder and notification.change is Change.MODIFIED
            direct = notification.path.rpartition("/")[0] == folder
            if direct and (grows or notification.change in (Change.CREATED, Change.DELETED)):
                if folder == logs and notification.change is Change.DELETED:
                    entry.deleted.add(notification.path.rpartition("/")[2])
                entry.stale = True
                self._wake(entry)

        return changed

    def _wake(self, entry: _Namespace) -> None:
        entry.pending = True
        if not entry.running:
            entry.running = True
            self._spawn(self._run(entry))

    async def _run(self, entry: _Namespace) -> None:
        try:
            while entry.pending:
                entry.pending = False
                if entry.stale:
                    entry.stale = False
                    deleted, entry.deleted = entry.deleted, set()
                    entry.now_has(await self._topics_of(entry.name), deleted)
                for watcher in list(entry.watchers):
                    try:
                        await self._catch_up(watcher, entry)
                    except PatternError as error:
                        self._fail(watcher, error)
                entry.all_told()
        except MagnetarError as error:
            _log.warning("topics of %s could not be listed for watchers: %s", entry.name, error)
            entry.stale = True
            for watcher in list(entry.watchers):
                if watcher.requests:
                    self._fail(watcher, error)
        finally:
            entry.running = False

    def _fail(self, watcher: _Watcher, error: MagnetarError) -> None:
        """Ends a watch; a client that does not wait for an answer is not told, as the protocol has no command
        for it."""
        if not watcher.requests:
            # Its pattern consumer asks for the list itself, once a minute by default.
            _log.warning("a client's watch of topics ends: %s; %s", error, getattr(error, "remedy", ""))
        for request_id, _ in watcher.requests:
            watcher.client.watching_failed(request_id, error)
        if not watcher.closed:
            self.close(watcher.client, watcher.watcher_id)

    async def _catch_up(self, watcher: _Watcher, entry: _Namespace) -> None:
        """Sends a watcher the changes that it lacks, if its client accepts them."""
        topics = entry.topics
        if topics is watcher.seen and not watcher.requests:
            return
        # Changes that are not sent now are part of the next difference: nothing piles up for a client that
        # does not read.
        watcher.held = not watcher.client.ask_output()
        if watcher.held:
            return
        watched = watcher.watched
        updates: list[Update | None] = []
        if topics is not watcher.seen:
            came = list(map(entry.text, await matching(watched.pattern, topics - watcher.seen, self.turns)))
            went = list(map(str, watcher.seen - topics))
            if anew := entry.made_anew(watcher):
                # The client's consumer of the old topic has ended. It begins one only for a topic that it is
                # told is new.
                updates.append(watched.change((), [*went, *anew]))
            updates.append(watched.change([*came, *anew], went))
            watcher.seen, watcher.look = topics, entry.look
        if watcher.closed:
            return
        for update in updates:
            if not watcher.requests and update is not None:
                watcher.client.topics_changed(watcher.watcher_id, update)
        while watcher.requests and not watcher.held:
            request_id, known_digest = watcher.requests.pop(0)
            digest = watched.digest
            listed = [] if digest == known_digest else sorted(watched.topics)
            watcher.client.watching(request_id, watcher.watcher_id, listed, digest)
            watcher.held = bool(watcher.requests) and not watcher.client.ask_output()
