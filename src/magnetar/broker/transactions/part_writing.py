"""A topic's part as its owner reads and writes it, and the header as it concerns the topic.

A part changes on a condition, which holds in the same transaction of the store:

    claimed          the list of the topic's ledgers is as this owner knows it: it is the present one
    acknowledgement  the header is as it was read last, when the transaction was open
    closed           none: only the one that claimed it writes it, by version
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from magnetar.base.names import TopicName
from magnetar.broker.errors import (
    NotAllowedError,
    RefusedError,
    ServiceNotReadyError,
    TransactionNotFoundError,
    TransactionStateError,
)
from magnetar.broker.transactions.ids import TxnState
from magnetar.broker.transactions.kept import TOGETHER, header_path, parts_of
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.mirror import NO_EPOCH, Mirror, TopicPart
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction
from magnetar.managedlog.errors import LogFencedError
from magnetar.managedlog.log_metadata import log_path
from magnetar.metadata.store import BadVersionError, Check, Value
from magnetar.runtime.flights import OneAtATime
from magnetar.runtime.tasks import gathered

if TYPE_CHECKING:
    from magnetar.base.clock import Clock
    from magnetar.base.ids import Position
    from magnetar.managedlog.stored_log import StoredLog

_log = logging.getLogger("magnetar.broker.transactions")


class ClaimedLog(Protocol):
    """The log of a topic that is this broker's: `managedlog/log.py` `ManagedLog`."""

    stored: StoredLog

    @property
    def last_position(self) -> Position: ...

    def fence(self, error: LogFencedError) -> None: ...


