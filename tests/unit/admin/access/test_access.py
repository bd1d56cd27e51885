"""Which roles may call what over HTTP."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.admin.access.access import AccessScope, Need, need
from magnetar.admin.routes import all_routes
from magnetar.admin.serving.loop_server import config_of
from magnetar.auth.authentication import Authentication, Provider, TlsProvider
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.auth.permissions import Action
from magnetar.base.asgi import Receive, Scope, Send
from magnetar.observability.metrics import Registry
from support.admin_api import AdminApi, T, with_api

N = "/admin/v2/namespaces/public/default"
S = "/admin/v2/schemas/public/default/t"


class ByName:
    """Believes what it is told."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        if credentials.data == b"liar":
            raise AuthenticationError("no such secret")
        return Identity(credentials.data.decode().partition(":")[0])


PROVIDERS: dict[str, Provider] = {"token": ByName(), "basic": ByName()}


def guarded(story: Callable[[AdminApi], Awaitable[None]], *, anonymous: str = "") -> None:
    """On a broker with superuser "root", tenant administrator "boss", and two roles with grants."""

    async def prepared(api: AdminApi) -> None:
        root = {"Authorization": "Bearer root"}
        tenant = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        assert (await api.call("POST", "/admin/v2/tenants/public", tenant, headers=root)).status == 204
        for role, actions in (("writer", ["produce"]), ("reader", ["consume"])):
            answer = await api.call("POST", f"{N}/permissions/{role}", actions, headers=root)
            assert answer.status == 204
        assert (await api.call("PUT", f"{T}/t", headers=root)).status == 204
        assert (await api.call("PUT", f"{T}/t/subscription/s", headers=root)).status == 204
        await story(api)

    chain = Authentication(PROVIDERS, anonymous)
    with_api(prepared, authentication=chain, superuser_roles=frozenset(("root",)))


ALL = ("root", "boss", "writer", "reader", "stranger")
ADMINS = ("root", "boss")
LOOKUP = (*ADMINS, "writer", "reader")
MATRIX = [
    ("GET", "/admin/v2/brokers/version", ALL),
    ("GET", "/admin/v2/clusters", ALL),
    ("GET", "/admin/v2/tenants", ("root",)),
    ("GET", "/metrics", ("root",)),
    ("GET", "/admin/v2/tenants/public", ADMINS),
    ("PUT", "/admin/v2/tenants/public", ("root",)),
    ("DELETE", "/admin/v2/tenants/public", ("root",)),
    ("GET", "/admin/v2/tenants/public/storedBytes", ADMINS),
    ("POST", "/admin/v2/tenants/public/storedBytes", ("root",)),
    ("DELETE", "/admin/v2/tenants/public/storedBytes", ("root",)),
    ("GET", "/admin/v2/namespaces/public", ADMINS),
    ("GET", N, ADMINS),
    ("GET", f"{N}/topics", LOOKUP),
    ("POST", f"{N}/permissions/stranger", ADMINS),
    ("GET", f"{N}/permissions/subscription", ADMINS),
    ("POST", f"{N}/permissions/subscription/s", ADMINS),
    ("DELETE", f"{N}/permissions/s/role", ADMINS),
    ("POST", f"{N}/subscriptionAuthMode", ADMINS),
    ("GET", f"{T}/t/permissions", ADMINS),
    ("POST", f"{T}/t/permissions/stranger", ADMINS),
    ("DELETE", f"{T}/t/permissions/stranger", ADMINS),
    ("POST", f"{N}/retention", ADMINS),
    ("GET", T, LOOKUP),
    ("GET", f"{T}/t/partitions", LOOKUP),
    ("PUT", f"{T}/t/partitions", ADMINS),
    ("GET", f"{T}/t/stats", LOOKUP),
    ("GET", f"{T}/t/explain", LOOKUP),
    ("GET", f"{T}/t/subscriptions", (*ADMINS, "reader")),
    ("POST", f"{T}/t/subscription/s/skip_all", (*ADMINS, "reader")),
    ("GET", f"{T}/t/ledger/0/entry/0", (*ADMINS, "reader")),
    ("GET", f"{T}/t/messageid/0", (*ADMINS, "reader")),
    ("GET", f"{T}/t/getMessageIdByIndex?index=0", (*ADMINS, "reader")),
    ("GET", f"{T}/t/lastMessageId", (*ADMINS, "reader")),
    ("GET", f"{T}/t/messagesByKey?key=YQ", (*ADMINS, "reader")),
    ("GET", f"{T}/t/allEntries", (*ADMINS, "reader")),
    ("GET", f"{T}/t/internalStats", LOOKUP),
    ("GET", f"{T}/t/internal-info", ADMINS),
    ("POST", f"{T}/t/deduplicationEnabled", ADMINS),
    ("DELETE", f"{T}/none", ADMINS),
    ("GET", f"{S}/schema", LOOKUP),
    ("POST", f"{S}/compatibility", (*ADMINS, "writer")),
    ("DELETE", f"{S}/schema", ADMINS),
    ("GET", "/lookup/v2/topic/persistent/public/default/t", LOOKUP),
    ("GET", "/admin/v2/namespaces/nobody/nowhere", ("root",)),
]


