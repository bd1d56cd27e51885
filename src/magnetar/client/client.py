"""Finds topics and opens readers and producers on them. Blocking.

Look-ups use one kept connection, or HTTP when the service URL is an HTTP one. Each reader and producer has
its own connection to the broker that serves the topic, and ends when the connection is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from magnetar.adminclient.admin import Admin
from magnetar.adminclient.errors import AdminUnreachableError
from magnetar.adminclient.target import AdminTarget, Remedies
from magnetar.base.closing import Closing
from magnetar.base.errors import ClientError
from magnetar.base.ids import ConsumerId, Position
from magnetar.base.names import NamespaceName, TopicName
from magnetar.client.connection import Connection
from magnetar.client.errors import RefusedError, RequestTimeoutError, UnreachableError
from magnetar.client.options import ClientOptions
from magnetar.client.retry import Retry
from magnetar.client.service_url import ServiceAddresses, ServiceUrl
from magnetar.client.tls import tls_context
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_ack

_Type = pb.BaseCommand.Type
_REDIRECTS_MAX: Final = 20

_REMEDIES: Final = Remedies(
    address="is the broker running, and is this the admin URL?",
    timeout="is it busy?",
    trust="are the trusted certificates, the client's own and the host's name right?",
)

T = TypeVar("T")


class TopicSchema(NamedTuple):
    """A schema of a topic."""

    type: int
    """Number in the protocol's Schema.Type."""
    data: bytes
    """Definition; for Avro and JSON an Avro schema in JSON."""
    version: bytes
    properties: Mapping[str, str] = {}


