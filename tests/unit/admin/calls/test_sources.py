"""Which web pages may open a WebSocket."""

from __future__ import annotations

import pytest
from starlette.requests import HTTPConnection

from magnetar.admin.calls.call import Service
from magnetar.admin.calls.errors import ForbiddenError, MisdirectedError, RequestError
from magnetar.admin.calls.rates import Rates
from magnetar.admin.calls.sources import check_socket
from magnetar.base.clock import ManualClock


def refusal(
    origin: str | None, *, host: str = "localhost:8080", local: bool = True, guarded: bool = False
) -> type[RequestError] | None:
    headers = [(b"host", host.encode())] + ([] if origin is None else [(b"origin", origin.encode())])
    connection = HTTPConnection({"type": "websocket", "headers": headers})
    try:
        check_socket(
            connection, Service(Rates(ManualClock(), 0), http_port=8080, loopback_only=local), guarded=guarded
        )
    except RequestError as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    "origin", [None, "http://localhost:8080", "http://localhost:3000", "http://127.0.0.1"]
)
def test_pages_of_this_machine_may(origin: str | None) -> None:
    assert refusal(origin) is None


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null", "http://[", "file://"])
def test_pages_of_elsewhere_may_not(origin: str) -> None:
    assert refusal(origin) is ForbiddenError


def test_where_others_reach_the_port_the_origin_must_be_the_address() -> None:
    assert refusal("http://broker:8080", host="broker:8080", local=False) is None
    assert refusal("http://localhost:3000", host="broker:8080", local=False) is ForbiddenError


def test_with_authentication_all_pages_may() -> None:
    assert refusal("https://app.example", host="broker:8080", local=False, guarded=True) is None


def test_a_name_that_is_none_of_this_machine() -> None:
    assert refusal(None, host="rebound.example") is MisdirectedError
