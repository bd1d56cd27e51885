"""Which topics need no memory, because they are not used and have no work of their own (pure).

The next use loads an unloaded topic again. A topic stays loaded while it has something to do or to show: a
backlog, which monitoring must see; sealed ledgers, which are trimmed and offloaded while it is loaded; an
unused subscription or topic that is to be deleted at a certain time.
"""

from __future__ import annotations

from magnetar.broker.inactive.idleness import has_clients
from magnetar.broker.topic.topic import Topic


def may_go(topic: Topic) -> bool:
    """Whether the topic loses nothing by being unloaded."""
    log = topic.log
    if topic.closed or has_clients(topic) or log.pending_bytes or topic.compaction.job.running:
        return False
    if any(subscription.backlog_entries for subscription in topic.subscriptions.values()):
        return False
    return sum(1 for ledger in log.info().ledgers if ledger.entries) <= 1
