"""`/lookup/v2`: which broker serves a topic, for clients whose service URL is an HTTP one."""

from __future__ import annotations

from magnetar.admin.brokers.brokers import broker_port
from magnetar.admin.calls.call import AUTHORITATIVE, Call, Route, Text, is_domain
from magnetar.admin.calls.errors import NotHereError
from magnetar.base.names import TopicName
from magnetar.broker.policies.bundles import bundle_of
from magnetar.broker.transactions.discovery import names_coordinators

_LISTENER = "X-Pulsar-ListenerName"
"""Header in which Java's clients name the listener. Source: Pulsar's lookup over HTTP."""
_T = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"


async def _checked(call: Call) -> TopicName:
    if not is_domain(call.params["domain"]):
        raise NotHereError(f"{call.params['domain']!r} is not a domain of topics")
    topic = call.topic()
    if not (names_coordinators(topic) and call.broker.transactions.enabled):
        await call.broker.check_name(topic)
    return topic


async def lookup(call: Call) -> object:
    """Looks up the broker of a topic.

    The C++ client requires both broker URLs in the answer; an empty one is not offered.
    """
    topic = await _checked(call)
    if call.broker.owners is not None and (found := await _elsewhere(call, topic)) is not None:
        return found
    host = call.broker.config.advertised_host or call.host
    listener = call.query.get("listenerName", "") or call.headers.get(_LISTENER, "")
    at = call.broker.listeners.addresses(host, await broker_port(call), listener=listener)
    return {
        "brokerUrl": at.plain,
        "brokerUrlTls": at.tls,
        "httpUrl": at.http or f"http://{host}:{call.service.http_port}",
        "httpUrlTls": at.https,
        "nativeUrl": at.plain,
    }


async def _elsewhere(call: Call, topic: TopicName) -> object:
    """The answer for a topic of another broker; None when this broker serves it."""
    owners = call.broker.owners
    assert owners is not None, "asked before"
    place = await owners.locate(topic, authoritative=call.flag(AUTHORITATIVE))
    if place.urls is None:
        return None
    listener = call.query.get("listenerName", "") or call.headers.get(_LISTENER, "")
    at = place.urls.of_listener(listener)
    return {
        "brokerUrl": at.plain,
        "brokerUrlTls": at.tls,
        "httpUrl": at.http,
        "httpUrlTls": at.https,
        "nativeUrl": at.plain,
    }


async def bundle(call: Call) -> object:
    """The range of hashes that the topic falls into."""
    topic = await _checked(call)
    return Text(bundle_of(topic, await call.broker.policies.namespace(topic.namespace_name)))


ROUTES: list[Route] = [
    ("GET", _T, lookup),
    ("GET", f"{_T}/bundle", bundle),
]
