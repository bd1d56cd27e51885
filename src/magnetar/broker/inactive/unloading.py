"""Which topics need no memory, because nobody uses them and nothing happens in them by itself (pure).

An unloaded topic is loaded again by whoever uses it. One stays loaded that has something to do or to tell:
a backlog, which monitoring must see; sealed ledgers, which are trimmed and offloaded while it is loaded; an
unused subscription or topic whose time to be deleted runs.
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
