"""What an instance tells, as status and statistics (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.functions.ports import InstanceStats, InstanceStatus, RaisedError, StatsOfPeriod


def _int(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _part(told: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = told.get(name)
    return part if isinstance(part, Mapping) else {}


def _errors(told: object) -> tuple[RaisedError, ...]:
    return (
        tuple(RaisedError(str(text), int(time_ms)) for text, time_ms in told)
        if isinstance(told, list)
        else ()
    )


def status_of(
    number: int, told: Mapping[str, object], *, state: str, error: str, restarts: int, pid: int = 0
) -> InstanceStatus:
    """Status of an instance that told these figures last."""
    total = _part(told, "total")
    average = total.get("average_ms")
    return InstanceStatus(
        instance=number,
        running=state in ("RUNNING", "RECONNECTING", "REFUSED"),
        state=state,
        error=error,
        restarts=restarts,
        received=_int(total.get("received")),
        processed=_int(total.get("processed")),
        user_exceptions=_int(total.get("user_exceptions")),
        latest_user_exceptions=_errors(told.get("user_errors")),
        system_exceptions=_int(total.get("system_exceptions")),
        latest_system_exceptions=_errors(told.get("system_errors")),
        average_latency_ms=float(average) if isinstance(average, int | float) else 0.0,
        last_invocation_ms=_int(told.get("last_invocation_ms")),
        pid=pid,
    )


def stats_of(number: int, told: Mapping[str, object]) -> InstanceStats:
    """Statistics of an instance that told these figures last."""
    metrics = _part(told, "user_metrics")
    return InstanceStats(
        instance=number,
        total=_period(_part(told, "total")),
        minute=_period(_part(told, "minute")),
        last_invocation_ms=_int(told.get("last_invocation_ms")) or None,
        user_metrics={
            name: float(value) for name, value in metrics.items() if isinstance(value, int | float)
        },
    )


def _period(told: Mapping[str, object]) -> StatsOfPeriod:
    average = told.get("average_ms")
    return StatsOfPeriod(
        received=_int(told.get("received")),
        processed=_int(told.get("processed")),
        system_exceptions=_int(told.get("system_exceptions")),
        user_exceptions=_int(told.get("user_exceptions")),
        average_latency_ms=float(average) if isinstance(average, int | float) else None,
    )