@pytest.mark.parametrize(("method", "path", "allowed"), MATRIX, ids=[f"{row[0]} {row[1]}" for row in MATRIX])
def test_matrix(method: str, path: str, allowed: tuple[str, ...]) -> None:
    async def story(api: AdminApi) -> None:
        may = []
        # The mightiest comes last: it may change what the others are asked about.
        for role in reversed(ALL):
            answer = await api.call(method, path, headers={"Authorization": f"Bearer {role}"})
            if answer.status != 403:
                may.append(role)
        assert set(may) == set(allowed)
        assert (await api.call(method, path)).status == 401

    guarded(story)


def test_public_and_other_routes() -> None:
    public = {
        path for method, path, _ in all_routes(Registry()) if need(method, path).scope is AccessScope.NOTHING
    }
    assert public == {"/status.html", "/admin/v2/brokers/ready"}
    assert need("GET", "/whatever/comes/{tenant}") == Need(AccessScope.CLUSTER)
    assert need("*", "/admin/v3/sinks/{rest:path}") == Need(AccessScope.CLUSTER)
    assert need("POST", "/admin/v3/functions/upload") == Need(AccessScope.CLUSTER)
    assert need("PUT", "/admin/v3/functions/{tenant}/{namespace}/{function}") == Need(
        AccessScope.NAMESPACE, Action.FUNCTIONS
    )
    assert need("GET", "/admin/v3/packages/{type}/{tenant}/{namespace}") == Need(
        AccessScope.NAMESPACE, Action.PACKAGES
    )
    assert need("POST", "/admin/v2/persistent/{tenant}/{namespace}/{topic}/new") == Need(
        AccessScope.TENANT, Action.ADMINISTER_TENANT
    )


def test_publishing_needs_the_right_to_produce_and_tenants_do_not_leave_their_resource_group() -> None:
    assert need("POST", "/topics/{domain}/{tenant}/{namespace}/{topic}") == Need(
        AccessScope.TOPIC, Action.PRODUCE
    )
    path = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"
    assert need("DELETE", path) == need("POST", f"{path}/{{group}}") == Need(AccessScope.CLUSTER)
    assert need("GET", path).scope is AccessScope.TENANT


def test_changes_are_noted_also_where_everybody_may_make_them(caplog: pytest.LogCaptureFixture) -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", "/admin/v2/persistent/public/default/t")
        body = {"messages": [{"payload": "x"}]}
        assert (await api.call("POST", "/topics/persistent/public/default/t", body)).status == 200
        await api.get("/admin/v2/tenants")

    with caplog.at_level("INFO", "magnetar.audit"):
        with_api(story)
    noted = [record.getMessage() for record in caplog.records if record.name == "magnetar.audit"]
    assert noted == ["changed: everybody of 127.0.0.1:1: PUT /admin/v2/persistent/public/default/t"]


