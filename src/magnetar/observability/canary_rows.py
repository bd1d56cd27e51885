"""Metrics of canaries."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section
from magnetar.observability.rows import counter as _c
from magnetar.observability.rows import gauge as _g
from magnetar.observability.rows import histogram as _h

_N: Final = ("cluster", "namespace")
_CAN: Final = "where a canary runs (docs/monitoring.md)"

CANARIES: Final = Section(
    "Canaries",
    (
        _c("magnetar_canary_sent_total", "messages", _N, "Messages that the canary sent.", _CAN),
        _c(
            "magnetar_canary_received_total",
            "messages",
            _N,
            "Messages of the canary that came back in time.",
            _CAN,
        ),
        _c(
            "magnetar_canary_lost_total",
            "messages",
            _N,
            "Messages of the canary that were acknowledged and did not come back in time.",
            _CAN,
        ),
        _c(
            "magnetar_canary_refused_total",
            "messages",
            _N,
            "Messages of the canary that the broker refused.",
            _CAN,
        ),
        _g(
            "magnetar_canary_up",
            "",
            _N,
            "1 while messages of the canary come back, else 0; 0 until the first one came back.",
            _CAN,
        ),
        _h(
            "magnetar_canary_publish_seconds",
            _N,
            "Time from publishing a canary's message until it was durable.",
            _CAN,
        ),
        _h(
            "magnetar_canary_end_to_end_seconds",
            _N,
            "Time from publishing a canary's message until it was delivered.",
            _CAN,
        ),
    ),
)
