"""Others' clients on the WebSocket API: Pulsar's own `pulsar-client` (Java), and `websocket-client` as
Pulsar's documents use it."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import websocket

from support import java_client, pulsar_admin
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process]

ANSWER_S = 30.0

Open = Callable[..., websocket.WebSocket]


@pytest.fixture
def open_socket(standalone: StandaloneProcess) -> Iterator[Open]:
    """Opens sockets below /ws/v2/."""
    with ExitStack() as opened:

        def open_one(path: str, **options: Any) -> websocket.WebSocket:
            url = f"{standalone.http_url.replace('http', 'ws', 1)}/ws/v2/{path}"
            made = websocket.create_connection(url, timeout=ANSWER_S, **options)
            opened.callback(made.close)
            return made

        yield open_one


def test_the_examples_of_pulsars_documents(open_socket: Open, topic: str) -> None:
    path = topic.replace("://", "/")
    consumer = open_socket(f"consumer/{path}/my-sub")
    producer = open_socket(f"producer/{path}")
    text = "Hello World"
    sent = {
        "payload": base64.b64encode(text.encode()).decode(),
        "properties": {"key1": "value1", "key2": "value2"},
        "context": 5,
    }
    producer.send(json.dumps(sent))
    answer = json.loads(producer.recv())
    assert answer["result"] == "ok"
    message = json.loads(consumer.recv())
    assert base64.b64decode(message["payload"]).decode() == text
    assert message["properties"] == sent["properties"]
    consumer.send(json.dumps({"messageId": message["messageId"]}))
    reader = open_socket(f"reader/{path}?messageId=earliest")
    assert json.loads(reader.recv())["messageId"] == answer["messageId"]


def test_a_page_of_elsewhere_is_refused(open_socket: Open, topic: str) -> None:
    path = topic.replace("://", "/")
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        open_socket(f"producer/{path}", origin="http://elsewhere.example")
    assert refused.value.status_code == 403
    open_socket(f"producer/{path}", origin="http://localhost:3000")


def test_a_large_message_and_many_small_ones(open_socket: Open, topic: str) -> None:
    path = topic.replace("://", "/")
    consumer = open_socket(f"consumer/{path}/s")
    producer = open_socket(f"producer/{path}")
    large = bytes(range(256)) * (4 << 12)
    for payload in (large, *(b"%d" % number for number in range(300))):
        producer.send(json.dumps({"payload": base64.b64encode(payload).decode()}))
    answers = [json.loads(producer.recv()) for _ in range(301)]
    assert {answer["result"] for answer in answers} == {"ok"}
    got = [json.loads(consumer.recv()) for _ in range(301)]
    assert [each["messageId"] for each in got] == [answer["messageId"] for answer in answers]
    assert base64.b64decode(got[0]["payload"]) == large


@pytest.mark.slow
def test_pulsars_own_tool(standalone: StandaloneProcess, topic: str, tmp_path: Path) -> None:
    try:
        classes = java_client.class_path(pulsar_admin.HERE)
    except java_client.NotHereError as reason:
        pytest.skip(f"no pulsar-client: {reason}")
    (tmp_path / "client.conf").touch()
    url = standalone.http_url.replace("http", "ws", 1)
    main = "org.apache.pulsar.client.cli.PulsarClientTool"
    tool = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        classes,
        main,
        str(tmp_path / "client.conf"),
        "--url",
        url,
    ]
    consuming = subprocess.Popen(
        [*tool, "consume", topic, "-s", "sub", "-n", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:

        def subscribed() -> bool:
            stats = standalone.admin("GET", "proxy-stats/stats")
            return bool(stats.get(topic, {}).get("consumerStats"))

        wait_until(subscribed, ANSWER_S, f"a consumer on {topic}")
        subprocess.run([*tool, "produce", topic, "-m", "one,two,three"], check=True, timeout=60)
        out, _ = consuming.communicate(timeout=60)
    finally:
        consuming.kill()
        consuming.wait()
    payloads = [
        base64.b64decode(json.loads(line)["payload"]) for line in out.splitlines() if line.startswith("{")
    ]
    assert payloads == [b"one", b"two", b"three"]


def test_many_open_sockets_leave_the_admin_port_free(
    standalone: StandaloneProcess, open_socket: Open, topic: str
) -> None:
    path = topic.replace("://", "/")
    opened = [open_socket(f"consumer/{path}/s?subscriptionType=Shared") for _ in range(300)]
    assert standalone.admin("GET", "clusters") == ["standalone"]
    stats = standalone.admin("GET", f"proxy-stats/{path}/stats")
    assert len(stats["consumerStats"]) == len(opened)
