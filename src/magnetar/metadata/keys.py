"""The keyspace: the path of each kind of value. Paths are Pulsar's, so that its tools read our tree.

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
| `/admin/clusters/{cluster}/namespaceIsolationPolicies` | brokers of namespaces, JSON | admin |
| `/bookies` | racks of bookies, JSON | admin |
| `/loadbalance/resource-quota/...` | expected load of bundles, JSON | admin |
| `/admin/partitioned-topics/{tenant}/{namespace}/{domain}/{topic}` | `{"partitions": n}` | admin, broker |
| `/managed-ledgers/{tenant}/{namespace}/persistent/{topic}` | list of ledgers, protobuf | managedlog |
| `/managed-ledgers/{...}/{topic}/{cursor}` | cursor, protobuf | managedlog |
| `/schemas/{tenant}/{namespace}/{topic}` | schema locator, protobuf | schemas |
| `/namespace/{tenant}/{namespace}/{bundle}` | owner, JSON, ephemeral | broker |
| `/loadbalance/brokers/{broker}` | broker data, JSON, ephemeral | broker |
| `/loadbalance/leader` | the broker that evens the load, JSON, ephemeral | broker |
| `/magnetar/ledgers-of` | which bookies the ledgers of this cluster are on, JSON | server |
| `/magnetar/given-up` | lost entries of a cluster that operators gave up, JSON | server |
| `/magnetar/last-moves` | bundles that the leader moved last, JSON | broker |
| `/counters/producer-name` | sequential: makes names of producers unique | broker |
| `/ledgers/...` | ledgers of BookKeeper | ledger |
| `/magnetar/offload-stores/{store}` | copy of the record last written to an object store, JSON | tiered |
| `/magnetar/offload-places` | earlier URLs of the object store in the data folder, JSON | managedlog |
| `/magnetar/offload-owner` | id of this installation, for object stores | managedlog |
| `/magnetar/unnamed-ledgers` | ledgers that no log names, JSON | managedlog |
| `/magnetar/generation` | generation of this metadata, decimal; a restored copy has a lower one | ledger |
| `/magnetar/bookies-beside/{bookie}` | generation of a bookie beside the broker, decimal | ledger |
| `/magnetar/deletions/{ledger}` | marks a ledger whose deletion is under way, empty | ledger |
| `/magnetar/functions/{tenant}/{namespace}/{function}` | a function, JSON | functions |
| `/magnetar/packages/{type}/{tenant}/{namespace}/{package}/{version}` | a package, JSON | functions |
| `/magnetar/function-files/{path}` | a file that was uploaded by path, JSON | functions |
| `/magnetar/transactions/coordinators/{coordinator}` | first number not yet reserved, decimal | broker |
| `/magnetar/transactions/headers/{coordinator}/{number}` | state of a transaction, JSON | broker |
| `/magnetar/transactions/log/{record}` | changes of headers, see `header_log.py`, and a copy | broker |
| `/magnetar/transactions/outcomes/{coordinator}/{page}` | outcomes of 1,024 transactions | broker |
| `/magnetar/transactions/damaged-outcomes/{coordinator}/{page}-{sum}` | a damaged page of outcomes | broker |
| `/magnetar/transactions/hidden/{...}/{topic}/{ledger}` | entries of aborted transactions, a set | broker |
| `/magnetar/transactions/parts/{...}/{topic}/{coordinator}-{number}` | part of a topic, JSON | broker |
| `/magnetar/transactions/damaged-parts/{...}/{topic}/{coordinator}-{number}-{sum}` | damaged parts | broker |
| `/magnetar/transactions/wishes/{coordinator}/{number}` | why a transaction is to be aborted, text | broker |
| `/magnetar/transactions/shared` | marks transactions of several brokers, empty | broker |

`{topic}`, `{cursor}`, `{function}`, `{package}`, `{version}` and `{path}` are encoded as Java's URLEncoder
does; tenants, namespaces and clusters hold only characters that need no encoding; a bundle is
`0x00000000_0x40000000`.
"""

from __future__ import annotations

from typing import Final

from magnetar.base.names import NamespaceName, TopicName, decode_local, encode_local

ADMIN: Final = "/admin"
"""Parent of all that administrators set."""

CLUSTERS: Final = "/admin/clusters"
"""Children: names of clusters."""

CONFIGURATION: Final = "/admin/configuration"
"""Settings that were changed while brokers run, JSON."""

POLICIES: Final = "/admin/policies"
"""Children: names of tenants; below each, names of its namespaces."""

