"""`POST /sql`: rights before reading, whose credentials, and answers that are whole or visibly not."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.admin.sql import sql_routes
from magnetar.admin.sql.sql_requests import ARROW_TYPE
from magnetar.auth.authentication import Authentication
from magnetar.auth.token import TokenProvider, new_token, secret_key
from magnetar.base.query_bounds import QueryBounds
from magnetar.broker.listeners import Listeners
from magnetar.broker.service import BrokerConfig
from magnetar.sql.serving import query_frames as frames
from magnetar.sql.serving.query_places import WAITING_MAX
from support.admin_api import AdminApi, with_api
from support.queries import result, said
from support.waiting import eventually

SECRET = b"s" * 32
ASK = {"statement": "SELECT * FROM t"}
T = "persistent://public/default/t"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is in another process, so its extra need not be there."""
    monkeypatch.setattr(sql_routes, "check_packages", lambda: None)


def with_ports(story: Callable[[AdminApi], Awaitable[None]], **given: Any) -> None:
    """A broker whose ports are known, as they are once it serves."""

    def listen(api: AdminApi) -> None:
        api.broker.listeners = Listeners(plain_port=6650, http_port=8080)

    with_api(story, before=listen, **given)


def bearer(role: str) -> dict[str, str]:
    return {"authorization": f"Bearer {new_token(SECRET, role, now_s=1_000, lasts_s=None)}"}


def guarded() -> dict[str, Any]:
    provider = TokenProvider(secret_key(SECRET), leeway_s=0)
    authentication = Authentication(
        {"token": provider}, proxy_roles=frozenset(("proxy",)), verify_original=False
    )
    return {"authentication": authentication, "superuser_roles": frozenset(("root",))}


async def grant(api: AdminApi, role: str, *actions: str) -> None:
    path = f"/admin/v2/namespaces/public/default/permissions/{role}"
    assert (await api.call("POST", path, list(actions), headers=bearer("root"))).status == 204


def test_rows_in_both_formats() -> None:
    async def story(api: AdminApi) -> None:
        api.processes.topics = [T]
        api.processes.after = result(b'{"n": 1}\n', b'{"n": 2}\n')
        answer = await api.call("POST", "/sql", {**ASK, "rows": 9, "seconds": 3})
        assert (answer.status, answer.body) == (200, b'{"n": 1}\n{"n": 2}\n')
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert answer.headers["x-magnetar-engine"] == "E 1"
        assert api.whole
        answer = await api.call("POST", "/sql", ASK, headers={"accept": ARROW_TYPE})
        assert answer.headers["content-type"] == ARROW_TYPE
        assert [each.form for each in api.processes.asked] == ["json", "arrow"]
        assert (api.processes.asked[0].rows_max, api.processes.asked[0].seconds_max) == (9, 3)
        assert api.queries.running == 0

    with_ports(story)


def test_all_rights_are_asked_for_before_anything_is_read() -> None:
    async def story(api: AdminApi) -> None:
        await grant(api, "reader", "consume")
        await grant(api, "writer", "produce")
        answer = await api.call("POST", "/sql", ASK)
        assert answer.status == 401
        assert not api.processes.made
        api.processes.topics = [T, "persistent://public/default/u"]
        assert (await api.call("POST", "/sql", ASK, headers=bearer("reader"))).status == 200
        assert len(api.processes.read) == 1
        for role in ("writer", "stranger"):
            answer = await api.call("POST", "/sql", ASK, headers=bearer(role))
            assert (answer.status, answer.reason) == (403, f"role {role!r} may not consume: {T}")
        api.processes.topics = [T, "persistent://other/default/t"]
        answer = await api.call("POST", "/sql", ASK, headers=bearer("reader"))
        assert answer.status == 403
        assert len(api.processes.read) == 1, "one right too few, and nothing is read"
        assert all(process.killed for process in api.processes.made if process.heard)
        assert api.queries.running == 0

    with_ports(story, **guarded())


def test_a_refusal_tells_nothing_of_what_exists() -> None:
    async def story(api: AdminApi) -> None:
        path = "/admin/v2/persistent/public/default/there"
        assert (await api.call("PUT", path, headers=bearer("root"))).status == 204
        answers = set()
        for name in ("public/default/there", "public/default/gone", "public/none/t", "none/none/t"):
            api.processes.topics = [f"persistent://{name}"]
            answer = await api.call("POST", "/sql", ASK, headers=bearer("stranger"))
            answers.add((answer.status, answer.body.replace(name.encode(), b"NAME")))
        assert len(answers) == 1

    with_ports(story, **guarded())


