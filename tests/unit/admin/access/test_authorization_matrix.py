"""Every route × the role that calls it × how it is named: `authorization_matrix.txt` has those that
get through.

The routes' own work is taken out, so that a cell costs a fraction of a millisecond and changes nothing: what
is asked is whether a call reaches it. Credentials are real ones.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from magnetar.admin.calls.call import Call, Route, Service
from magnetar.admin.calls.rates import Rates
from magnetar.admin.routes import all_routes
from magnetar.admin.serving.app import build
from magnetar.auth.authentication import Authentication
from magnetar.auth.token import TokenProvider, new_token, secret_key
from magnetar.broker.service import BrokerConfig
from magnetar.observability.metrics import Registry
from support.admin_api import AdminApi, Answer

TABLE: Final = Path(__file__).with_name("authorization_matrix.txt")
SECRET: Final = b"s" * 32
ROUTES: Final = all_routes(Registry())


def token(role: str, *, lasts_s: int | None = None, secret: bytes = SECRET) -> str:
    return new_token(secret, role, now_s=1_000, lasts_s=lasts_s)


def unsigned(role: str) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, {"sub": role})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join(part.rstrip("=") for part in encoded) + "."


def bearer(text: str, original: str = "") -> dict[str, str]:
    headers = {"Authorization": f"Bearer {text}"}
    return {**headers, "X-Original-Principal": original} if original else headers


GRANTS: Final = {
    "writer": ["produce"],
    "reader": ["consume"],
    "developer": ["functions"],
    "proxy": ["produce", "consume"],
}
PRINCIPALS: Final[dict[str, dict[str, str]]] = {
    "anonymous": {},
    "wrong": bearer(token("root", secret=b"x" * 32)),
    "expired": bearer(token("root", lasts_s=1)),
    "alg=none": bearer(unsigned("root")),
    "garbage": bearer("root"),
    "proxy alone": bearer(token("proxy")),
    "root for another": bearer(token("root"), "boss"),
    "proxy for itself": bearer(token("proxy"), "proxy"),
    "foreign": bearer(token("foreign")),
    "writer": bearer(token("writer")),
    "reader": bearer(token("reader")),
    "developer": bearer(token("developer")),
    "boss": bearer(token("boss")),
    "proxy for writer": bearer(token("proxy"), "writer"),
    "proxy for boss": bearer(token("proxy"), "boss"),
    "proxy for root": bearer(token("proxy"), "root"),
    "prometheus": bearer(token("prometheus")),
    "root": bearer(token("root")),
}
"""Tenant `public` is administered by boss, tenant `other` by foreign; writer may produce to public/default,
reader consume, proxy both, developer has functions there."""
UNKNOWN: Final = frozenset(
    (
        *("anonymous", "wrong", "expired", "alg=none", "garbage"),
        *("proxy alone", "root for another", "proxy for itself"),
    )
)
"""Callers that are answered 401."""
KNOWN: Final = frozenset(PRINCIPALS) - UNKNOWN
PROXIED: Final = frozenset(("proxy for writer", "proxy for boss", "proxy for root"))
MAY: Final[dict[str, frozenset[str]]] = {
    "public": frozenset(PRINCIPALS),
    "identified": KNOWN,
    "lookup": frozenset(("writer", "reader", "boss", "root")) | PROXIED,
    "produce": frozenset(("writer", "boss", "root")) | PROXIED,
    "consume": frozenset(("reader", "boss", "root", "proxy for boss", "proxy for root")),
    "functions": frozenset(("developer", "boss", "root")),
    "packages": frozenset(("boss", "root")),
    "tenant": frozenset(("boss", "root")),
    "operator": frozenset(("root",)),
    "metrics": frozenset(("prometheus", "root")),
}
"""Callers that get through, by the word beside each route."""

WEAK: Final = ("anonymous", "alg=none", "proxy alone", "foreign", "writer", "reader", "prometheus")
TRICKS: Final = (
    *("t%2Fx", "..", "%2e%2e", "%2E%2E%2Ft", "%252e%252e%252ft", "..%2f..%2fother%2fdefault%2ft"),
    *("t%C3%B6pic", "%EF%BC%8E%EF%BC%8E", "t%00", "t%0a", "%ff", "*", "%2A", "t.%2A", "t%3F", "%5Bt%5D"),
    *("__change_events", "__transaction_buffer_snapshot", "t-partition-0", "t-partition-2147483647"),
    *("persistent:%2F%2Fother%2Fdefault%2Ft", "none-such", "t;x=y", "t%23x", "%20", "authorization"),
)
"""Names of topics, as they stand in paths."""
ELSEWHERE: Final = (
    ("other%2F..%2Fpublic", "default"),
    ("public%2Fdefault", "x"),
    ("PUBLIC", "default"),
    ("public", "other%2Fdefault"),
    ("public", "default%2F..%2F..%2Fother"),
    ("pu%62lic", "default"),
    ("none-such", "default"),
    ("public", "none-such"),
)
"""Tenants and namespaces."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Tens of thousands of refusals are logged, which takes a fifth of the time, and no test reads it."""
    caplog.set_level(logging.CRITICAL)


