"""The keyspace: where each kind of value lies. Paths are Pulsar's, so that its tools read our tree.

| Key | Value | Written by |
|---|---|---|
| `/admin/clusters/{cluster}` | cluster data, JSON | admin |
| `/admin/configuration` | settings changed at run time, by Pulsar's names, JSON | admin |
| `/admin/policies/{tenant}` | tenant: roles and clusters, JSON | admin |
| `/admin/policies/{tenant}/{namespace}` | namespace policies, JSON | admin |
| `/admin/local-policies/{tenant}/{namespace}` | bundles of this cluster, JSON | admin, broker |
| `/admin/topic-policies/{tenant}/{namespace}/{domain}/{topic}` | a topic's policies in all clusters | admin |
| `/admin/local-policies/topic-policies/{...}/{topic}` | a topic's policies in this cluster | admin |
| `/admin/resourcegroups/{group}` | rates that namespaces share, JSON | admin |
| `/admin/clusters/{cluster}/failureDomain/{domain}` | brokers that fail together, JSON | admin |
| `/admin/clusters/{cluster}/namespaceIsolationPolicies` | who serves which namespaces, JSON | admin |
| `/bookies` | where bookies stand, JSON | admin |
| `/loadbalance/resource-quota/...` | what bundles need, JSON | admin |
| `/admin/partitioned-topics/{tenant}/{namespace}/{domain}/{topic}` | `{"partitions": n}` | admin, broker |
| `/managed-ledgers/{tenant}/{namespace}/persistent/{topic}` | list of ledgers, protobuf | managedlog |
| `/managed-ledgers/{...}/{topic}/{cursor}` | cursor, protobuf | managedlog |
| `/schemas/{tenant}/{namespace}/{topic}` | schema locator, protobuf | schemas |
| `/namespace/{tenant}/{namespace}/{bundle}` | owner, JSON, ephemeral | broker |
| `/loadbalance/brokers/{broker}` | broker data, JSON, ephemeral | broker |
| `/counters/producer-name` | sequential: makes names of producers unique | broker |
| `/ledgers/...` | ledgers of BookKeeper | ledger |
| `/magnetar/offload-stores/{store}` | what was last written to an object store's record, JSON | tiered |
| `/magnetar/offload-places` | where the object store of the data folder has been, JSON | managedlog |
| `/magnetar/offload-owner` | id of this installation, for object stores | managedlog |
| `/magnetar/unnamed-ledgers` | ledgers that no log names, JSON | managedlog |
| `/magnetar/generation` | how new this metadata is, decimal | ledger |
| `/magnetar/bookies-beside/{bookie}` | generation of a bookie beside the broker, decimal | ledger |
| `/magnetar/deletions/{ledger}` | a deletion that is under way, empty | ledger |
| `/magnetar/transactions/coordinators/{coordinator}` | numbers below are given out, decimal | broker |
| `/magnetar/transactions/headers/{coordinator}/{number}` | a transaction, JSON; decides it | broker |
| `/magnetar/transactions/outcomes/{coordinator}/{page}` | how 1,024 transactions ended | broker |
| `/magnetar/transactions/hidden/{...}/{topic}/{ledger}` | entries of aborted transactions, a set | broker |

`{topic}` and `{cursor}` are encoded as Java's URLEncoder does; tenants, namespaces and clusters hold
only characters that need no encoding; a bundle is `0x00000000_0x40000000`.
"""

from __future__ import annotations

from typing import Final

from magnetar.base.names import NamespaceName, TopicName, decode_local, encode_local

ADMIN: Final = "/admin"
"""Above all that administrators set."""

CLUSTERS: Final = "/admin/clusters"
"""Children: names of clusters."""

CONFIGURATION: Final = "/admin/configuration"
"""Settings that were changed while brokers run."""

POLICIES: Final = "/admin/policies"
"""Children: names of tenants; below each, names of its namespaces."""

MANAGED_LEDGERS: Final = "/managed-ledgers"

SCHEMAS: Final = "/schemas"
"""Below: the schemas of topics, by version."""

PRODUCER_NAME_COUNTER: Final = "/counters/producer-name"

OFFLOAD_OWNER: Final = "/magnetar/offload-owner"
"""Which installation this is: object stores note who wrote to them first."""

GENERATION: Final = "/magnetar/generation"
"""How new this metadata is: copies of it that are restored have a lower number than those who saw it."""

BOOKIES_BESIDE: Final = "/magnetar/bookies-beside"
"""Children: the bookies beside the broker; their folders say the same generation."""

UNNAMED_LEDGERS: Final = "/magnetar/unnamed-ledgers"
"""Ledgers of logs that no log names, and how long they were seen so."""

OFFLOAD_PLACES: Final = "/magnetar/offload-places"
"""URLs that the object store of the data folder has had."""

OFFLOAD_STORES: Final = "/magnetar/offload-stores"
"""Children: the object stores that this installation has written to."""

LEDGERS: Final = "/ledgers"
"""Root of BookKeeper's tree."""

BROKERS: Final = "/loadbalance/brokers"
"""Children: ids of live brokers."""

RESOURCE_GROUPS: Final = "/admin/resourcegroups"
"""Children: names of resource groups."""

