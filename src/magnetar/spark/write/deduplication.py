"""Switches deduplication on, so that brokers drop repeated messages; exactly-once delivery needs it."""

from __future__ import annotations

import time
from typing import Final

from magnetar.adminclient.errors import AdminCallError
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.spark.errors import DeduplicationError, OptionError
from magnetar.spark.targets import target_partitions

_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.02


def deduplicate(client: Client, target: TopicName) -> None:
    """Switches deduplication of the topic on, and returns when it works on each partition.

    Raises OptionError when that cannot be done; it is retriable when the admin interface was away.
    """
    partitions = target_partitions(client, target).values()
    for topic in partitions:
        # A topic has to exist before it can have a policy.
        Producer(client, topic).close()
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        waiting = [topic for topic in partitions if not _drops_duplicates(client, topic)]
        if waiting:
            client.admin.enable_deduplication(target)
        while waiting:
            waiting = [topic for topic in waiting if not _drops_duplicates(client, topic)]
            if waiting and time.monotonic() > deadline:
                raise OptionError(
                    f"deduplication of {waiting[0]} did not start; enable it for the namespace, or set"
                    " delivery=at_least_once"
                )
            if waiting:
                time.sleep(_POLL_S)
    except AdminCallError as error:
        raise DeduplicationError(
            f"writing exactly once needs deduplication on {target}, and the admin interface does not help:"
            f" {error}. Give admin.url, or enable deduplication for the namespace and set"
            " enableDeduplication=false, or set delivery=at_least_once",
            retriable=error.retriable,
        ) from error


def _drops_duplicates(client: Client, topic: TopicName) -> bool:
    return client.admin.stats(topic).get("deduplicationStatus") == "Enabled"
