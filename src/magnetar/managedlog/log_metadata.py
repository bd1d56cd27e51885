"""The record of a log in the metadata store, and its bytes.

Value of `/managed-ledgers/{tenant}/{namespace}/persistent/{topic}`: protobuf ManagedLedgerInfo (facts:
Pulsar's managed ledger metadata; extensions in managedlog.proto). A value that Pulsar wrote has no indexes;
they are then counted from 0 at its first ledger, and found in its entries when these are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final
from uuid import UUID

from google.protobuf.message import DecodeError

from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.managedlog.compressed_values import plain
from magnetar.managedlog.errors import InvalidLogDataError, LedgerIdsWentBackError
from magnetar.managedlog.offload_codec import decode_context, encode_context
from magnetar.tiered.api import SealedLedger
from magnetar.tiered.context import OffloadContext, OffloadedCopy

ROOT: Final = "/managed-ledgers"


def log_path(name: str) -> str:
    """Path of a log's value; its durable cursors are the children."""
    return f"{ROOT}/{name}"


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """A ledger in the stored list."""

    ledger_id: LedgerId
    entries: int = 0
    """Entries when sealed; 0 while the end is unknown (empty ledgers are not kept in the list)."""
    size_bytes: int = 0
    timestamp_ms: int = 0
    """Broker time of the last entry, Unix ms; 0 while the end is unknown."""
    base_index: int = 0
    """Messages before the ledger's first entry."""
    offload: OffloadContext | None = None
    """Its copy in an object store, perhaps incomplete; None without one."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What Pulsar's plugins noted; kept as it is."""

    @property
    def sealed(self) -> bool:
        """Whether the end is known."""
        return self.entries > 0


@dataclass(frozen=True, slots=True)
class LogMetadata:
    """The stored value of a log. Immutable: a change makes a new value, which is written by version."""

    ledgers: tuple[LedgerRecord, ...] = ()
    terminated: Position | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    next_index: int = 0
    """Messages in the log up to the last sealed ledger, also when that was trimmed."""
    last_broker_time_ms: int = 0
    """Broker time of the last entry counted by `next_index`, or a later one; a time that was found to be
    wrong does not count (`broker_times`)."""
    deleted_ledgers: tuple[LedgerId, ...] = ()
    """Removed from the list, or stored elsewhere; deleted again when the log is opened, in case a crash came
    between."""
    deleted_copies: tuple[OffloadedCopy, ...] = ()
    """Copies of ledgers that were removed from the list; deleted in the same way."""

    def sealing(self, record: LedgerRecord, *, next_index: int, last_broker_time_ms: int) -> LogMetadata:
        """The value with the end of a ledger, the base index of the next one, and the log's last time."""
        ledgers = []
        for known in self.ledgers:
            if known.ledger_id == record.ledger_id:
                ledgers.append(record)
            elif not known.sealed and known.ledger_id > record.ledger_id:
                ledgers.append(replace(known, base_index=next_index))
            else:
                ledgers.append(known)
        return replace(
            self,
            ledgers=tuple(ledgers),
            next_index=next_index,
            last_broker_time_ms=last_broker_time_ms,
        )

    def without(self, ledger_ids: frozenset[LedgerId]) -> LogMetadata:
        """The value without these ledgers, which are listed as to be deleted."""
        kept = tuple(ledger for ledger in self.ledgers if ledger.ledger_id not in ledger_ids)
        # An object of several ledgers stays as long as one of them.
        needed = {ledger.offload.attempt for ledger in kept if ledger.offload is not None}
        gone = (ledger for ledger in self.ledgers if ledger.ledger_id in ledger_ids)
        copies = [copy for copy in _copies_of(gone) if copy.context.attempt not in needed]
        return replace(
            self,
            ledgers=kept,
            deleted_ledgers=tuple(sorted({*self.deleted_ledgers, *ledger_ids})),
            deleted_copies=(*self.deleted_copies, *copies),
        )

    def offloading(self, ledger_id: LedgerId, context: OffloadContext) -> LogMetadata:
        """The value with the state of a ledger's copy; the ledger is listed as to be deleted once the copy is
        the only one."""
        ledgers = tuple(
            replace(ledger, offload=context) if ledger.ledger_id == ledger_id else ledger
            for ledger in self.ledgers
        )
        deleted = {*self.deleted_ledgers, ledger_id} if context.local_deleted else self.deleted_ledgers
        return replace(self, ledgers=ledgers, deleted_ledgers=tuple(sorted(deleted)))

    def making(self, copy: OffloadedCopy) -> LogMetadata:
        """The value with an attempt whose objects are to be deleted unless it becomes the copy of some
        ledgers."""
        return replace(self, deleted_copies=(*self.deleted_copies, copy))

    def merging(
        self, made: OffloadedCopy, entries: Mapping[LedgerId, int], delete_after_ms: int
    ) -> LogMetadata:
        """The value with one object in place of those of several ledgers, which are listed as to be deleted.

        `made` is complete and was recorded by `making`; `entries`: the number of each ledger's entries.
        """
        merged = [ledger for ledger in self.ledgers if ledger.ledger_id in entries]
        replaced = [
            OffloadedCopy(copy.ledger_id, replace(copy.context, delete_after_ms=delete_after_ms))
            for copy in _copies_of(merged)
        ]
        others = [copy for copy in self.deleted_copies if copy.context.attempt != made.context.attempt]
        (segment,) = made.context.segments
        last = self.ledgers.index(merged[-1])
        ledgers = []
        for number, ledger in enumerate(self.ledgers):
            context = ledger.offload
            if ledger.ledger_id in entries:
                assert context is not None
                whole = replace(segment, last_entry=entries[ledger.ledger_id] - 1)
                context = replace(made.context, segments=(whole,), timestamp_ms=context.timestamp_ms)
            elif number > last and _reaches(context, number - last):
                # Its directory of keys lists objects that are about to be deleted.
                context = None if context is None else replace(context, keys=None)
            ledgers.append(replace(ledger, offload=context))
        return replace(self, ledgers=tuple(ledgers), deleted_copies=(*others, *replaced))

    def sealed(self) -> list[SealedLedger]:
        """The ledgers with a stored end, from the point of view of tiered storage."""
        return [
            SealedLedger(
                record.ledger_id, record.entries, record.size_bytes, record.timestamp_ms, record.offload
            )
            for record in self.ledgers
            if record.sealed
        ]

    @property
    def copies(self) -> tuple[OffloadedCopy, ...]:
        """Every attempt that may have objects, those of deleted ledgers included."""
        return (*_copies_of(self.ledgers), *self.deleted_copies)

    def find(self, ledger_id: LedgerId) -> LedgerRecord | None:
        """The ledger of that id, or None."""
        return next((ledger for ledger in self.ledgers if ledger.ledger_id == ledger_id), None)

    def adding(self, record: LedgerRecord) -> LogMetadata:
        """The value with one more ledger at the end. Raises LedgerIdsWentBackError."""
        if self.ledgers and record.ledger_id <= self.ledgers[-1].ledger_id:
            raise LedgerIdsWentBackError(record.ledger_id, self.ledgers[-1].ledger_id)
        return replace(self, ledgers=(*self.ledgers, record))


