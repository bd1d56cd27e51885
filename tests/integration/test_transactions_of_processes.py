"""Transactions of several processes behind one port, and kill -9 of each kind of process while they run.

The program is the one of docs/transactions.md. It knows one port; the coordinator, the topic that it reads
and the one that it writes are at any of the processes. MAGNETAR_PROCESSES_ROUNDS makes it longer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pulsar
import pytest

from support.sharing_processes import (
    TOPIC,
    connected,
    coordinator_of,
    is_there,
    process_of,
    processes,
    storage_pid,
)
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

ROUNDS = int(os.environ.get("MAGNETAR_PROCESSES_ROUNDS", "4"))
INPUTS = 400 * ROUNDS
IN, OUT = f"{TOPIC}numbers", f"{TOPIC}doubled"
TTL_S = 5.0
ON = {"MAGNETAR_TRANSACTIONS": "true"}
PROGRAM = f"""
import sys
from magnetar.client.client import Client
from magnetar.client.transforming import TransformLimits, transform

with Client(sys.argv[1]) as client:
    transform(
        client, {IN!r}, "doubling", {OUT!r}, lambda message: [b"%d" % (2 * int(message.value))],
        limits=TransformLimits(entries=5, ttl_s={TTL_S}), idle_s={6 * TTL_S},
    )
"""


@contextmanager
def server(folder: Path, *options: str) -> Iterator[StandaloneProcess]:
    process = StandaloneProcess(folder, options=("--processes", "3", *options), environment=ON)
    try:
        yield process.start()
    finally:
        told = [each["pid"] for each in processes(process)] if process.running else []
        process.kill()
        wait_until(lambda: not any(map(is_there, told)), 60, "all processes have ended")


def fill(process: StandaloneProcess) -> None:
    with connected(process) as client:
        client.subscribe(IN, "doubling", pulsar.ConsumerType.Shared).close()
        # Without a subscription a topic keeps nothing of a ledger whose owner is gone.
        client.subscribe(OUT, "keep").close()
        producer = client.create_producer(IN, batching_enabled=False, block_if_queue_full=True)
        for number in range(INPUTS):
            producer.send_async(b"%d" % number, lambda result, _: None)
        producer.flush()
    assert done(process) == 0, "all are there"


def done(process: StandaloneProcess) -> int:
    """Inputs whose transactions have ended; 0 while that cannot be asked."""
    with suppress(OSError):
        stats = process.admin("GET", f"{IN.replace('://', '/')}/stats")
        return INPUTS - int(stats["subscriptions"]["doubling"]["msgBacklog"])
    return 0


def outputs(process: StandaloneProcess) -> list[int]:
    found = []
    with connected(process) as client:
        reader = client.create_reader(OUT, pulsar.MessageId.earliest)
        while reader.has_message_available():
            found.append(int(reader.read_next(60_000).data()))
    return found


KILLED = (
    lambda process: coordinator_of(process)["pid"],
    storage_pid,
    lambda process: process_of(process, "doubled")["pid"],
    lambda process: process_of(process, "numbers")["pid"],
)


def test_each_input_has_its_output_once_whichever_process_is_killed(tmp_path: Path) -> None:
    with server(tmp_path) as process:
        fill(process)
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, process.broker_url], stderr=subprocess.PIPE
        )
        try:
            for number in range(ROUNDS):
                goal = (number + 1) * INPUTS // (ROUNDS + 2)
                wait_until(lambda goal=goal: done(process) >= goal, 240, "transactions go on")  # type: ignore[misc]
                assert program.poll() is None, "it has work left"
                os.kill(KILLED[number % len(KILLED)](process), signal.SIGKILL)
            _, complaints = program.communicate(timeout=300)
            assert program.returncode == 0, complaints.decode()[-3000:]
        finally:
            program.kill()
            program.communicate()
        assert sorted(outputs(process)) == [2 * number for number in range(INPUTS)]
        assert done(process) == INPUTS


def test_open_transactions_of_a_standalone_are_not_taken_over_in_silence(tmp_path: Path) -> None:
    """What one process began it must end: several would not know what its topics still have to do."""
    from magnetar.base.names import TopicName
    from magnetar.client.client import Client
    from magnetar.client.transactions import Coordinator

    copies = {f"MAGNETAR_LEDGER_{name}": "1" for name in ("ENSEMBLE_SIZE", "WRITE_QUORUM", "ACK_QUORUM")}
    alone = StandaloneProcess(tmp_path, options=("--bookies", "1"), environment={**ON, **copies})
    with alone, Client(alone.broker_url) as client, Coordinator(client) as coordinator:
        alone.admin("PUT", "persistent/public/default/left")
        txn = coordinator.begin(600.0)
        coordinator.add_topic(txn, TopicName.parse("left"))
    with pytest.raises(AssertionError, match="transactions of a standalone server that have not ended"):
        StandaloneProcess(tmp_path, options=("--processes", "2"), environment=ON).start()
