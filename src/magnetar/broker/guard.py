"""Where authentication and authorization are plugged into the broker; `Broker.guard` is None without them.

Every refusal, and every change through the admin API, leaves one line in the log `magnetar.audit`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from magnetar.auth.authentication import Authentication
from magnetar.auth.errors import AuthorizationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.permissions import Action, Document, may
from magnetar.auth.proxies import check_original
from magnetar.base.clock import Clock
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import NamespaceNotFoundError
from magnetar.broker.identification import Identification, cut, subject
from magnetar.broker.policies.policies import PolicyStore

_audit = logging.getLogger("magnetar.audit")


@dataclass(frozen=True, slots=True)
class Introduction:
    """The credentials with which a client introduces itself."""

    own: Credentials
    original_role: str = ""
    """Role of the client that a proxy speaks for; "" without a proxy."""
    original: Credentials = field(default=Credentials(""))
    """What that client showed to the proxy, if the proxy forwards it."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A client whose identity is known."""

    identity: Identity
    renewable: Credentials | None
    """Which of its credentials the client itself can renew; None: it has shown none."""
    others_end_ms: int | None = None
    """Unix ms when the credential of the proxy in between ends; None: never, or there is no proxy."""


class Guard(Identification):
    """Authenticates and authorizes clients."""

    def __init__(
        self,
        authentication: Authentication,
        *,
        superuser_roles: frozenset[str],
        policies: PolicyStore,
        clock: Clock,
        authorization: bool = True,
        metrics_roles: frozenset[str] = frozenset(),
        tenant_rates: bool = False,
    ) -> None:
        """Without `authorization` every authenticated client may do everything; `metrics_roles` may read the
        metrics and need no other right for it; `tenant_rates`: administrators of a tenant set its rates."""
        super().__init__(authentication, clock)
        self.superuser_roles = superuser_roles
        """Roles that may do everything."""
        self.authorizes = authorization
        """Whether rights are asked for at all."""
        self._metrics_roles = metrics_roles
        self._tenant_rates = tenant_rates
        self._policies = policies
        self.policy_changes = 0
        """Counts up with each change that may have taken rights away."""

    # -- authentication ------------------------------------------------------------------------------

    async def admit(self, introduction: Introduction, peer: str) -> Admitted:
        """The identity of a client, and the role that it speaks for. Raises AuthenticationError,
        AuthorizationError."""
        own = await self.identify(introduction.own, peer)
        original = introduction.original_role
        self.check_original(own, original, peer)
        if own.role not in self.authentication.proxy_roles:
            return Admitted(own, introduction.own)
        if not self.authentication.verify_original:
            return Admitted(Identity(original, via=own.role, proofs=own.proofs), None, own.expires_ms)
        proven = await self.identify(introduction.original, peer)
        self.check_original(own, proven.role, peer)
        identity = replace(proven, via=own.role, proofs=(*proven.proofs, *own.proofs))
        return Admitted(identity, introduction.original, own.expires_ms)

    def check_original(self, identity: Identity, original: str, peer: str) -> None:
        """Raises AuthorizationError unless the identity may speak for the role `original` ("": none)."""
        try:
            check_original(identity.role, original, self.authentication.proxy_roles)
        except AuthorizationError as error:
            _audit.warning(
                "refused: %s, for role %r: %s", peer, original[:100], cut(str(error)), extra=subject(peer)
            )
            raise

    # -- may they? ---------------------------------------------------------------------------------

    async def require_topic(
        self, identity: Identity, peer: str, action: Action, topic: TopicName, subscription: str = ""
    ) -> None:
        """Raises AuthorizationError, also for what does not exist: a refusal tells nothing of that."""
        if not await self.may_topic(identity, action, topic, subscription):
            what = f"{topic.base}" + (f", subscription {subscription}" if subscription else "")
            raise self._refusal(identity, peer, action, what)

    async def require_namespace(
        self, identity: Identity, peer: str, action: Action, namespace: NamespaceName
    ) -> None:
        """Raises AuthorizationError."""
        if not await self.may_namespace(identity, action, namespace):
            raise self._refusal(identity, peer, action, str(namespace))

    async def require_tenant(self, identity: Identity, peer: str, tenant: str) -> None:
        """For administering a tenant. Raises AuthorizationError."""
        if self.is_superuser(identity):
            return
        document = await self._policies.tenant(tenant) or {}
        for roles in identity.speakers:
            if self.superuser_roles.isdisjoint(roles) and not any(
                may(role, Action.ADMINISTER_TENANT, tenant=document, namespace={}) for role in roles
            ):
                raise self._refusal(identity, peer, Action.ADMINISTER_TENANT, tenant)

    def require_superuser(self, identity: Identity, peer: str) -> None:
        """For administering the cluster. Raises AuthorizationError."""
        if not self.is_superuser(identity):
            raise self._refusal(identity, peer, Action.ADMINISTER_CLUSTER, "cluster")

    async def require_rates(self, identity: Identity, peer: str, tenant: str) -> None:
        """For setting rates of a namespace or topic of the tenant. Raises AuthorizationError."""
        if self._tenant_rates:
            await self.require_tenant(identity, peer, tenant)
        elif not self.is_superuser(identity):
            what = f"rates of tenant: {tenant} (superusers set them, unless tenant_rates is true)"
            raise self._refusal(identity, peer, Action.ADMINISTER_CLUSTER, what)

    def require_metrics(self, identity: Identity, peer: str) -> None:
        """For reading the metrics. Raises AuthorizationError."""
        reads = all(not self._metrics_roles.isdisjoint(roles) for roles in identity.speakers)
        if not (reads or self.is_superuser(identity)):
            raise self._refusal(identity, peer, Action.READ_METRICS, "cluster")

    def is_superuser(self, identity: Identity) -> bool:
        """Whether the identity may do everything."""
        return not self.authorizes or all(
            not self.superuser_roles.isdisjoint(roles) for roles in identity.speakers
        )

    async def may_topic(
        self, identity: Identity, action: Action, topic: TopicName, subscription: str = ""
    ) -> bool:
        """Whether it may, now."""
        return await self._may(identity, action, topic.namespace_name, str(topic.base), subscription)

    async def documents(self, namespace: NamespaceName) -> tuple[Document, Document]:
        """The policies of the tenant and of the namespace; {} of what does not exist."""
        tenant = await self._policies.tenant(namespace.tenant) or {}
        try:
            return tenant, await self._policies.namespace(namespace)
        except NamespaceNotFoundError:
            return tenant, {}

    async def may_namespace(self, identity: Identity, action: Action, namespace: NamespaceName) -> bool:
        """Whether it may, now."""
        return await self._may(identity, action, namespace)

    async def _may(
        self,
        identity: Identity,
        action: Action,
        namespace: NamespaceName,
        topic: str = "",
        subscription: str = "",
    ) -> bool:
        if self.is_superuser(identity):
            return True
        tenant, policies = await self.documents(namespace)
        return all(
            not self.superuser_roles.isdisjoint(roles)
            or any(
                may(role, action, tenant=tenant, namespace=policies, topic=topic, subscription=subscription)
                for role in roles
            )
            for roles in identity.speakers
        )

    @staticmethod
    def _refusal(identity: Identity, peer: str, action: Action, what: str) -> AuthorizationError:
        what = cut(what)
        _audit.warning(
            "refused: role %s of %s may not %s: %s",
            identity,
            peer,
            action.value,
            what,
            extra=subject(peer, identity.role),
        )
        return AuthorizationError(f"role {identity.role!r} may not {action.value}: {what}")


def changed(identity: Identity | None, peer: str, what: str) -> None:
    """Logs a change through the admin API. Without an identity: authentication is off."""
    _audit.info("changed: %s of %s: %s", "everybody" if identity is None else f"role {identity}", peer, what)


def revoked(identity: Identity, peer: str, action: Action, what: str) -> None:
    """Logs that a client was disconnected because a right was revoked."""
    _audit.info("revoked: role %s of %s may no longer %s: %s", identity, peer, action.value, what)


def ended(identity: Identity, peer: str, reason: str) -> None:
    """Notes that a connection is closed because of its credentials."""
    _audit.warning("closed: role %s of %s: %s", identity, peer, reason)
