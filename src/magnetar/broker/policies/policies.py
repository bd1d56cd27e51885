"""Clusters, tenants, namespaces and their policies, stored as Pulsar stores them (JSON)."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, cast

from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import (
    ConflictError,
    NamespaceNotFoundError,
    ServiceNotReadyError,
    TopicNotFoundError,
)
from magnetar.broker.policies.bundles import DEFAULT_BUNDLES, equal_parts
from magnetar.broker.policies.document_cache import DocumentCache
from magnetar.broker.policies.policy_shapes import passed_over, without
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError, object_of
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    HasChildrenError,
    MetadataStore,
    NotFoundError,
    Put,
)

_log = logging.getLogger("magnetar.broker")

_PARTITIONS_MAX: Final = (1 << 31) - 1
"""What the protocol's numbers can hold."""

_DELETED: Final = "deleted"
"""Field of a partitioned topic: whether it is being deleted."""

Policies = dict[str, Any]
"""A policies document as Pulsar's admin API shows it."""

_EXISTS: Final = {
    "tenant": "Tenant already exist",
    "namespace": "Namespace already exists",
    "partitioned": "This topic already exists",
}
"""Pulsar's words, by the first of ours."""


class PolicyStore:
    """Reads through a cache, from which a document is dropped when the store reports its change."""

    def __init__(self, store: MetadataStore, cluster: str) -> None:
        self.documents: DocumentCache[Policies] = DocumentCache(store)
        self._store = store
        self.cluster = cluster

    def close(self) -> None:
        """Stops watching."""
        self.documents.close()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """See `DocumentCache.on_change`."""
        self.documents.on_change(listener)

    async def _read(self, path: str, *, of: str = "") -> Policies | None:
        """`of`: the document is that of a "namespace", "topic", "tenant" or "group", and holds nothing that
        cannot be used. Raises DamagedDocumentError."""

        def decoded(data: bytes) -> Policies:
            document = object_of(path, data)
            return _usable(path, document, of) if of else document

        return await self.documents.read(path, decoded)

    async def _create(self, path: str, document: Policies, what: str) -> None:
        try:
            await self._store.put(path, _encode(document), expected_version=MUST_NOT_EXIST)
        except BadVersionError as error:
            raise ConflictError(_EXISTS[what.partition(" ")[0]], remedy=f"{what} is there") from error

    async def bootstrap(self, broker_url: str, http_url: str) -> None:
        """Makes what a cluster starts with: its document, tenant `public`, namespace `public/default`."""
        document = _encode({"serviceUrl": http_url, "brokerServiceUrl": broker_url})
        if not self.documents.shared:
            await self._store.put(keys.cluster(self.cluster), document)
        elif not await self._store.exists(keys.cluster(self.cluster)):
            # Another broker may be faster; so below.
            with contextlib.suppress(BadVersionError):
                await self._store.put(keys.cluster(self.cluster), document, expected_version=MUST_NOT_EXIST)
        for tenant, namespaces in (("public", ("default", "functions")), ("pulsar", ("system",))):
            # Whether they are there: a damaged one must not keep the broker from starting.
            if not await self._store.exists(keys.tenant(tenant)):
                with contextlib.suppress(ConflictError):  # as above
                    await self.create_tenant(tenant, {"adminRoles": [], "allowedClusters": [self.cluster]})
            for namespace in namespaces:
                name = NamespaceName(tenant, namespace)
                if not await self._store.exists(keys.namespace_policies(name)):
                    with contextlib.suppress(ConflictError, DamagedDocumentError):  # as above
                        await self.create_namespace(name, {})

    # -- settings ----------------------------------------------------------------------------------

    async def configuration(self) -> Policies:
        """Settings that were changed while brokers run, by Pulsar's names, as texts."""
        return await self._read(keys.CONFIGURATION) or {}

    async def update_configuration(self, change: Callable[[Policies], None]) -> None:
        """Changes them in one step."""
        await self._create_or_update(keys.CONFIGURATION, change)

    # -- documents by key --------------------------------------------------------------------------

    async def resource_group(self, name: str) -> Policies | None:
        """Rates that namespaces share."""
        return await self._read(keys.resource_group(name), of="group")

    async def document(self, path: str) -> Policies | None:
        """A document below `/admin` by its key; None when there is none."""
        return await self._read(path)

    async def fresh_document(self, path: str) -> Policies | None:
        """A document read from the store: changes outside of `/admin` are not reported to the cache."""
        value = await self._store.get(path)
        return None if value is None else object_of(path, value.data)

    async def update_document(self, path: str, change: Callable[[Policies], None]) -> None:
        """Changes a document in one step; it is {} before the first time."""
        await self._create_or_update(path, change)

    # -- clusters and tenants ----------------------------------------------------------------------

    async def clusters(self) -> list[str]:
        return await self._store.children(keys.CLUSTERS)

    async def cluster_document(self, name: str) -> Policies | None:
        return await self._read(keys.cluster(name))

    async def tenants(self) -> list[str]:
        return await self._store.children(keys.POLICIES)

    async def tenant(self, name: str) -> Policies | None:
        return await self._read(keys.tenant(name), of="tenant")

    async def create_tenant(self, name: str, document: Policies) -> None:
        """Raises ConflictError when it exists."""
        await self._create(keys.tenant(name), document, f"tenant {name}")

    async def update_tenant(self, name: str, document: Policies) -> None:
        """Raises NamespaceNotFoundError when it does not exist."""

        def replaced(current: Policies) -> None:
            current.clear()
            current.update(document)

        # By its version: one that is deleted meanwhile must not come back.
        missing = NamespaceNotFoundError("Tenant does not exist", remedy=f"there is no tenant {name}")
        await self._update(keys.tenant(name), replaced, missing)

    async def delete_tenant(self, name: str) -> None:
        """Deletes a tenant. Raises ConflictError while it has namespaces, NamespaceNotFoundError."""
        if await self.tenant(name) is None:
            raise NamespaceNotFoundError("Tenant does not exist", remedy=f"there is no tenant {name}")
        try:
            # The store looks for namespaces and deletes in one step: another broker may make one meanwhile.
            await self._store.delete(keys.tenant(name))
        except HasChildrenError as error:
            raise ConflictError(
                "The tenant still has active namespaces", remedy="delete them, or add ?force=true"
            ) from error

    # -- namespaces --------------------------------------------------------------------------------

    async def namespaces(self, tenant: str) -> list[str]:
        """Full names `tenant/namespace`."""
        return [f"{tenant}/{name}" for name in await self._store.children(keys.tenant(tenant))]

    async def namespace(self, name: NamespaceName) -> Policies:
        """Its policies. Raises NamespaceNotFoundError."""
        document = await self._read(keys.namespace_policies(name), of="namespace")
        if document is None:
            raise NamespaceNotFoundError(
                "Namespace does not exist", remedy=f"create {name} with PUT /admin/v2/namespaces/{name}"
            )
        return document

    async def create_namespace(self, name: NamespaceName, document: Policies) -> None:
        """Raises ConflictError when it exists, NamespaceNotFoundError when its tenant does not."""
        remedy = f"create {name.tenant} with PUT /admin/v2/tenants/{name.tenant}"
        missing = NamespaceNotFoundError("Tenant does not exist", remedy=remedy)
        if await self.tenant(name.tenant) is None:
            raise missing
        complete: Policies = {
            "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
            "replication_clusters": [self.cluster],
            "bundles": equal_parts(DEFAULT_BUNDLES),
            **document,
        }
        # Pulsar's own tool sends an empty list when it was given nothing.
        complete["replication_clusters"] = complete["replication_clusters"] or [self.cluster]
        path = keys.namespace_policies(name)
        # One step with its tenant's unchanged document: another broker may delete that meanwhile.
        while (tenant := await self._store.get(keys.tenant(name.tenant))) is not None:
            same = Put(keys.tenant(name.tenant), tenant.data, tenant.stat.version)
            made = Put(path, _encode(complete), MUST_NOT_EXIST)
            try:
                await self._store.transact([same, made])
            except BadVersionError as error:
                if await self._store.exists(path):
                    raise ConflictError(_EXISTS["namespace"], remedy=f"namespace {name} is there") from error
                continue
            return
        raise missing

    async def update_namespace(self, name: NamespaceName, change: Callable[[Policies], None]) -> None:
        """Changes the policies in one step; `change` edits the document and may be called again."""
        missing = NamespaceNotFoundError("Namespace does not exist", remedy=f"there is no namespace {name}")
        await self._update(keys.namespace_policies(name), change, missing)

    async def _update(self, path: str, change: Callable[[Policies], None], missing: MagnetarError) -> None:
        """Changes a document in one step; raises `missing` when there is none."""
        while True:
            value = await self._store.get(path)
            if value is None:
                raise missing
            document = object_of(path, value.data)
            change(document)
            try:
                await self._store.put(path, _encode(document), expected_version=value.stat.version)
            except BadVersionError:  # another writer was faster: the change is applied to its result
                continue
            return

    async def delete_namespace(self, name: NamespaceName) -> None:
        await self.namespace(name)
        await self._store.delete(keys.namespace_policies(name))

    # -- topic policies ----------------------------------------------------------------------------

    async def topic_policies(self, topic: TopicName) -> Policies:
        """Policies set on the topic itself; {} when there are none. Partitions share their topic's.

        Policies for this cluster override those for all.
        """
        everywhere = await self._read(keys.topic_policies(topic.base), of="topic")
        here = await self._read(keys.local_topic_policies(topic.base), of="topic")
        if not everywhere:
            return here or {}
        return {**everywhere, **here} if here else everywhere

    async def own_topic_policies(self, topic: TopicName, *, everywhere: bool = False) -> Policies:
        """Those set for this cluster alone, or with `everywhere` those set for all."""
        return await self._read(_topic_key(topic, everywhere=everywhere), of="topic") or {}

    async def update_topic(
        self, topic: TopicName, change: Callable[[Policies], None], *, everywhere: bool = False
    ) -> None:
        """Changes the topic's own policies in one step: for this cluster, or `everywhere` for all."""
        await self._create_or_update(_topic_key(topic, everywhere=everywhere), change)

    async def forget_topic(self, topic: TopicName) -> None:
        """Removes all policies set on the topic itself."""
        for everywhere in (False, True):
            await self._store.delete_recursive(_topic_key(topic, everywhere=everywhere))

    async def _create_or_update(self, path: str, change: Callable[[Policies], None]) -> None:
        while True:
            value = await self._store.get(path)
            document: Policies = {} if value is None else object_of(path, value.data)
            change(document)
            expected = MUST_NOT_EXIST if value is None else value.stat.version
            try:
                await self._store.put(path, _encode(document), expected_version=expected)
            except BadVersionError:  # another writer was faster: the change is applied to its result
                continue
            return

    # -- partitioned topics ------------------------------------------------------------------------

    async def partitions(self, topic: TopicName) -> int:
        """Number of partitions; 0 when the topic is not a partitioned one."""
        document = await self._read(keys.partitioned_topic(topic.base))
        if document is None:
            return 0
        return partitions_of(keys.partitioned_topic(topic.base), document)

    async def partitioned_properties(self, topic: TopicName) -> dict[str, str]:
        """Properties of a partitioned topic; kept beside the number of its partitions, as in Pulsar."""
        document = await self._read(keys.partitioned_topic(topic.base))
        properties = None if document is None else document.get("properties")
        return dict(properties) if isinstance(properties, dict) else {}

    async def create_partitioned(
        self, topic: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Raises ConflictError when it exists."""
        document: Policies = {"partitions": partitions}
        if properties:
            document["properties"] = dict(properties)
        await self._create(keys.partitioned_topic(topic), document, f"partitioned topic {topic}")

    async def grow_partitioned(self, topic: TopicName, partitions: int) -> None:
        """Raises TopicNotFoundError, or ConflictError when it would shrink."""

        def grow(document: Policies) -> None:
            current = partitions_of(keys.partitioned_topic(topic), document)
            if partitions < current:
                raise ConflictError(f"{topic} has {current} partitions; partitions cannot be taken away")
            document["partitions"] = partitions

        await self.update_partitioned(topic, grow)

    async def update_partitioned(self, topic: TopicName, change: Callable[[Policies], None]) -> None:
        """Changes what is kept of a partitioned topic in one step. Raises TopicNotFoundError."""
        missing = TopicNotFoundError(f"{topic} is not a partitioned topic")
        await self._update(keys.partitioned_topic(topic), change, missing)

    async def mark_deleted(self, topic: TopicName, *, deleted: bool) -> None:
        """Keeps all brokers from making partitions of the topic, or ends that. Pulsar's field. Raises
        TopicNotFoundError."""

        def mark(document: Policies) -> None:
            document[_DELETED] = deleted

        await self.update_partitioned(topic, mark)

    async def check_kept(self, topic: TopicName) -> None:
        """Raises ServiceNotReadyError while the partitioned topic is being deleted, by whatever broker.

        For a persistent topic, what the store has now decides, and not what its server or the cache has heard
        of: no log may be made after the deletion has begun.
        """
        path = keys.partitioned_topic(topic.base)
        if topic.persistent:
            await self._store.sync()
            document = await self.fresh_document(path)
        else:
            document = await self._read(path)
        if document is not None and document.get(_DELETED) is True:
            raise ServiceNotReadyError(f"{topic.base} is being deleted; try again when it is gone")

    async def delete_partitioned(self, topic: TopicName) -> None:
        """Raises TopicNotFoundError."""
        try:
            await self._store.delete(keys.partitioned_topic(topic))
        except NotFoundError as error:
            raise TopicNotFoundError(f"{topic} is not a partitioned topic") from error

    async def partitioned_topics(self, name: NamespaceName, domain: str = "persistent") -> list[TopicName]:
        locals_ = await self._store.children(keys.partitioned_topics(name, domain))
        return [
            TopicName.of(domain, name.tenant, name.namespace, keys.decode_child(local)) for local in locals_
        ]


def partitions_of(path: str, document: Policies) -> int:
    """Raises DamagedDocumentError."""
    partitions = document.get("partitions")
    if type(partitions) is not int or not 0 <= partitions <= _PARTITIONS_MAX:
        raise DamagedDocumentError(path, "it has no number of partitions")
    return partitions


_ROLES: Final = ("adminRoles", "allowedClusters")
_RATE_ENDS: Final = ("InMsgs", "InBytes")


def _is_names(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def _is_rate(value: object) -> bool:
    return value is None or (type(value) in (int, float) and isfinite(cast(float, value)))


def unusable(document: Policies, of: str) -> list[str]:
    """Parts that would break readers, or give rights: a text in place of a list contains every part of it."""
    if of == "tenant":
        return [key for key in _ROLES if not _is_names(document.get(key))]
    if of == "group":
        return [key for key in document if key.endswith(_RATE_ENDS) and not _is_rate(document[key])]
    return passed_over(document, of_topic=of == "topic")


def _usable(path: str, document: Policies, of: str) -> Policies:
    """The document without parts that would break its readers."""
    if wrong := unusable(document, of):
        _log.warning("parts of %s cannot be used and delete nothing: %s", path, ", ".join(wrong))
    return without(document, wrong) if wrong else document


def _topic_key(topic: TopicName, *, everywhere: bool) -> str:
    return keys.topic_policies(topic.base) if everywhere else keys.local_topic_policies(topic.base)


def _encode(document: Policies) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