BOOKIE_RACKS: Final = "/bookies"
"""Where bookies stand: group → bookie → rack, JSON."""

RESOURCE_QUOTAS: Final = "/loadbalance/resource-quota"
"""What a bundle is expected to need, JSON; children by namespace and bundle."""

BUNDLE_DIGITS: Final = 8
"""Hexadecimal digits of a bundle's bounds."""

TRANSACTIONS: Final = "/magnetar/transactions"
"""All that is kept of transactions."""

TRANSACTION_COORDINATORS: Final = f"{TRANSACTIONS}/coordinators"
"""Children: coordinators that have begun a transaction."""

HIDDEN_ENTRIES: Final = f"{TRANSACTIONS}/hidden"
"""Below: topics that hold entries of aborted transactions, by `TopicName.log_name`."""

_PARTITIONED_TOPICS: Final = "/admin/partitioned-topics"


def cluster(name: str) -> str:
    """Data of a cluster."""
    return f"{CLUSTERS}/{name}"


def cluster_policies(name: str) -> str:
    """Where a cluster's clients are to go, JSON."""
    return f"{CLUSTERS}/{name}/policies"


def failure_domains(cluster: str) -> str:
    """Children: names of the failure domains of a cluster."""
    return f"{CLUSTERS}/{cluster}/failureDomain"


def isolation_policies(cluster: str) -> str:
    """Which brokers serve which namespaces, by name, JSON."""
    return f"{CLUSTERS}/{cluster}/namespaceIsolationPolicies"


def resource_group(name: str) -> str:
    """Rates that namespaces share, JSON."""
    return f"{RESOURCE_GROUPS}/{name}"


def resource_quota(namespace: NamespaceName | None, bundle: str) -> str:
    """What a bundle needs; without a namespace: any."""
    return (
        f"{RESOURCE_QUOTAS}/root"
        if namespace is None
        else f"{RESOURCE_QUOTAS}/namespace/{namespace}/{bundle}"
    )


def tenant(name: str) -> str:
    """A tenant; its children are its namespaces."""
    return f"{POLICIES}/{name}"


def namespace_policies(namespace: NamespaceName) -> str:
    """Policies of a namespace; exists as long as the namespace does."""
    return f"{POLICIES}/{namespace}"


def local_policies(namespace: NamespaceName) -> str:
    """What a namespace has in this cluster alone: its bundles."""
    return f"/admin/local-policies/{namespace}"


def partitioned_topic(topic: TopicName) -> str:
    """How many partitions a topic has. `topic` is the topic's own name, not a partition's."""
    return f"{_PARTITIONED_TOPICS}/{topic.namespace_name}/{topic.domain}/{topic.encoded_local}"


def partitioned_topics(namespace: NamespaceName, domain: str) -> str:
    """Children: the encoded names of the partitioned topics of a namespace."""
    return f"{_PARTITIONED_TOPICS}/{namespace}/{domain}"


def managed_ledgers(namespace: NamespaceName) -> str:
    """Children: the encoded names of the persistent topics of a namespace."""
    return f"{MANAGED_LEDGERS}/{namespace}/persistent"


def cursor(log_name: str, name: str) -> str:
    """A cursor of a managed log; `name` as people write it."""
    return f"{MANAGED_LEDGERS}/{log_name}/{encode_local(name)}"


def topic_policies(topic: TopicName) -> str:
    """Policies set on one topic for all clusters (PIP-469); `topic` is the topic's own name, not a
    partition's."""
    return f"/admin/topic-policies/{_policies_of(topic)}"


def local_topic_policies(topic: TopicName) -> str:
    """Policies set on one topic for this cluster; `topic` as in `topic_policies`."""
    return f"/admin/local-policies/topic-policies/{_policies_of(topic)}"


def _policies_of(topic: TopicName) -> str:
    return f"{topic.namespace_name}/{topic.domain}/{topic.encoded_local}"


def decode_child(name: str) -> str:
    """The topic or cursor that a child's name stands for."""
    return decode_local(name)


def schema(topic: TopicName) -> str:
    """Where the schemas of a topic lie; the partitions of a topic share one."""
    return f"{SCHEMAS}/{topic.namespace_name}/{topic.base.encoded_local}"


def bundle(lower: int, upper: int) -> str:
    """Name of the bundle of hashes `lower` to `upper`, each in 0..0xFFFFFFFF."""
    return f"0x{lower:0{BUNDLE_DIGITS}x}_0x{upper:0{BUNDLE_DIGITS}x}"


def broker(broker_id: str) -> str:
    """A live broker; ephemeral."""
    return f"{BROKERS}/{broker_id}"


def transaction_coordinator(number: int) -> str:
    """Which numbers of transactions a coordinator may have given out."""
    return f"{TRANSACTION_COORDINATORS}/{number}"


def transaction_headers(number: int) -> str:
    """Children: the transactions of a coordinator that are not over, by number."""
    return f"{TRANSACTIONS}/headers/{number}"


def transaction_outcomes(number: int) -> str:
    """Children: pages of what became of a coordinator's transactions."""
    return f"{TRANSACTIONS}/outcomes/{number}"


def hidden_entries(log_name: str) -> str:
    """Children: ledgers of a log with hidden entries."""
    return f"{HIDDEN_ENTRIES}/{log_name}"
