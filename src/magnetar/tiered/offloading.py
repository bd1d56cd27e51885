"""Decides when which ledger is offloaded, by thresholds, requests and lags. Copies one ledger at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final
from uuid import UUID

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId, Position
from magnetar.runtime.tasks import yield_loop
from magnetar.tiered import policy as rules
from magnetar.tiered.api import LedgerMovedError, OffloadedLog, SealedLedger
from magnetar.tiered.attempt import Outcome
from magnetar.tiered.backoff import Backoff
from magnetar.tiered.context import OffloadedCopy, segment_name
from magnetar.tiered.errors import MissingObjectError, StoreError
from magnetar.tiered.key_merging import KeyDirectories
from magnetar.tiered.offloader import Offloader
from magnetar.tiered.policy import OffloadPolicy
from magnetar.tiered.request import OffloadRequest
from magnetar.tiered.storage import TieredStorage

if TYPE_CHECKING:
    from magnetar.tiered.merge_rounds import MergeRounds
    from magnetar.tiered.merger import Merged, Merger, Progress

_log = logging.getLogger("magnetar.tiered")

_PER_TURN: Final = 50
"""Logs that are checked before the event loop gets a turn."""


class _Offloaded:
    """The state of one open log."""

    __slots__ = ("backoff", "behind", "error", "log", "policy", "request")

    def __init__(self, log: OffloadedLog, policy: OffloadPolicy) -> None:
        self.log = log
        self.policy = policy
        self.request = OffloadRequest(log.name)
        self.backoff = Backoff()
        self.error = ""
        self.behind: tuple[LedgerId, float] | None = None
        """The first ledger that is not in history, and the time of its first entry on the monotonic clock. On
        the wall clock, a step of a year would make an entry of an hour ago a year old."""


class Offloading:
    """Offloads all logs in rounds, and on request."""

    def __init__(
        self,
        storage: TieredStorage,
        offloader: Offloader,
        *,
        default: OffloadPolicy,
        new_id: Callable[[], UUID],
        spawn: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        """`default` applies without a policy; `new_id` returns unique ids."""
        self.before_each: Callable[[], Awaitable[None]] | None = None
        """Called before each attempt. When it raises, there is no attempt, so that no ledger is converted for
        a store that does not answer."""
        self.storage = storage
        self._offloader = offloader
        self._keys = KeyDirectories(worker=storage.converter, store=storage.store, work_dir=storage.work_dir)
        self._default = default
        self._new_id = new_id
        self._spawn = spawn
        self._logs: dict[str, _Offloaded] = {}
        self._one_at_a_time = asyncio.Lock()

    @cached_property
    def merger(self) -> Merger:
        """Merges small objects into larger ones."""
        # Starts do not wait for what is loaded on request.
        from magnetar.tiered.merger import Merger

        return Merger(
            self.storage, self._offloader, self._keys, new_id=self._new_id, turn=self._one_at_a_time
        )

    # What the broker says

    def apply(self, log: OffloadedLog, own: Mapping[str, object], namespace: Mapping[str, object]) -> None:
        """Takes an opened log, or new policies of its topic and namespace."""
        policy = self.policy_of(own, namespace)
        known = self._logs.get(log.name)
        if known is None or known.log is not log:
            self._logs[log.name] = _Offloaded(log, policy)
        else:
            known.policy = policy

    def policy_of(self, own: Mapping[str, object], namespace: Mapping[str, object]) -> OffloadPolicy:
        """The policy in force for a topic with these documents of topic and namespace."""
        return self._default.under(own, namespace, self.storage.url)

    def offload(self, log: OffloadedLog, upto: Position) -> None:
        """Copies, in the background, every sealed ledger that ends before `upto`.

        Raises OffloadRunningError.
        """
        known = self._known(log)
        known.request.begin()
        self._spawn(self._serve(known, upto))

    def request_of(self, log: OffloadedLog) -> OffloadRequest:
        """The last request for the log since it was opened."""
        return self._known(log).request

    def _known(self, log: OffloadedLog) -> _Offloaded:
        known = self._logs.get(log.name)
        if known is None or known.log is not log:
            known = self._logs[log.name] = _Offloaded(log, self._default)
        return known

    # On request

    async def merge(
        self, log: OffloadedLog, *, target_bytes: int, dry_run: bool, progress: Progress
    ) -> Merged:
        """See `Merger.merge`."""
        self.merger.before_each = self.before_each
        policy = self._known(log).policy
        return await self.merger.merge(
            log, policy, target_bytes=target_bytes, dry_run=dry_run, progress=progress
        )

    async def merge_round(self) -> list[str]:
        """Merges small objects of logs that have many; returns the names of these logs. See `MergeRounds`."""
        now_ms = self.storage.clock.settled_ms()
        self.merger.before_each = self.before_each
        return await self._merge_rounds.round(
            [
                (known.log, known.policy)
                for known in self._logs.values()
                # Where nothing can be copied now, nothing can be merged either.
                if known.log.open and not known.backoff.waits(now_ms)
            ],
            now_ms,
        )

    @cached_property
    def _merge_rounds(self) -> MergeRounds:
        from magnetar.tiered.merge_rounds import MergeRounds

        return MergeRounds(self.merger)

    async def _serve(self, known: _Offloaded, upto: Position) -> None:
        request = known.request
        try:
            for ledger in rules.before(known.log.sealed(), upto):
                await self._copy(known, ledger)
        except MagnetarError as error:
            request.fail(str(error) or repr(error))
            _log.warning("log %s could not be offloaded: %s", known.log.name, error)
        except asyncio.CancelledError:
            request.fail("the broker stopped")
            raise
        except BaseException as error:
            request.fail(f"{error!r}: the broker's log says more")
            raise
        else:
            left = [ledger for ledger in known.log.sealed() if not rules.is_copied(ledger)]
            request.succeed(Position(left[0].ledger_id if left else upto.ledger_id, 0))

    async def _copy(self, known: _Offloaded, ledger: SealedLedger) -> None:
        """Copies a ledger unless it was copied meanwhile. Raises MagnetarError with the reason."""
        async with self._one_at_a_time:
            current = next((one for one in known.log.sealed() if one.ledger_id == ledger.ledger_id), None)
            if current is None or rules.is_copied(current) or current.held:
                return
            await self._attempt(known, current)

    async def _attempt(self, known: _Offloaded, ledger: SealedLedger) -> None:
        store = self.storage.store(self.storage.url)
        if self.before_each is not None:
            await self.before_each()
        attempt = await self._offloader.copy(known.log, ledger, store, self._new_id())
        if attempt.outcome is Outcome.COPIED:
            known.error = ""
            known.backoff.succeeded()
            self.storage.changed(known.log.name)
            _log.info(
                "log %s: ledger %d is copied to %s, %d bytes as %d",
                known.log.name,
                ledger.ledger_id,
                store.url,
                ledger.size_bytes,
                sum(segment.file_bytes for segment in attempt.segments),
            )
            await self._keys.add(known.log, ledger.ledger_id)
            return
        error = attempt.error
        assert error is not None
        known.error = str(error)
        if isinstance(error, MagnetarError):
            raise error
        raise StoreError(
            f"ledger {ledger.ledger_id} of log {known.log.name}", str(error), "it is tried again"
        )

    # By themselves

    async def round(self) -> None:
        """Checks every log once: copies the ledgers that its policy selects, and deletes ledgers from the
        bookies whose copy is old enough. An error of one log is logged, and the log is tried again after a
        growing pause."""
        await self._each(self._look)

    async def fresh_round(self) -> None:
        """Checks every log once: seals or copies ledgers with messages older than the maximum age.
        Handles errors as `round` does."""
        await self._each(self._keep_fresh)

    async def _each(self, look: Callable[[_Offloaded, int], Awaitable[None]]) -> None:
        for number, known in enumerate(list(self._logs.values())):
            if number % _PER_TURN == 0:
                await yield_loop()
            if not known.log.open:
                if self._logs.get(known.log.name) is known:
                    del self._logs[known.log.name]
                continue
            now_ms = self.storage.clock.settled_ms()
            if known.backoff.waits(now_ms):
                continue
            try:
                await look(known, now_ms)
            except LedgerMovedError as error:  # the log was trimmed or unloaded meanwhile: nothing to retry
                _log.info("%s", error)
            except MagnetarError as error:
                known.error = str(error)
                pause_ms = known.backoff.failed(now_ms)
                _log.warning(
                    "offloading of log %s failed, tried again in %d s: %s",
                    known.log.name,
                    pause_ms // 1000,
                    error,
                )
            except Exception as error:  # noqa: BLE001  # an unexpected error of one log must not keep the
                # others
                known.error = repr(error)
                known.backoff.failed(now_ms)
                _log.exception("offloading of log %s failed", known.log.name)

    async def _look(self, known: _Offloaded, now_ms: int) -> None:
        await known.log.delete_copies()
        ledgers = known.log.sealed()
        for ledger in rules.local_copies_that_may_go(ledgers, known.policy, now_ms):
            await self._delete_local(known, ledger)
        if known.policy.automatic:
            for ledger in rules.due(ledgers, known.policy, now_ms):
                await self._copy(known, ledger)

    async def _keep_fresh(self, known: _Offloaded, now_ms: int) -> None:
        log, policy = known.log, known.policy
        first = log.first_behind if policy.automatic else None
        if first is None:
            known.behind = None
            return
        if known.behind is None or known.behind[0] != first:
            # What came while the clock was ahead counts from now on, else it would never be old.
            age_ms = max(0, now_ms - await log.first_time_ms(first))
            known.behind = first, self.storage.clock.monotonic_ms() - age_ms
        if policy.max_age_s <= 0:
            return
        if first != log.written:
            for ledger in rules.due(log.sealed(), policy, now_ms):
                await self._copy(known, ledger)
        elif self._behind_ms(known) >= policy.max_age_s * 1000:
            # Only when all before is copied: a store that is away or slow gets fewer and larger files.
            log.leave_ledger()

    def has_work(self, log: OffloadedLog) -> bool:
        """Whether a ledger of the log must be copied, or deleted from the bookies, now."""
        known = self._logs.get(log.name)
        policy = self._default if known is None or known.log is not log else known.policy
        return rules.has_work(log.sealed(), policy, self.storage.clock.settled_ms())

    def lag_ms(self, log: OffloadedLog) -> int | None:
        """Age in ms of the oldest message that is not in history, as of the last round; 0 when all are. None
        when no policy offloads the log."""
        known = self._known(log)
        return self._behind_ms(known) if known.policy.automatic else None

    def _behind_ms(self, known: _Offloaded) -> int:
        return 0 if known.behind is None else int(self.storage.clock.monotonic_ms() - known.behind[1])

    async def _delete_local(self, known: _Offloaded, ledger: SealedLedger) -> None:
        """Deletes a ledger from the bookies if its objects still exist; otherwise it is copied again."""
        assert ledger.offload is not None
        copy = OffloadedCopy(ledger.ledger_id, ledger.offload)
        store = self.storage.store(ledger.offload.url)
        damage = ""
        for segment in ledger.offload.segments:
            name = segment_name(known.log.name, copy, segment)
            try:
                size = await store.size(name)
            except MissingObjectError as error:
                damage = str(error)
                break
            if size != segment.file_bytes:
                damage = f"{name} in {store.url} has {size} of {segment.file_bytes} bytes"
                break
        if damage:
            _log.error(
                "log %s: ledger %d stays on the bookies and is copied again: %s",
                known.log.name,
                ledger.ledger_id,
                damage,
            )
            async with self._one_at_a_time:
                await self._attempt(known, ledger)
            return
        await known.log.delete_local(ledger.ledger_id)
        self.storage.figures.local_deleted += 1
        _log.info("log %s: ledger %d is now only in %s", known.log.name, ledger.ledger_id, store.url)
