"""Shows and splits the bundles of a namespace (`namespaces.py` unloads them); anti-affinity groups."""

from __future__ import annotations

import itertools
from typing import Final

from magnetar.admin.calls.call import Call, Route
from magnetar.admin.calls.errors import BadRequestError, NotHereError
from magnetar.admin.namespaces import bundle_splits, bundles
from magnetar.admin.topics.stats import asked, topic_stats
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.policies.bundles import WHOLE, covers, hash_of
from magnetar.broker.policies.policies import Policies
from magnetar.metadata import keys

_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_ANTI_AFFINITY: Final = "namespaceAntiAffinityGroup"
_BOOKIES: Final = "bookieAffinityGroup"


async def show(call: Call) -> object:
    """Boundaries of a namespace's bundles."""
    document = await call.broker.policies.namespace(call.namespace())
    return document.get("bundles") or WHOLE


async def split(call: Call) -> None:
    """Splits a bundle in two.

    Query: `splitAlgorithmName`, else in the middle, or at the boundaries of the body; `unload` also unloads
    the topics of the bundle. The bundle may be LARGEST or HOT.
    """
    name, bundle = call.namespace(), call.params["bundle"]
    document = await call.broker.policies.namespace(name)
    known = [int(bound, 16) for bound in (document.get("bundles") or WHOLE)["boundaries"]]
    wanted = call.json()
    if wanted is None:
        wanted = []
    if not isinstance(wanted, list) or not all(isinstance(each, int) for each in wanted):
        raise BadRequestError("boundaries must be a list of numbers")
    busy = {hash_of(topic): _bytes_per_s(call, topic) for topic in await call.broker.topics_of(name)}
    if bundle in (bundle_splits.LARGEST, bundle_splits.HOT):
        bounds = bundle_splits.chosen(
            {
                (lower, upper): sum(
                    1.0 if bundle == bundle_splits.LARGEST else rate
                    for place, rate in busy.items()
                    if covers((lower, upper), place)
                )
                for lower, upper in itertools.pairwise(known)
            }
        )
    else:
        bundles.check_known(name, bundle, document)
        bounds = bundles.bounds_of(bundle)
    found = bundle_splits.cuts(
        call.query.get("splitAlgorithmName", ""),
        bounds,
        positions=wanted,
        topics={place: rate for place, rate in busy.items() if covers(bounds, place)},
    )
    if len(known) - 1 + len(found) > bundles.BUNDLES_MAX:
        raise PreconditionFailedError(f"a namespace has {bundles.BUNDLES_MAX} bundles at most")

    def change(policies: Policies) -> None:
        # As they are now: another split may have been first.
        now = {int(bound, 16) for bound in (policies.get("bundles") or WHOLE)["boundaries"]}
        after = sorted({*now, *found})
        policies["bundles"] = {
            "boundaries": [f"0x{bound:08x}" for bound in after],
            "numBundles": len(after) - 1,
        }

    if found:
        await call.broker.policies.update_namespace(name, change)
    if call.broker.owners is not None:
        # Its record names a range that there is no more; its parts get owners when they are looked up.
        await call.broker.owners.move(Bundle(name, *bounds))
    elif call.flag("unload"):
        for topic in await call.broker.topics_of(name):
            if covers(bounds, hash_of(topic)):
                await call.broker.unload(topic)


def _bytes_per_s(call: Call, name: TopicName) -> float:
    """Bytes per second in and out; 0 for a topic that is not loaded."""
    topic = call.broker.topics.get(str(name))
    if topic is None:
        return 0.0
    stats = topic_stats(topic, asked(call))
    return float(stats["msgThroughputIn"]) + float(stats["msgThroughputOut"])


