"""Metrics of functions, under Pulsar's names where it has them."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section
from magnetar.observability.rows import counter as _c
from magnetar.observability.rows import gauge as _g

_I: Final = ("cluster", "tenant", "namespace", "name", "instance_id", "fqfn")
_RUN: Final = "where functions run"
_USERS: Final = "of functions that record a metric"

FUNCTIONS: Final = Section(
    "Functions",
    (
        _c("pulsar_function_received_total", "messages", _I, "Messages received.", only=_RUN),
        _c(
            "pulsar_function_processed_successfully_total",
            "messages",
            _I,
            "Messages whose call raised no exception.",
            only=_RUN,
        ),
        _c("pulsar_function_user_exceptions_total", "", _I, "Exceptions of the user's code.", only=_RUN),
        _c(
            "pulsar_function_system_exceptions_total",
            "",
            _I,
            "Failures of inputs, outputs and the state.",
            only=_RUN,
        ),
        _g(
            "pulsar_function_last_invocation",
            "",
            _I,
            "Time of the last call, Unix milliseconds; 0 before the first.",
            only=_RUN,
        ),
        _g(
            "pulsar_function_user_metric",
            "",
            (*_I, "metric"),
            "Sum of the values that the code has recorded under a name.",
            only=_USERS,
        ),
        _g(
            "magnetar_function_call_seconds",
            "seconds",
            _I,
            "Mean duration of a call for each message since the process began.",
            only=_RUN,
        ),
        _g(
            "magnetar_function_running",
            "",
            _I,
            "1 while the instance runs, 0 while it waits for its next start.",
            only=_RUN,
        ),
        _c(
            "magnetar_function_restarts_total",
            "",
            _I,
            "Times that the instance was started again after it had ended by itself.",
            only=_RUN,
        ),
    ),
)
