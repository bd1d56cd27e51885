"""Reads and changes the stored documents of policies for calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.admin.calls.call import Call
from magnetar.broker.policies.policies import Policies

N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

TOPIC_QUERY: Final = ("applied", "isGlobal")
"""Parameters of calls that read a topic's policy."""


async def change_namespace(call: Call, change: Callable[[Policies], None]) -> None:
    """Changes a namespace's document; in force on return."""
    await call.broker.policies.update_namespace(call.namespace(), change)
    await call.broker.apply_policies()


async def change_topic(call: Call, change: Callable[[Policies], None]) -> None:
    """Changes a topic's document; in force on return."""
    topic = call.topic()
    await call.broker.check_name(topic)
    await call.broker.policies.update_topic(topic, change, everywhere=call.flag("isGlobal"))
    await call.broker.apply_policies()


async def own_of(call: Call) -> Policies:
    """The own policies of the path's topic, at the level that the call names."""
    topic = call.topic()
    await call.broker.check_name(topic)
    return await call.broker.policies.own_topic_policies(topic, everywhere=call.flag("isGlobal"))
