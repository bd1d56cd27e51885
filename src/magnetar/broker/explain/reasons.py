"""One word and one sentence about a subscription's dispatch (pure).

Checked in the order of the pump: what stops all dispatch first, then whether there are entries, then which
consumer could take them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from magnetar.broker.dispatch.dispatcher import HashLine
from magnetar.broker.explain.subscription_view import ConsumerView, View


class DiagnosedState(StrEnum):
    """In one word, why a subscription does or does not dispatch."""

    DISPATCHING = "dispatching"
    CAUGHT_UP = "caught-up"
    ALL_SENT = "all-sent"
    """All entries were sent and wait to be acknowledged."""
    TERMINATED = "terminated"
    FENCED = "fenced"
    NO_CONSUMERS = "no-consumers"
    READ_ERROR = "read-error"
    READING = "reading"
    DELAYED = "delayed"
    HELD = "held-by-transaction"
    """Everything before the first message of an open transaction was sent."""
    RATE_LIMITED = "rate-limited"
    BLOCKED_SUBSCRIPTION = "blocked-subscription"
    BLOCKED_CONSUMERS = "blocked-consumers"
    NO_PERMITS = "no-permits"
    OUTPUT_FULL = "output-full"
    DRAINING = "draining"
    OWNER_NOT_READY = "owner-not-ready"
    NO_OWNER = "no-owner"
    INACTIVE = "inactive"
    """Only for a consumer: another one is the active one."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A word for programs, a sentence with numbers for people."""

    state: DiagnosedState
    sentence: str


def diagnose(view: View) -> Diagnosis:
    """Why the subscription does or does not dispatch at this moment."""
    if not view.stored:
        return _passing(view)
    return _stopped(view) or _nothing_to_send(view) or _nobody_to_take(view) or _keys_wait(view)


def _passing(view: View) -> Diagnosis:
    """For a topic that stores nothing."""
    if not view.consumers:
        return Diagnosis(DiagnosedState.NO_CONSUMERS, "no consumer is connected; messages are dropped")
    fault = _fault(view)
    if fault is None:
        return Diagnosis(DiagnosedState.CAUGHT_UP, "every message is delivered as it arrives")
    return Diagnosis(fault.state, f"{fault.sentence}; messages are dropped")


def of_consumer(consumer: ConsumerView, view: View) -> Diagnosis:
    """Why this consumer gets messages or not, as far as the reason is the consumer's own."""
    if view.single and consumer.name != view.active:
        return Diagnosis(
            DiagnosedState.INACTIVE, f"{view.active} is the active consumer, this one waits for its turn"
        )
    if consumer.permits <= 0:
        unacked = f", {consumer.unacked} unacknowledged" if consumer.unacked else ""
        return Diagnosis(
            DiagnosedState.NO_PERMITS,
            "it asks for no more: its application has not taken what was sent to it"
            f" (permits: {consumer.permits}{unacked})",
        )
    if consumer.blocked and not view.single:
        return Diagnosis(
            DiagnosedState.BLOCKED_CONSUMERS,
            f"it holds {consumer.unacked} unacknowledged messages, its limit is {consumer.unacked_max}; it "
            f"continues at {consumer.unacked_max // 2}",
        )
    if not consumer.writable:
        return Diagnosis(DiagnosedState.OUTPUT_FULL, "its connection does not take more bytes")
    return Diagnosis(DiagnosedState.DISPATCHING, f"it can take {consumer.permits} messages")


def _stopped(view: View) -> Diagnosis | None:
    if view.topic_closed or view.topic_state not in ("open", "terminated"):
        return Diagnosis(
            DiagnosedState.FENCED,
            f"the topic is {view.topic_state}: its clients are disconnected and it is loaded again",
        )
    if not view.consumers:
        return Diagnosis(
            DiagnosedState.NO_CONSUMERS, f"no consumer is connected; the backlog is {view.backlog} entries"
        )
    if view.obstacle:
        return Diagnosis(DiagnosedState.READ_ERROR, view.obstacle)
    if view.reading:
        return Diagnosis(DiagnosedState.READING, "entries are being read from storage")
    return None


