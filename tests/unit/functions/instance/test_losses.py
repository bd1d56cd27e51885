"""How long an instance waits before it begins anew, and what it says meanwhile."""

from __future__ import annotations

from magnetar.client.errors import RefusedError, UnreachableError
from magnetar.client.producer import SendFailedError
from magnetar.functions.errors import BadResultError, NoDeduplicationError, UnreadableInputError
from magnetar.functions.instance.losses import Losses
from magnetar.wire import pulsar_pb2 as pb

LOST = UnreachableError("pulsar://a:1", "gone")
TERMINATED = SendFailedError("out refused message 1", pb.ServerError.TopicTerminatedError)


def test_pauses_of_lost_connections_are_bounded_and_begin_anew() -> None:
    losses = Losses()
    pauses = [losses.lost(LOST, 0.1)[0] for _ in range(8)]
    assert pauses == [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0, 10.0]
    assert losses.lost(LOST, 10.1)[0] == 0.1


def test_what_a_broker_refuses_is_tried_ever_more_rarely() -> None:
    losses = Losses()
    pauses = [losses.lost(TERMINATED, 0.1)[0] for _ in range(8)]
    assert pauses == [1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert losses.lost(TERMINATED, 30.0)[0] == 60.0, "publications that come rarely are refused as well"
    assert losses.lost(TERMINATED, 61.0)[0] == 1.0


def test_the_status_names_the_cause_and_the_next_step() -> None:
    pause_s, state, said = Losses().lost(TERMINATED, 0.0)
    assert (pause_s, state) == (1.0, "REFUSED")
    assert said == (
        "out refused message 1; the topic is terminated: name another output with an update."
        " It is tried again in 1 s"
    )
    assert Losses().lost(LOST, 0.0)[1:] == ("RECONNECTING", "cannot reach pulsar://a:1: gone")


def test_each_refusal_that_stays_has_a_next_step() -> None:
    for error in (
        RefusedError("producer on out", pb.ServerError.AuthorizationError, "no"),
        SendFailedError("full", pb.ServerError.ProducerBlockedQuotaExceededError),
        BadResultError("too many"),
        UnreadableInputError("encrypted"),
        NoDeduplicationError("an administrator switches it on"),
    ):
        assert Losses().lost(error, 0.0)[1] == "REFUSED"
    for passing in (
        RefusedError("producer on out", pb.ServerError.ServiceNotReady, "moment"),
        SendFailedError("broken", None),
    ):
        assert Losses().lost(passing, 0.0)[1] == "RECONNECTING"