def test_the_process_reads_as_the_caller() -> None:
    async def story(api: AdminApi) -> None:
        headers = bearer("root")
        await api.call("POST", "/sql", ASK, headers=headers)
        (reading,) = api.processes.read
        assert (reading.service_url, reading.admin_url) == (
            "pulsar://127.0.0.1:6650",
            "http://127.0.0.1:8080",
        )
        assert headers["authorization"] == f"Bearer {reading.token}"
        proxied = {**bearer("proxy"), "x-original-principal": "root"}
        answer = await api.call("POST", "/sql", ASK, headers=proxied)
        assert (answer.status, answer.reason) == (503, "a query cannot be asked through a proxy")

    with_ports(story, **guarded())


def test_a_host_that_the_caller_names_is_never_called() -> None:
    async def story(api: AdminApi) -> None:
        await api.call("POST", "/sql", ASK, headers={"host": "evil.example:80"})
        assert [each.service_url for each in api.processes.read] == ["pulsar://127.0.0.1:6650"]

    with_ports(story, loopback_only=False)


def test_user_and_password_are_shown_to_brokers() -> None:
    from magnetar.auth.http_credentials import credentials_of

    shown = base64.b64encode("ada:pass:wörd".encode()).decode()
    found = credentials_of(f"Basic {shown}", "", certificate_role=None, takes_certificates=False)
    assert found.data.decode() == "ada:pass:wörd"


def test_errors_before_the_first_row_have_their_status() -> None:
    async def story(api: AdminApi) -> None:
        api.processes.after = [said(frames.ERROR, {"status": 404, "reason": "no topic t"})]
        assert await api.refused("POST", "/sql", ASK) == (404, "no topic t")
        api.processes.after = [
            said(frames.HEAD, {"engine": "E 1"}),
            said(frames.ERROR, {"status": 422, "reason": "too much"}),
        ]
        assert await api.refused("POST", "/sql", ASK) == (422, "too much")
        assert (await api.call("POST", "/sql", b"SELECT 1")).status == 400
        assert (await api.call("POST", "/sql", ASK, headers={"accept": "text/csv"})).status == 406

    with_ports(story)


def test_an_error_between_rows_cuts_the_answer_off(caplog: pytest.LogCaptureFixture) -> None:
    async def story(api: AdminApi) -> None:
        api.processes.after = [
            *result(b'{"n": 1}\n')[:-1],
            said(frames.ERROR, {"status": 503, "reason": "x"}),
        ]
        answer = await api.call("POST", "/sql", ASK)
        assert answer.body == b'{"n": 1}\n{"error": "x"}\n'
        assert not api.whole
        assert api.queries.running == 0

    with caplog.at_level(logging.WARNING, "magnetar.admin"):
        with_ports(story)
    assert "POST /sql: the answer is cut off: x" in caplog.text


def test_a_client_that_goes_ends_its_query() -> None:
    async def story(api: AdminApi) -> None:
        for number, there in enumerate((0, 1, 2)):
            # Before the head, before the first rows, and between rows.
            api.processes.after = result(b'{"n": 1}\n')[:there]
            call = asyncio.create_task(api.call("POST", "/sql", ASK))
            await eventually(lambda wanted=number + 1: len(api.processes.read) == wanted)  # type: ignore[misc]
            if there == 2:
                await eventually(lambda: len(api.sent) == 2)
            process = next(each for each in api.processes.made if len(each.heard) == 2 and not each.killed)
            api.left.set()
            answer = await call
            assert answer.status == (503 if there < 2 else 200)
            assert api.whole == (there < 2)
            assert process.killed
            assert api.queries.running == 0

    with_ports(story)


def test_too_many_queries_are_refused_with_the_time_to_come_again() -> None:
    async def story(api: AdminApi) -> None:
        api.processes.after = result(b'{"n": 1}\n')[:-1]
        calls = [asyncio.create_task(api.call("POST", "/sql", ASK)) for _ in range(WAITING_MAX + 1)]
        await eventually(lambda: bool(api.processes.read))
        answer = await api.call("POST", "/sql", ASK)
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"
        assert "1 queries run, and 4 of 127.0.0.1 wait" in answer.reason
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert api.queries.running == 0

    with_ports(story, config=BrokerConfig(queries=QueryBounds(queries_max=1)))


def test_it_can_be_switched_off() -> None:
    async def story(api: AdminApi) -> None:
        status, reason = await api.refused("POST", "/sql", ASK)
        assert (status, reason) == (501, "this broker answers no SQL")
        assert not api.processes.made

    with_ports(story, config=BrokerConfig(queries=QueryBounds(queries_max=0)))
