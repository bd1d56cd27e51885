"""Reads the policies of topics that Pulsar keeps in the `__change_events` topic of each namespace.

The newest event of a topic counts. What compaction has taken out of the log is in the compacted ledger that
the cursor `__compaction` names, and was there before.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from typing import Final

from magnetar.base.entries import LEFT_OUT
from magnetar.base.errors import CorruptDataError, MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.base.names import PERSISTENT, NamespaceName, TopicName, decode_local
from magnetar.broker.compaction import codec
from magnetar.broker.compaction.named import COMPACTION_CURSOR, LEDGER_PROPERTY
from magnetar.client.errors import PayloadError
from magnetar.ledger.api import Ledgers
from magnetar.managedlog.cursors.cursor_codec import decode_info
from magnetar.managedlog.log_metadata import decode, log_path
from magnetar.metadata import keys
from magnetar.metadata.store import MetadataStore
from magnetar.schemas import avro_plain
from magnetar.schemas.registry import SchemaRegistry
from magnetar.server.adoption.topic_policies import TopicEvent, event_of
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import EntryError, is_batch, parse_metadata, split_broker_metadata, split_entry

_TOPIC: Final = re.compile(r"__change_events(-partition-\d+)?")
_READ_BYTES: Final = 1 << 20
_VERSION: Final = struct.Struct(">q")

Found = dict[tuple[TopicName, bool], TopicEvent]
"""The newest event by topic, and by whether it is about all clusters."""


class UnreadableEventsError(MagnetarError):
    """Policies of topics cannot be read."""


class ChangeEvents:
    """The events of one namespace."""

    def __init__(
        self, store: MetadataStore, ledgers: Ledgers, schemas: SchemaRegistry, namespace: NamespaceName
    ) -> None:
        """`store`, `schemas`: as a broker of an adopted cluster sees them."""
        self._store = store
        self._ledgers = ledgers
        self._schemas = schemas
        self._namespace = namespace

    async def read(self) -> Found:
        """The newest event of each topic. Raises UnreadableEventsError, MetadataError, LedgerError."""
        found: Found = {}
        for topic in await self.topics():
            await self._read_topic(topic, found)
        return found

    async def topics(self) -> list[TopicName]:
        """The topics that hold the events; none where no policy of a topic was ever set. Raises
        MetadataError."""
        names = map(decode_local, await self._store.children(keys.managed_ledgers(self._namespace)))
        return [
            TopicName.of(PERSISTENT, self._namespace.tenant, self._namespace.namespace, local)
            for local in names
            if _TOPIC.fullmatch(local) is not None
        ]

    async def _read_topic(self, topic: TopicName, found: Found) -> None:
        for ledger_id in await self._compacted(topic):
            await self._read_ledger(topic, ledger_id, found, compacted=True)
        value = await self._store.get(log_path(topic.log_name))
        if value is None:
            return
        for record in decode(value.data, log_path(topic.log_name)).ledgers:
            await self._read_ledger(topic, record.ledger_id, found)

    async def _compacted(self, topic: TopicName) -> Sequence[LedgerId]:
        path = keys.cursor(topic.log_name, COMPACTION_CURSOR)
        value = await self._store.get(path)
        if value is None:
            return ()
        ledger_id = decode_info(value.data, path).state.properties or {}
        return [LedgerId(ledger_id[LEDGER_PROPERTY])] if LEDGER_PROPERTY in ledger_id else ()

    async def _read_ledger(
        self, topic: TopicName, ledger_id: LedgerId, found: Found, *, compacted: bool = False
    ) -> None:
        reader = await self._ledgers.open(ledger_id)
        at = 0
        while at <= reader.last_entry:
            entries = [
                entry
                for run in await reader.read(at, reader.last_entry, _READ_BYTES)
                for entry in run.entries
            ]
            at += len(entries)
            for entry in entries:
                event = await self._event(topic, entry, compacted=compacted)
                if event is not None:
                    found[event.topic, event.everywhere] = event

    async def _event(self, topic: TopicName, entry: bytes, *, compacted: bool) -> TopicEvent | None:
        if entry == LEFT_OUT:
            return None
        try:
            if compacted:
                entry = codec.decode(entry)[1]
            _, start = split_broker_metadata(entry)
            parts = split_entry(entry[start:])
            metadata = parse_metadata(parts.metadata)
            if is_batch(metadata) or metadata.compression != pb.NONE or metadata.encryption_keys:
                raise UnreadableEventsError(f"{topic}: an event is in a batch, compressed or encrypted")
            payload = bytes(parts.payload)
            if not payload or not metadata.HasField("schema_version"):
                # A deletion by key alone: the key is the name.
                return _deletion(metadata.partition_key)
            (version,) = _VERSION.unpack(metadata.schema_version)
            return event_of(avro_plain.decode(await self._definition(topic, version), payload))
        except (EntryError, PayloadError, CorruptDataError, ValueError, struct.error) as error:
            raise UnreadableEventsError(f"{topic}: an event cannot be read: {error}") from error

    async def _definition(self, topic: TopicName, version: int) -> object:
        # The registry keeps what it has read.
        stored = await self._schemas.get(topic, version)
        if stored is None:
            raise ValueError(f"version {version} of its schema is not there")
        return json.loads(stored.schema.schema_data)


_GLOBAL: Final = "__G__"


def _deletion(key: str) -> TopicEvent | None:
    name = key.removeprefix(_GLOBAL)
    if "://" not in name:
        return None
    return TopicEvent(TopicName.parse(name).base, key.startswith(_GLOBAL), None)
