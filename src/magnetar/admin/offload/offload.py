"""Offloading: policies of namespaces and topics, requests, and their status.

Only the broker's settings choose the store: otherwise a tenant could make the broker write to any place that
its user or credentials reach. Policies that name another store are kept, and copy nothing; policies with
credentials are refused.
"""

from __future__ import annotations

import logging
from typing import Final

from magnetar.admin.calls.call import Call, Route, message_position, position_document
from magnetar.admin.calls.coercion import LONG_BITS, as_object, as_whole
from magnetar.admin.calls.errors import NotImplementedHereError
from magnetar.admin.topics.topics import loaded, refuse_partitioned
from magnetar.broker.errors import ConflictError, PreconditionFailedError
from magnetar.broker.policies.policies import Policies
from magnetar.tiered.offloading import Offloading
from magnetar.tiered.policy import (
    DRIVER,
    DRIVERS,
    LAG,
    LAG_OF_NAMESPACE,
    NEVER,
    POLICIES,
    THRESHOLD,
    THRESHOLD_OF_NAMESPACE,
    THRESHOLD_S,
    THRESHOLD_S_OF_NAMESPACE,
    other_store,
)
from magnetar.tiered.request import OffloadRunningError

_log = logging.getLogger("magnetar.admin")

_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

NO_STORE: Final = (
    "this broker keeps no history: set offload_url, for all brokers of the cluster, to a store that each of"
    " them reaches"
)
_SUPPORTED: Final = "S3,aws-s3,google-cloud-storage,filesystem,azureblob,aliyun-oss"
"""Pulsar's list of drivers, for its error text."""
_SECRETS: Final = (
    "s3ManagedLedgerOffloadCredentialId",
    "s3ManagedLedgerOffloadCredentialSecret",
    "s3ManagedLedgerOffloadRole",
    "gcsManagedLedgerOffloadServiceAccountKeyFile",
)
_OF_NAMESPACE: Final = {
    "offloadThreshold": (THRESHOLD_OF_NAMESPACE, THRESHOLD),
    "offloadThresholdInSeconds": (THRESHOLD_S_OF_NAMESPACE, THRESHOLD_S),
    "offloadDeletionLagMs": (LAG_OF_NAMESPACE, LAG),
}
"""By path: the key in the namespace's document, and the key in its offload policies."""


def _offloading(call: Call) -> Offloading:
    if call.broker.offloading is None:
        raise NotImplementedHereError(NO_STORE)
    return call.broker.offloading


def _number(value: object, what: str) -> int:
    # Any number below 0 is never.
    return max(NEVER, as_whole(value, bits=LONG_BITS, what=what) or 0)


def read_policies(call: Call) -> dict[str, object]:
    """The offload policies in the body. Raises BadRequestError, PreconditionFailedError."""
    given = as_object(call.json())
    if given is None:
        level = "topic" if "topic" in call.params else "namespace"
        raise PreconditionFailedError(f"The offloadPolicies must be specified for {level} offload.")
    document = {name: value for name, value in given.items() if value is not None}
    if any(document.get(name) for name in _SECRETS):
        raise PreconditionFailedError(
            "credentials are not kept in policies, where many may read them: give them to the broker by its"
            " environment or by files"
        )
    for name in (THRESHOLD, THRESHOLD_S, LAG):
        if name in document:
            document[name] = _number(document[name], name)
    driver = document.get(DRIVER)
    if driver and str(driver).lower() not in DRIVERS:
        raise PreconditionFailedError(f"The driver is not supported, support value: {_SUPPORTED}")
    url = _offloading(call).storage.url
    if other := other_store(document, url):
        _log.warning("%s: the %s is kept and copies nothing: %s", call.path, other, _ELSEWHERE % url)
    return document


_ELSEWHERE: Final = "this broker offloads to %s (the setting offload_url)"


# -- namespaces --------------------------------------------------------------------------------------


def _single(name: str) -> tuple[Route, ...]:
    beside, inside = _OF_NAMESPACE[name]
    lag = inside == LAG

    async def get(call: Call) -> object:
        document = await call.broker.policies.namespace(call.namespace())
        found = (document.get(POLICIES) or {}).get(inside, document.get(beside))
        return NEVER if found is None and not lag else found

    def store(document: Policies, value: int | None) -> None:
        document.pop(beside, None)
        policies = {key: kept for key, kept in (document.get(POLICIES) or {}).items() if key != inside}
        if value is not None:
            document[beside] = value
        if POLICIES in document:
            # Pulsar keeps both the same.
            document[POLICIES] = policies if value is None else {**policies, inside: value}

    async def put(call: Call) -> None:
        _offloading(call)
        value = _number(call.json_given(), "the body")
        await call.broker.policies.update_namespace(call.namespace(), lambda found: store(found, value))
        await call.broker.apply_policies()

    async def delete(call: Call) -> None:
        await call.broker.policies.update_namespace(call.namespace(), lambda found: store(found, None))
        await call.broker.apply_policies()

    path = f"{_N}/{name}"
    read_and_set: tuple[Route, ...] = (("GET", path, get), ("PUT", path, put))
    return (*read_and_set, ("DELETE", path, delete)) if lag else read_and_set