MANAGED_LEDGERS: Final = "/managed-ledgers"

SCHEMAS: Final = "/schemas"
"""Below: the schemas of topics, by version."""

PRODUCER_NAME_COUNTER: Final = "/counters/producer-name"

OFFLOAD_OWNER: Final = "/magnetar/offload-owner"
"""Id of this installation; an object store's record names the installation that owns it."""

GENERATION: Final = "/magnetar/generation"
"""Generation of this metadata: a copy restored from a backup has a lower number than the bookies have
seen."""

BOOKIES_BESIDE: Final = "/magnetar/bookies-beside"
"""Children: the bookies beside the broker; their folders hold the same generation."""

UNNAMED_LEDGERS: Final = "/magnetar/unnamed-ledgers"
"""Ledgers that no log names, each with the time of the first check that found it so."""

OFFLOAD_PLACES: Final = "/magnetar/offload-places"
"""Earlier URLs of the object store that lies in the data folder."""

OFFLOAD_STORES: Final = "/magnetar/offload-stores"
"""Children: the object stores that this installation has written to."""

LEDGERS: Final = "/ledgers"
"""Root of BookKeeper's tree."""

BROKERS: Final = "/loadbalance/brokers"
"""Children: ids of live brokers."""

LEADER: Final = "/loadbalance/leader"
"""The broker that evens the load."""

LEDGERS_OF: Final = "/magnetar/ledgers-of"
"""Which bookies the ledgers of this cluster are on."""

GIVEN_UP: Final = "/magnetar/given-up"
"""Lost entries that operators gave up."""

LAST_MOVES: Final = "/magnetar/last-moves"
"""Bundles that the leader moved last."""

RESOURCE_GROUPS: Final = "/admin/resourcegroups"
"""Children: names of resource groups."""

BOOKIE_RACKS: Final = "/bookies"
"""Racks of bookies: group → bookie → rack, JSON."""

RESOURCE_QUOTAS: Final = "/loadbalance/resource-quota"
"""Expected load of a bundle, JSON; children by namespace and bundle."""

BUNDLE_DIGITS: Final = 8
"""Hexadecimal digits of a bundle's bounds."""

FUNCTIONS: Final = "/magnetar/functions"
"""Children: tenants; below each, namespaces and their functions."""

PACKAGES: Final = "/magnetar/packages"
"""Children: types of packages; below each, tenants, namespaces, packages and their versions."""

FUNCTION_FILES: Final = "/magnetar/function-files"
"""Children: files that were uploaded by path."""

TRANSACTIONS: Final = "/magnetar/transactions"
"""Parent of all values of transactions."""

TRANSACTION_COORDINATORS: Final = f"{TRANSACTIONS}/coordinators"
"""Children: coordinators that have begun a transaction."""

HIDDEN_ENTRIES: Final = f"{TRANSACTIONS}/hidden"
"""Below: topics that hold entries of aborted transactions, by `TopicName.log_name`."""

TRANSACTION_HEADERS: Final = f"{TRANSACTIONS}/headers"
"""Children: coordinators; below each, its unfinished transactions by number."""

TRANSACTION_LOG: Final = f"{TRANSACTIONS}/log"
"""Children: records of the log of headers, as NUMBER and NUMBER-copy: `broker/transactions/header_log.py`."""

TRANSACTION_PARTS: Final = f"{TRANSACTIONS}/parts"
"""Below: topics that take part in transactions of several brokers, by `TopicName.log_name`."""

TRANSACTION_WISHES: Final = f"{TRANSACTIONS}/wishes"
"""Below: transactions that the broker of a topic wants to have aborted, by coordinator and number."""

TRANSACTIONS_SHARED: Final = f"{TRANSACTIONS}/shared"
"""Is there when transactions are those of several brokers: each topic has a value of its part in one."""

_PARTITIONED_TOPICS: Final = "/admin/partitioned-topics"


def cluster(name: str) -> str:
    """Data of a cluster."""
    return f"{CLUSTERS}/{name}"


def cluster_policies(name: str) -> str:
    """Cluster to which the clients of a cluster are directed, JSON."""
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
    """Expected load of a bundle; `namespace` None: the default of all bundles."""
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


LOCAL_POLICIES: Final = "/admin/local-policies"
"""Below it, by tenant and namespace, what this cluster alone keeps of a namespace."""

TOPIC_POLICIES: Final = "/admin/topic-policies"
"""Below it, by tenant, namespace and domain, the policies of topics for all clusters (PIP-469)."""

