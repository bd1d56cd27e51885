"""Where authentication and authorization are plugged into the broker; `Broker.guard` is None without them.

Every refusal, and every change through the admin API, leaves one line in the log `magnetar.audit`.
"""

from __future__ import annotations

import logging

from magnetar.auth.authentication import Authentication
from magnetar.auth.errors import AuthenticationError, AuthorizationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.permissions import Action, Document, may
from magnetar.base.clock import Clock
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import NamespaceNotFoundError
from magnetar.broker.policies import PolicyStore
from magnetar.runtime.threads import in_thread

_audit = logging.getLogger("magnetar.audit")


class Guard:
    """Says who somebody is and whether they may."""

    def __init__(
        self,
        authentication: Authentication,
        *,
        superuser_roles: frozenset[str],
        policies: PolicyStore,
        clock: Clock,
    ) -> None:
        self.authentication = authentication
        self._superuser_roles = superuser_roles
        self._policies = policies
        self._clock = clock

    async def identify(self, credentials: Credentials, peer: str) -> Identity:
        """Raises AuthenticationError."""
        provider = self.authentication.provider(credentials)
        now_ms = self._clock.now_ms()
        try:
            if provider is not None and provider.slow:
                return await in_thread(lambda: self.authentication.identify(credentials, now_ms))
            return self.authentication.identify(credentials, now_ms)
        except AuthenticationError as error:
            _audit.warning("refused: credentials of %s, method %r: %s", peer, credentials.method[:40], error)
            raise

    def expired(self, identity: Identity) -> bool:
        """Whether the credential that an identity came from counts no more."""
        return identity.expires_ms is not None and self._clock.now_ms() >= identity.expires_ms

    async def require_topic(
        self, identity: Identity, peer: str, action: Action, topic: TopicName, subscription: str = ""
    ) -> None:
        """Raises AuthorizationError, also for what does not exist: a refusal tells nothing of that."""
        await self._require(
            identity, peer, action, topic.namespace_name, topic=str(topic.base), subscription=subscription
        )

    async def require_namespace(
        self, identity: Identity, peer: str, action: Action, namespace: NamespaceName
    ) -> None:
        """Raises AuthorizationError."""
        await self._require(identity, peer, action, namespace)

    async def require_tenant(self, identity: Identity, peer: str, tenant: str) -> None:
        """For administering a tenant. Raises AuthorizationError."""
        document = await self._policies.tenant(tenant) or {}
        if identity.role not in self._superuser_roles and not may(
            identity.role, Action.ADMINISTER_TENANT, tenant=document, namespace={}
        ):
            raise self._refusal(identity, peer, Action.ADMINISTER_TENANT, tenant)

    def require_superuser(self, identity: Identity, peer: str) -> None:
        """For administering the cluster. Raises AuthorizationError."""
        if identity.role not in self._superuser_roles:
            raise self._refusal(identity, peer, Action.ADMINISTER_CLUSTER, "cluster")

    async def _require(
        self,
        identity: Identity,
        peer: str,
        action: Action,
        namespace: NamespaceName,
        topic: str = "",
        subscription: str = "",
    ) -> None:
        role = identity.role
        if role in self._superuser_roles:
            return
        tenant = await self._policies.tenant(namespace.tenant) or {}
        policies: Document
        try:
            policies = await self._policies.namespace(namespace)
        except NamespaceNotFoundError:
            policies = {}
        if may(role, action, tenant=tenant, namespace=policies, topic=topic, subscription=subscription):
            return
        what = f"{topic or namespace}" + (f", subscription {subscription}" if subscription else "")
        raise self._refusal(identity, peer, action, what)

    @staticmethod
    def _refusal(identity: Identity, peer: str, action: Action, what: str) -> AuthorizationError:
        _audit.warning("refused: role %r of %s may not %s: %s", identity.role, peer, action.value, what)
        return AuthorizationError(f"role {identity.role!r} may not {action.value}: {what}")


def changed(identity: Identity, peer: str, what: str) -> None:
    """Notes that a change through the admin API was made."""
    _audit.info("changed: role %r of %s: %s", identity.role, peer, what)
