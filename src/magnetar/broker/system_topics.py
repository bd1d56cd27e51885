"""Topics that brokers keep for themselves (pure).

Source: the names of Pulsar's system topics; `__canary` is ours.
"""

from __future__ import annotations

import re
from typing import Final

from magnetar.base.names import TopicName

_SYSTEM: Final = re.compile(
    r"__change_events|__canary|__transaction_buffer_snapshot(_segments|_indexes)?"
    r"|__transaction_log_.*|transaction_coordinator_assign.*|.*__transaction_pending_ack"
)


def is_system(name: TopicName) -> bool:
    """Whether brokers use the topic internally; clients are not shown it."""
    if "__" not in name.local and not name.local.startswith("transaction_"):
        # Nearly all names: long lists are asked for.
        return False
    return _SYSTEM.fullmatch(name.base.local) is not None
