"""`magnetar standalone --processes 3` with the official client: one command, one port, one data folder."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pulsar
import pytest

from magnetar.auth.token import new_token
from support.official import QUIET, receive_all
from support.sharing_processes import (
    Load,
    check_all_there,
    connected,
    is_there,
    process_of,
    processes,
    storage_pid,
)
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

KEPT = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
THREE = ("--processes", "3")
ONE_COPY = {f"MAGNETAR_LEDGER_{name}": "1" for name in ("ENSEMBLE_SIZE", "WRITE_QUORUM", "ACK_QUORUM")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandaloneProcess]:
    """Not started. No process outlives the test."""
    process = StandaloneProcess(tmp_path, options=THREE)
    yield process
    told = everyone(process) if process.running else []
    process.kill()
    wait_until(lambda: not any(map(is_there, told)), 60, "all processes have ended")


def everyone(server: StandaloneProcess) -> list[int]:
    """Process ids of the broker processes and of their storage."""
    return [*pids(server), storage_pid(server)]


def pids(server: StandaloneProcess) -> list[int]:
    return [each["pid"] for each in processes(server)]


def test_killed_processes_are_replaced_and_nothing_is_lost(server: StandaloneProcess) -> None:
    """One with topics, then the one with the storage of all, under load."""
    topics = [f"killed-{number}" for number in range(12)]
    server.start()
    with connected(server) as client:
        load = Load(client, topics)
        for _ in range(50):
            load.send()
        load.settle()
        assert len({process_of(server, topic)["number"] for topic in topics}) > 1
        load.send()
        killed = process_of(server, topics[0])
        os.kill(killed["pid"], signal.SIGKILL)
        for _ in range(50):
            load.send()
        load.settle()
        wait_until(lambda: killed["pid"] not in pids(server), 60, "the process is replaced")
        load.send()
        os.kill(storage_pid(server), signal.SIGKILL)
        for _ in range(50):
            load.send()
        load.settle()
        assert "the storage process has ended with code -9 and is started again" in server.log_text()
        check_all_there(client, topics, load.sent)


def test_brokers_reach_the_bookies_of_another_storage_process_with_authentication(tmp_path: Path) -> None:
    """Bookies ask for a password then, which the brokers that go on must know."""
    secret = b"s" * 32
    (tmp_path / "secret").write_bytes(secret)
    token = new_token(secret, "root", now_s=int(time.time()), lasts_s=None)
    settings = {
        "authentication": "token",
        "superuser_roles": "root",
        "token_secret_key": str(tmp_path / "secret"),
    }
    file = tmp_path / "secure.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    with (
        StandaloneProcess(tmp_path / "process", options=(*THREE, "--config", str(file))) as server,
        closing(secured_client(server, token)) as client,
    ):
        bookies = children_of(storage_pid(server))
        producer = client.create_producer("secured", send_timeout_millis=60_000)
        producer.send(b"1")
        os.kill(storage_pid(server), signal.SIGKILL)
        wait_until(lambda: not any(map(exists, bookies)), 60, "the bookies have ended too")
        producer.send(b"2")
        reader = client.create_reader("secured", pulsar.MessageId.earliest)
        assert [reader.read_next(10_000).data() for _ in range(2)] == [b"1", b"2"]


def secured_client(server: StandaloneProcess, token: str) -> pulsar.Client:
    return pulsar.Client(server.broker_url, authentication=pulsar.AuthenticationToken(token), logger=QUIET)


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_all_are_restarted_in_turn_without_an_error(server: StandaloneProcess) -> None:
    topics = [f"rolled-{number}" for number in range(12)]
    before = set(pids(server.start()))
    with connected(server) as client:
        load = Load(client, topics)
        server.send_signal(signal.SIGUSR2)

        def all_new() -> bool:
            load.send()
            return len(pids(server)) == 3 and not before & set(pids(server))

        wait_until(all_new, 120, "all processes are new")
        load.settle()
        check_all_there(client, topics, load.sent)


def test_what_was_stored_is_there_after_a_stop_and_with_one_process(server: StandaloneProcess) -> None:
    topics = [f"kept-{number}" for number in range(4)]
    server.start().admin("POST", "namespaces/public/default/retention", KEPT)
    with connected(server) as client:
        consumer = client.subscribe("kept-0", "s", initial_position=pulsar.InitialPosition.Earliest)
        load = Load(client, topics)
        for _ in range(20):
            load.send()
        load.settle()
        assert receive_all(consumer, 10) == [b"%d" % number for number in range(10)]
    ended = everyone(server)
    assert server.stop() == 0
    assert not any(map(is_there, ended))
    with connected(server.start()) as client:
        check_all_there(client, topics, 20)
        rest = client.subscribe("kept-0", "s")
        assert receive_all(rest, 10) == [b"%d" % number for number in range(10, 20)]
    assert server.stop() == 0
    alone = StandaloneProcess(server.folder, options=("--bookies", "1"), environment=ONE_COPY)
    with alone, connected(alone) as client:
        check_all_there(client, topics, 20)


def test_no_process_outlives_the_supervisor(server: StandaloneProcess) -> None:
    server.start()
    told = everyone(server)
    server.kill()
    wait_until(lambda: not any(map(is_there, told)), 60, "the processes have ended")
    # The data folder is free then, and what is in it is whole.
    with StandaloneProcess(server.folder, options=("--bookies", "1"), environment=ONE_COPY) as alone:
        assert alone.running


def test_what_cannot_be_shared_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="leave --ephemeral or --processes out"):
        StandaloneProcess(tmp_path / "e", ephemeral=True, options=THREE).start()
    with StandaloneProcess(tmp_path / "own"):
        pass
    with pytest.raises(AssertionError, match="keeps messages in the broker's own process: start without"):
        StandaloneProcess(tmp_path / "own", options=THREE).start()