def rows() -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for line in TABLE.read_text().splitlines():
        word, method, path = line.split()
        found[method, path] = word
    return found


class Reached(AdminApi):
    """An admin API whose routes only say that they were reached."""

    def __init__(self) -> None:
        provider = TokenProvider(secret_key(SECRET), leeway_s=0)
        super().__init__(
            config=BrokerConfig(metrics_roles=frozenset(("prometheus",))),
            authentication=Authentication(
                {"token": provider}, proxy_roles=frozenset(("proxy",)), verify_original=False
            ),
            superuser_roles=frozenset(("root",)),
        )
        self.real = self._app
        routes: list[Route] = [(method, path, self._reach(method, path)) for method, path, _ in ROUTES]
        service = Service(Rates(self.broker.clock, 0), http_port=8080, loopback_only=True)
        self._app = build(self.broker, service, routes)
        self.reached: tuple[str, str] | None = None
        self.cells = 0

    def _reach(self, method: str, path: str) -> Callable[[Call], Awaitable[object]]:
        async def handler(_: Call) -> object:
            self.reached = (method, path)
            return None

        return handler

    async def ask(self, who: str, method: str, path: str) -> tuple[Answer, tuple[str, str] | None]:
        """The answer, and the route that was reached."""
        self.reached = None
        self.cells += 1
        answer = await self.call("GET" if method == "*" else method, path, headers=PRINCIPALS[who])
        return answer, self.reached


def story(work: Callable[[Reached], Awaitable[None]]) -> None:
    async def run() -> None:
        api = Reached()
        await api.start()
        policies, cluster = api.broker.policies, [api.broker.config.cluster]
        await policies.update_tenant("public", {"adminRoles": ["boss"], "allowedClusters": cluster})
        await policies.create_tenant("other", {"adminRoles": ["foreign"], "allowedClusters": cluster})
        real = api._app
        api._app = api.real
        n = "/admin/v2/namespaces/public/default/permissions"
        for role, actions in GRANTS.items():
            answer = await api.call("POST", f"{n}/{role}", actions, headers=PRINCIPALS["root"])
            assert answer.status == 204
        topic = "/admin/v2/persistent/public/default/t"
        assert (await api.call("PUT", topic, headers=PRINCIPALS["root"])).status == 204
        api._app = real
        try:
            await work(api)
        finally:
            await api.close()

    asyncio.run(run())


VALUES: Final = {
    "tenant": "public",
    "namespace": "default",
    "topic": "t",
    "domain": "persistent",
    "cluster": "standalone",
}


def filled(path: str, **more: str) -> str:
    values = {**VALUES, **more}
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: values.get(found[1], "x"), path)


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    assert set(rows()) == {(method, path) for method, path, _ in ROUTES}
    assert set(rows().values()) == set(MAY)