def test_credentials_in_headers() -> None:
    async def story(api: AdminApi) -> None:
        async def asked(**headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await api.call("GET", "/admin/v2/tenants", headers=named)).status

        root = base64.b64encode(b"root:secret").decode()
        assert await asked(authorization="Bearer root") == 200
        assert await asked(authorization=f"Basic {root}") == 200
        assert await asked(authorization="Bearer liar") == 401
        assert await asked(authorization="Basic ???") == 401
        assert await asked(authorization="Digest x") == 401
        assert await asked(authorization=f"Basic {root}", x_pulsar_auth_method_name="unknown") == 401
        answer = await api.call("GET", "/admin/v2/tenants")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await api.call("GET", "/status.html")).status == 200

    guarded(story)


@pytest.mark.parametrize(
    ("role", "original", "status"),
    [
        ("reader", "", 403),
        ("reader", "reader", 403),
        ("reader", "boss", 401),
        ("proxy", "", 401),
        ("proxy", "proxy", 401),
        ("proxy", "boss", 403),
        ("root", "root", 401),
        ("root", "boss", 200),
        ("root", "reader", 403),
    ],
)
def test_both_roles_need_the_right(role: str, original: str, status: int) -> None:
    async def story(api: AdminApi) -> None:
        tenant = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        headers = {"Authorization": "Bearer superuser"}
        assert (await api.call("POST", "/admin/v2/tenants/public", tenant, headers=headers)).status == 204
        headers = {"Authorization": f"Bearer {role}", "X-Original-Principal": original}
        assert (await api.call("GET", N, headers=headers)).status == status

    chain = Authentication(PROVIDERS, proxy_roles=frozenset(("proxy", "root")))
    with_api(story, authentication=chain, superuser_roles=frozenset(("root", "superuser")))


def test_the_role_of_a_certificate_counts_where_tls_is_offered() -> None:
    async def story(api: AdminApi) -> None:
        for role, status in (("root", 200), ("stranger", 403), (None, 401)):
            api.certificate_role = role
            assert (await api.call("GET", "/admin/v2/tenants")).status == status

    with_api(
        story, authentication=Authentication({"tls": TlsProvider()}), superuser_roles=frozenset(("root",))
    )


def test_anonymous_callers_have_their_role() -> None:
    async def story(api: AdminApi) -> None:
        assert (await api.call("GET", f"{T}/t/stats")).status == 200
        # A client that shows nothing is asked for credentials, as Pulsar asks; of namespaces it says 403.
        for method, path, status in (
            ("GET", "/admin/v2/tenants", 401),
            ("GET", "/admin/v2/namespaces/public", 401),
            ("GET", "/admin/v2/brokers/configuration/values", 401),
            ("GET", f"{T}/t/subscriptions", 401),
            ("GET", f"{T}/t/permissions", 401),
            ("PUT", f"{T}/t/subscription/other", 401),
            ("GET", f"{N}/retention", 403),
            ("DELETE", f"{T}/t", 403),
            ("PUT", f"{T}/other", 403),
        ):
            answer = await api.call(method, path)
            assert (method, path, answer.status) == (method, path, status)
            assert ("www-authenticate" in answer.headers) == (status == 401)
        known = {"Authorization": "Bearer stranger"}
        assert (await api.call("GET", "/admin/v2/tenants", headers=known)).status == 403

    guarded(story, anonymous="writer")


@pytest.mark.parametrize("header", ["Bearer liar", "Basic ???", "Digest x", ""])
def test_refused_credentials_are_audited(header: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(api: AdminApi) -> None:
        caplog.clear()
        answer = await api.call(
            "GET", "/admin/v2/tenants", headers={"Authorization": header} if header else {}
        )
        assert answer.status == 401
        (line,) = caplog.messages
        assert line.startswith("refused: credentials of 127.0.0.1:1")
        assert "liar" not in line

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)


def test_changes_and_refusals_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    async def story(api: AdminApi) -> None:
        for role in ("boss", "reader"):
            await api.call("DELETE", f"{N}/permissions/writer", headers={"Authorization": f"Bearer {role}"})
        assert f"changed: role 'boss' of 127.0.0.1:1: DELETE {N}/permissions/writer" in caplog.messages
        refused = "refused: role 'reader' of 127.0.0.1:1 may not administer the tenant: public"
        assert refused in caplog.messages
        answer = await api.call("GET", f"{N}/permissions", headers={"Authorization": "Bearer boss"})
        assert answer.json == {"reader": ["consume"]}

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)