def _reaches(context: OffloadContext | None, ledgers: int) -> bool:
    """Whether a copy has a directory of keys that lists the copy that many ledgers before it."""
    return context is not None and context.keys is not None and context.keys.ledgers > ledgers


def _copies_of(ledgers: Iterable[LedgerRecord]) -> list[OffloadedCopy]:
    """The attempts of these ledgers, each once."""
    found: dict[UUID, OffloadedCopy] = {}
    for ledger in ledgers:
        if ledger.offload is not None:
            found.setdefault(ledger.offload.attempt, OffloadedCopy(ledger.ledger_id, ledger.offload))
    return list(found.values())


def _texts(properties: Mapping[str, str]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in properties.items()]


def encode(metadata: LogMetadata) -> bytes:
    """The bytes of a log's value."""
    info = pb.ManagedLedgerInfo(
        properties=_texts(metadata.properties),
        nextIndex=metadata.next_index,
        lastBrokerTimeMs=metadata.last_broker_time_ms,
        deletedLedgers=metadata.deleted_ledgers,
    )
    for ledger in metadata.ledgers:
        record = info.ledgerInfo.add(ledgerId=ledger.ledger_id, baseIndex=ledger.base_index)
        if ledger.sealed:
            record.entries = ledger.entries
            record.size = ledger.size_bytes
            record.timestamp = ledger.timestamp_ms
        if ledger.offload is not None:
            record.offloadContext.CopyFrom(encode_context(ledger.offload))
        record.properties.extend(_texts(ledger.properties))
    for copy in metadata.deleted_copies:
        info.deletedCopies.add(ledgerId=copy.ledger_id, offloadContext=encode_context(copy.context))
    if metadata.terminated is not None:
        info.terminatedPosition.ledgerId = metadata.terminated.ledger_id
        info.terminatedPosition.entryId = metadata.terminated.entry_id
    return bytes(info.SerializeToString())


def decode(data: bytes, where: str) -> LogMetadata:
    """The inverse of `encode`; `where` names the value in InvalidLogDataError."""
    info = pb.ManagedLedgerInfo()
    try:
        info.ParseFromString(plain(data, where))
    except DecodeError as error:
        raise InvalidLogDataError(where, f"not a ManagedLedgerInfo: {error}") from error
    if not info.IsInitialized():
        raise InvalidLogDataError(where, "a ManagedLedgerInfo lacks fields")
    terminated = None
    if info.HasField("terminatedPosition"):
        terminated = Position(LedgerId(info.terminatedPosition.ledgerId), info.terminatedPosition.entryId)
    try:
        ledgers = tuple(
            LedgerRecord(
                LedgerId(item.ledgerId),
                item.entries,
                item.size,
                item.timestamp,
                item.baseIndex,
                decode_context(item.offloadContext) if item.HasField("offloadContext") else None,
                {each.key: each.value for each in item.properties},
            )
            for item in info.ledgerInfo
        )
        copies = tuple(
            OffloadedCopy(LedgerId(item.ledgerId), decode_context(item.offloadContext))
            for item in info.deletedCopies
        )
    except ValueError as error:
        raise InvalidLogDataError(where, f"the copy of a ledger is not understood: {error}") from error
    if any(a.ledger_id >= b.ledger_id for a, b in pairwise(ledgers)):
        raise InvalidLogDataError(where, "ledger ids do not increase")
    return LogMetadata(
        ledgers=ledgers,
        terminated=terminated,
        properties={item.key: item.value for item in info.properties},
        next_index=info.nextIndex,
        last_broker_time_ms=info.lastBrokerTimeMs,
        deleted_ledgers=tuple(map(LedgerId, info.deletedLedgers)),
        deleted_copies=copies,
    )
