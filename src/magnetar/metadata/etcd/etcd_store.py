"""The metadata store on etcd.

`transactions.py` describes how a write is composed, and how its outcome is found after a lost connection.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.metadata import paths
from magnetar.metadata.etcd.etcd_client import RETRY_S, CallLostError, EtcdClient, LeaseGoneError
from magnetar.metadata.etcd.etcd_pb2 import (
    DeleteRangeRequest,
    Event,
    RangeRequest,
    RangeResponse,
    RequestOp,
    TxnRequest,
    TxnResponse,
)
from magnetar.metadata.etcd.followed import FollowedRange
from magnetar.metadata.etcd.lease import Lease
from magnetar.metadata.etcd.transactions import (
    Move,
    SeenNode,
    TransactionPlan,
    ancestors,
    below,
    count,
    counted,
    fence,
    plan,
    reads,
    seen_of,
    sequential_path,
    stat_of,
)
from magnetar.metadata.etcd.watching import ChangeFollower
from magnetar.metadata.remote_store import RemoteStore
from magnetar.metadata.sorted_names import in_order
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    MUST_NOT_EXIST,
    BadVersionError,
    Change,
    Check,
    Delete,
    Notification,
    Operation,
    OutcomeUnknownError,
    Put,
    SessionEvent,
    Stat,
    StoreUnreachableError,
    Value,
    check_count,
)
from magnetar.runtime.tasks import pause
from magnetar.runtime.turns import Turns

SESSION_TIMEOUT_MS: Final = 30_000
CALL_TIMEOUT_S: Final = 30.0
MARKERS: Final = "/magnetar-writers"
"""Parent of the marker keys. A marker shows whether a write took effect; each write under way has one.
Markers hang on the store's lease and vanish with it."""
MARKERS_MAX: Final = 64
ATTEMPTS_MAX: Final = 32
"""Most attempts at one write; an attempt fails only when other writers change the same keys meanwhile."""
PAGE: Final = 1000
"""Keys in one answer when children are listed."""
ANNOUNCED_MAX: Final = 100
"""Followed ranges of which a deletion of a tree asks whether it concerns them: etcd takes 128 operations in a
transaction. Watchers of more are told, but not waited for."""
ANNOUNCE_S: Final = 1.0
"""Most seconds that a write waits until its change has reached this store's watchers."""


