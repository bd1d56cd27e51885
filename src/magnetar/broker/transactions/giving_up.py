"""An operator gives up a transaction of several brokers of which a value is damaged.

its header   every topic with a part of it is known by that part: it is open from now on, names them all,
             and is to be aborted. The same where the header is gone and parts are not
a part       its bytes are stored elsewhere; in its place stands that the topic takes nothing more of the
             transaction and lost something of it: it cannot commit, and what it acknowledged there comes
             again
"""

from __future__ import annotations

import logging

from magnetar.base.names import TopicName
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.kept_parts import KeptParts
from magnetar.broker.transactions.mirror import InvalidPartError, TopicPart
from magnetar.broker.transactions.shared_headers import SharedHeaders
from magnetar.broker.transactions.transaction import Transaction

_log = logging.getLogger("magnetar.broker.transactions")


async def give_up(
    kept: KeptParts, headers: SharedHeaders, coordinator: Coordinator, id_: TxnId, *, now_ms: float
) -> bool:
    """Whether anything of it was damaged. Then it can be aborted on return, unless it was committed.

    Raises MetadataError; BadVersionError when a part was written meanwhile.
    """
    unknown = coordinator.unknown.get(id_.sequence)
    topics, is_damaged = [], unknown is not None
    async for log_name, value in kept.parts_of(id_):
        topics.append(str(TopicName.from_log_name(log_name)))
        try:
            TopicPart.read(value.data, value.stat.path)
        except InvalidPartError as error:
            copy = await kept.lose_part(log_name, id_, value)
            _log.error("an operator gave it up: %s; its bytes are at %s", error, copy)
            is_damaged = True
    if unknown is None and topics and await _is_without_header(kept, coordinator, id_):
        unknown, is_damaged = Transaction(id_, owner="", ttl_ms=0, started_ms=0, deadline_ms=0), True
        coordinator.damaged(unknown, "its header is gone, and parts of it are not")
    if unknown is not None and coordinator.unknown.get(id_.sequence) is unknown:
        unknown.partitions = dict.fromkeys(topics)
        headers.taken_over(unknown)
        coordinator.take_up(unknown, now_ms=now_ms)
    return is_damaged


async def _is_without_header(kept: KeptParts, coordinator: Coordinator, id_: TxnId) -> bool:
    """Whether nothing tells what became of it."""
    found = await kept.latest_header(id_)
    known = {*coordinator.transactions, *coordinator.unknown}
    is_committed = coordinator.outcomes.of(id_.sequence) is TxnState.COMMITTED
    return found is None and id_.sequence not in known and not is_committed
