"""Transactions of several processes behind one port, with the official Java client, while each kind of them
is killed. The client finds the coordinators through the one port that it knows."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import java_client
from support.drivers import NotHereError
from support.java_program import java_program
from support.sharing_processes import TOPIC, coordinator_of, is_there, process_of, processes, storage_pid
from support.standalone import StandaloneProcess, wait_until
from support.transforming import Lines, numbers_in, prepare

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

HERE = Path(__file__).parent
INPUTS = 120
NAMES = [f"part-{number}" for number in range(12)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandaloneProcess]:
    process = StandaloneProcess(
        tmp_path, options=("--processes", "3"), environment={"MAGNETAR_TRANSACTIONS": "true"}
    )
    yield process.start()
    told = [each["pid"] for each in processes(process)] if process.running else []
    process.kill()
    wait_until(lambda: not any(map(is_there, told)), 60, "all processes have ended")


def test_each_input_has_its_output_once_in_topics_of_several_processes(
    server: StandaloneProcess, tmp_path: Path
) -> None:
    try:
        path = java_client.class_path()
    except NotHereError as error:  # Java or its packages could not be had: it says which and why
        pytest.skip(str(error))
    left, source, *others = NAMES
    homes = {name: process_of(server, name)["number"] for name in NAMES}
    right = next(name for name in others if homes[name] != homes[left])
    outs = (TOPIC + left, TOPIC + right)
    prepare(server.broker_url, TOPIC + source, outs, INPUTS)
    arguments = (server.broker_url, TOPIC + source, *outs)
    with java_program(tmp_path, HERE / "Transforming.java", path, ["-Xmx256m"], arguments) as program:
        lines = Lines(program)
        killed = (
            (15, lambda: coordinator_of(server)["pid"]),
            (35, lambda: storage_pid(server)),
            (60, lambda: process_of(server, right)["pid"]),
        )
        for committed, pid in killed:
            wait_until(lambda least=committed: len(lines.committed()) >= least, 120, "transactions go on")  # type: ignore[misc]
            os.kill(pid(), signal.SIGKILL)
        wait_until(lambda: "idle" in lines.all, 300, "nothing is left to do")
    outputs = [numbers_in(server.broker_url, name) for name in outs]
    for name, found in zip(outs, outputs, strict=True):
        twice = [value for value, count in Counter(found).items() if count > 1]
        assert not twice, f"{name} has {twice} more than once: {lines.all}"
        assert sorted(found) == list(range(INPUTS)), f"{name} lacks inputs"
    assert set(map(int, lines.committed())) <= set(outputs[0])
    stats = server.admin("GET", f"persistent/public/default/{source}/stats")
    assert stats["subscriptions"]["work"]["msgBacklog"] == 0