class EtcdMetadataStore(RemoteStore):
    """A `MetadataStore` on etcd 3.4 or newer. Made by `open`.

    Differences from other stores: times in a Stat are 0. The parent of sequential values is a value itself,
    and deleting it ends their counter. When a value is made or deleted, watchers are told that the children
    of every ancestor changed. A value that a transaction deletes and puts again keeps counting its versions.
    """

    def __init__(self, client: EtcdClient, root: str, session_timeout_ms: int, call_timeout_s: float) -> None:
        """Use `open`."""
        super().__init__("etcd store")
        self._client = client
        self._root = "" if root == paths.ROOT else root
        self._call_timeout_s = call_timeout_s
        self._lease = Lease(client, max(1, session_timeout_ms // 1000), self._sessions.announce)
        self._follower = ChangeFollower(client, self._events, self._gap)
        self._name = uuid.uuid4().hex
        self._free_markers: list[tuple[bytes, bytes]] = []
        self._markers_made = 0
        self._writes_made = 0
        self._room = asyncio.Semaphore(MARKERS_MAX)
        self._turns = Turns()

    @classmethod
    async def open(
        cls,
        addresses: Sequence[tuple[str, int]],
        *,
        root: str = paths.ROOT,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> EtcdMetadataStore:
        """Opens a session with one of the members.

        Arguments as for `ZooKeeperMetadataStore.open`; the session's time is a whole number of seconds.
        Raises StoreUnreachableError, StartupError when grpcio is not installed.
        """
        paths.check(root)
        store = cls(EtcdClient(addresses, call_timeout_s), root, session_timeout_ms, call_timeout_s)
        try:
            await store._lease.begin()
            await store._follower.begin()
        except BaseException:
            await store.close()
            raise
        store._tasks.spawn(store._lease.keep())
        store._tasks.spawn(store._follower.run())
        return store

    async def get(self, path: str) -> Value | None:
        self._check_open()
        paths.split(path)
        answer = await self._client.call("KV/Range", RangeRequest(key=self._at(path).encode()), RangeResponse)
        if not answer.kvs:
            return None
        return Value(answer.kvs[0].value, stat_of(path, answer.kvs[0], self._lease.id))

    async def children(self, path: str) -> list[str]:
        self._check_open()
        paths.check(path)
        first, end = below((self._at(path) or paths.ROOT).encode())
        start = first
        names: set[str] = set()
        while start < end:
            request = RangeRequest(key=start, range_end=end, limit=PAGE, keys_only=True)
            answer = await self._client.call("KV/Range", request, RangeResponse)
            names.update(pair.key[len(first) :].partition(b"/")[0].decode() for pair in answer.kvs)
            if not answer.more:
                break
            last = answer.kvs[-1].key
            child, deep, _ = last[len(first) :].partition(b"/")
            # Skip the rest below a child that has a deep tree.
            start = first + child + b"0" if deep else last + b"\0"
        if not self._root and path == paths.ROOT:
            names.discard(MARKERS[1:])
        return await in_order(names)

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        """See `MetadataStore.put`. After a cancellation a write may or may not have taken effect.

        Every write raises OutcomeUnknownError when its answer was lost and no member tells the outcome.
        """
        self._check_open()
        parent, _ = paths.split(path)
        while True:
            at = path
            if sequential:
                # A repetition after a lost answer skips a number, which is harmless.
                answer = await self._client.call("KV/Txn", count(self._at(parent).encode()), TxnResponse)
                at, expected_version = sequential_path(path, counted(answer)), MUST_NOT_EXIST
            try:
                (stat,) = await self._write([Put(at, data, expected_version)], ephemeral=ephemeral)
            except BadVersionError:
                # A plain put may have taken the name before the counter reached it.
                if not sequential:
                    raise
                continue
            assert stat is not None
            return stat

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        self._check_open()
        paths.split(path)
        await self._write([Delete(path, expected_version, expected_creation)])

    async def delete_recursive(self, path: str) -> None:
        self._check_open()
        paths.check(path)
        deleted = self._ranges(path)
        followed = [each for one in deleted for each in self._follower.ranges.within(*one)][:ANNOUNCED_MAX]
        looks = [
            RequestOp(request_range=RangeRequest(key=first, range_end=end, count_only=True))
            for _, (first, end) in followed
        ]
        changes = [
            RequestOp(request_delete_range=DeleteRangeRequest(key=first, range_end=end))
            for first, end in deleted
        ]
        # A repeated deletion has no further effect: no marker is needed.
        answer = await self._client.call("KV/Txn", TxnRequest(success=[*looks, *changes]), TxnResponse)
        concerned = [
            each
            for (each, _), part in zip(followed, answer.responses, strict=False)
            if part.response_range.count
        ]
        await self._follower.seen(concerned, answer.header.revision, ANNOUNCE_S)

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        self._check_open()
        check_count(operations)
        for operation in operations:
            paths.split(operation.path)
        return await self._write(operations) if operations else []

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        remove = super().watch(prefix, callback)
        self._follower.follow(prefix, self._ranges(prefix))
        active = True

        def cancel() -> None:
            nonlocal active
            if active:
                active = False
                remove()
                self._follower.unfollow(prefix)

        return cancel

    async def sync(self) -> None:
        """Does nothing: etcd's reads see every write that returned before."""
        self._check_open()

    async def _leave(self) -> None:
        await self._lease.end()
        await self._client.close()

    # -- writing -------------------------------------------------------------------------------

    async def _write(self, writes: Sequence[Operation], *, ephemeral: bool = False) -> list[Stat | None]:
        """Applies all writes or none. Writes to one path take effect in the order of the calls."""
        changed = [write.path for write in writes if not isinstance(write, Check)]
        async with self._turns.hold(changed), self._room:
            for _ in range(ATTEMPTS_MAX):
                seen = await self._read([write.path for write in writes])
                lease = self._lease.id
                made = plan(writes, seen, own_lease=lease, lease=lease if ephemeral else 0)
                try:
                    revision = await self._apply(made, seen, lease)
                except LeaseGoneError:
                    # Another one is on its way.
                    await pause(RETRY_S)
                    continue
                if revision is not None:
                    await self._follower.seen(self._watched(made.changed), revision, ANNOUNCE_S)
                    # A key that was there keeps the revision of its creation.
                    return [
                        stat and stat._replace(creation=seen[stat.path].create_revision or revision)
                        for stat in made.stats
                    ]
        raise MetadataError(f"{writes[0].path}: others changed it at each of {ATTEMPTS_MAX} attempts")

    async def _read(self, wanted: Sequence[str]) -> dict[str, SeenNode]:
        concerned = list(dict.fromkeys(wanted))
        answer = await self._client.call("KV/Txn", reads(concerned, self._root), TxnResponse)
        found = [part.response_range for part in answer.responses]
        return {
            path: seen_of(own.kvs[0] if own.kvs else None, has_children=bool(children.kvs))
            for path, own, children in zip(concerned, found[::2], found[1::2], strict=True)
        }

    async def _apply(self, made: TransactionPlan, seen: dict[str, SeenNode], lease: int) -> int | None:
        """The revision of the changes; None when the keys no longer were as `seen`."""
        marker, before = self._take_marker()
        move = Move(marker, before, self._next_value(), lease)
        request = made.request(seen, self._root, move)
        try:
            answer = await self._client.once("KV/Txn", request, TxnResponse)
        except CallLostError:
            return await self._find_out(move)
        if answer.succeeded:
            self._free_markers.append((marker, move.after))
            return answer.header.revision
        # The cause may be the marker itself, which vanished with the last lease: it is not used again.
        return None

    async def _find_out(self, move: Move) -> int | None:
        """The revision of a transaction whose answer was lost; None when it never takes effect."""
        fenced = self._next_value()
        try:
            answer = await self._client.call("KV/Txn", fence(move, fenced), TxnResponse)
        except StoreUnreachableError as error:
            raise OutcomeUnknownError(f"whether a write took effect is not known: {error}") from error
        if answer.succeeded:
            self._free_markers.append((move.marker, fenced))
            return None
        found = answer.responses[0].response_range.kvs
        if found and found[0].value == move.after:
            self._free_markers.append((move.marker, move.after))
            return found[0].mod_revision
        if found and found[0].value == fenced:
            # The fence itself was sent twice.
            self._free_markers.append((move.marker, fenced))
            return None
        raise OutcomeUnknownError("whether a write took effect is not known: its marker is gone")

    def _take_marker(self) -> tuple[bytes, bytes]:
        """A marker that no write uses, and its present value; the value of a new marker is empty."""
        if self._free_markers:
            return self._free_markers.pop()
        self._markers_made += 1
        return f"{MARKERS}/{self._name}/{self._markers_made}".encode(), b""

    def _next_value(self) -> bytes:
        self._writes_made += 1
        return str(self._writes_made).encode()

    # -- what members tell ---------------------------------------------------------------------

    def _at(self, path: str) -> str:
        return self._root if path == paths.ROOT else f"{self._root}{path}"

    def _watched(self, changed: Sequence[str]) -> list[FollowedRange]:
        """The followed ranges that these paths lie in."""
        ranges = self._follower.ranges
        return [
            each
            for path in changed
            for each in ranges.with_key(self._at(path).encode(), paths.covering(path))
        ]

    def _ranges(self, path: str) -> list[tuple[bytes, bytes]]:
        """The keys of a path and of all below it."""
        key = self._at(path).encode()
        return [below(key or b"/"), *([] if path == paths.ROOT else [(key, key + b"\0")])]

    def _events(self, prefix: str, events: Sequence[Event]) -> None:
        told: list[Notification] = []
        for event in events:
            path = event.kv.key.decode("utf-8", "replace")[len(self._root) :]
            if not self._root and path.startswith(f"{MARKERS}/"):
                continue
            if event.type == Event.DELETE:
                told.append(Notification(Change.DELETED, path))
            elif event.kv.version == 1:
                told.append(Notification(Change.CREATED, path))
            else:
                told.append(Notification(Change.MODIFIED, path))
                continue
            told += [Notification(Change.CHILDREN_CHANGED, above) for above in ancestors(path)]
        self._watches.announce(told, to=prefix)

    def _gap(self) -> None:
        self._sessions.announce(SessionEvent.CONNECTION_LOST)
        self._sessions.announce(SessionEvent.RECONNECTED)
