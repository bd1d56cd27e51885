"""What happens to topics, tokens and the broker while a query runs: all rows, or an error that says what is
gone; and nothing stays behind many queries."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from magnetar.base.errors import ClientError
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.options import ClientOptions
from magnetar.client.producer import Producer
from magnetar.sql.errors import SqlError
from magnetar.sql.limits import QueryLimits
from magnetar.sql.queries import Query
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.standalone import StandaloneProcess, wait_until
from support.token_broker import token, with_tokens

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

ROWS = 4_000
QUERIES = 40
"""Queries in a row."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder = tmp_path_factory.mktemp("sql")
    environment = with_tokens(
        folder,
        MAGNETAR_AUTHENTICATION_REFRESH_CHECK_SECONDS="1",
        MAGNETAR_TOKEN_ALLOWED_CLOCK_SKEW_SECONDS="0",
    )
    with StandaloneProcess(folder / "data", environment=environment) as process:
        yield process


def fill(broker: StandaloneProcess, name: str, first: int = 0) -> None:
    with (
        connected(broker) as client,
        Producer(client, TopicName.parse(name)) as producer,
    ):
        for number in range(first, first + ROWS):
            metadata = pb.MessageMetadata(
                producer_name=producer.name,
                sequence_id=number,
                publish_time=1,
                partition_key=f"k{number % 7}",
            )
            producer.send(number, build_entry(metadata, b"%08d" % number * 125))
        producer.flush()


def connected(broker: StandaloneProcess, shown: str = "") -> Client:
    options = ClientOptions(token=shown or token("root"), retry_timeout_s=5)
    return Client(broker.broker_url, options, admin_url=broker.http_url)


def call(broker: StandaloneProcess, method: str, path: str, body: object = None) -> int:
    connection = http.client.HTTPConnection(urlsplit(broker.http_url).netloc, timeout=60)
    connection.request(method, path, json.dumps(body), {"Authorization": f"Bearer {token('root')}"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def numbers(
    broker: StandaloneProcess, name: str, between: Callable[[], object], *, shown: str = ""
) -> list[int]:
    """The numbers of a topic's messages. `between`: called behind the plan, and behind the first rows."""
    limits = QueryLimits(memory_mb=256, threads=1)
    statement = f'SELECT value FROM "{name}"'
    found: list[int] = []
    with Query(statement, lambda: connected(broker, shown), limits, admin_given=True) as query:
        query.plan()
        between()
        _, batches = query.rows()
        for batch in batches:
            if not found:
                between()
            found += [int(value[:8]) for value in batch.column(0).to_pylist()]
    return found


def test_a_topic_that_is_unloaded_meanwhile(broker: StandaloneProcess) -> None:
    fill(broker, "unloaded")

    def unload() -> None:
        assert call(broker, "PUT", "/admin/v2/persistent/public/default/unloaded/unload") == 204

    assert numbers(broker, "unloaded", unload) == list(range(ROWS))


def test_a_topic_that_is_compacted_meanwhile_is_read_as_it_was(broker: StandaloneProcess) -> None:
    fill(broker, "compacted")

    def compact() -> None:
        path = "/admin/v2/persistent/public/default/compacted/compaction"
        # 409: the one before still runs.
        assert call(broker, "PUT", path) in (204, 409)

    assert numbers(broker, "compacted", compact) == list(range(ROWS))


def test_a_topic_that_is_deleted_meanwhile_is_an_error(broker: StandaloneProcess) -> None:
    fill(broker, "deleted")

    def delete() -> None:
        call(broker, "DELETE", "/admin/v2/persistent/public/default/deleted?force=true")

    with pytest.raises((SqlError, ClientError), match="deleted"):
        numbers(broker, "deleted", delete)


def test_messages_of_a_new_topic_of_the_name_are_none_of_the_old_one(broker: StandaloneProcess) -> None:
    fill(broker, "again")

    def replace() -> None:
        if call(broker, "DELETE", "/admin/v2/persistent/public/default/again?force=true") == 204:
            fill(broker, "again", first=1_000_000)

    with pytest.raises((SqlError, ClientError), match="again"):
        numbers(broker, "again", replace)


def test_messages_that_retention_removes_meanwhile_are_an_error(broker: StandaloneProcess) -> None:
    """Nothing keeps them: no subscription, and no retention once its ledger is closed."""
    path = "/admin/v2/persistent/public/default/trimmed"
    fill(broker, "trimmed")

    def trim() -> None:
        assert call(broker, "PUT", f"{path}/unload") == 204
        assert call(broker, "PUT", f"{path}/subscription/s", {"ledgerId": 0, "entryId": 0}) in (204, 409, 400)
        call(broker, "POST", f"{path}/subscription/s/skip_all")
        call(broker, "PUT", f"{path}/unload")
        fill(broker, "trimmed", first=5_000_000)
        call(broker, "PUT", f"{path}/trim")

    with pytest.raises((SqlError, ClientError), match="trimmed"):
        numbers(broker, "trimmed", trim)


def test_a_token_that_ends_meanwhile(broker: StandaloneProcess) -> None:
    """What was asked for with it is read to its end, or is an error: no part is taken for the whole."""
    fill(broker, "ended")

    began = time.monotonic()

    def wait() -> None:
        # Until the token has ended, and the broker has looked.
        wait_until(lambda: time.monotonic() > began + 4, 60, "the token's end")

    with pytest.raises((SqlError, ClientError), match=r"(?i)expired|authenticat|credential|token"):
        numbers(broker, "ended", wait, shown=token("root", lasts_s=2))
    assert time.monotonic() - began < 60


def test_many_queries_leave_nothing_behind(broker: StandaloneProcess) -> None:
    fill(broker, "many")
    process = Path(f"/proc/{broker.pid}")

    def ask() -> None:
        connection = http.client.HTTPConnection(urlsplit(broker.http_url).netloc, timeout=120)
        body = json.dumps({"statement": "SELECT count(*) AS n FROM many"})
        connection.request("POST", "/sql", body, {"Authorization": f"Bearer {token('root')}"})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"n": %d}\n' % ROWS)
        connection.close()

    def held() -> tuple[int, int]:
        """Open descriptors, and children that run or have ended unnoticed."""
        children = (process / "task" / str(broker.pid) / "children").read_text().split()
        return len(list((process / "fd").iterdir())), len(children)

    for _ in range(3):
        ask()
    wait_until(lambda: held()[1] >= 2, 60, "processes are kept ready")
    files, _ = held()
    for _ in range(QUERIES):
        ask()
    wait_until(lambda: held()[0] <= files + 4, 60, "descriptors are closed")
    wait_until(lambda: held()[1] <= 4, 60, "processes have ended: two are kept ready, one syncs")