async def positions(call: Call) -> object:
    """Hashes of a bundle's topics."""
    name, bundle = call.namespace(), call.params["bundle"]
    await call.broker.policies.namespace(name)
    wanted = {text for text in call.query.get("topics", "").split(",") if text}
    topics = [topic for topic in await call.broker.topics_of(name) if bundles.within(topic, bundle)]
    return {
        "namespace": str(name),
        "bundle": bundle,
        "topicHashPositions": {
            str(topic): hash_of(topic) for topic in topics if not wanted or str(topic) in wanted
        },
    }


# -- what the cluster keeps of a namespace -----------------------------------------------------------


async def _local(call: Call) -> Policies:
    await call.broker.policies.namespace(call.namespace())
    return await call.broker.policies.document(keys.local_policies(call.namespace())) or {}


async def _put_local(call: Call, key: str, value: object) -> None:
    await call.broker.policies.namespace(call.namespace())

    def change(document: Policies) -> None:
        document.pop(key, None)
        if value is not None:
            document[key] = value

    await call.broker.policies.update_document(keys.local_policies(call.namespace()), change)


async def get_anti_affinity(call: Call) -> object:
    """The anti-affinity group of a namespace; its namespaces should not be served by the same broker."""
    return (await _local(call)).get(_ANTI_AFFINITY)


async def set_anti_affinity(call: Call) -> None:
    """Puts a namespace into an anti-affinity group. Several brokers spread it from the next placement on."""
    # As JSON, or as it is: Pulsar's own tool sends it so.
    group = call.body.decode("utf-8", "replace").strip().strip('"')
    if not group:
        raise PreconditionFailedError(
            "Anti-affinity group can't be empty", remedy="the body must be the name of a group"
        )
    await _put_local(call, _ANTI_AFFINITY, group)


async def remove_anti_affinity(call: Call) -> None:
    """Takes a namespace out of its anti-affinity group."""
    await _put_local(call, _ANTI_AFFINITY, None)


async def anti_affine(call: Call) -> object:
    """Namespaces of an anti-affinity group."""
    policies, found = call.broker.policies, []
    if await policies.cluster_document(call.name("cluster")) is None:
        raise NotHereError(f"cluster {call.params['cluster']} does not exist")
    for tenant in await policies.tenants():
        for name in await policies.namespaces(tenant):
            local = await policies.document(keys.local_policies(NamespaceName.parse(name))) or {}
            if local.get(_ANTI_AFFINITY) == call.params["group"]:
                found.append(name)
    return found


async def get_bookie_affinity(call: Call) -> object:
    """Groups of bookies that should store a namespace."""
    return (await _local(call)).get(_BOOKIES)


async def set_bookie_affinity(call: Call) -> None:
    """Sets the groups of bookies for a namespace. A single bookie stores everything nevertheless."""
    body = call.json_object()
    if not isinstance(body.get("bookkeeperAffinityGroupPrimary"), str):
        raise BadRequestError('the body must be {"bookkeeperAffinityGroupPrimary": "name", ...}')
    await _put_local(call, _BOOKIES, body)


async def remove_bookie_affinity(call: Call) -> None:
    """Any bookie may store the namespace again."""
    await _put_local(call, _BOOKIES, None)


ROUTES: list[Route] = [
    ("GET", f"{_N}/bundles", show),
    ("PUT", f"{_N}/{{bundle}}/split", split),
    ("GET", f"{_N}/{{bundle}}/topicHashPositions", positions),
    ("GET", f"{_N}/antiAffinity", get_anti_affinity),
    ("POST", f"{_N}/antiAffinity", set_anti_affinity),
    ("DELETE", f"{_N}/antiAffinity", remove_anti_affinity),
    # Pulsar's own tool asks by the older path.
    ("GET", "/admin/namespaces/{cluster}/antiAffinity/{group}", anti_affine),
    ("GET", f"{_N}/persistence/bookieAffinity", get_bookie_affinity),
    ("POST", f"{_N}/persistence/bookieAffinity", set_bookie_affinity),
    ("DELETE", f"{_N}/persistence/bookieAffinity", remove_bookie_affinity),
]
