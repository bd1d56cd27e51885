"""The admin interface over HTTP, as far as clients need it. Blocking.

Topics are given by name; answers are decoded JSON. Redirects to the owner of a topic are followed.

Source: Pulsar admin REST v2 (persistent topics, schemas) and HTTP lookup.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urljoin
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.errors import AdminError, ClientError, UnreachableError
from magnetar.client.options import ClientOptions
from magnetar.client.service_url import ServiceUrl
from magnetar.client.tls import tls_context

_REDIRECTS_MAX: Final = 5


class _NoRedirect(HTTPRedirectHandler):
    """urllib would turn a redirected POST into a GET, so redirects are followed by hand."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


class Admin:
    """Calls one cluster's admin interface."""

    def __init__(self, url: ServiceUrl, options: ClientOptions) -> None:
        self.url = url
        self._options = options
        # Proxies of the environment are for the outside world, not for a broker.
        handlers: list[BaseHandler] = [ProxyHandler({}), _NoRedirect()]
        if url.is_tls:
            handlers.append(HTTPSHandler(context=tls_context(options)))
        self._opener = build_opener(*handlers)

    def __repr__(self) -> str:
        return f"Admin({self.url})"

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One request; the decoded answer, None when it is empty. `path` starts with a slash.

        Raises AdminError, UnreachableError.
        """
        url = f"{self.url}{path}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        authorization = self._options.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        for _ in range(_REDIRECTS_MAX):
            request = Request(url, data=data, headers=headers, method=method)
            try:
                with self._opener.open(request, timeout=self._options.request_timeout_s) as response:
                    text = response.read()
            except HTTPError as error:
                with error:
                    location = error.headers.get("Location")
                    if error.code in (301, 302, 307, 308) and location:
                        url = self._redirected(url, location)
                        continue
                    raise AdminError(method, url, error.code, _reason(error.read())) from error
            except (URLError, OSError) as error:
                reason = error.reason if isinstance(error, URLError) else error
                raise UnreachableError(str(self.url), f"{reason}; is this the admin URL?") from error
            return json.loads(text) if text.strip() else None
        raise AdminError(method, url, 310, "redirected too often")

    def _redirected(self, url: str, location: str) -> str:
        """Where to ask next. Raises UnreachableError."""
        target = urljoin(url, location)
        if self.url.is_tls and not target.startswith("https://"):
            raise UnreachableError(str(self.url), f"it redirects to {target}, which would show credentials")
        return target

    def lookup(self, topic: TopicName, *, tls: bool) -> ServiceUrl:
        """The broker that serves the topic. Raises AdminError, UnreachableError."""
        answer = self.call("GET", f"/lookup/v2/topic/{_path(topic)}")
        key = "brokerUrlTls" if tls else "brokerUrl"
        text = answer.get(key) or answer.get("nativeUrl") or ""
        if not text:
            raise ClientError(f"{self.url} names no {key} for {topic}")
        return ServiceUrl.parse(text)

    def internal_stats(self, topic: TopicName) -> dict[str, Any]:
        """Ledgers and positions of a topic or of one partition."""
        stats: dict[str, Any] = self.call("GET", f"/admin/v2/{_path(topic)}/internalStats")
        return stats

    def stats(self, topic: TopicName) -> dict[str, Any]:
        """Counters of a topic or of one partition."""
        stats: dict[str, Any] = self.call("GET", f"/admin/v2/{_path(topic)}/stats")
        return stats

    def position_by_time(self, topic: TopicName, time_ms: int) -> Position:
        """Where reading starts for messages published at `time_ms` (Unix milliseconds) or later.

        The last entry when all are older: the caller must look at publish times himself.
        """
        return _position(self.call("GET", f"/admin/v2/{_path(topic)}/messageid/{time_ms}"))

    def position_by_index(self, topic: TopicName, index: int) -> Position | None:
        """The entry that holds the message of this index; None when the broker cannot tell."""
        try:
            answer = self.call("GET", f"/admin/v2/{_path(topic)}/getMessageIdByIndex?index={index}")
        except AdminError as error:
            # 404: no such index; 405 and 412: brokers before the call, or without broker metadata.
            if error.status in (404, 405, 409, 412, 422):
                return None
            raise
        return _position(answer)

    def removal_rule(self, topic: TopicName) -> str:
        """What removes messages of the topic, in words; "" when the broker does not tell."""
        try:
            retention = self.call("GET", f"/admin/v2/{_path(topic.base)}/retention?applied=true")
            expiry_s = self.call("GET", f"/admin/v2/{_path(topic.base)}/messageTTL?applied=true")
        except ClientError:
            return ""
        minutes = (retention or {}).get("retentionTimeInMinutes", 0)
        megabytes = (retention or {}).get("retentionSizeInMB", 0)
        if minutes == 0 or megabytes == 0:
            kept = "retention keeps nothing that all subscriptions are done with"
        else:
            time = "without limit" if minutes < 0 else f"{minutes} min"
            size = "of any size" if megabytes < 0 else f"up to {megabytes} MB"
            kept = f"retention keeps what all subscriptions are done with {time}, {size}"
        expires = f"messages expire after {expiry_s} s" if expiry_s else "messages do not expire"
        return f"In {topic.tenant}/{topic.namespace} {kept}, and {expires}; deleting the topic removes all."

    def enable_deduplication(self, topic: TopicName) -> None:
        """Duplicates of a producer are dropped from now on; for a partitioned topic, in all partitions."""
        self.call("POST", f"/admin/v2/{_path(topic.base)}/deduplicationEnabled", body=True)


def _path(topic: TopicName) -> str:
    return f"{topic.domain}/{topic.tenant}/{topic.namespace}/{quote(topic.local, safe='')}"


def _position(answer: Any) -> Position:
    return Position(int(answer["ledgerId"]), int(answer["entryId"]))


def _reason(body: bytes) -> str:
    """What an error's body says: `reason` of a JSON object, else the text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        decoded = json.loads(text)
    except ValueError:
        return text[:500]
    return str(decoded.get("reason", text)) if isinstance(decoded, dict) else text[:500]
