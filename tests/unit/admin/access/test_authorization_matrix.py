"""Every route × the role that calls it × how it is named: `authorization_matrix.txt` has those that
get through.

The routes' own work is taken out, so that a cell costs a fraction of a millisecond and changes nothing: what
is asked is whether a call reaches it. Credentials are real ones.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pytest

from magnetar.admin.access.access import need
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

ANYWHERE: Final = frozenset(("public", "identified", "operator", "metrics"))
"""Words of rights that depend on no name."""
TENANT_OF: Final = {"boss": "public", "foreign": "other"}


def may(who: str, word: str, named: Mapping[str, str]) -> bool:
    """Whether a caller gets through at a route of this word, with these names of its variables: by the rules
    of rights, not by what the product does."""
    if word in ANYWHERE or who == "root":
        return who in MAY[word]
    if who in TENANT_OF:
        return named["tenant"] == TENANT_OF[who]
    return who in MAY[word] and (named["tenant"], named["namespace"]) == ("public", "default")


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


Place = tuple[str, str, Mapping[str, str]]
"""A route that was reached, and the names that its work would have got."""


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
        self.reached: Place | None = None
        self.cells = 0

    def _reach(self, method: str, path: str) -> Callable[[Call], Awaitable[object]]:
        async def handler(call: Call) -> object:
            self.reached = (method, path, dict(call.params))
            return None

        return handler

    async def ask(self, who: str, method: str, path: str) -> tuple[Answer, Place | None]:
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


Named = tuple[str, dict[str, str]]
"""A path with names in it, and the names as they are in it."""


def names(tricks: str, path: str) -> list[Named]:
    """The route's path with each name of a kind."""
    if tricks == "topics":
        given = [{"topic": trick} for trick in TRICKS] if "{topic}" in path else []
        return [(filled(path, **each), each) for each in given]
    if tricks == "namespaces":
        given = [{"tenant": tenant, "namespace": name} for tenant, name in ELSEWHERE]
        return [(filled(path, **each), each) for each in given] if "{namespace}" in path else []
    if "{tenant}/{namespace}" not in path:
        return []
    earlier = path.replace("{tenant}/{namespace}", "{tenant}/standalone/{namespace}")
    # In a path of the present generation the cluster stands where namespaces do.
    found: list[Named] = [(filled(earlier), {"namespace": "standalone"})]
    if "/v2/" in earlier:
        found.append((filled(earlier.replace("/v2/", "/", 1)), {}))
    return found


TRICKS_KINDS: Final = ("topics", "namespaces", "first generation")


def hostile(path: str) -> list[Named]:
    """The route's path with each name of each kind."""
    return [named for kind in TRICKS_KINDS for named in names(kind, path)]


@functools.cache
def class_of(method: str, path: str, word: str) -> tuple[object, ...]:
    """Routes of a class have the same rule of rights and the same names in their paths."""
    names_in = (f"{{{each}}}" in path for each in ("tenant", "namespace", "topic"))
    return need(method, path), word, "/v2/" in path, *names_in


Cells = Iterator[tuple[str, str, str, Named]]
"""Method, path, caller and name."""


def whole_matrix() -> Cells:
    """Every caller with every name at every route."""
    for method, path in rows():
        for named in hostile(path):
            for who in PRINCIPALS:
                yield method, path, who, named


def part_of_matrix(seed: int = 0) -> Cells:
    """For each class of routes every caller with every name at one of them; and each name at each route,
    tried by one caller. The seed chooses routes and callers."""
    chosen = random.Random(seed)
    classes: dict[tuple[object, ...], list[tuple[str, str]]] = {}
    for (method, path), word in rows().items():
        if hostile(path):
            classes.setdefault(class_of(method, path, word), []).append((method, path))
    for routes in classes.values():
        method, path = chosen.choice(routes)
        for named in hostile(path):
            for who in PRINCIPALS:
                yield method, path, who, named
    callers = list(PRINCIPALS)
    for method, path in rows():
        for named in hostile(path):
            yield method, path, chosen.choice(callers), named


def test_the_page_of_security_counts_the_cells() -> None:
    tricked = [named for _, path, _ in ROUTES for named in hostile(path)]
    cells = (len(ROUTES) + len(tricked)) * len(PRINCIPALS)
    part = len(ROUTES) * len(PRINCIPALS) + sum(1 for _ in part_of_matrix())
    page = (Path(__file__).resolve().parents[4] / "docs" / "security.md").read_text()
    assert f"| {cells:,} cells at night, {part:,} in other runs |" in page
    assert f"each of the {len(ROUTES)} routes" in page


@pytest.mark.parametrize("seed", [0, 1])
def test_a_part_of_the_matrix_has_each_caller_with_each_name_of_each_class(seed: int) -> None:
    table = rows()

    def told(cells: Cells) -> set[tuple[object, ...]]:
        return {
            (class_of(method, path, table[method, path]), who, tuple(given.items()))
            for method, path, who, (_, given) in cells
        }

    assert told(part_of_matrix(seed)) == told(whole_matrix())


def test_no_name_gets_a_caller_further(nightly: bool) -> None:
    """Whatever a name looks like: a caller that gets through has the right to what the reached route would
    work on, and one that has the right to what it named is not refused for want of it."""

    async def work(api: Reached) -> None:
        wrong: list[Any] = []
        table = rows()
        for method, path, who, (name, given) in whole_matrix() if nightly else part_of_matrix():
            answer, reached = await api.ask(who, method, name)
            if reached is not None:
                good = may(who, table[reached[:2]], reached[2])
            else:
                asked = {**VALUES, **{key: unquote(value) for key, value in given.items()}}
                refused = answer.status in (401, 403)
                good = answer.status < 500 and not (refused and may(who, table[method, path], asked))
            if not good:
                wrong.append((method, name, who, answer.status, reached))
        assert not wrong, f"{len(wrong)} cells: {wrong[:20]}"
        assert api.cells > 10_000

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