def test_every_principal_on_every_route() -> None:
    async def work(api: Reached) -> None:
        wrong = []
        for (method, path), word in rows().items():
            for who in PRINCIPALS:
                answer, reached = await api.ask(who, method, filled(path))
                expected = 204 if who in MAY[word] else 401 if who in UNKNOWN else 403
                if (answer.status, reached is not None) != (expected, expected == 204):
                    wrong.append((method, path, who, answer.status, expected))
        assert not wrong
        assert api.cells == len(ROUTES) * len(PRINCIPALS)

    story(work)


def names(tricks: str, path: str) -> list[str]:
    """The route's path with each name of a kind."""
    if tricks == "topics":
        return [filled(path, topic=trick) for trick in TRICKS] if "{topic}" in path else []
    if tricks == "namespaces":
        if "{namespace}" not in path:
            return []
        return [filled(path, tenant=tenant, namespace=name) for tenant, name in ELSEWHERE]
    if "{tenant}/{namespace}" not in path:
        return []
    earlier = path.replace("{tenant}/{namespace}", "{tenant}/standalone/{namespace}")
    return [filled(earlier), filled(earlier.replace("/v2/", "/", 1))]


TRICKS_KINDS: Final = ("topics", "namespaces", "first generation")


def test_the_page_of_security_counts_the_cells() -> None:
    tricked = [name for _, path, _ in ROUTES for kind in TRICKS_KINDS for name in names(kind, path)]
    cells = len(ROUTES) * len(PRINCIPALS) + len(tricked) * len(WEAK)
    page = (Path(__file__).resolve().parents[4] / "docs" / "security.md").read_text()
    assert f"| {cells:,} cells" in page
    assert f"each of the {len(ROUTES)} routes" in page


@pytest.mark.parametrize("tricks", TRICKS_KINDS)
def test_no_name_gets_anybody_further(tricks: str, nightly: bool) -> None:
    """Whatever a name looks like, a role that gets through somewhere may do so at the route that was reached.

    At night every caller tries every name at every route. Other runs have each route tried by every caller,
    each name by every caller, and each name at every route.
    """

    async def work(api: Reached) -> None:
        wrong: list[Any] = []
        table = rows()
        whole = nightly or tricks == "first generation"
        for at, (method, path) in enumerate(table):
            for number, name in enumerate(names(tricks, path)):
                for who in WEAK if whole else (WEAK[(at + number) % len(WEAK)],):
                    answer, reached = await api.ask(who, method, name)
                    if answer.status >= 500 or (reached is not None and who not in MAY[table[reached]]):
                        wrong.append((method, name, who, answer.status, reached))
        assert not wrong
        assert api.cells > 1_000

    story(work)


def test_a_refusal_is_the_same_for_what_exists_and_what_does_not() -> None:
    """With the routes' own work: a stranger's answers differ in nothing but the name he sent."""

    async def work(api: Reached) -> None:
        api._app = api.real
        wrong = []
        for (method, path), word in rows().items():
            if "{tenant}" not in path or word in ("public", "identified"):
                continue
            for who in ("anonymous", "alg=none", "prometheus", "foreign"):
                answers: list[tuple[int, str]] = []
                named: list[dict[str, str]] = [
                    {},
                    {"topic": "u"},
                    {"namespace": "unknown"},
                    {"tenant": "unknown"},
                ]
                for values in named:
                    sent = {**VALUES, **values}
                    answer = await api.call(
                        "GET" if method == "*" else method, filled(path, **values), headers=PRINCIPALS[who]
                    )
                    text = answer.body.decode()
                    whole = f"{sent['tenant']}/{sent['namespace']}/{sent['topic']}"
                    for shown in (whole, whole.rpartition("/")[0], f"tenant: {sent['tenant']}"):
                        text = text.replace(shown, "NAME")
                    answers.append((answer.status, text))
                if len(set(answers)) != 1 or answers[0][0] not in (401, 403):
                    wrong.append((method, path, who, set(answers)))
        assert not wrong

    story(work)
