"""Metrics reach a receiver of OTLP that reads them with OpenTelemetry's own protobufs, over HTTP and gRPC."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service_grpc

from magnetar.observability.catalogue import METRICS
from support.http_threads import HttpThread
from support.official import connect
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

Request = Any
"""ExportMetricsServiceRequest."""


class Received:
    """What came, newest last."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.paths: set[str] = set()
        self.refuse = False

    def newest(self) -> dict[str, Any]:
        """Metrics by name, of the newest request."""
        (resource,) = self.requests[-1].resource_metrics
        return {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}


@contextmanager
def http_receiver() -> Iterator[tuple[str, Received]]:
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if not received.refuse:
                received.paths.add(self.path)
                received.requests.append(service.ExportMetricsServiceRequest.FromString(body))
            self.send_response(400 if received.refuse else 200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    with HttpThread(Handler) as server:
        yield f"http://127.0.0.1:{server.port}", received


@contextmanager
def grpc_receiver() -> Iterator[tuple[str, Received]]:
    received = Received()

    class Servicer(service_grpc.MetricsServiceServicer):  # type: ignore[misc]  # the generated class is untyped
        def Export(self, request: Request, context: object) -> object:
            received.requests.append(request)
            return service.ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    service_grpc.add_MetricsServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}", received
    finally:
        server.stop(None).wait()


def broker(folder: Path, endpoint: str) -> StandaloneProcess:
    settings = {"MAGNETAR_OTLP_ENDPOINT": endpoint, "MAGNETAR_OTLP_INTERVAL_SECONDS": "1"}
    return StandaloneProcess(folder, environment={**settings, "OTEL_RESOURCE_ATTRIBUTES": "team=streams"})


@pytest.mark.parametrize("receiver", [http_receiver, grpc_receiver], ids=["http", "grpc"])
def test_a_collector_gets_what_prometheus_would(receiver: Any, tmp_path: Path) -> None:
    with receiver() as (endpoint, received), broker(tmp_path, endpoint) as process:
        client = connect(process)
        producer = client.create_producer("t")
        for _ in range(7):
            producer.send(b"x")

        def published() -> bool:
            points = (
                received.newest()["pulsar_in_messages_total"].sum.data_points if received.requests else ()
            )
            return any(point.as_int == 7 for point in points)

        wait_until(published, 30, "seven messages in the exported metrics")
        client.close()
        found = received.newest()
    counter = found["pulsar_in_messages_total"]
    assert counter.sum.is_monotonic
    assert counter.sum.aggregation_temporality == 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = [each for each in counter.sum.data_points if each.as_int == 7]
    labels = {each.key: each.value.string_value for each in point.attributes}
    assert labels["topic"] == "persistent://public/default/t"
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    assert (counter.description, counter.unit) == ("Messages published.", "{message}")
    assert found["process_resident_memory_bytes"].gauge.data_points[0].as_int > 1 << 20
    (syncs,) = found["magnetar_sync_seconds"].histogram.data_points
    assert syncs.count == sum(syncs.bucket_counts) > 0
    assert len(syncs.bucket_counts) == len(syncs.explicit_bounds) + 1
    assert found.keys() <= METRICS.keys()
    about = {
        each.key: each.value.string_value
        for each in received.requests[-1].resource_metrics[0].resource.attributes
    }
    assert (about["service.name"], about["team"]) == ("magnetar", "streams")
    assert received.paths <= {"/v1/metrics"}


def test_a_collector_that_is_away_costs_a_line(tmp_path: Path) -> None:
    with http_receiver() as (endpoint, received):
        received.refuse = True
        with broker(tmp_path, endpoint) as process:
            wait_until(lambda: "metrics are not accepted" in process.log_text(), 30, "said")
            received.refuse = False
            wait_until(lambda: "metrics are accepted again" in process.log_text(), 30, "said")
            text = process.log_text()
    assert text.count("metrics are not accepted") == 1
    assert "Traceback" not in text