async def policies_of_namespace(call: Call) -> object:
    return (await call.broker.policies.namespace(call.namespace())).get(POLICIES)


async def set_policies_of_namespace(call: Call) -> None:
    value = read_policies(call)

    def change(document: Policies) -> None:
        document[POLICIES] = value

    await call.broker.policies.update_namespace(call.namespace(), change)
    await call.broker.apply_policies()


async def remove_policies_of_namespace(call: Call) -> None:
    def change(document: Policies) -> None:
        for key in (POLICIES, THRESHOLD_OF_NAMESPACE, THRESHOLD_S_OF_NAMESPACE, LAG_OF_NAMESPACE):
            document.pop(key, None)

    await call.broker.policies.update_namespace(call.namespace(), change)
    await call.broker.apply_policies()


# -- topics ------------------------------------------------------------------------------------------


async def policies_of_topic(call: Call) -> object:
    topic = call.topic()
    await call.broker.check_name(topic)
    own = (await call.broker.policies.topic_policies(topic)).get(POLICIES)
    if own is not None or not call.flag("applied"):
        return own
    namespace = await call.broker.policies.namespace(topic.namespace_name)
    if (found := namespace.get(POLICIES)) is not None:
        return found
    policy = _offloading(call).policy_of({}, namespace)
    return {
        THRESHOLD: policy.threshold_bytes,
        THRESHOLD_S: policy.threshold_s,
        LAG: policy.deletion_lag_ms,
    }


async def set_policies_of_topic(call: Call) -> None:
    value = read_policies(call)
    topic = call.topic()
    await call.broker.check_name(topic)

    def change(document: Policies) -> None:
        document[POLICIES] = value

    await call.broker.policies.update_topic(topic, change)
    await call.broker.apply_policies()


async def remove_policies_of_topic(call: Call) -> None:
    topic = call.topic()
    await call.broker.check_name(topic)

    def change(document: Policies) -> None:
        document.pop(POLICIES, None)

    await call.broker.policies.update_topic(topic, change)
    await call.broker.apply_policies()


async def start(call: Call) -> None:
    """Starts to offload all messages before a message; 409 while a request runs."""
    offloading = _offloading(call)
    name = call.topic()
    await refuse_partitioned(call.broker, name, "offloading on request")
    log = (await loaded(call.broker, name)).log
    position, _ = message_position(call.json())
    own = await call.broker.policies.topic_policies(name)
    in_force = own.get(POLICIES) or (await call.broker.policies.namespace(name.namespace_name)).get(POLICIES)
    if other := other_store(in_force or {}, offloading.storage.url):
        raise PreconditionFailedError(
            f"the offload policies name the {other}", remedy=_ELSEWHERE % offloading.storage.url
        )
    try:
        offloading.offload(log.offloading, min(position, log.last_position))
    except OffloadRunningError as error:
        raise ConflictError(str(error)) from error


async def status(call: Call) -> object:
    """Pulsar's OffloadProcessStatus."""
    offloading = _offloading(call)
    name = call.topic()
    await refuse_partitioned(call.broker, name, "offloading on request")
    request = offloading.request_of((await loaded(call.broker, name)).log.offloading)
    first = request.first_not_offloaded
    return {
        "status": request.status.value,
        "lastError": request.error,
        "firstUnoffloadedMessage": None if first is None else position_document(first, name),
    }


ROUTES: list[Route] = [
    *(route for name in _OF_NAMESPACE for route in _single(name)),
    ("GET", f"{_N}/offloadPolicies", policies_of_namespace),
    ("POST", f"{_N}/offloadPolicies", set_policies_of_namespace),
    ("DELETE", f"{_N}/removeOffloadPolicies", remove_policies_of_namespace),
    ("GET", f"{_T}/offloadPolicies", policies_of_topic),
    ("POST", f"{_T}/offloadPolicies", set_policies_of_topic),
    ("DELETE", f"{_T}/offloadPolicies", remove_policies_of_topic),
    ("PUT", f"{_T}/offload", start),
    ("GET", f"{_T}/offload", status),
]
