"""Requests become calls, results and errors become answers; which roles may ask."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import Response

from magnetar.admin.calls.call import BODY_BYTES_MAX
from magnetar.admin.serving.app import _PIECE_BYTES, _sent
from magnetar.admin.unoffered import GROUPS
from support.admin_api import AdminApi, T, with_api


def test_unknown_paths_and_methods_have_reasons() -> None:
    async def story(api: AdminApi) -> None:
        assert await api.refused("GET", "/admin/v2/nothing") == (404, "GET /admin/v2/nothing: no such path")
        status, reason = await api.refused("DELETE", "/admin/v2/tenants")
        assert status == 405
        assert "method not allowed" in reason
        answer = await api.call("DELETE", "/admin/v2/tenants")
        assert answer.headers["allow"] == "GET"
        assert answer.headers["content-type"] == "application/json"

    with_api(story)


def test_groups_that_are_not_offered_say_so() -> None:
    async def story(api: AdminApi) -> None:
        for group in GROUPS:
            assert (await api.refused("GET", group))[0] == 501
            assert (await api.refused("POST", f"{group}/a/b/c"))[0] == 501
        assert (await api.refused("PUT", f"{T}/t/offload"))[0] == 501
        assert (await api.refused("PUT", f"{T}/t/shadowTopics"))[0] == 501

    with_api(story)


def test_words_of_a_path_win_over_variables() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/stats")
        assert (
            (await api.call("GET", "/admin/v2/brokers/version"))
            .headers["content-type"]
            .startswith("text/plain")
        )
        assert await api.get(f"{T}/stats/subscriptions") == []
        assert await api.get(f"{T}/partitioned") == []

    with_api(story)


def test_trailing_slash_and_head_are_taken() -> None:
    async def story(api: AdminApi) -> None:
        assert await api.get("/admin/v2/clusters/") == ["standalone"]
        assert (await api.call("HEAD", "/admin/v2/clusters")).status == 200

    with_api(story)


@pytest.mark.parametrize(
    ("encoded", "name"),
    [("a%2Fb", "a/b"), ("caf%C3%A9", "café"), ("a+b", "a b"), ("a%2Bb", "a+b"), ("..", ".."), ("%25", "%")],
)
def test_names_are_decoded_after_routing(encoded: str, name: str) -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{T}/t")
        await api.done("PUT", f"{T}/t/subscription/{encoded}")
        assert await api.get(f"{T}/t/subscriptions") == [name]

    with_api(story)


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2/tenants/a%2Fb",
        "/admin/v2/tenants/a%20b",
        "/admin/v2/namespaces/public/de%C3%A9",
        f"{T}/a%2Fb/stats",
        f"{T}/%20/stats",
        f"{T}/%ED%A0%80%2F/stats",
        "/admin/v2/clusters/%00",
    ],
)
def test_illegal_names_are_refused(path: str) -> None:
    async def story(api: AdminApi) -> None:
        assert (await api.refused("GET", path))[0] == 412

    with_api(story)


def test_bodies_are_checked() -> None:
    async def story(api: AdminApi) -> None:
        for body in (b"{", b"\xff", b"[" * 100_000, b'"x"'):
            assert (await api.refused("PUT", "/admin/v2/tenants/t", body))[0] == 400
        status, reason = await api.refused("PUT", "/admin/v2/tenants/t", b" " * (BODY_BYTES_MAX + 1))
        assert status == 413
        assert str(BODY_BYTES_MAX) in reason

    with_api(story)


def test_pages_of_other_origins_cannot_change_anything() -> None:
    async def story(api: AdminApi) -> None:
        foreign = {"origin": "http://evil.example"}
        assert (await api.call("PUT", f"{T}/t", headers=foreign)).status == 403
        assert (await api.call("PUT", f"{T}/t", headers={"origin": "null"})).status == 403
        assert (await api.call("GET", "/admin/v2/tenants", headers=foreign)).status == 200
        assert (await api.call("PUT", f"{T}/t", headers={"origin": "http://localhost:8080"})).status == 204

    with_api(story)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:8080", 200),
        ("rebound.example:8080", 421),
        ("10.0.0.1", 421),
        ("[", 200),
    ],
)
def test_names_of_others_are_no_way_to_a_loopback_port(host: str, status: int) -> None:
    async def story(api: AdminApi) -> None:
        assert (await api.call("GET", "/admin/v2/tenants", headers={"host": host})).status == status

    with_api(story)


def test_a_port_for_others_takes_any_host() -> None:
    async def story(api: AdminApi) -> None:
        answer = await api.call("GET", "/admin/v2/brokers", headers={"host": "broker.example:8080"})
        assert answer.json == ["127.0.0.1:8080"]

    with_api(story, loopback_only=False)


def test_a_bug_in_a_handler_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def story(api: AdminApi) -> None:
        api.broker.policies.clusters = None  # type: ignore[method-assign,assignment]  # the bug
        status, reason = await api.refused("GET", "/admin/v2/clusters")
        assert (status, reason) == (500, "internal error; the broker's log has the details")

    with_api(story)
    assert "GET /admin/v2/clusters failed" in caplog.text


def test_a_large_answer_is_sent_in_pieces() -> None:
    """One of 64 MiB, as a message may be, was one write: others waited for a tenth of a second."""
    size = 3 * _PIECE_BYTES + 7
    for length in (0, 1, _PIECE_BYTES, _PIECE_BYTES + 1, size):
        sent: list[dict[str, Any]] = []

        async def send(message: Any, into: list[dict[str, Any]] = sent) -> None:
            into.append(message)

        body = bytes(range(256)) * (length // 256) + bytes(length % 256)
        asyncio.run(_sent(Response(body, 201, headers={"X-A": "b"}), send))
        start, *pieces = sent
        assert start["status"] == 201
        assert (b"content-length", str(length).encode()) in start["headers"]
        assert b"".join(piece["body"] for piece in pieces) == body
        assert all(len(piece["body"]) <= _PIECE_BYTES for piece in pieces)
        assert [piece["more_body"] for piece in pieces] == [True] * (len(pieces) - 1) + [False]


def test_other_tasks_run_between_the_pieces_for_a_client_that_reads_fast() -> None:
    async def scenario() -> None:
        order: list[str] = []

        async def send(message: Any) -> None:
            order.append(message["type"].rpartition(".")[2])

        async def other() -> None:
            for _ in range(2):
                order.append("other")
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_sent(Response(bytes(3 * _PIECE_BYTES)), send))
            tasks.create_task(other())
        assert order == ["start", "body", "other", "body", "other", "body"]

    asyncio.run(scenario())
