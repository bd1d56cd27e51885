"""A cluster seen from outside: the partitions of its topics, and the ends of their logs."""

from __future__ import annotations

from magnetar.adminclient.errors import AdminRefusedError, AdminUnreachableError
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.errors import RefusedError
from magnetar.client.reader import last_position
from magnetar.tables.ledgers import KnownLog
from magnetar.tables.log_state import log_state
from magnetar.wire import pulsar_pb2 as pb


class TopicCluster:
    """Calls brokers through one client, which stays open until `close`."""

    def __init__(self, client: Client, *, admin_given: bool) -> None:
        """`admin_given`: whether the user gave the address of the admin interface; then it has to answer."""
        self.client = client
        self._admin_given = admin_given
        self._admin_works: bool | None = None

    def close(self) -> None:
        """Closes the client."""
        self.client.close()

    def partitions_of(self, topic: TopicName) -> list[TopicName]:
        """The partitions of a topic, in order; the topic itself when it has none or is one."""
        count = self.client.partitions(topic) if topic.partition < 0 else 0
        return [topic.with_partition(number) for number in range(count)] or [topic]

    def log_state(self, topic: TopicName) -> KnownLog:
        """The ledgers and the end of one partition; only the end when the admin interface cannot be used.

        Raises ClientError, of which RefusedError (TopicNotFound) when the topic does not exist.
        """
        if self.find_admin():
            try:
                return log_state(self.client, topic)
            except AdminRefusedError as error:
                if error.status == 404:
                    raise RefusedError(
                        f"reading {topic}",
                        pb.ServerError.TopicNotFound,
                        "there is no such topic; create it or publish to it first",
                    ) from error
                raise
        return KnownLog.from_last(last_position(self.client, topic))

    def find_admin(self) -> bool:
        """Asks the admin interface the first time; returns whether it answers.

        Raises AdminUnreachableError when the user gave its address and it does not answer.
        """
        if self._admin_works is None:
            try:
                self.client.admin.call("GET", "/admin/v2/clusters")
                self._admin_works = True
            except AdminRefusedError:
                self._admin_works = True  # A refusal is an answer too.
            except AdminUnreachableError:
                if self._admin_given:
                    raise
                self._admin_works = False
        return self._admin_works