def _nothing_to_send(view: View) -> Diagnosis | None:
    if view.unread or view.again or view.waiting or view.due:
        return None
    if view.held:
        numbers = view.held_by.strip("()").replace(",", " ")
        return Diagnosis(
            DiagnosedState.HELD,
            f"transaction {view.held_by} is open and holds back {view.held} entries, its own and those"
            f" behind; `magnetar transactions describe {numbers}` shows it, `magnetar transactions abort"
            f" {numbers}` ends it",
        )
    if view.delayed:
        until = "" if view.delayed_until_ms is None else f", the first at {_instant(view.delayed_until_ms)}"
        return Diagnosis(
            DiagnosedState.DELAYED, f"{view.delayed} entries wait for their delivery time{until}"
        )
    if view.backlog:
        return Diagnosis(
            DiagnosedState.ALL_SENT, f"everything was sent; {view.backlog} entries wait to be acknowledged"
        )
    if view.terminated:
        return Diagnosis(DiagnosedState.TERMINATED, "the topic is terminated and everything was acknowledged")
    return Diagnosis(DiagnosedState.CAUGHT_UP, "there is no backlog")


def _nobody_to_take(view: View) -> Diagnosis | None:
    pending = f"{view.unread + view.again + view.waiting} entries are to be sent"
    if view.rate_wait_ms:
        return Diagnosis(
            DiagnosedState.RATE_LIMITED, f"the dispatch rate is used up for {view.rate_wait_ms} ms; {pending}"
        )
    if view.unacked_of_broker:
        return Diagnosis(
            DiagnosedState.BLOCKED_SUBSCRIPTION,
            f"{view.unacked_of_broker} messages are unacknowledged over all subscriptions, more than the "
            f"broker's limit; this one has {view.unacked} and continues below {view.unacked_part / 2:g};"
            f" {pending}",
        )
    if view.blocked:
        return Diagnosis(
            DiagnosedState.BLOCKED_SUBSCRIPTION,
            f"{view.unacked} messages are unacknowledged, the limit is {view.unacked_max}; it continues "
            f"below {view.unacked_max / 2:g}; {pending}",
        )
    fault = _fault(view)
    return None if fault is None else Diagnosis(fault.state, f"{fault.sentence}; {pending}")


def _fault(view: View) -> Diagnosis | None:
    """Why no consumer can take an entry; None when one can."""
    found = [of_consumer(each, view) for each in view.consumers]
    takers = [each for each in found if each.state is not DiagnosedState.INACTIVE]
    if any(each.state is DiagnosedState.DISPATCHING for each in takers):
        return None
    for state in (DiagnosedState.BLOCKED_CONSUMERS, DiagnosedState.OUTPUT_FULL, DiagnosedState.NO_PERMITS):
        count = sum(each.state is state for each in takers)
        if count:
            return Diagnosis(state, _FAULTS[state].format(count, len(takers)))
    return Diagnosis(DiagnosedState.INACTIVE, "no consumer is the active one")


_FAULTS = {
    DiagnosedState.BLOCKED_CONSUMERS: "{} of {} consumers hold as many unacknowledged messages as they may",
    DiagnosedState.OUTPUT_FULL: "the connections of {} of {} consumers do not take more bytes",
    DiagnosedState.NO_PERMITS: (
        "{} of {} consumers ask for no more: their applications have not taken what they got"
    ),
}


def _keys_wait(view: View) -> Diagnosis:
    to_read = view.again + (0 if view.line_full else view.unread)
    if to_read or view.due or view.can_serve_line or not view.waiting:
        return Diagnosis(
            DiagnosedState.DISPATCHING, f"{view.unread + view.again + view.waiting} entries are to be sent"
        )
    for each in view.draining:
        if each.holder is not None and each.holder != each.owner:
            return Diagnosis(DiagnosedState.DRAINING, _drains(each, view.waiting))
    for each in view.draining:
        if each.owner is None:
            return Diagnosis(
                DiagnosedState.NO_OWNER,
                f"key hash {each.key_hash} belongs to no consumer's ranges;"
                f" {view.waiting} entries wait for their keys",
            )
    first = view.draining[0].owner if view.draining else "the consumer of their keys"
    return Diagnosis(
        DiagnosedState.OWNER_NOT_READY, f"{view.waiting} entries wait for {first}, which takes no more now"
    )


def _drains(each: HashLine, waiting: int) -> str:
    return (
        f"key hash {each.key_hash} goes to {each.owner or 'nobody'} once {each.holder} has acknowledged"
        f" {each.held} entries of it; {waiting} entries wait for their keys"
    )


def _instant(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
