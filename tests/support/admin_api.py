"""The admin API over a real broker on fakes, called without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from magnetar.admin.access.access import STATE_CERTIFICATE_ROLE
from magnetar.admin.calls.call import Service
from magnetar.admin.calls.other_brokers import Exchange
from magnetar.admin.calls.rates import Rates
from magnetar.admin.metrics.broker_metrics import registry_for
from magnetar.admin.routes import all_routes
from magnetar.admin.serving.app import build
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position
from magnetar.broker.service import BrokerConfig
from magnetar.broker.topic.producer import OwnConnection, Producer
from magnetar.runtime.http_exchange import HttpAnswer
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import SendRun
from support.brokers import BrokerOnFakes
from support.queries import WrittenProcesses

T = "/admin/v2/persistent/public/default"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        return str(self.json["reason"])


class RecordingConnection(OwnConnection):
    """A producer's connection that keeps receipts."""

    def __init__(self) -> None:
        self.positions: list[Position] = []
        self.detached = 0
        self._wanted = 0
        self._done = asyncio.Event()

    async def wait_for(self, receipts: int) -> None:
        self._wanted = receipts
        if len(self.positions) < receipts:
            await asyncio.wait_for(self._done.wait(), 5)

    def receipts(
        self,
        producer: Producer,
        sequence_ids: list[int],
        highest_ids: list[int] | None,
        position: Position | None,
    ) -> None:
        for offset in range(len(sequence_ids)):
            assert position is not None
            self.positions.append(Position(position.ledger_id, position.entry_id + offset))
        if self._wanted and len(self.positions) >= self._wanted:
            self._done.set()

    def unstored_receipts(
        self, producer: Producer, sequence_ids: list[int], highest_ids: list[int] | None
    ) -> None:
        raise AssertionError("these are messages of persistent topics")

    def send_errors(
        self, producer: Producer, sequence_ids: list[int], code: pb.ServerError, message: str
    ) -> None:
        raise AssertionError(message)

    def producer_detached(self, producer: Producer) -> None:
        self.detached += 1

    def producer_refused(self, producer: Producer, error: MagnetarError) -> None:
        raise AssertionError(str(error))


class AdminApi(BrokerOnFakes):
    """A broker and its admin API."""

    def __init__(
        self, *, config: BrokerConfig | None = None, loopback_only: bool = True, **guard: Any
    ) -> None:
        """`guard`: the broker's `authentication` and `superuser_roles`."""
        super().__init__(config, log_config={"entries_max_per_ledger": 4}, **guard)
        self.other_brokers: Exchange | None = None
        """Answers in the place of other brokers; None: they are not asked."""
        self.sent: list[dict[str, Any]] = []
        """What the last call was answered so far, as ASGI has it."""
        self.left = asyncio.Event()
        """The client of the last call has gone, or has its answer."""
        self.whole = True
        """Whether the last answer came to its end."""
        self.processes = WrittenProcesses()
        """Answer queries of SQL."""
        self.queries = self.processes.places(self.broker.config.queries)
        self.certificate_role: str | None = None
        """Role in the verified client certificate of the calls."""
        service = Service(
            Rates(self.broker.clock, self.broker.clock_watch.began_ms),
            http_port=8080,
            loopback_only=loopback_only,
            exchanged=self._exchanged,
            queries=self.queries,
        )
        self._app = build(self.broker, service, all_routes(registry_for(self.broker)))

    async def call(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None
    ) -> Answer:
        """Sends `body` as JSON (bytes as they are) and returns the answer."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        sent = {"host": "localhost:8080", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
            "state": {} if self.certificate_role is None else {STATE_CERTIFICATE_ROLE: self.certificate_role},
        }
        messages = self.sent = []

        asked = 0
        left = self.left = asyncio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal asked
            asked += 1
            if asked > 1:
                await left.wait()
            return {"type": "http.request" if asked == 1 else "http.disconnect", "body": raw}

        async def send(message: Any) -> None:
            messages.append(dict(message))

        await self._app(scope, receive, send)
        left.set()
        start = messages[0]
        self.whole = not messages[-1].get("more_body", False)
        return Answer(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(message.get("body", b"") for message in messages[1:]),
        )

    async def close(self) -> None:
        await self.queries.close()
        await super().close()

    async def _exchanged(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        assert self.other_brokers is not None, f"{method} {url}: no other broker was to be asked"
        return await self.other_brokers(method, url, body, headers)

    async def get(self, path: str) -> Any:
        """The JSON of a GET that must succeed."""
        answer = await self.call("GET", path)
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json

    async def done(self, method: str, path: str, body: object = None) -> None:
        """A call that must be answered 204 without a body."""
        answer = await self.call(method, path, body)
        assert (answer.status, answer.body) == (204, b""), (answer.status, answer.body)

    async def refused(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Status and reason of a call that must fail."""
        answer = await self.call(method, path, body)
        return answer.status, answer.reason

    async def publish(self, name: str, *payloads: bytes, **metadata: Any) -> list[Position]:
        """One message per payload, in entries of their own; their positions."""
        topic = await self.topic(name)
        connection = RecordingConnection()
        producer = Producer(producer_id=1, name=self.broker.new_producer_name(), connection=connection)
        topic.attach_producer(producer)
        for number, body in enumerate(payloads):
            entry = payload.build_entry(
                pb.MessageMetadata(
                    producer_name=producer.name,
                    sequence_id=number,
                    publish_time=self.clock.now_ms(),
                    **metadata,
                ),
                body,
            )
            run = SendRun(1)
            run.add(number, 1, None, entry, good=True)
            run.size_bytes = len(entry)
            topic.publish(producer, run)
        await connection.wait_for(len(payloads))
        topic.detach_producer(producer)
        return connection.positions


def with_api(
    story: Callable[[AdminApi], Awaitable[None]],
    *,
    config: BrokerConfig | None = None,
    loopback_only: bool = True,
    before: Callable[[AdminApi], None] = lambda _: None,
    **guard: Any,
) -> None:
    """Runs a story on a started broker and closes everything. `before` is called before the start."""

    async def run() -> None:
        api = AdminApi(config=config, loopback_only=loopback_only, **guard)
        before(api)
        await api.start()
        try:
            await story(api)
        finally:
            await api.close()

    asyncio.run(run())
