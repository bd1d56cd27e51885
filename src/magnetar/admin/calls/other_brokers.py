"""Asks other brokers of the cluster, with the credentials of the caller: it gets what it could get itself,
and the other broker's audit log names it. A broker has no credentials of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from magnetar.admin.calls.errors import OtherBrokerError
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.runtime.broker_trust import broker_context
from magnetar.runtime.http_exchange import HttpAnswer, exchange

ANSWER_S: Final = 30.0
"""Seconds for the answer of another broker, redirects included."""
_REDIRECTS_MAX: Final = 3
_FORWARDED: Final = ("authorization", "x-pulsar-auth-method-name", "x-original-principal")
"""Headers that identify the caller."""
_REASON_CHARS_MAX: Final = 500

Exchange = Callable[[str, str, bytes, Mapping[str, str]], Awaitable[HttpAnswer]]
"""Method, URL, body, headers. Raises OSError, ValueError."""


@dataclass(frozen=True, slots=True)
class BrokerCall:
    """A call of another broker's admin API."""

    method: str
    path: str
    """With its query, encoded."""
    body: bytes = b""


def credentials(headers: Mapping[str, str], *, known: bool) -> dict[str, str]:
    """The headers that show the caller to another broker. `known`: the caller has an identity here.

    Raises OtherBrokerError when it showed a certificate only, which only it can show.
    """
    found = {name: headers[name] for name in _FORWARDED if name in headers}
    if known and "authorization" not in found:
        raise OtherBrokerError(
            503,
            "this call needs other brokers, which a client certificate cannot be shown to",
            remedy="call with a token, or ask for single topics, which are redirected",
        )
    return found


async def send(
    method: str, url: str, body: bytes, headers: Mapping[str, str], *, trust_certs: str = ""
) -> HttpAnswer:
    """One exchange over the network. `trust_certs`: see `broker_context`. Raises OSError, ValueError."""
    tls = broker_context(trust_certs) if url.startswith("https:") else None
    return await exchange(method, url, body, headers, tls=tls)


async def ask(
    exchanged: Exchange,
    broker: BrokerUrls,
    question: BrokerCall,
    headers: Mapping[str, str],
    *,
    secure: bool,
) -> object:
    """The JSON of the answer; None when it has no body.

    `secure`: the caller came over TLS, so its credentials leave over TLS only. Raises OtherBrokerError, with
    the status of a refusal, or 503 when there is no answer; it names the broker. What was asked for may have
    been done when there is no answer.
    """
    at = broker.addresses
    base = at.https if secure else at.http or at.https
    if not base:
        raise _failed(broker, "it has no https address, and credentials that came over TLS stay on TLS")
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await _followed(exchanged, base + question.path, question, headers)
    except TimeoutError as error:
        raise _failed(broker, f"no answer within {ANSWER_S:g} s") from error
    except (OSError, ValueError) as error:
        raise _failed(broker, str(error) or type(error).__name__) from error
    if answer.status < HTTPStatus.MULTIPLE_CHOICES:
        try:
            return json.loads(answer.body) if answer.body.strip() else None
        except ValueError as error:
            raise _failed(broker, "its answer is not JSON") from error
    reason, remedy = _words(answer)
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status < HTTPStatus.BAD_REQUEST:
        raise _failed(broker, reason)
    raise OtherBrokerError(answer.status, reason, remedy=f"broker {broker.broker_id} says so; {remedy}")


async def _followed(
    exchanged: Exchange, url: str, question: BrokerCall, headers: Mapping[str, str]
) -> HttpAnswer:
    """Follows redirects: the topic may have moved meanwhile."""
    for _ in range(_REDIRECTS_MAX):
        answer = await exchanged(question.method, url, question.body, headers)
        if answer.status != HTTPStatus.TEMPORARY_REDIRECT or not answer.location:
            break
        there = urlsplit(answer.location)
        if there.scheme not in ("http", "https") or (url.startswith("https:") and there.scheme != "https"):
            raise ValueError(f"it redirects to {answer.location[:200]}, which would show credentials")
        url = answer.location
    return answer


def _words(answer: HttpAnswer) -> tuple[str, str]:
    text = answer.body.decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return str(document.get("reason", ""))[:_REASON_CHARS_MAX], str(document.get("remedy", ""))
    return text[:_REASON_CHARS_MAX] or f"status {answer.status}", ""


def _failed(broker: BrokerUrls, reason: str) -> OtherBrokerError:
    return OtherBrokerError(
        503,
        f"broker {broker.broker_id}, which serves a part of this, failed: {reason}",
        remedy="try again; what it was asked for may have been done",
    )
