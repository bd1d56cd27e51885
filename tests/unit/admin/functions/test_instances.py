"""Status, statistics, start and stop, trigger and state of a function's instances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from magnetar.functions.errors import NoSuchInstanceError, TriggerError
from magnetar.functions.ports import InstanceStats, InstanceStatus, RaisedError, StateValue, StatsOfPeriod
from support.functions import F, FunctionsApi, with_functions

WORKER = "c-standalone-fw-127.0.0.1-8080"


def test_without_workers_the_answers_say_so(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create()
        for method, path in (
            *(("GET", f"{F}/{path}") for path in ("status", "0/status", "stats", "0/stats", "state/k")),
            *(("POST", f"{F}/{path}") for path in ("restart", "0/restart")),
        ):
            answer = await found.api.call(method, path)
            assert (answer.status, answer.json["remedy"]) == (503, "no worker runs functions in this process")
        assert (await found.send("POST", f"{F}/trigger", {"data": "x"})).status == 503

    with_functions(tmp_path, story)


def test_status_is_shown_as_pulsar_shows_it(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create(parallelism=2)
        found.workers.statuses = [
            InstanceStatus(
                instance=0,
                running=True,
                received=3,
                processed=2,
                user_exceptions=1,
                latest_user_exceptions=(RaisedError("trace", 5),),
                average_latency_ms=0.5,
                last_invocation_ms=7,
            ),
            InstanceStatus(instance=1, running=False, error="no code", restarts=4),
        ]
        shown = await found.api.get(f"{F}/status")
        assert (shown["numInstances"], shown["numRunning"]) == (2, 1)
        assert shown["instances"][0] == {
            "instanceId": 0,
            "status": {
                "running": True,
                "error": "",
                "numRestarts": 0,
                "numReceived": 3,
                "numSuccessfullyProcessed": 2,
                "numUserExceptions": 1,
                "latestUserExceptions": [{"exceptionString": "trace", "timestampMs": 5}],
                "numSystemExceptions": 0,
                "latestSystemExceptions": [],
                "averageLatency": 0.5,
                "lastInvocationTime": 7,
                "workerId": WORKER,
            },
        }
        one = await found.api.get(f"{F}/1/status")
        assert (one["error"], one["numRestarts"]) == ("no code", 4)
        for path in ("2/status", "2/stats"):
            assert await found.api.refused("GET", f"{F}/{path}") == (
                400,
                "Function ex doesn't have instance with id 2",
            )

    with_functions(tmp_path, story, running=True)


def test_statistics_are_summed(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create(parallelism=2)
        found.workers.stats_of = [
            InstanceStats(
                instance=0,
                total=StatsOfPeriod(received=5, processed=4, user_exceptions=1, average_latency_ms=2.0),
                minute=StatsOfPeriod(received=1),
                last_invocation_ms=9,
                user_metrics={"m": 1.5},
            ),
            InstanceStats(
                instance=1, total=StatsOfPeriod(received=2, system_exceptions=3, average_latency_ms=4.0)
            ),
        ]
        shown = await found.api.get(f"{F}/stats")
        instances = shown.pop("instances")
        assert shown == {
            "receivedTotal": 7,
            "processedSuccessfullyTotal": 4,
            "systemExceptionsTotal": 3,
            "userExceptionsTotal": 1,
            "avgProcessLatency": 3.0,
            "1min": {
                "receivedTotal": 1,
                "processedSuccessfullyTotal": 0,
                "systemExceptionsTotal": 0,
                "userExceptionsTotal": 0,
                "avgProcessLatency": None,
            },
            "lastInvocation": 9,
        }
        assert instances[0]["metrics"]["userMetrics"] == {"m": 1.5}
        assert (await found.api.get(f"{F}/1/stats"))["lastInvocation"] is None

    with_functions(tmp_path, story, running=True)


def test_instances_are_started_stopped_and_restarted(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        api = found.api
        await found.create(parallelism=2)
        assert await api.refused("POST", f"{F}/start") == (400, "Operation not permitted")
        await api.done("POST", f"{F}/1/stop")
        assert await api.refused("POST", f"{F}/1/stop") == (400, "Operation not permitted")
        assert await api.refused("POST", f"{F}/2/stop") == (400, "Operation not permitted")
        await api.done("POST", f"{F}/stop")
        await api.done("POST", f"{F}/start")
        await api.done("POST", f"{F}/restart")
        await api.done("POST", f"{F}/1/restart")
        assert found.workers.asked == [("public/default/ex", None), ("public/default/ex", 1)]
        found.workers.error = NoSuchInstanceError("public/default/ex", 7)
        assert await api.refused("POST", f"{F}/7/restart") == (400, "public/default/ex/7 doesn't exist")
        assert (await api.refused("POST", f"{F}/x/restart"))[0] == 400

    with_functions(tmp_path, story, running=True)


def test_a_trigger_answers_with_the_result(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create()
        path, workers = f"{F}/trigger", found.workers
        workers.result = b"hi!"
        for parts in ({"data": "hi"}, {"dataStream": ("f", b"hi")}, {"data": "hi", "topic": "in"}):
            answer = await found.send("POST", path, parts)  # type: ignore[arg-type]  # of either kind
            assert (answer.status, answer.body, answer.headers["content-type"]) == (
                200,
                b"hi!",
                "application/json",
            )
        assert [each[1:] for each in workers.asked] == [(None, b"hi"), (None, b"hi"), ("in", b"hi")]
        workers.result = None
        assert (await found.send("POST", path, {"data": ""})).status == 204
        for error, status, reason in (
            (TriggerError("no result in 15 s", timed_out=True), 408, "Request Timed Out"),
            (TriggerError("nothing runs"), 400, "Function in trigger function is not ready"),
        ):
            workers.error = error
            answer = await found.send("POST", path, {"data": "hi"})
            assert (answer.status, answer.reason, answer.json["remedy"]) == (status, reason, str(error))

    with_functions(tmp_path, story, running=True)


def test_a_trigger_needs_data_and_one_topic(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create(inputs=["in", "also"])
        for parts, reason in (
            ({"topic": "in"}, "Trigger Data is not provided"),
            ({"data": "x"}, "Function in trigger function has more than 1 input topics"),
            ({"data": "x", "topic": "other"}, "Function in trigger function has unidentified topic"),
        ):
            answer = await found.send("POST", f"{F}/trigger", parts)  # type: ignore[arg-type]  # texts
            assert (answer.status, answer.reason) == (400, reason)

    with_functions(tmp_path, story, running=True)


def test_state_is_read_and_set(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create()
        path, states = f"{F}/state/a%2Fb", found.workers.states
        assert await found.api.refused("GET", path) == (404, "key 'a/b' doesn't exist.")
        for given, kept in (
            ({"stringValue": "v\N{SNOWMAN}"}, "v\N{SNOWMAN}".encode()),
            ({"byteValue": "/w=="}, b"\xff"),
            ({"numberValue": -2}, (-2).to_bytes(8, "big", signed=True)),
            ({"stringValue": ""}, b""),
        ):
            answer = await found.send("POST", path, {"state": json.dumps({"key": "a/b", **given})})
            assert (answer.status, states["a/b"].value) == (204, kept)
        for value, shown in (
            (StateValue(b"v", None, 3), {"stringValue": "v", "version": 3}),
            (StateValue(b"\xff", None, 0), {"byteValue": "/w==", "version": 0}),
            (StateValue((5).to_bytes(8, "big"), 5, 1), {"numberValue": 5, "version": 1}),
        ):
            states["a/b"] = value
            assert await found.api.get(path) == {"key": "a/b", **shown}

    with_functions(tmp_path, story, running=True)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("{", "part state is not JSON"),
        ('{"key": "other", "stringValue": "v"}', "Path key doesn't match key in json"),
        ("[]", "Path key doesn't match key in json"),
        ('{"key": "k"}', "has none of"),
        ('{"key": "k", "byteValue": "?"}', "byteValue is not base64"),
        ('{"key": "k", "numberValue": true}', "has none of"),
    ],
)
def test_a_state_that_cannot_be_set_is_refused(tmp_path: Path, state: str, reason: str) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create()
        answer = await found.send("POST", f"{F}/state/k", {"state": state})
        assert (answer.status, reason in answer.reason, found.workers.states) == (400, True, {})

    with_functions(tmp_path, story, running=True)


def test_workers_and_their_instances_are_listed(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        api = found.api
        found.workers.stats_of = [InstanceStats(instance=0)]
        assert await api.get("/admin/v2/worker-stats/functionsmetrics") == []
        await found.create(parallelism=3)
        await api.done("POST", f"{F}/1/stop")
        me: dict[str, Any] = {"workerId": WORKER, "workerHostname": "127.0.0.1", "port": 8080}
        assert await api.get("/admin/v2/worker/cluster") == [me]
        assert await api.get("/admin/v2/worker/cluster/leader") == me
        assert await api.get("/admin/v2/worker/cluster/leader/ready") is True
        assert await api.get("/admin/v2/worker/assignments") == {
            WORKER: ["public/default/ex:0", "public/default/ex:2"]
        }
        [stats] = await api.get("/admin/v2/worker-stats/functionsmetrics")
        assert (stats["name"], stats["metrics"]["receivedTotal"]) == ("public/default/ex:0", 0)
        assert await api.get("/admin/v2/worker-stats/metrics") == []
        assert (await api.refused("PUT", "/admin/v2/worker/rebalance"))[0] == 501

    with_functions(tmp_path, story, running=True)


def test_what_an_instance_wrote_is_shown_from_a_byte_on(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create()
        found.workers.written = "grün ü".encode()[:-1]
        shown = await found.api.get(f"{F}/0/output?start=7")
        # One byte of the last character is there: the character comes with the next call.
        assert shown == {"instance": 0, "begin": 7, "end": 13, "text": "grün "}
        assert (await found.api.refused("GET", f"{F}/0/output?start=x"))[0] == 400
        assert (await found.api.refused("GET", f"{F}/7/output"))[0] == 400

    with_functions(tmp_path, story, running=True)
