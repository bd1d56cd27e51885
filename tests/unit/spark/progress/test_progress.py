"""Progress documents become lag, lines, metrics and totals."""

from __future__ import annotations

import io
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.base.names import TopicName
from magnetar.spark.progress import LagListener
from magnetar.spark.progress.lag import SeenEnds, reaches, rows_behind
from magnetar.spark.progress.report import ProgressReport, size_text
from magnetar.spark.read.offsets import Offset

ORDERS = "persistent://public/default/orders"
QUERY = "3c1e0a55-0000-4000-8000-000000000001"


def progress(batch: int = 3, *, end: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """As `StreamingQueryProgress.json` has it."""
    latest = {f"{ORDERS}-partition-0": "5:9@900", f"{ORDERS}-partition-1": "6:4@400"}
    return {
        "id": QUERY,
        "runId": QUERY,
        "name": "copy",
        "timestamp": "2026-11-21T12:00:00.000Z",
        "batchId": batch,
        "batchDuration": 500,
        "numInputRows": 100,
        "inputRowsPerSecond": 50.0,
        "processedRowsPerSecond": 200.0,
        "durationMs": {"triggerExecution": 500},
        "eventTime": {"watermark": "2026-11-21T11:59:00.000Z"},
        "stateOperators": [{"numRowsTotal": 7, "numRowsDroppedByWatermark": 2}],
        "sources": [
            {
                "description": "magnetar",
                "endOffset": end or {f"{ORDERS}-partition-0": "5:7@650", f"{ORDERS}-partition-1": "6:4@400"},
                "latestOffset": latest,
            }
        ],
        "sink": {"numOutputRows": -1},
        "observedMetrics": {"late": {"diverted": 3}},
        **more,
    }


def test_partitions_make_the_lag_of_a_topic() -> None:
    source = progress()["sources"][0]
    assert rows_behind(reaches(source["endOffset"], source["latestOffset"])) == {ORDERS: 250}


@pytest.mark.parametrize(
    ("end", "latest", "rows"),
    [
        ({ORDERS: "5:7"}, {ORDERS: "5:9"}, {ORDERS: None}),
        ({ORDERS: "5:9"}, {ORDERS: "5:9"}, {ORDERS: 0}),
        ({ORDERS: "5:9@9"}, {}, {ORDERS: 0}),
        ({"kafka": {"0": 12}}, {"kafka": {"0": 14}}, {}),
        (12, 14, {}),
        (None, None, {}),
    ],
)
def test_offsets_that_say_less_or_are_not_ours(end: Any, latest: Any, rows: dict[str, int | None]) -> None:
    assert rows_behind(reaches(end, latest)) == rows


def test_seconds_count_from_when_an_end_was_seen() -> None:
    topic = TopicName.parse(ORDERS)
    seen = SeenEnds()
    for now_s, end in ((10.0, "1:5"), (11.0, "1:5"), (12.0, "1:8"), (15.0, "1:9")):
        seen.note(topic, Offset.parse(end), now_s)
    assert [seen.seconds(topic, Offset.parse(f"1:{read}"), 20.0) for read in (0, 5, 8, 9)] == [10, 8, 5, 0]


def test_a_report_reads_like_a_sentence() -> None:
    listener = LagListener(clock=lambda: 100.0)
    assert listener.take(progress()).line() == (
        "copy: batch 3 · 100 rows · 200 rows/s · behind 250 rows, 0.0 s"
        " · watermark 2026-11-21T11:59:00.000Z · 2 late rows dropped"
    )


def test_what_a_new_query_does_not_know_is_left_out() -> None:
    bare = progress(
        name=None,
        eventTime={"watermark": "1970-01-01T00:00:00.000Z"},
        stateOperators=[],
        sources=[],
        observedMetrics={},
        processedRowsPerSecond="NaN",
        batchDuration=None,
    )
    assert ProgressReport.from_progress(bare).line() == "3c1e0a55: batch 3 · 100 rows"


def test_totals_add_up() -> None:
    listener = LagListener(clock=lambda: 100.0)
    for batch in range(3):
        listener.take(progress(batch))
    (totals,) = listener.totals()
    assert totals.lines() == [
        "copy: 3 batches, 300 rows, 200 rows/s while busy",
        "  watermark 2026-11-21T11:59:00.000Z, 6 late rows dropped behind it",
        "  late.diverted 9",
        f"  behind {ORDERS}: 250 rows, 0.0 s",
    ]


def test_metrics_in_a_file_and_over_http(tmp_path: Path) -> None:
    file = tmp_path / "spark.prom"
    listener = LagListener(metrics_file=file, metrics_port=0, clock=lambda: 100.0)
    try:
        listener.take(progress(name='a "b"'))
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics") as answer:
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/")
        refused.value.close()
    finally:
        listener.close()
    assert text == file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["spark.prom"]
    samples = {
        sample.name: (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["magnetar_spark_rows_total"] == ({"query": 'a "b"'}, 100)
    assert samples["magnetar_spark_late_rows_total"][1] == 2
    assert samples["magnetar_spark_lag_rows"] == ({"query": 'a "b"', "topic": ORDERS}, 250)
    assert samples["magnetar_spark_lag_seconds"][1] == 0
    assert "magnetar_spark_lag_bytes" not in samples


def test_a_cluster_that_does_not_answer_leaves_rows() -> None:
    nobody = {"service.url": "pulsar://127.0.0.1:1", "admin.url": "http://127.0.0.1:1", "retryTimeoutMs": "1"}
    listener = LagListener(connection=nobody)
    (lag,) = listener.take(progress()).lags
    listener.close()
    assert (lag.topic, lag.rows, lag.seconds, lag.size_bytes) == (ORDERS, 250, None, None)


def test_a_file_that_cannot_be_written_hurts_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    LagListener(metrics_file=tmp_path / "nowhere" / "file").take(progress())
    assert "metrics are not written" in caplog.text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_and_a_log_one_now_and_then() -> None:
    now = [100.0]
    for live in (Terminal(), io.StringIO()):
        listener = LagListener(live=live, clock=lambda: now[0])
        for batch in range(25):
            now[0] += 1
            listener.take(progress(batch))
        listener.close()
        if live.isatty():
            assert live.getvalue().count("\r") == 25
            assert live.getvalue().count("\n") == 1
        else:
            assert [line.split(" · ")[0] for line in live.getvalue().splitlines()] == [
                "copy: batch 0",
                "copy: batch 10",
                "copy: batch 20",
            ]


def test_a_document_of_spark_itself_is_read() -> None:
    """What matters is that fields which are not used may be anything."""
    assert ProgressReport.from_progress(json.loads(json.dumps(progress(sink=None)))).rows == 100


def test_sizes() -> None:
    assert [size_text(size) for size in (0, 999, 1500, 2_500_000)] == ["0 B", "999 B", "1.5 kB", "2.5 MB"]