class Client(Closing):
    """A client of one cluster for sequential programs. Not thread-safe."""

    def __init__(
        self, service_url: str, options: ClientOptions | None = None, *, admin_url: str = ""
    ) -> None:
        """Connects nowhere yet.

        Args:
            service_url: pulsar://host:6650 or http://host:8080, or several hosts: pulsar://a:6650,b:6650.
                Look-ups go to one of them, and to the next one when that does not answer.
            admin_url: http://host:8080; the host of `service_url` at its usual port when empty. Several hosts
                as in `service_url`: the next one is asked when look-ups go on to their next host.

        Raises BadUrlError.
        """
        self._addresses = ServiceAddresses(service_url)
        self._admin_addresses = ServiceAddresses(admin_url) if admin_url else None
        self.options = options or ClientOptions()
        self.admin = Admin(_admin_target(self._admin_url(), self.options))
        self._lookups: Connection | None = None

    @property
    def url(self) -> ServiceUrl:
        """The address in use."""
        return self._addresses.now

    def _admin_url(self) -> ServiceUrl:
        return self._admin_addresses.now if self._admin_addresses else self.url.default_admin()

    def close(self) -> None:
        """Closes the connections for look-ups and admin calls; readers and producers stay open."""
        self.admin.close()
        self._drop_lookups()

    def _drop_lookups(self) -> None:
        if self._lookups is not None:
            self._lookups.close()
            self._lookups = None

    def _go_on(self) -> None:
        """What was asked did not answer: the next address is asked."""
        self._drop_lookups()
        self._addresses.go_on()
        if self._admin_addresses is not None:
            self._admin_addresses.go_on()
        self.admin.move(str(self._admin_url()))

    # ------------------------------------------------------------ questions to any broker

    def partitions(self, topic: TopicName) -> int:
        """The number of partitions; 0 when the topic is not partitioned. Does not create the topic."""

        def ask(connection: Connection) -> int:
            request_id = connection.session.next_request_id()
            body = pb.CommandPartitionedTopicMetadata(
                topic=str(topic), request_id=request_id, metadata_auto_creation_enabled=False
            )
            answer = connection.call(
                pb.BaseCommand(type=_Type.PARTITIONED_METADATA, partitionMetadata=body),
                request_id,
                f"partitions of {topic}",
            ).partitionMetadataResponse
            if answer.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
                if answer.error == pb.ServerError.TopicNotFound:
                    return 0
                raise RefusedError(f"partitions of {topic}", answer.error, answer.message)
            return answer.partitions

        return self._ask(ask)

    def topics(self, namespace: NamespaceName) -> list[str]:
        """Full names of the namespace's persistent topics, partitions by their own names."""

        def ask(connection: Connection) -> list[str]:
            request_id = connection.session.next_request_id()
            body = pb.CommandGetTopicsOfNamespace(
                request_id=request_id,
                namespace=str(namespace),
                mode=pb.CommandGetTopicsOfNamespace.PERSISTENT,
            )
            answer = connection.call(
                pb.BaseCommand(type=_Type.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body),
                request_id,
                f"topics of {namespace}",
            )
            return list(answer.getTopicsOfNamespaceResponse.topics)

        return self._ask(ask)

    def schema(self, topic: TopicName, version: bytes | None = None) -> TopicSchema | None:
        """A schema of the topic, by default the newest; None when there is none."""

        def ask(connection: Connection) -> TopicSchema | None:
            request_id = connection.session.next_request_id()
            body = pb.CommandGetSchema(
                request_id=request_id, topic=str(topic.base), schema_version=version or None
            )
            answer = connection.call(
                pb.BaseCommand(type=_Type.GET_SCHEMA, getSchema=body), request_id, f"schema of {topic}"
            ).getSchemaResponse
            if answer.HasField("error_code"):
                if answer.error_code == pb.ServerError.TopicNotFound:
                    return None
                raise RefusedError(f"schema of {topic}", answer.error_code, answer.error_message)
            schema = answer.schema
            properties = {pair.key: pair.value for pair in schema.properties}
            return TopicSchema(schema.type, schema.schema_data, answer.schema_version, properties)

        return self._ask(ask)

    def connect_to(self, topic: TopicName) -> Connection:
        """Opens a new connection to the broker that serves the topic."""
        if self.url.is_http:
            return Connection(self._owner(topic), self.options)
        return self._ask(lambda connection: self._follow(connection, topic))

    def _owner(self, topic: TopicName) -> ServiceUrl:
        """The owner of the topic, looked up over HTTP."""
        try:
            text = self.admin.lookup(topic, tls=self.url.is_tls)
        except AdminUnreachableError:
            self._go_on()
            raise
        if not text:
            key = "brokerUrlTls" if self.url.is_tls else "brokerUrl"
            raise ClientError(f"{self.admin.url} names no {key} for {topic}")
        return ServiceUrl.parse(text)

    def _follow(self, connection: Connection, topic: TopicName) -> Connection:
        """Follows redirects until a broker answers that it serves the topic."""
        asked = connection
        authoritative = False
        try:
            for _ in range(_REDIRECTS_MAX):
                request_id = asked.session.next_request_id()
                body = pb.CommandLookupTopic(
                    topic=str(topic), request_id=request_id, authoritative=authoritative
                )
                answer = asked.call(
                    pb.BaseCommand(type=_Type.LOOKUP, lookupTopic=body), request_id, f"lookup of {topic}"
                ).lookupTopicResponse
                if answer.response == pb.CommandLookupTopicResponse.Failed:
                    raise RefusedError(f"lookup of {topic}", answer.error, answer.message)
                text = answer.brokerServiceUrlTls if self.url.is_tls else answer.brokerServiceUrl
                owner = ServiceUrl.parse(text) if text else asked.url
                if answer.response == pb.CommandLookupTopicResponse.Connect:
                    if answer.proxy_through_service_url:
                        # Through the proxy that said so.
                        return Connection(connection.url, self.options, proxy_to=f"{owner.host}:{owner.port}")
                    return Connection(owner, self.options)
                authoritative = answer.authoritative
                if asked is not connection:
                    asked.close()
                asked = Connection(owner, self.options)
        finally:
            if asked is not connection:
                asked.close()
        raise ClientError(f"lookup of {topic} was redirected {_REDIRECTS_MAX} times; brokers disagree")

    def _ask(self, question: Callable[[Connection], T]) -> T:
        """Sends a request on the kept connection, or on a new one to the next address when that is lost or
        does not answer, until the retry limit."""
        retry = Retry(self.options.retry_timeout_s)
        while True:
            try:
                return question(self._lookup_connection())
            except ClientError as error:
                if isinstance(error, (UnreachableError, RequestTimeoutError)):
                    # It may also be the broker that it named. To ask another one harms in no case.
                    self._go_on()
                retry.pause_or_raise(error)

    def _lookup_connection(self) -> Connection:
        if self._lookups is None or not self._lookups.is_open:
            url = self.url
            if url.is_http:
                # Any topic's owner answers questions about all; the name need not exist.
                url = self._owner(TopicName.parse("lookup"))
            self._lookups = Connection(url, self.options)
        return self._lookups

    # ------------------------------------------------------------ at a topic's owner

    def register_schema(self, topic: TopicName, schema: pb.Schema) -> bytes:
        """Registers the schema with the topic, as the newest version unless it exists; returns its version.

        Args:
            topic: the topic or one of its partitions, which share the schemas.

        Raises RefusedError when it is not compatible with what the topic has.
        """
        retry = Retry(self.options.retry_timeout_s)
        while True:
            try:
                with self.connect_to(topic) as connection:
                    request_id = connection.session.next_request_id()
                    body = pb.CommandGetOrCreateSchema(request_id=request_id, topic=str(topic), schema=schema)
                    answer = connection.call(
                        pb.BaseCommand(type=_Type.GET_OR_CREATE_SCHEMA, getOrCreateSchema=body),
                        request_id,
                        f"schema of {topic}",
                    ).getOrCreateSchemaResponse
                if answer.HasField("error_code"):
                    raise RefusedError(f"schema of {topic}", answer.error_code, answer.error_message)
                return answer.schema_version
            except ClientError as error:
                retry.pause_or_raise(error)

    def acknowledge_up_to(
        self, topic: TopicName, subscription: str, position: Position | None, *, create_topic: bool = True
    ) -> None:
        """Moves a durable subscription's cursor after `position`; None only creates the subscription.

        A new subscription starts at the earliest message. No message is consumed. With `create_topic` a
        missing topic is created if the broker allows automatic creation, else the call is refused.
        Raises RefusedError, for example while another consumer has it exclusively.
        """
        with self.connect_to(topic) as connection:
            _subscribe(connection, topic, subscription, create_topic=create_topic)
            if position is not None:
                request_id = connection.session.next_request_id()
                ack = encode_ack(ConsumerId(1), [position], cumulative=True, request_id=request_id)
                answer = connection.request(
                    request_id, ack, f"ack of {position} in {subscription!r}"
                ).ackResponse
                if answer.HasField("error"):
                    raise RefusedError(f"ack of {position} in {subscription!r}", answer.error, answer.message)

    def unsubscribe(self, topic: TopicName, subscription: str) -> None:
        """Deletes a durable subscription; not an error when there is none.

        Raises RefusedError while it has other consumers.
        """
        with self.connect_to(topic) as connection:
            _subscribe(connection, topic, subscription)
            request_id = connection.session.next_request_id()
            body = pb.CommandUnsubscribe(consumer_id=1, request_id=request_id)
            connection.call(
                pb.BaseCommand(type=_Type.UNSUBSCRIBE, unsubscribe=body),
                request_id,
                f"end of subscription {subscription!r} of {topic}",
            )


def _admin_target(url: ServiceUrl, options: ClientOptions) -> AdminTarget:
    return AdminTarget(
        url=str(url),
        authorization=options.authorization,
        tls_context=lambda: tls_context(options),
        timeout_s=options.request_timeout_s,
        remedies=_REMEDIES,
    )


def _subscribe(
    connection: Connection, topic: TopicName, subscription: str, *, create_topic: bool = True
) -> None:
    request_id = connection.session.next_request_id()
    subscribe = pb.CommandSubscribe(
        topic=str(topic),
        subscription=subscription,
        # Failover, so that a second query or a user's consumer does not fail.
        subType=pb.CommandSubscribe.Failover,
        consumer_id=1,
        request_id=request_id,
        durable=True,
        initialPosition=pb.CommandSubscribe.Earliest,
        force_topic_creation=create_topic,
    )
    connection.call(
        pb.BaseCommand(type=_Type.SUBSCRIBE, subscribe=subscribe),
        request_id,
        f"subscription {subscription!r} of {topic}",
    )
