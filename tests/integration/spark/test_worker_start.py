"""Workers of Spark connect before they load what they need, however long that takes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.spark.worker_start import launcher

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.one_process("own")]

WORKER = """
import os, sys

assert __name__ == "__main__" and sys.modules["__main__"].__spec__.name == "slow_worker"
# Loading takes for as long as the test wants.
sys.stdin.readline()
import socket
from pyspark.worker_util import get_sock_file_to_executor

other = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
with get_sock_file_to_executor(timeout=None) as file:
    file.write(b"here")
    file.flush()
    assert file.read(4) == b"well"
assert "connect" not in vars(socket.socket)
"""


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_a_worker_is_connected_before_it_has_loaded(tmp_path: Path) -> None:
    (tmp_path / "slow_worker.py").write_text(WORKER)
    python = launcher(sys.executable, tmp_path)
    assert python is not None
    spark, other = listening(), listening()
    port = spark.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHON_WORKER_FACTORY_PORT": str(port),
        "PYTHON_WORKER_FACTORY_SECRET": "secret",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    worker = subprocess.Popen(
        [python, "-m", "slow_worker", str(other.getsockname()[1])],
        stdin=subprocess.PIPE,
        env=environment,
        text=True,
    )
    try:
        spark.settimeout(60)
        connection, _ = spark.accept()
        spark.close()
        connection.settimeout(60)
        # As Spark does: nothing has been loaded yet, and it waits ten seconds for each of these.
        assert _read(connection, 4 + 6) == b"\0\0\0\6secret"
        connection.sendall(b"\0\0\0\2ok")
        assert worker.stdin is not None
        worker.stdin.write("load\n")
        worker.stdin.flush()
        assert int.from_bytes(_read(connection, 4), "big") == worker.pid
        assert _read(connection, 4) == b"here"
        connection.sendall(b"well")
        assert worker.wait(60) == 0
        connection.close()
    finally:
        worker.kill()
        worker.communicate()
        other.close()


def _read(connection: socket.socket, count: int) -> bytes:
    read = b""
    while len(read) < count and (part := connection.recv(count - len(read))):
        read += part
    return read


@pytest.mark.parametrize("port", ["", "9"])
def test_other_programs_pass_through(tmp_path: Path, port: str) -> None:
    """Spark's daemon and its look for data sources; PySpark tells of a port where no process listens."""
    python = launcher(sys.executable, tmp_path)
    assert python is not None
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "s"}
    for arguments in (["-c", "import sys; print(sys.prefix)"], ["-m", "platform"]):
        done = [
            subprocess.run([each, *arguments], env=environment, capture_output=True, text=True, check=True)
            for each in (python, sys.executable)
        ]
        assert done[0].stdout == done[1].stdout


def test_a_python_that_no_script_can_name(tmp_path: Path) -> None:
    assert launcher("/it's/bin/python", tmp_path) is None
    (tmp_path / "file").touch()
    assert launcher(sys.executable, tmp_path / "file") is None
