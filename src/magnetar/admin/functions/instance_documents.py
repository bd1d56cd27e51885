"""Status, statistics and state of functions as Pulsar's tools read them (pure).

Source: Pulsar's `FunctionStatus`, `FunctionStatsImpl`, `FunctionState`; answers of Pulsar 4.2.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.admin.calls.call import Document
from magnetar.admin.calls.errors import BadRequestError
from magnetar.functions.ports import InstanceStats, InstanceStatus, RaisedError, StateValue, StatsOfPeriod

if TYPE_CHECKING:
    from magnetar.broker.service import Broker


def worker_id(broker: Broker) -> str:
    """Name of the worker beside a broker, as Pulsar forms it."""
    host, _, port = broker.broker_id.rpartition(":")
    return f"c-{broker.config.cluster}-fw-{host}-{port}"


# -- status


def status_document(status: InstanceStatus, worker: str) -> Document:
    """FunctionInstanceStatusData."""
    return {
        "running": status.running,
        "error": status.error,
        "numRestarts": status.restarts,
        "numReceived": status.received,
        "numSuccessfullyProcessed": status.processed,
        "numUserExceptions": status.user_exceptions,
        "latestUserExceptions": [_raised(each) for each in status.latest_user_exceptions],
        "numSystemExceptions": status.system_exceptions,
        "latestSystemExceptions": [_raised(each) for each in status.latest_system_exceptions],
        "averageLatency": status.average_latency_ms,
        "lastInvocationTime": status.last_invocation_ms,
        "workerId": worker,
    }


def _raised(error: RaisedError) -> Document:
    return {"exceptionString": error.text, "timestampMs": error.time_ms}


def all_statuses(found: Sequence[InstanceStatus], worker: str) -> Document:
    """FunctionStatus."""
    return {
        "numInstances": len(found),
        "numRunning": sum(each.running for each in found),
        "instances": [
            {"instanceId": each.instance, "status": status_document(each, worker)} for each in found
        ],
    }


# -- statistics


def _period(stats: StatsOfPeriod) -> Document:
    return {
        "receivedTotal": stats.received,
        "processedSuccessfullyTotal": stats.processed,
        "systemExceptionsTotal": stats.system_exceptions,
        "userExceptionsTotal": stats.user_exceptions,
        "avgProcessLatency": stats.average_latency_ms,
    }


def stats_document(stats: InstanceStats) -> Document:
    """FunctionInstanceStatsData."""
    return {
        **_period(stats.total),
        "1min": _period(stats.minute),
        "lastInvocation": stats.last_invocation_ms,
        "userMetrics": dict(stats.user_metrics),
    }


def all_stats(found: Sequence[InstanceStats]) -> Document:
    """FunctionStats: sums, and each instance."""
    last = [each.last_invocation_ms for each in found if each.last_invocation_ms is not None]
    return {
        **_period(_sum([each.total for each in found])),
        "1min": _period(_sum([each.minute for each in found])),
        "lastInvocation": max(last, default=None),
        "instances": [{"instanceId": each.instance, "metrics": stats_document(each)} for each in found],
    }


def _sum(periods: Sequence[StatsOfPeriod]) -> StatsOfPeriod:
    latencies = [each.average_latency_ms for each in periods if each.average_latency_ms is not None]
    return StatsOfPeriod(
        received=sum(each.received for each in periods),
        processed=sum(each.processed for each in periods),
        system_exceptions=sum(each.system_exceptions for each in periods),
        user_exceptions=sum(each.user_exceptions for each in periods),
        # As Pulsar has it: the mean of the instances' means.
        average_latency_ms=sum(latencies) / len(latencies) if latencies else None,
    )


# -- state


def state_document(key: str, state: StateValue) -> Document:
    """FunctionState: `numberValue` of a counter, a text, or bytes as base64."""
    found: Document = {"key": key, "version": state.version}
    if state.number is not None:
        return {**found, "numberValue": state.number}
    try:
        return {**found, "stringValue": state.value.decode()}
    except UnicodeDecodeError:
        return {**found, "byteValue": base64.b64encode(state.value).decode()}


def state_value(key: str, text: str) -> bytes:
    """The bytes that a FunctionState sets. Raises BadRequestError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"part state is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("key") != key:
        raise BadRequestError("Path key doesn't match key in json")
    encoded, written, number = (document.get(name) for name in ("byteValue", "stringValue", "numberValue"))
    if isinstance(encoded, str) and encoded:
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise BadRequestError("byteValue is not base64") from error
    if isinstance(written, str):
        return written.encode("utf-8", "surrogatepass")
    if isinstance(number, int) and not isinstance(number, bool) and -(1 << 63) <= number < 1 << 63:
        return number.to_bytes(8, "big", signed=True)
    raise BadRequestError("the state has none of byteValue, stringValue, numberValue")
