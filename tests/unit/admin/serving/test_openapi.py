"""The OpenAPI document is true: whatever it lets through is answered as it says, and nothing breaks."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.admin.calls.compression import wants_gzip
from magnetar.admin.policies.table import ALL
from magnetar.admin.routes import all_routes
from magnetar.admin.serving.openapi import document
from magnetar.observability.metrics import Registry
from support.admin_api import AdminApi, Answer, with_api
from support.cases import cases

DOCUMENT: dict[str, Any] = document(all_routes(Registry()))
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    # Waits for a message of its own, on a real clock.
    if path != "/admin/v2/brokers/health"
]

KNOWN = {
    "tenant": ["public", "pulsar"],
    "namespace": ["default", "functions"],
    "topic": ["t", "p", "p-partition-0"],
    "cluster": ["standalone"],
    "subscription": ["s"],
    "bundle": ["0x00000000_0xffffffff"],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What a schema lets through."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "boolean":
        return st.booleans()
    if kind in ("integer", "number"):
        return st.integers(schema.get("minimum", -5), schema.get("maximum", 1 << 40))
    if kind == "string":
        return st.text(max_size=8)
    if kind == "array":
        return st.lists(values_of(schema["items"]), max_size=3)
    if kind == "object":
        parts = {name: values_of(part) for name, part in schema.get("properties", {}).items()}
        required = set(schema.get("required", ()))
        return st.fixed_dictionaries(
            {name: part for name, part in parts.items() if name in required},
            optional={name: part for name, part in parts.items() if name not in required},
        )
    return JSON


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes | None]:
    """A method, a path with its query, and a body."""
    method, template, operation = draw(st.sampled_from(OPERATIONS))
    path, query = template, []
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "query":
            if draw(st.booleans()):
                text = draw(st.sampled_from(["true", "false", "x"]))
                query.append(f"{name}={text}")
            continue
        usual = KNOWN.get(name, ["1", "a"])
        text = draw(st.sampled_from(usual) if draw(st.integers(0, 4)) else st.text(min_size=1, max_size=6))
        path = path.replace(f"{{{name}}}", quote(text, safe="", errors="surrogatepass"))
    body = None
    if "requestBody" in operation:
        [content] = operation["requestBody"]["content"].values()
        schema = content["schema"]
        value = draw(values_of(schema) if draw(st.integers(0, 3)) else JSON)
        body = draw(st.sampled_from([json.dumps(value).encode(), json.dumps(value).encode(), b"{", b""]))
    return method, path + ("?" + "&".join(query) if query else ""), body


def check(method: str, template: str, answer: Answer, request: tuple[Any, ...]) -> None:
    """The answer is one that the document has."""
    operation = DOCUMENT["paths"][template][method.lower()]
    assert answer.status != 500, (request, answer.body)
    assert str(answer.status) in operation["responses"], (request, answer.status)
    if answer.status == 204:
        assert answer.body == b"", request
    elif answer.status != 200:
        assert isinstance(answer.json["reason"], str), request
    else:
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in operation["responses"]["200"]["content"], (request, kind)
        if kind == "application/json":
            json.loads(answer.body)


def template_of(path: str, method: str) -> str | None:
    """The template that a path fits, the most literal first."""
    found = []
    for template, methods in DOCUMENT["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path) and method.lower() in methods:
            found.append(template)
    return min(found, key=lambda each: each.count("{"), default=None)


@settings(max_examples=cases(8), suppress_health_check=list(HealthCheck))
@given(st.lists(requests(), min_size=40, max_size=40))
def test_no_request_breaks_it_and_every_answer_is_declared(
    batch: list[tuple[str, str, bytes | None]],
) -> None:
    async def story(api: AdminApi) -> None:
        await api.call("PUT", "/admin/v2/persistent/public/default/t")
        await api.call("PUT", "/admin/v2/persistent/public/default/p/partitions", 2)
        await api.call("PUT", "/admin/v2/persistent/public/default/t/subscription/s", "earliest")
        for method, path, body in batch:
            answer = await asyncio.wait_for(api.call(method, path, body), 20)
            template = template_of(path.partition("?")[0], method)
            if template is not None and answer.status not in (404, 405):
                check(method, template, answer, (method, path, body))

    with_api(story)


def test_a_policy_is_declared_with_its_schema() -> None:
    for policy in ALL:
        if policy.of_topic is not None:
            path = f"/admin/v2/persistent/{{tenant}}/{{namespace}}/{{topic}}/{policy.of_topic}"
            methods = DOCUMENT["paths"][path]
            setter = methods.get("post") or methods["put"]
            assert setter["requestBody"]["content"]["application/json"]["schema"] == policy.kind.schema
            assert {each["name"] for each in methods["get"]["parameters"]} >= {"applied", "isGlobal"}


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [
        operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()
    ]
    assert len(names) == len(set(names)) > 300


def test_it_is_served_and_large_answers_are_compressed_on_request() -> None:
    async def story(api: AdminApi) -> None:
        plain = await api.call("GET", "/openapi.json")
        assert plain.json == json.loads(json.dumps(DOCUMENT)) | {"paths": plain.json["paths"]}
        packed = await api.call("GET", "/openapi.json", headers={"Accept-Encoding": "br, gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) == len(packed.body) < len(plain.body) // 5
        assert gzip.decompress(packed.body) == plain.body
        small = await api.call("GET", "/admin/v2/clusters", headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in small.headers

    with_api(story)


def test_who_wants_gzip() -> None:
    for header, wanted in (
        ("gzip", True),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", True),
        ("*", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("", False),
    ):
        assert wants_gzip(header) is wanted
