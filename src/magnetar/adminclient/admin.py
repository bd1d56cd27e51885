"""Calls with names in and decoded documents out.

Source: Pulsar admin REST v2 (persistent topics, schemas) and HTTP lookup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from magnetar.adminclient import paths
from magnetar.adminclient.errors import AdminRefusedError
from magnetar.adminclient.form import Form
from magnetar.adminclient.http import AdminHttp, Answer
from magnetar.adminclient.target import AdminTarget
from magnetar.base.closing import Closing
from magnetar.base.errors import ClientError
from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName

_NO_INDEX: Final = (404, 405, 409, 412, 422)
"""Statuses of "no position for this index". 404: no message has the index; 405 and 412: the broker does not
know the call, or keeps no broker metadata."""


class Admin(Closing):
    """The admin API of one cluster. Not thread-safe.

    Methods raise AdminRefusedError, AdminUnreachableError, and the errors of the target's `authorization`. A
    topic is given by its full or short name, or as a TopicName.
    """

    def __init__(self, target: AdminTarget) -> None:
        """Connects nowhere yet. Raises AdminTargetError."""
        self.url = target.url
        self._http = AdminHttp(target)

    def __repr__(self) -> str:
        return f"Admin({self.url})"

    def move(self, url: str) -> None:
        """Calls go to another address of the cluster from now on. Raises AdminTargetError."""
        if url != self.url:
            self._http.move(url)
            self.url = url

    def close(self) -> None:
        """Ends the connection."""
        self._http.close()

    def call(
        self, method: str, path: str, body: object = None, *, query: Mapping[str, object] | None = None
    ) -> Any:
        """Sends one request; returns the decoded answer, None when it is empty."""
        return self._http.request(method, path, body, query=query).document()

    def answer(self, path: str, *, query: Mapping[str, object] | None = None) -> Answer:
        """Sends a GET; returns the answer with its headers."""
        return self._http.request("GET", path, query=query)

    def send(self, method: str, path: str, form: Form) -> Answer:
        """Sends a request with a multipart body; returns the answer."""
        return self._http.send(method, path, form)

    # -- what there is

    def tenants(self) -> list[str]:
        return list(self.call("GET", f"{paths.ROOT}/tenants"))

    def namespaces(self, tenant: str) -> list[str]:
        """Full names of the namespaces of a tenant."""
        return list(self.call("GET", f"{paths.ROOT}/namespaces/{paths.part(tenant)}"))

    def topics(self, namespace: str, *, mode: str = "ALL") -> list[str]:
        """Full names of the topics of a namespace; partitions are listed one by one. `mode`: PERSISTENT,
        NON_PERSISTENT or ALL (default)."""
        return list(self.call("GET", f"{paths.namespace(namespace)}/topics", query={"mode": mode}))

    def partitions(self, topic: str | TopicName) -> int:
        """The number of partitions; 0 when the topic is not partitioned or does not exist."""
        return int(self.call("GET", f"{paths.topic(topic)}/partitions")["partitions"])

    # -- about a topic

    def lookup(self, topic: str | TopicName, *, tls: bool) -> str:
        """The service URL of the broker that serves the topic, with or without TLS; "" when the answer has
        none."""
        answer = self.call("GET", paths.lookup(topic))
        return str(answer.get("brokerUrlTls" if tls else "brokerUrl") or answer.get("nativeUrl") or "")

    def internal_stats(self, topic: str | TopicName) -> dict[str, Any]:
        """Ledgers and positions of a topic or of one partition."""
        return dict(self.call("GET", f"{paths.topic(topic)}/internalStats"))

    def position_by_time(self, topic: str | TopicName, time_ms: int) -> Position:
        """The position from which to read messages published at `time_ms` (Unix milliseconds) or later.

        It is the last entry when all messages are older, so the caller must compare publish times.
        """
        return _position(self.call("GET", f"{paths.topic(topic)}/messageid/{time_ms}"))

    def position_by_index(self, topic: str | TopicName, index: int) -> Position | None:
        """The entry that holds the message of this index; None when the broker cannot tell."""
        try:
            answer = self.call("GET", f"{paths.topic(topic)}/getMessageIdByIndex", query={"index": index})
        except AdminRefusedError as error:
            if error.status in _NO_INDEX:
                return None
            raise
        return _position(answer)

    def index_behind(self, topic: str | TopicName, entry: Position) -> int | None:
        """Messages before and in an entry, which readers need not get; None when the broker cannot tell."""
        query = {"ledger": entry.ledger_id, "entry": entry.entry_id, "limit": 1}
        try:
            found = self.call("GET", f"{paths.topic(topic)}/allEntries", query=query)
        except AdminRefusedError as error:
            if error.status in _NO_INDEX:
                return None
            raise
        if not found or (found[0]["ledgerId"], found[0]["entryId"]) != entry:
            return None
        return int(found[0]["lastIndex"]) + 1

    def removal_rule(self, topic: TopicName) -> str:
        """The policies that delete messages of the topic, as a sentence; "" when the broker does not tell."""
        path, applied = paths.topic(topic.base), {"applied": True}
        try:
            retention = self.call("GET", f"{path}/retention", query=applied)
            expiry_s = self.call("GET", f"{path}/messageTTL", query=applied)
        except ClientError:
            # The rule only explains a loss that is reported anyway; without it the report is shorter.
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
        """Switches deduplication of the topic on; of a partitioned topic, in all partitions."""
        self.call("POST", f"{paths.topic(topic.base)}/deduplicationEnabled", body=True)

    def stats(self, topic: str | TopicName) -> dict[str, Any]:
        """Statistics of a topic; of a partitioned topic, the sum over its partitions."""
        try:
            return dict(self.call("GET", f"{paths.topic(topic)}/stats"))
        except AdminRefusedError as error:
            if error.status not in (404, 405) or not self.partitions(topic):
                raise
            return dict(self.call("GET", f"{paths.topic(topic)}/partitioned-stats"))

    def explain(self, topic: str, subscription: str | None = None) -> list[dict[str, Any]]:
        """Explains for each subscription, or one, why it dispatches or does not."""
        path = paths.topic(topic) if subscription is None else paths.subscription(topic, subscription)
        found = self.call("GET", f"{path}/explain")
        return list(found) if isinstance(found, list) else [found]


class _MessageId(TypedDict):
    """A message id of Pulsar's REST API, as far as it is read here."""

    ledgerId: int
    entryId: int


def _position(answer: _MessageId) -> Position:
    return Position(LedgerId(int(answer["ledgerId"])), int(answer["entryId"]))