LOCAL_TOPIC_POLICIES: Final = f"{LOCAL_POLICIES}/topic-policies"
"""The same for this cluster."""


def local_policies(namespace: NamespaceName) -> str:
    """What this cluster alone keeps of a namespace: its bundles."""
    return f"{LOCAL_POLICIES}/{namespace}"


def partitioned_topic(topic: TopicName) -> str:
    """The number of partitions of a topic. `topic` is the topic's own name, not a partition's."""
    return f"{_PARTITIONED_TOPICS}/{topic.namespace_name}/{topic.domain}/{topic.encoded_local}"


def partitioned_topics(namespace: NamespaceName, domain: str) -> str:
    """Children: the encoded names of the partitioned topics of a namespace."""
    return f"{_PARTITIONED_TOPICS}/{namespace}/{domain}"


def managed_ledgers(namespace: NamespaceName) -> str:
    """Children: the encoded names of the persistent topics of a namespace."""
    return f"{MANAGED_LEDGERS}/{namespace}/persistent"


def cursor(log_name: str, name: str) -> str:
    """A cursor of a managed log; `name` as users write it, not encoded."""
    return f"{MANAGED_LEDGERS}/{log_name}/{encode_local(name)}"


def topic_policies(topic: TopicName) -> str:
    """Policies set on one topic for all clusters (PIP-469); `topic` is the topic's own name, not a
    partition's."""
    return f"{TOPIC_POLICIES}/{_policies_of(topic)}"


def local_topic_policies(topic: TopicName) -> str:
    """Policies set on one topic for this cluster; `topic` as in `topic_policies`."""
    return f"{LOCAL_TOPIC_POLICIES}/{_policies_of(topic)}"


def _policies_of(topic: TopicName) -> str:
    return f"{topic.namespace_name}/{topic.domain}/{topic.encoded_local}"


def decode_child(name: str) -> str:
    """The topic or cursor that a child's name stands for."""
    return decode_local(name)


def schema(topic: TopicName) -> str:
    """The schemas of a topic; all partitions of a topic share them."""
    return f"{SCHEMAS}/{topic.namespace_name}/{topic.base.encoded_local}"


def bundle(lower: int, upper: int) -> str:
    """Name of the bundle of hashes `lower` to `upper`, each in 0..0xFFFFFFFF."""
    return f"0x{lower:0{BUNDLE_DIGITS}x}_0x{upper:0{BUNDLE_DIGITS}x}"


def broker(broker_id: str) -> str:
    """A live broker; ephemeral."""
    return f"{BROKERS}/{broker_id}"


def functions(namespace: NamespaceName) -> str:
    """Children: the encoded names of the functions of a namespace."""
    return f"{FUNCTIONS}/{namespace}"


def function(namespace: NamespaceName, name: str) -> str:
    """A function; `name` as users write it, not encoded."""
    return f"{FUNCTIONS}/{namespace}/{encode_local(name)}"


def function_file(path: str) -> str:
    """A file that was uploaded by path; `path` as users write it, not encoded."""
    return f"{FUNCTION_FILES}/{encode_local(path)}"


def transaction_coordinator(number: int) -> str:
    """The first transaction number that a coordinator has not reserved."""
    return f"{TRANSACTION_COORDINATORS}/{number}"


def transaction_headers(number: int) -> str:
    """Children: the unfinished transactions of a coordinator, by number."""
    return f"{TRANSACTION_HEADERS}/{number}"


def transaction_outcomes(number: int) -> str:
    """Children: pages of the outcomes of a coordinator's transactions."""
    return f"{TRANSACTIONS}/outcomes/{number}"


def damaged_outcomes(number: int) -> str:
    """Children: damaged pages of outcomes that were put aside before they were overwritten."""
    return f"{TRANSACTIONS}/damaged-outcomes/{number}"


def damaged_parts(log_name: str) -> str:
    """Parent of damaged parts of a topic in transactions that were put aside, by `TopicName.log_name`."""
    return f"{TRANSACTIONS}/damaged-parts/{log_name}"


def hidden_entries(log_name: str) -> str:
    """Children: ledgers of a log with hidden entries."""
    return f"{HIDDEN_ENTRIES}/{log_name}"


def transaction_parts(log_name: str) -> str:
    """Children: transactions in which a log takes part, as `COORDINATOR-NUMBER`."""
    return f"{TRANSACTION_PARTS}/{log_name}"
