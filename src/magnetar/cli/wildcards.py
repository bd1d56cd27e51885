"""Finds the topics that a wildcard names, so that one command works on all of them."""

from __future__ import annotations

import click

from magnetar.adminclient import paths
from magnetar.base.levels import is_wildcard
from magnetar.base.names import TopicName
from magnetar.cli.caller import Caller


def topics_named(caller: Caller, name: str) -> list[str]:
    """The topic `name`, or all topics that match it as a wildcard; a partitioned topic counts as one. Raises
    ClickException when no topic matches, AdminCallError, InvalidTopicNameError."""
    topic = TopicName.parse(name)
    if not is_wildcard(topic.local):
        return [name]
    mode = "PERSISTENT" if topic.persistent else "NON_PERSISTENT"
    with caller.admin() as admin:
        listed = admin.call(
            "GET",
            f"{paths.namespace(str(topic.namespace_name))}/topics",
            query={"match": topic.local, "mode": mode},
        )
    found = sorted({str(TopicName.parse(each).base) for each in listed})
    if not found:
        raise click.ClickException(f"no topic of {topic.namespace_name} matches {topic.local}")
    return found
