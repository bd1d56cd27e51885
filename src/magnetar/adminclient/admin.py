"""Calls with names in and decoded documents out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar.adminclient import paths
from magnetar.adminclient.errors import AdminRefusedError
from magnetar.adminclient.http import AdminHttp, Answer
from magnetar.adminclient.target import AdminTarget
from magnetar.base.closing import Closing


class Admin(Closing):
    """One cluster's admin API. Methods raise AdminRefusedError and AdminUnreachableError."""

    def __init__(self, target: AdminTarget) -> None:
        """Connects nowhere yet. Raises AdminTargetError."""
        self._http = AdminHttp(target)

    def close(self) -> None:
        """Ends the connection."""
        self._http.close()

    def call(
        self, method: str, path: str, body: object = None, *, query: Mapping[str, object] | None = None
    ) -> Any:
        """One request; the decoded answer, None when it is empty."""
        return self._http.request(method, path, body, query=query).document()

    def answer(self, path: str, *, query: Mapping[str, object] | None = None) -> Answer:
        """Of a GET, with its headers."""
        return self._http.request("GET", path, query=query)

    # -- what there is

    def tenants(self) -> list[str]:
        return list(self.call("GET", f"{paths.ROOT}/tenants"))

    def namespaces(self, tenant: str) -> list[str]:
        """Full names."""
        return list(self.call("GET", f"{paths.ROOT}/namespaces/{paths.part(tenant)}"))

    def topics(self, namespace: str, *, mode: str = "ALL") -> list[str]:
        """Full names, partitions by their own; `mode`: PERSISTENT, NON_PERSISTENT or ALL."""
        return list(self.call("GET", f"{paths.namespace(namespace)}/topics", query={"mode": mode}))

    def partitions(self, topic: str) -> int:
        """How many the topic has; 0 when it is not partitioned or not there."""
        return int(self.call("GET", f"{paths.topic(topic)}/partitions")["partitions"])

    # -- about a topic

    def stats(self, topic: str) -> dict[str, Any]:
        """Of a topic, all partitions together where it has any."""
        try:
            return dict(self.call("GET", f"{paths.topic(topic)}/stats"))
        except AdminRefusedError as error:
            if error.status not in (404, 405) or not self.partitions(topic):
                raise
            return dict(self.call("GET", f"{paths.topic(topic)}/partitioned-stats"))

    def explain(self, topic: str, subscription: str | None = None) -> list[dict[str, Any]]:
        """Of each subscription, or of one, why it does or does not dispatch."""
        path = paths.topic(topic) if subscription is None else paths.subscription(topic, subscription)
        found = self.call("GET", f"{path}/explain")
        return list(found) if isinstance(found, list) else [found]
