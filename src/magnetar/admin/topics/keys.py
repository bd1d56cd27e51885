"""`.../messagesByKey`: messages of a topic's offloaded history by their key, newest first.

Entries without a copy in an object store have no index: the answer names them, and the caller must read them.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from magnetar.admin.calls.call import Call, Route, natural
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.topics.topics import loaded, refuse_partitioned
from magnetar.base.ids import LedgerId
from magnetar.tiered import key_lookup
from magnetar.tiered.key_lookup import LoggedLedger
from magnetar.tiered.parquet.parquet_history import FoundMessage, MessagePlace

COUNT_MAX: Final = 1000
"""Most messages in one answer."""
_PATH: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/messagesByKey"


async def messages_by_key(call: Call) -> object:
    """Messages with a key, newest first.

    `?key=`: base64url of the key's bytes; `?limit=`; `?before=ledger:entry:batch index` continues.
    """
    name = call.topic()
    await refuse_partitioned(call.broker, name, "looking a key up")
    offloading = call.broker.offloading
    key = _key(call.query.get("key"))
    count_max = min(natural(call.query.get("limit", "1"), "limit"), COUNT_MAX)
    if not count_max:
        raise BadRequestError("limit must be 1 or more")
    log = (await loaded(call.broker, name)).log
    info = log.info()
    answer = await key_lookup.find(
        None if offloading is None else offloading.storage,
        info.name,
        [LoggedLedger(each.ledger_id, each.entries, each.offload) for each in info.ledgers],
        key,
        count_max=count_max,
        before=_place(call.query.get("before")),
    )
    return {
        "messages": [_document(message) for message in answer.messages],
        "more": answer.more,
        "unread": [
            {"ledgerId": each.ledger_id, "firstEntry": each.first_entry, "lastEntry": each.last_entry}
            for each in answer.unread
        ],
        "files": answer.segments,
        "directories": answer.directories,
    }


def _key(text: str | None) -> bytes:
    if text is None:
        raise BadRequestError("query parameter key is missing: the base64url of which key?")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError(f"key must be base64url: {error}") from error


def _place(text: str | None) -> MessagePlace | None:
    if text is None:
        return None
    try:
        ledger, entry, batch_index = map(int, text.split(":"))
    except ValueError as error:
        raise BadRequestError("before must be ledger:entry:batch index") from error
    return MessagePlace(LedgerId(ledger), entry, batch_index)


def _document(message: FoundMessage) -> dict[str, object]:
    return {
        "ledgerId": message.ledger_id,
        "entryId": message.entry_id,
        "batchIndex": message.batch_index,
        "index": message.index,
        "publishTime": message.publish_time_ms,
        "eventTime": message.event_time_ms,
        "brokerTime": message.broker_time_ms,
        "key": base64.b64encode(message.key).decode(),
        "keyIsString": message.key_is_string,
        "properties": dict(message.properties),
        "producerName": message.producer_name,
        "sequenceId": message.sequence_id,
        "schemaVersion": base64.b64encode(message.schema_version).decode(),
        "chunks": message.chunks,
        "isNullValue": message.is_null_value,
        "payload": base64.b64encode(message.payload).decode(),
    }


ROUTES: list[Route] = [("GET", _PATH, messages_by_key)]
