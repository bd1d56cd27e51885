"""Schemas as Apache Pulsar stores them, for clusters that were its own.

`/schemas/{tenant}/{namespace}/{topic}` holds a SchemaLocator: number, ledger and entry of each version. Each
version is the one entry of a ledger of its own. A version with `deleted` ends the validity of all before it.
A change writes the ledger first, then the locator by version. A broker that was overtaken deletes its ledger.

Source: Pulsar's BookkeeperSchemaStorage and SchemaRegistryServiceImpl.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.base.names import decode_local
from magnetar.ledger.api import Ledgers, NoSuchLedgerError
from magnetar.ledger.whole import write_whole
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Change,
    MetadataStore,
    Notification,
)
from magnetar.schemas import pulsar_schemas_pb2 as stored
from magnetar.schemas.key_value import properties
from magnetar.schemas.storage import StoredVersion
from magnetar.wire import pulsar_pb2 as pb

_log = logging.getLogger("magnetar.schemas")

_EXTERNAL: Final = 22
"""The one type whose number is the wire's; all others have the one after it."""
_ENTRY_BYTES_MAX: Final = 1 << 24


def type_name(stored_type: int) -> str:
    """The wire's name of a stored type. Raises ValueError for an unknown one."""
    number = stored_type if stored_type == _EXTERNAL else stored_type - 1
    for name, value in pb.Schema.Type.items():
        if value == number:
            return name
    raise ValueError(f"the type {stored_type} of schemas is unknown")


def stored_type_of(wire_type: int) -> int:
    """The stored number of a type of the wire."""
    return wire_type if wire_type == _EXTERNAL else wire_type + 1


def decode_locator(path: str, data: bytes) -> stored.SchemaLocator:
    """The value of a topic's node. Raises DamagedDocumentError."""
    try:
        locator = stored.SchemaLocator.FromString(data)
    except DecodeError as error:
        raise DamagedDocumentError(path, "it is not a locator of schemas") from error
    if not locator.IsInitialized() or not locator.index:
        raise DamagedDocumentError(path, "it is a locator of schemas without required fields")
    return locator


def decode_entry(where: str, data: bytes) -> tuple[pb.Schema | None, int]:
    """The schema in the entry of a ledger, None for a deletion, and when it was written, Unix ms.

    Raises DamagedDocumentError.
    """
    try:
        info = stored.SchemaInfo.FromString(stored.SchemaEntry.FromString(data).schema_data)
        if not info.IsInitialized():
            raise ValueError("a field is missing")
        if info.deleted:
            return None, info.timestamp
        schema = pb.Schema(
            name=info.schema_id.rpartition("/")[2], type=type_name(info.type), schema_data=info.schema
        )
    except (DecodeError, ValueError) as error:
        raise DamagedDocumentError(where, f"it is not a schema of Pulsar's: {error}") from error
    schema.properties.extend(pb.KeyValue(key=each.key, value=each.value) for each in info.props)
    return schema, info.timestamp


def encode_entry(
    schema_id: str, schema: pb.Schema | None, index: list[stored.SchemaIndexEntry], now_ms: int
) -> bytes:
    """The inverse of `decode_entry`. `schema_id`: tenant/namespace/topic; `index`: of the versions before."""
    info = stored.SchemaInfo(
        schema_id=schema_id,
        user="",
        type=stored_type_of(0 if schema is None else schema.type),
        schema=b"" if schema is None else schema.schema_data,
        timestamp=now_ms,
        deleted=schema is None,
    )
    if schema is not None:
        info.props.extend(
            stored.SchemaProperty(key=key, value=value) for key, value in properties(schema).items()
        )
    entry = stored.SchemaEntry(schema_data=info.SerializeToString(), index=index)
    return bytes(entry.SerializeToString())


class PulsarSchemas:
    """Every version is the entry of a ledger (SchemaStorage)."""

    def __init__(self, store: MetadataStore, ledgers: Ledgers, clock: Clock) -> None:
        self._store = store
        self._ledgers = ledgers
        self._clock = clock

    async def read(self, base: str) -> list[StoredVersion]:
        value = await self._store.get(base)
        if value is None or not value.data:
            return []
        found: list[StoredVersion] = []
        for each in decode_locator(base, value.data).index:
            try:
                reader = await self._ledgers.open(LedgerId(each.position.ledgerId))
            except NoSuchLedgerError as error:
                reason = f"ledger {error.ledger_id}, which holds version {each.version}, does not exist"
                raise DamagedDocumentError(base, reason) from error
            runs = await reader.read(each.position.entryId, each.position.entryId, _ENTRY_BYTES_MAX)
            where = f"{base} version {each.version} in ledger {each.position.ledgerId}"
            found.append(StoredVersion(each.version, *decode_entry(where, runs[0].entries[0])))
        return sorted(found, key=lambda one: one.version)

    async def has(self, base: str, version: int) -> bool:
        value = await self._store.get(base)
        if value is None or not value.data:
            return False
        return any(each.version == version for each in decode_locator(base, value.data).index)

    async def add(self, base: str, version: int, schema: pb.Schema | None) -> int:
        value = await self._store.get(base)
        data = b"" if value is None else value.data
        index = list(decode_locator(base, data).index) if data else []
        follows = max((each.version for each in index), default=-1) + 1
        expected = MUST_NOT_EXIST if value is None else value.stat.version
        if follows != version:
            raise BadVersionError(base, version, follows)
        schema_id = _id_of(base)
        now_ms = self._clock.now_ms()
        ledger_id = await write_whole(
            self._ledgers,
            [encode_entry(schema_id, schema, index, now_ms)],
            {"application": b"pulsar", "component": b"schema", "pulsar/schemaId": schema_id.encode()},
            now_ms,
        )
        made = stored.SchemaIndexEntry(
            version=version,
            position=stored.SchemaPosition(ledgerId=ledger_id, entryId=0),
            hash=b"" if schema is None else hashlib.sha256(schema.schema_data).digest(),
        )
        locator = stored.SchemaLocator(info=made, index=[*index, made])
        try:
            await self._store.put(base, locator.SerializeToString(), expected_version=expected)
        except BadVersionError:
            await self._drop(ledger_id)
            raise
        return now_ms

    async def delete(self, base: str) -> None:
        value = await self._store.get(base)
        if value is None:
            return
        index = decode_locator(base, value.data).index if value.data else ()
        await self._store.delete_recursive(base)
        for each in index:
            await self._drop(LedgerId(each.position.ledgerId))

    async def _drop(self, ledger_id: LedgerId) -> None:
        try:
            await self._ledgers.delete(ledger_id)
        except MagnetarError as error:  # no locator names it any more
            _log.warning("ledger %d of a schema could not be deleted: %s", ledger_id, error)

    def topic_of(self, notification: Notification) -> str | None:
        return None if notification.change is Change.CHILDREN_CHANGED else notification.path

    def path_of(self, base: str, version: int) -> str:
        # The locator exists before all versions but the first; its later changes are read anew.
        return base


def _id_of(base: str) -> str:
    """Pulsar's name of a topic's schemas: tenant/namespace/topic, not encoded."""
    tenant, namespace, topic = base.removeprefix(f"{keys.SCHEMAS}/").split("/")
    return f"{tenant}/{namespace}/{decode_local(topic)}"
