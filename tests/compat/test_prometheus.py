"""The real Prometheus asks a busy broker: every metric, panel and rule is about something that is there."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pulsar
import pytest
from alerts import ALERTS
from dashboards import DASHBOARDS, WINDOW, Query
from log_events import events
from prometheus_client.parser import text_string_to_metric_families

from magnetar.client.client import Client
from magnetar.client.transforming import transform
from magnetar.observability.catalogue import METRICS
from magnetar.observability.metrics import Kind
from support import prometheus
from support.official import TIMEOUT_MS, connect
from support.prometheus import Prometheus
from support.raw_client import RawClient
from support.sessions import Type
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

RULES = Path(__file__).parents[2] / "monitoring" / "prometheus"
ABSENT = (
    "limit of stored bytes",
    "object store",
    "WebSockets",
    "Iceberg",
    "magnetar bookie",
    "magnetar autorecovery",
    "magnetar proxy",
    "one of several brokers",
    "several processes share",
    "several bookies",
    "TLS or authentication",
    "--metadata zk",
    "where functions run",
    "functions that record",
)
"""In what a metric is shown only with: what this broker is not asked to do."""


class World(NamedTuple):
    """A broker with work to do, and a Prometheus that watches it."""

    prometheus: Prometheus
    scrape: str
    """The broker's own words, at the end."""
    log: list[str]
    """Its records."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    prometheus.programs()
    folder = tmp_path_factory.mktemp("watched")
    settings = {"MAGNETAR_CANARY_NAMESPACES": "public/*", "MAGNETAR_CANARY_INTERVAL_SECONDS": "1"}
    settings["MAGNETAR_LOG_JSON"] = "true"
    settings["MAGNETAR_TRANSACTIONS"] = "true"
    with StandaloneProcess(folder / "broker", environment=settings) as broker:
        client = connect(broker)
        with RawClient(broker.broker_url) as raw:
            # The Python client has none. It stays open: its time is a minute.
            raw.ask(Type.NEW_TXN, request_id=1, txn_ttl_seconds=60_000, tc_id=0)
        target = broker.http_url.removeprefix("http://")
        with prometheus.running(folder / "prometheus", target, RULES / "rules.yml") as server:
            _work(client)
            _copy(broker)

            def watched() -> bool:
                (count,) = server.query(
                    "count_over_time(magnetar_canary_up{namespace='public/default'}[1m])"
                ) or ({"value": (0, "0")},)
                return float(count["value"][1]) >= 4

            wait_until(watched, 60, "four scrapes with a canary")
            with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=30) as answer:
                scrape = answer.read().decode()
            records = [line for line in broker.log_text().splitlines() if line.startswith("{")]
            yield World(server, scrape, records)
        client.close()


def _work(client: pulsar.Client) -> None:
    """Messages of every kind of topic; one subscription keeps up, one does not."""
    for name in ("t", "non-persistent://public/default/p"):
        consumer = client.subscribe(name, "keeps-up", pulsar.ConsumerType.Shared)
        if name == "t":
            client.subscribe(name, "behind", pulsar.ConsumerType.Shared, receiver_queue_size=1)
        producer = client.create_producer(name)
        for number in range(50):
            producer.send(b"x" * number)
            consumer.acknowledge(consumer.receive(TIMEOUT_MS))


def _copy(broker: StandaloneProcess) -> None:
    """Messages of `t` in transactions, each to another topic."""
    with Client(broker.broker_url) as own:
        copied = transform(own, "t", "copies", "copied", lambda message: [bytes(message.value)], idle_s=1.0)
    assert copied == 50


def expected(query: Query) -> bool:
    return not any(word in query.metric.only for word in ABSENT)


def filled(expression: str) -> str:
    """With what Grafana would put in."""
    for name in ("cluster", "namespace", "topic"):
        expression = expression.replace(f"${name}", ".*")
    return expression.replace(WINDOW, "30s")


def test_what_is_declared_is_there_and_nothing_else(world: World) -> None:
    families = {
        f"{family.name}_total"
        if family.type == "counter" and f"{family.name}_total" in METRICS
        else family.name: family
        for family in text_string_to_metric_families(world.scrape)
    }
    assert sorted(families.keys() - METRICS.keys()) == []
    for name, metric in METRICS.items():
        if any(word in metric.only for word in ABSENT):
            continue
        family = families[name]
        assert family.type == metric.kind.value, name
        assert family.documentation == metric.help, name
        for sample in family.samples:
            own = set(sample.labels) - ({"le"} if metric.kind is Kind.HISTOGRAM else set())
            assert own == set(metric.labels), name


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: str(each.uid))
def test_every_panel_shows_something(world: World, dashboard: object) -> None:
    empty = []
    for panel in dashboard.panels():  # type: ignore[attr-defined]  # a Dashboard
        for query in panel.queries:
            found = world.prometheus.query(filled(query.expression))
            if expected(query) and not found:
                empty.append((panel.title, query.expression))
    assert empty == []


def test_rules_are_right_and_nothing_is_wrong_with_a_healthy_broker(world: World) -> None:
    (group,) = world.prometheus.api("rules")["groups"]
    assert [
        (rule["name"], rule.get("lastError", "")) for rule in group["rules"] if rule["health"] == "err"
    ] == []
    assert len(group["rules"]) == len(ALERTS)
    critical = [
        rule["name"] for rule in group["rules"] if rule["alerts"] and rule["labels"]["severity"] == "critical"
    ]
    assert critical == []


def test_lag_is_told_in_messages_bytes_and_seconds(world: World) -> None:
    lags = {
        unit: float(series["value"][1])
        for unit in ("messages", "bytes", "seconds")
        for series in world.prometheus.query(f'magnetar_subscription_lag_{unit}{{subscription="behind"}}')
    }
    assert lags["messages"] == 50
    assert lags["bytes"] > sum(range(50))
    assert lags["seconds"] > 0


def test_the_log_names_events_that_are_listed(world: World) -> None:
    found = {json.loads(line)["event"] for line in world.log}
    assert {"server.ready", "broker.topic.subscription-created"} <= found
    assert found <= {event.name for event in events()}


def test_promtool_finds_nothing(world: World) -> None:
    assert f"{len(ALERTS)} rules found" in prometheus.promtool("check", "rules", RULES / "rules.yml")
    assert "SUCCESS" in prometheus.promtool("test", "rules", RULES / "rules_test.yml")


def test_a_transaction_that_is_open_for_long_is_told_of(tmp_path: Path) -> None:
    """After ten minutes: five that are usual, and five more for the alert."""
    alert = next(each for each in ALERTS if each.name == "MagnetarTransactionStuck")
    labels = {"instance": "broker", "cluster": "standalone"}
    series = 'magnetar_transaction_oldest_seconds{instance="broker", cluster="standalone"}'
    fires = {
        "exp_labels": {**labels, "severity": "warning"},
        "exp_annotations": {"summary": "a transaction is open for 12m 0s", "remedy": alert.remedy},
    }
    asked = [(9, []), (12, [fires]), (22, [])]
    rules = {
        "rule_files": [str(RULES / "rules.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                # It ends after twenty minutes.
                "input_series": [{"series": series, "values": "0+60x20 0x10"}],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": expected_alerts}
                    for minute, expected_alerts in asked
                ],
            }
        ],
    }
    file = tmp_path / "stuck.yml"
    file.write_text(json.dumps(rules))
    assert "SUCCESS" in prometheus.promtool("test", "rules", file)
