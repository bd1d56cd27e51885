"""`/admin/v2/clusters/.../failureDomains` and `.../namespaceIsolationPolicies`: brokers that fail together,
and brokers of namespaces.

Policies are in force in clusters of several brokers (`broker/ownership/isolation.py`); failure domains are
only stored. A single broker serves all namespaces, whatever they say.
"""

from __future__ import annotations

import json
import re
from typing import Final

from magnetar.admin.brokers.brokers import list_brokers
from magnetar.admin.calls.call import Call, Route
from magnetar.admin.calls.errors import BadRequestError, NotHereError
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.policies.policies import Policies
from magnetar.metadata import keys
from magnetar.metadata.store import NotFoundError

_C: Final = "/admin/v2/clusters/{cluster}"
_D: Final = f"{_C}/failureDomains"
_I: Final = f"{_C}/namespaceIsolationPolicies"
_LISTS: Final = ("namespaces", "primary", "secondary")


async def _check_cluster(call: Call) -> None:
    """Raises PreconditionFailedError when there is no such cluster, as Pulsar does here."""
    if call.name("cluster") not in await call.broker.policies.clusters():
        raise PreconditionFailedError(f"Cluster {call.params['cluster']} does not exist.")


# -- failure domains ---------------------------------------------------------------------------------


def _domain_key(call: Call) -> str:
    return f"{keys.failure_domains(call.name('cluster'))}/{call.name('domain')}"


async def list_domains(call: Call) -> dict[str, Policies | None]:
    """Failure domains of a cluster, by name."""
    await _check_cluster(call)
    root = keys.failure_domains(call.name("cluster"))
    names = await call.broker.store.children(root)
    return {name: await call.broker.policies.document(f"{root}/{name}") for name in names}


async def get_domain(call: Call) -> object:
    """Brokers of a failure domain."""
    await _check_cluster(call)
    found = await call.broker.policies.document(_domain_key(call))
    if found is None:
        domain, cluster = call.params["domain"], call.params["cluster"]
        raise NotHereError(f"Domain {domain} for cluster {cluster} does not exist")
    return found


async def set_domain(call: Call) -> None:
    """Sets the brokers of a failure domain; none of them may be in another domain."""
    await _check_cluster(call)
    body = call.json_object()
    brokers = body.get("brokers") or []
    if not isinstance(brokers, list) or not all(isinstance(broker, str) for broker in brokers):
        raise BadRequestError("brokers must be a list of names")
    others = await list_domains(call)
    for name, document in others.items():
        taken = set(brokers) & set((document or {}).get("brokers") or ())
        if name != call.params["domain"] and taken:
            raise PreconditionFailedError(f"{sorted(taken)[0]} is in failure domain {name}")
    await call.broker.store.put(_domain_key(call), json.dumps({"brokers": sorted(set(brokers))}).encode())


async def delete_domain(call: Call) -> None:
    """Deletes a failure domain."""
    await _check_cluster(call)
    try:
        await call.broker.store.delete(_domain_key(call))
    except NotFoundError as error:
        raise NotHereError(
            f"Domain-name {call.params['domain']} or cluster {call.params['cluster']} does not exist"
        ) from error


# -- namespace isolation -----------------------------------------------------------------------------


async def _policies(call: Call) -> Policies:
    await _check_cluster(call)
    return await call.broker.policies.document(keys.isolation_policies(call.name("cluster"))) or {}


async def _set_policies(call: Call) -> Policies:
    """The isolation policies of a cluster. Raises NotHereError when it has none."""
    await _check_cluster(call)
    found = await call.broker.policies.document(keys.isolation_policies(call.name("cluster")))
    if found is None:
        raise NotHereError(f"NamespaceIsolationPolicies for cluster {call.params['cluster']} does not exist")
    return found


async def list_policies(call: Call) -> object:
    """Isolation policies of a cluster, by name."""
    return await _set_policies(call)


async def get_policy(call: Call) -> object:
    """An isolation policy."""
    found = (await _set_policies(call)).get(call.name("policy"))
    if found is None:
        cluster = call.params["cluster"]
        raise NotHereError(
            f"Cannot find NamespaceIsolationPolicy {call.params['policy']} for cluster {cluster}"
        )
    return found


def _checked(body: dict[str, object]) -> dict[str, object]:
    for key in _LISTS:
        value = body.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadRequestError(f"{key} must be a list of regular expressions")
        for item in value:
            try:
                re.compile(item)
            except re.error as error:
                raise PreconditionFailedError(f"{item!r} is not a regular expression: {error}") from error
    if not body.get("namespaces") or not body.get("primary"):
        raise PreconditionFailedError("namespaces and primary must name something")
    return body


async def set_policy(call: Call) -> None:
    """Sets the brokers of some namespaces."""
    await _check_cluster(call)
    name, body = call.name("policy"), _checked(call.json_object())

    def change(document: Policies) -> None:
        document[name] = body

    await call.broker.policies.update_document(keys.isolation_policies(call.name("cluster")), change)


async def delete_policy(call: Call) -> None:
    """Deletes an isolation policy."""
    await get_policy(call)
    name = call.name("policy")

    def change(document: Policies) -> None:
        document.pop(name, None)

    await call.broker.policies.update_document(keys.isolation_policies(call.name("cluster")), change)


async def _of_broker(call: Call, broker: str) -> dict[str, object]:
    host = broker.rpartition(":")[0]
    found: list[tuple[str, bool, list[str]]] = []
    for name, policy in (await _policies(call)).items():
        primary = any(re.fullmatch(item, host) or re.fullmatch(item, broker) for item in policy["primary"])
        second = policy.get("secondary") or ()
        if primary or any(re.fullmatch(item, host) or re.fullmatch(item, broker) for item in second):
            found.append((name, primary, policy["namespaces"]))
    first = found[0] if found else (None, False, [])
    return {
        "brokerName": broker,
        "policyName": first[0],
        "isPrimary": first[1],
        "namespaceRegex": [item for each in found for item in each[2]],
    }


async def all_brokers(call: Call) -> object:
    """Brokers with the namespaces that policies give them."""
    await _check_cluster(call)
    return [await _of_broker(call, each) for each in await list_brokers(call)]


async def one_broker(call: Call) -> object:
    """A broker with the namespaces that policies give it."""
    await _check_cluster(call)
    if call.params["broker"] not in await list_brokers(call):
        raise NotHereError(f"broker {call.params['broker'][:100]!r} is not known here")
    return await _of_broker(call, call.params["broker"])


ROUTES: list[Route] = [
    ("GET", _D, list_domains),
    ("GET", f"{_D}/{{domain}}", get_domain),
    ("POST", f"{_D}/{{domain}}", set_domain),
    ("DELETE", f"{_D}/{{domain}}", delete_domain),
    ("GET", _I, list_policies),
    ("GET", f"{_I}/brokers", all_brokers),
    ("GET", f"{_I}/brokers/{{broker}}", one_broker),
    ("GET", f"{_I}/{{policy}}", get_policy),
    ("POST", f"{_I}/{{policy}}", set_policy),
    ("DELETE", f"{_I}/{{policy}}", delete_policy),
]
