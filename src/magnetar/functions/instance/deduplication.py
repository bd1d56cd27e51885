"""Deduplication of the topics that a function with effectively once writes to. Driver."""

from __future__ import annotations

import time
from typing import Final

from magnetar.adminclient.errors import AdminRefusedError
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.functions.errors import NoDeduplicationError

_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.02
_NOT_ALLOWED: Final = (401, 403)


def deduplicate(client: Client, target: TopicName) -> None:
    """Switches deduplication on unless it is, and returns when it works. `target`: a topic or a partition.

    Raises ClientError; NoDeduplicationError when the function's owner may not switch it on, or it does not
    begin to work.
    """
    # A topic that does not exist yet has no policies: opening a producer creates it.
    Producer(client, target).close()
    if _works(client, target):
        return
    try:
        client.admin.enable_deduplication(target)
    except AdminRefusedError as error:
        if error.status not in _NOT_ALLOWED:
            raise
        raise NoDeduplicationError(
            f"EFFECTIVELY_ONCE needs deduplication of {target.base}, which the function's owner may not"
            f" switch on ({error}): an administrator of the tenant does so for the topic or its namespace"
        ) from error
    until_s = time.monotonic() + _TIMEOUT_S
    while not _works(client, target):
        if time.monotonic() > until_s:
            raise NoDeduplicationError(f"deduplication of {target} was switched on and did not begin")
        time.sleep(_POLL_S)  # nothing tells when the topic has taken the policy up


def _works(client: Client, target: TopicName) -> bool:
    return client.admin.stats(target).get("deduplicationStatus") == "Enabled"