class PartWriting:
    """The parts of one broker's topics."""

    def __init__(self, kept: KeptParts, clock: Clock, drop: Callable[[Mirror], None]) -> None:
        """`drop` is told of a mirror whose part is gone."""
        self._kept = kept
        self._clock = clock
        self._drop = drop
        self._writes = OneAtATime()

    async def take(self, mirror: Mirror, value: Value, log: ClaimedLog) -> bool:
        """What a part holds. False: it was left by an earlier topic of that name, which was deleted with all
        that it held; it is gone.

        Raises ServiceNotReadyError when a later owner of the topic has it, of which the log is told;
        MetadataError.
        """
        part = TopicPart.read(value.data, value.stat.path)
        if not mirror.may_hold(part):
            stored = log.stored
            await stored.settled()  # a change of this owner
            if await self._kept.version_of(stored.name) != stored.version:
                raise _overtaken(mirror, log)
            await self._kept.drop_part(stored.name, mirror.id, value.stat.version)
            return False
        mirror.version = value.stat.version
        mirror.take(part)
        return True

    async def refusal(self, mirror: Mirror) -> RefusedError:
        """Why its topic, which has no part, takes nothing of the transaction: what one broker says. Raises
        MetadataError."""
        found = await self._kept.header(mirror.id)
        if found is None:
            return TransactionNotFoundError(f"transaction {mirror.id} is over, or was never begun")
        header = Transaction(mirror.id, owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
        header.read(*found)
        if header.state is not TxnState.OPEN:
            return TransactionStateError(
                f"transaction {mirror.id} is {header.state.value} and takes nothing more"
            )
        return NotAllowedError(f"{mirror.topic} was not added to transaction {mirror.id}")

    def _check_holder(self, mirror: Mirror, part: TopicPart) -> None:
        if not mirror.may_hold(part):
            raise _elsewhere(mirror)

    async def read_header(self, mirror: Mirror) -> bool:
        """Takes over what the header says; False: it is not there, nor is the part."""
        mirror.looked_ms = self._clock.monotonic_ms()
        found = await self._kept.header(mirror.id)
        if found is None:
            if await self._kept.part(TopicName.parse(mirror.topic).log_name, mirror.id) is None:
                return False
            # A header goes after the last part. This one was lost, and what it said with it.
            number, sequence = mirror.id
            _hold_back(
                mirror,
                f"its header is gone, and its part here is not. Restore {header_path(mirror.id)} from a"
                f" backup, or give it up with `magnetar transactions abort {number} {sequence}`",
            )
            return True
        if found[1] < mirror.header_version:
            # Of two that read it at once the other one saw more.
            return True
        header = Transaction(mirror.id, owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
        try:
            header.read(*found)
        except InvalidHeaderError as error:
            _hold_back(mirror, f"its header cannot be used: {error}; restore it from a backup")
            return True
        mirror.header_version = found[1]
        mirror.follow(header)
        mirror.deadline_ms = mirror.looked_ms + max(
            0, header.started_ms + header.ttl_ms - self._clock.now_ms()
        )
        return True

    async def save(self, mirror: Mirror) -> None:
        """Returns when all changes so far are durable in the part.

        Raises MetadataError; ServiceNotReadyError when another broker has the topic; TransactionStateError
        when the part is gone.
        """
        wanted = mirror.revision
        while mirror.saved < wanted:
            await self._writes.run((mirror.topic, mirror.id), partial(self.write, mirror))

    async def claim(self, mirror: Mirror, log: ClaimedLog) -> None:
        """No former owner of the topic changes the part from then on, and none can claim it.

        Raises what `save` does; when another broker has the topic, its log is told so.
        """
        path = log_path(log.stored.name)
        while True:
            mirror.epoch = log.stored.version
            try:
                await self._write(mirror, Check(path, mirror.epoch))
            except BadVersionError as error:
                if error.path != path:
                    raise
            else:
                return
            # A change of this owner may be under way.
            await log.stored.settled()
            if log.stored.version == mirror.epoch:
                raise _overtaken(mirror, log)

    async def claim_all(self, mirrors: Sequence[Mirror], log: ClaimedLog) -> None:
        """The parts of a topic that is being loaded are this owner's on return, but for those that went
        meanwhile, and say what their headers do. Raises what `claim` does.

        Some at a time: there may be a hundred thousand, and what is begun at once stalls the broker.
        """
        for some in parts_of(mirrors, TOGETHER):
            await gathered(self._claim_left(mirror, log) for mirror in some)

    async def _claim_left(self, mirror: Mirror, log: ClaimedLog) -> None:
        if mirror.last is None:
            mirror.last = log.last_position
        with contextlib.suppress(TransactionStateError):  # it went meanwhile
            await self.claim(mirror, log)
            await self.read_header(mirror)
            # Its messages are searched for, whether or not the header could be read.
            mirror.partitions = {mirror.topic: mirror.last}

    async def write(self, mirror: Mirror) -> None:
        """What a topic took counts only if its transaction was open when it was stored. Raises what `save`
        does."""
        while True:
            # Once closed it may be written whatever became of the header: it takes nothing more.
            condition = None
            if mirror.durable is None:
                if mirror.state is not TxnState.OPEN:
                    raise TransactionStateError(f"transaction {mirror.id} has ended, and takes nothing more")
                condition = Check(header_path(mirror.id), mirror.header_version)
            try:
                await self._write(mirror, condition)
            except BadVersionError as error:
                if condition is None or error.path != condition.path:
                    raise
                refusal = error
            else:
                return
            await self._kept.sync()
            if not await self.read_header(mirror) or mirror.reason:
                raise TransactionStateError(f"transaction {mirror.id}: {mirror.reason or 'it is over'}")
            if mirror.header_version == condition.expected_version:
                raise refusal  # the header is older than it was: its store was restored

    async def _write(self, mirror: Mirror, condition: Check | None) -> None:
        """Raises what `save` does; BadVersionError of its path when the condition does not hold."""
        log_name = TopicName.parse(mirror.topic).log_name
        while True:
            revision, version = mirror.revision, mirror.version
            assert version is not None, "it was read"
            mirror.looked_ms = self._clock.monotonic_ms()
            try:
                mirror.version = await self._kept.write_part(
                    log_name, mirror.id, mirror.part(), version, condition
                )
            except BadVersionError as error:
                if condition is not None and error.path == condition.path:
                    raise
                # The coordinator knocked, an earlier write took effect without an answer, or a later owner
                # has it.
                value = await self._kept.part(log_name, mirror.id)
                if value is None:
                    self._drop(mirror)
                    raise TransactionStateError(f"transaction {mirror.id} is over") from None
                if value.stat.version == version:
                    raise  # what was read is older than what was written
                part = TopicPart.read(value.data, value.stat.path)
                self._check_holder(mirror, part)
                if not mirror.saved and part.epoch != NO_EPOCH:
                    # A former owner wrote after this one had read, and has answered what it wrote.
                    mirror.take(part)
                mirror.version = value.stat.version
                continue
            mirror.saved = revision
            return

    async def delete(self, mirror: Mirror) -> None:
        """What was decided is durable in the topic. Raises ServiceNotReadyError, MetadataError."""
        log_name = TopicName.parse(mirror.topic).log_name
        while True:
            value = await self._kept.part(log_name, mirror.id)
            if value is None:
                return
            self._check_holder(mirror, TopicPart.read(value.data, value.stat.path))
            with contextlib.suppress(BadVersionError):  # the coordinator knocked, or a later owner has it
                await self._kept.drop_part(log_name, mirror.id, value.stat.version)
                return


def _hold_back(mirror: Mirror, reason: str) -> None:
    """It may be open, committed or aborted: nothing of it is delivered."""
    if not mirror.reason:
        mirror.reason = reason
        _log.error("%s is held back by transaction %s: %s", mirror.topic, mirror.id, mirror.reason)


def _elsewhere(mirror: Mirror) -> ServiceNotReadyError:
    return ServiceNotReadyError(f"{mirror.topic} is served by another broker now; look it up again")


def _overtaken(mirror: Mirror, log: ClaimedLog) -> ServiceNotReadyError:
    """The list of ledgers says that another broker opened the log later. Without this a topic that nothing is
    published to would not hear of it."""
    log.fence(LogFencedError(f"log {log.stored.name} was taken over by another owner"))
    return _elsewhere(mirror)
