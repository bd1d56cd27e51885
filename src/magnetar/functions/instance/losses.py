"""When an instance begins anew after its connections, its state or a publication failed, and what it says
meanwhile (pure).

| What failed | Pauses, in a row |
|---|---|
| a connection, the state, a broker that is not ready | 0.1 s to 10 s |
| what a broker refuses, and refuses again until an operator acts | 1 s to 60 s |

They begin with the first one again after ten seconds without a failure, and after a minute when a broker has
refused something.
"""

from __future__ import annotations

from typing import Final

from magnetar.client.errors import RefusedError
from magnetar.client.producer import SendFailedError
from magnetar.functions.errors import BadResultError, NoDeduplicationError, UnreadableInputError
from magnetar.wire import pulsar_pb2 as pb

_LOST_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
_REFUSED_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
_STEADY_S: Final = 10.0
_STEADY_REFUSED_S: Final = 60.0

RIGHTS: Final = "grant the function's owner this right, or let a role that has it update the function"
_FULL: Final = "consume what is stored, or raise the backlog quota"
_STEPS: Final = {
    pb.ServerError.AuthorizationError: RIGHTS,
    pb.ServerError.AuthenticationError: "let a role that the cluster knows update the function",
    pb.ServerError.TopicNotFound: "create the topic, or permit the creation of topics in its namespace",
    pb.ServerError.TopicTerminatedError: "the topic is terminated: name another output with an update",
    pb.ServerError.ProducerBlockedQuotaExceededError: _FULL,
    pb.ServerError.ProducerBlockedQuotaExceededException: _FULL,
    pb.ServerError.InvalidTopicName: "correct the topic's name with an update",
    pb.ServerError.IncompatibleSchema: "the topic has a schema that takes no plain bytes: name another topic",
    pb.ServerError.ConsumerBusy: "another consumer has the subscription: end it, or name another one",
    pb.ServerError.ProducerBusy: "another producer has this name: end it",
    pb.ServerError.NotAllowedError: "look at the policies of the topic and its namespace",
}
"""What an operator does about a refusal; refusals that pass by themselves have none."""


def next_step(error: Exception) -> str:
    """What an operator does about it; empty: it may pass by itself."""
    if isinstance(error, RefusedError | SendFailedError) and error.code is not None:
        return _STEPS.get(error.code, "")  # type: ignore[call-overload, no-any-return]  # any number
    if isinstance(error, BadResultError):
        return "correct the code"
    if isinstance(error, UnreadableInputError):
        return "name a dead letter topic, or skip the entry in the subscription"
    return ""


class Losses:
    """The failures of one instance."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._refused = False

    def lost(self, error: Exception, lasted_s: float) -> tuple[float, str, str]:
        """Connections that lasted so many seconds ended with this error. Returns the seconds until the next
        ones are opened, the state of the instance meanwhile, and what its status says."""
        if lasted_s > (_STEADY_REFUSED_S if self._refused else _STEADY_S):
            self._in_a_row = 0
        step = next_step(error)
        self._refused = bool(step) or isinstance(error, NoDeduplicationError)
        pauses = _REFUSED_S if self._refused else _LOST_S
        pause_s = pauses[min(self._in_a_row, len(pauses) - 1)]
        self._in_a_row += 1
        said = f"{error}; {step}" if step else str(error)
        state = "REFUSED" if self._refused else "RECONNECTING"
        return pause_s, state, f"{said}. It is tried again in {pause_s:g} s" if self._refused else said
