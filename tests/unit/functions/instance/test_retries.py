"""Messages that fail are called again after growing pauses, and are given up after so many calls."""

from __future__ import annotations

from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.retries import PAUSE_S_MAX, FailedMessage, Retries, pause_s
from magnetar.wire import pulsar_pb2 as pb


def failed(attempts: int) -> FailedMessage:
    entry = TakenEntry(0, (1, 1, 1, 1), pb.MessageMetadata(), [b""])
    return FailedMessage(entry, 0, attempts, "E", "trace")


def test_pauses_double_up_to_a_minute() -> None:
    assert [pause_s(0.1, attempts) for attempts in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert pause_s(0.1, 10_000) == PAUSE_S_MAX


def test_a_message_is_due_after_its_pause() -> None:
    retries = Retries(0.1, None)
    late, early = failed(3), failed(1)
    retries.add(late, 0.0)
    retries.add(early, 0.0)
    assert retries.due(0.05) == []
    assert retries.next_s() == 0.1
    assert retries.due(1.0) == [early, late]
    assert retries.next_s() is None


def test_calls_are_used_up_after_the_first_one_and_the_retries() -> None:
    retries = Retries(0.1, 2)
    assert [retries.is_given_up(failed(attempts)) for attempts in (1, 2, 3)] == [False, False, True]
    assert not Retries(0.1, None).is_given_up(failed(1000))
