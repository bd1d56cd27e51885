"""`.../subscription/{subscription}/explain`: why a subscription does or does not dispatch."""

from __future__ import annotations

from typing import Final

from magnetar.admin.calls.call import Call, Document, Route
from magnetar.admin.topics.over_partitions import Answers, spread
from magnetar.admin.topics.topics import parts
from magnetar.broker.errors import SubscriptionNotFoundError
from magnetar.broker.explain.reasons import diagnose, of_consumer
from magnetar.broker.topic.any_topic import AnyTopic

_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"


def explanation(topic: AnyTopic, name: str) -> Document:
    """Explains one subscription of one topic or partition."""
    view = topic.subscriptions[name].view()
    diagnosis = diagnose(view)
    return {
        "topic": str(topic.name),
        "subscription": name,
        "state": diagnosis.state.value,
        "reason": diagnosis.sentence,
        "backlog": view.backlog,
        "delayed": view.delayed,
        "heldBack": view.held,
        "heldBackBy": view.held_by or None,
        "consumers": [
            {
                "name": consumer.name,
                "state": found.state.value,
                "reason": found.sentence,
                "permits": consumer.permits,
                "unacked": consumer.unacked,
            }
            for consumer in view.consumers
            for found in (of_consumer(consumer, view),)
        ],
    }


async def explain(call: Call) -> object:
    """Explains the subscription of the path: one document for each part of the topic that has it."""
    name = call.params["subscription"]
    topics = await parts(call.broker, call.topic())
    found = [explanation(topic, name) for topic in topics if name in topic.subscriptions]
    if not found:
        raise SubscriptionNotFoundError(f"Subscription {name} not found for topic {call.topic()}")
    return found


async def explain_all(call: Call) -> object:
    """Explains every subscription of the topic, or of its partitions."""
    topics = await parts(call.broker, call.topic())
    return [explanation(topic, name) for topic in topics for name in sorted(topic.subscriptions)]


def _together(_call: Call, answers: Answers, _count: int) -> list[object]:
    """The documents of all partitions, in their order."""
    return [document for answer in answers.values() if isinstance(answer, list) for document in answer]


ROUTES: list[Route] = [
    ("GET", f"{_T}/explain", spread("GET", explain_all, _together)),
    ("GET", f"{_T}/subscription/{{subscription}}/explain", spread("GET", explain, _together)),
]