CLAIMED = {
    "Host": "10.6.6.6:80",
    "X-Forwarded-For": "10.6.6.6",
    "X-Real-IP": "10.6.6.6",
    "Forwarded": "for=10.6.6.6;host=10.6.6.6",
    "X-Client-IP": "10.6.6.6",
    "Via": "1.1 10.6.6.6",
}


def test_no_header_becomes_the_address_of_a_caller(caplog: pytest.LogCaptureFixture) -> None:
    """In the audit each line has the connection's address: of a change, with its body, and of refusals."""

    async def story(api: AdminApi) -> None:
        for role in ("boss", "reader", "liar"):
            headers = {**CLAIMED, "Authorization": f"Bearer {role}"}
            await api.call("POST", f"{N}/permissions/writer", ["consume"], headers=headers)
        headers = {"Authorization": "Bearer reader", "X-Original-Principal": "boss", **CLAIMED}
        await api.call("GET", f"{N}/permissions", headers=headers)

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)
    told = [record.getMessage() for record in caplog.records if record.name == "magnetar.audit"]
    changed = f"changed: role 'boss' of 127.0.0.1:1: POST {N}/permissions/writer "
    assert f'{changed}["consume"]' in told
    kinds = {message.partition(":")[0] for message in told}
    assert kinds == {"changed", "refused"}
    assert sum(message.startswith("refused:") for message in told) >= 3
    for message in told:
        assert "127.0.0.1:1" in message
        assert "10.6.6.6" not in message


def test_the_server_takes_no_address_from_headers() -> None:
    """uvicorn would, of callers on this machine."""
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["client"])

    async def story() -> None:
        names = [(name.lower().encode(), value.encode()) for name, value in CLAIMED.items()]
        loaded: Any = config_of(app).loaded_app
        scope = {"type": "http", "path": "/", "client": ("127.0.0.1", 7), "headers": names}
        await loaded(scope, None, None)

    asyncio.run(story())
    assert seen == [("127.0.0.1", 7)]


def test_credentials_of_clusters_are_for_superusers(caplog: pytest.LogCaptureFixture) -> None:
    """Also the audit of the change does not tell them."""
    document = {
        "serviceUrl": "http://ada:hunter2@there:8080",
        "brokerServiceUrl": "pulsar://there:6650",
        "brokerClientAuthenticationPlugin": "plugin",
        "brokerClientAuthenticationParameters": "token:hunter2",
        "brokerClientTlsTrustStorePassword": "hunter2",
        "authenticationParameters": {"token": "hunter2"},
        "peerClusterNames": [],
    }

    async def story(api: AdminApi) -> None:
        path = "/admin/v2/clusters/there"
        root = {"Authorization": "Bearer root"}
        assert (await api.call("PUT", path, document, headers=root)).status == 204
        assert (await api.call("GET", path, headers=root)).json == document
        for role in ("boss", "reader", "stranger"):
            answer = await api.call("GET", path, headers={"Authorization": f"Bearer {role}"})
            assert answer.json == {
                "serviceUrl": "http://there:8080",
                "brokerServiceUrl": "pulsar://there:6650",
                "peerClusterNames": [],
            }

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)
    (line,) = [message for message in caplog.messages if "clusters/there" in message]
    assert "pulsar://there:6650" in line
    assert "hunter2" not in line


def test_names_that_are_refused_are_told_in_part(caplog: pytest.LogCaptureFixture) -> None:
    async def story(api: AdminApi) -> None:
        answer = await api.call(
            "GET", f"{T}/{'x' * 50_000}/stats", headers={"Authorization": "Bearer stranger"}
        )
        assert answer.status in (400, 403, 412)
        assert len(answer.body) < 1_000

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)
    assert all(len(message) < 1_500 for message in caplog.messages)
