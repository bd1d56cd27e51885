"""Callers of a broker and their rights, with real tokens: the same for every protocol."""

from __future__ import annotations

import base64
import json
from typing import Final

from magnetar.auth.authentication import Authentication
from magnetar.auth.token import TokenProvider, new_token, secret_key
from magnetar.base.names import NamespaceName
from support.sessions import TOPIC, World

_SECRET: Final = b"s" * 32
_STRANGE: Final = b"x" * 32


def _token(role: str, *, lasts_s: int | None = None, secret: bytes = _SECRET) -> str:
    return new_token(secret, role, now_s=1_000, lasts_s=lasts_s)


def _unsigned(role: str) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, {"sub": role})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join(part.rstrip("=") for part in encoded) + "."


SHOWN: Final[dict[str, tuple[str, str]]] = {
    "anonymous": ("", ""),
    "wrong": (_token("root", secret=_STRANGE), ""),
    "expired": (_token("root", lasts_s=1), ""),
    "alg=none": (_unsigned("root"), ""),
    "garbage": ("root", ""),
    "proxy alone": (_token("proxy"), ""),
    "root for another": (_token("root"), "boss"),
    "proxy for itself": (_token("proxy"), "proxy"),
    "stranger": (_token("stranger"), ""),
    "foreign": (_token("foreign"), ""),
    "writer": (_token("writer"), ""),
    "reader": (_token("reader"), ""),
    "boss": (_token("boss"), ""),
    "proxy for writer": (_token("proxy"), "writer"),
    "proxy for boss": (_token("proxy"), "boss"),
    "proxy for root": (_token("proxy"), "root"),
    "root": (_token("root"), ""),
}
"""Tokens, and the role that a proxy names. Tenant `public` is administered by boss, tenant `other` by
foreign; writer may produce to public/default, reader consume, proxy both."""
UNKNOWN: Final = frozenset(list(SHOWN)[:8])
"""Callers that are refused before their first request."""
_PROXIED: Final = frozenset(("proxy for writer", "proxy for boss", "proxy for root"))
MAY: Final[dict[str, frozenset[str]]] = {
    "lookup": frozenset(("writer", "reader", "boss", "root")) | _PROXIED,
    "namespace": frozenset(("writer", "reader", "boss", "root")) | _PROXIED,
    "produce": frozenset(("writer", "boss", "root")) | _PROXIED,
    "consume": frozenset(("reader", "boss", "root", "proxy for boss", "proxy for root")),
}
"""Callers that are allowed in public/default, by the right that a command needs."""
NAMESPACE: Final = "public/default"
HOME: Final = {
    TOPIC: NAMESPACE,
    "persistent://public/default/none-such": NAMESPACE,
    "persistent://public/default/t-partition-0": NAMESPACE,
    "persistent://public/default/t-partition-2147483647": NAMESPACE,
    "persistent://public/default/t%2Fx": NAMESPACE,
    "persistent://public/default/töpic\u0000": NAMESPACE,
    "persistent://public/default/__change_events": NAMESPACE,
    "persistent://public/default/a.*": NAMESPACE,
    "non-persistent://public/default/t": NAMESPACE,
    "t": NAMESPACE,
    "public/default/t": NAMESPACE,
    "persistent://other/default/t": "other/default",
    "persistent://other/default/none-such": "other/default",
    "non-persistent://other/default/t": "other/default",
    "other/default/t": "other/default",
    "persistent://other/default/public": "other/default",
    "persistent://public/none-such/t": "public/none-such",
    "persistent://none-such/default/t": "none-such/default",
    "persistent://PUBLIC/default/t": "PUBLIC/default",
    "persistent://public/default/..": "",
    "persistent://public/default/../../other/default/t": "",
    "persistent://../default/t": "",
    "persistent://public/../t": "",
    "persistent://public/standalone/default/t": "",
    "persistent://public/default/": "",
    "persistent://public//t": "",
    "kafka://public/default/t": "",
    "persistent://public/default/t/persistent://other/default/t": "",
    "": "",
}
"""Names, and the namespace whose grants count; "": no name of a topic."""
TENANT_RIGHTS: Final = {
    "stranger": frozenset[str](),
    "foreign": frozenset(("other",)),
    "boss": frozenset(("public",)),
    "writer": frozenset[str](),
    "reader": frozenset[str](),
}
"""Tenants that each role administers."""


def may(who: str, word: str, home: str) -> bool:
    """By the rules: administrators in their tenant, all others where they have a grant; a client behind a
    proxy where both may."""
    if who in UNKNOWN or not home:
        return False
    if who in _PROXIED:
        return home == NAMESPACE and may(who.removeprefix("proxy for "), word, home)
    if who == "root" or home.partition("/")[0] in TENANT_RIGHTS[who]:
        return True
    return home == NAMESPACE and who in MAY[word] and who != "boss"


class GuardedWorld(World):
    """A broker where all of them are known, with a topic in each of two tenants."""

    def __init__(self, *, verify_original: bool = False) -> None:
        """`verify_original`: whether a proxy must forward the credentials of its clients."""
        super().__init__(
            authentication=Authentication(
                {"token": TokenProvider(secret_key(_SECRET), leeway_s=0)},
                proxy_roles=frozenset(("proxy",)),
                verify_original=verify_original,
            ),
            superuser_roles=frozenset(("root",)),
        )
        self.cells = 0
        """How many questions were asked."""

    async def prepare(self) -> None:
        """Starts it, with tenants, grants and topics."""
        await self.broker.start("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
        policies, cluster = self.broker.policies, [self.broker.config.cluster]
        await policies.update_tenant("public", {"adminRoles": ["boss"], "allowedClusters": cluster})
        await policies.create_tenant("other", {"adminRoles": ["foreign"], "allowedClusters": cluster})
        await policies.create_namespace(NamespaceName.parse("other/default"), {})
        grants = {"writer": ["produce"], "reader": ["consume"], "proxy": ["produce", "consume"]}
        await policies.update_namespace(
            NamespaceName.parse(NAMESPACE),
            lambda document: document.update(auth_policies={"namespace_auth": grants}),
        )
        self.ledgers.auto_sync = True
        for name in (TOPIC, "persistent://other/default/t"):
            await self.topic(name)
