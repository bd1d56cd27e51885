"""A topic's part as its owner reads and writes it, and the header as it concerns the topic."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError, TransactionStateError
from magnetar.broker.transactions.kept import part_path
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.mirror import NO_EPOCH, Mirror, TopicPart
from magnetar.broker.transactions.transaction import InvalidHeaderError, Transaction
from magnetar.metadata.store import BadVersionError, Value
from magnetar.runtime.flights import OneAtATime

if TYPE_CHECKING:
    from magnetar.base.clock import Clock
    from magnetar.managedlog.stored_log import StoredLog

_log = logging.getLogger("magnetar.broker.transactions")


class PartWriting:
    """The parts of one broker's topics."""

    def __init__(self, kept: KeptParts, clock: Clock, drop: Callable[[Mirror], None]) -> None:
        """`drop` is told of a mirror whose part is gone."""
        self._kept = kept
        self._clock = clock
        self._drop = drop
        self._writes = OneAtATime()

    async def take(self, mirror: Mirror, value: Value, log: StoredLog) -> bool:
        """What a part holds. False: it was left by an earlier topic of that name, which was deleted with all
        that it held; it is gone.

        Raises ServiceNotReadyError when a later owner of the topic has it, MetadataError.
        """
        part = TopicPart.read(value.data, f"{part_path(log.name, mirror.id)} in the metadata")
        if not mirror.may_hold(part) and await self._kept.version_of(log.name) == log.version:
            await self._kept.drop_part(log.name, mirror.id, value.stat.version)
            return False
        self._check_holder(mirror, part)
        mirror.version = value.stat.version
        mirror.take(part)
        return True

    def _check_holder(self, mirror: Mirror, part: TopicPart) -> None:
        if not mirror.may_hold(part):
            raise ServiceNotReadyError(f"{mirror.topic} is served by another broker now; look it up again")

    async def read_header(self, mirror: Mirror) -> bool:
        """Takes over what the header says; False: it is not there."""
        mirror.looked_ms = self._clock.monotonic_ms()
        found = await self._kept.header(mirror.id)
        if found is None:
            return False
        header = Transaction(mirror.id, owner="", ttl_ms=0, started_ms=0, deadline_ms=0)
        try:
            header.read(*found)
        except InvalidHeaderError as error:
            # It may be open, committed or aborted: nothing of it is delivered.
            if not mirror.reason:
                mirror.reason = f"its header cannot be used: {error}; restore it from a backup"
                _log.error("%s is held back by transaction %s: %s", mirror.topic, mirror.id, mirror.reason)
            return True
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

    async def write(self, mirror: Mirror) -> None:
        """Claims or changes it: no former owner changes it from then on. Raises what `save` does."""
        log_name = TopicName.parse(mirror.topic).log_name
        while True:
            revision, version = mirror.revision, mirror.version
            assert version is not None, "it was read"
            mirror.looked_ms = self._clock.monotonic_ms()
            try:
                mirror.version = await self._kept.write_part(log_name, mirror.id, mirror.part(), version)
            except BadVersionError:
                # The coordinator knocked, an earlier write took effect without an answer, or a later owner
                # has it.
                value = await self._kept.part(log_name, mirror.id)
                if value is None:
                    self._drop(mirror)
                    raise TransactionStateError(f"transaction {mirror.id} is over") from None
                if value.stat.version == version:
                    raise  # what was read is older than what was written
                part = TopicPart.read(value.data, mirror.topic)
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
            self._check_holder(mirror, TopicPart.read(value.data, mirror.topic))
            with contextlib.suppress(BadVersionError):  # the coordinator knocked, or a later owner has it
                await self._kept.drop_part(log_name, mirror.id, value.stat.version)
                return
