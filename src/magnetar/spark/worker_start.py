"""Lets Spark's workers connect before they load modules.

Spark waits 10 s for each Python program of a streaming source to connect, and 10 s more for its secret. No
setting changes these times. The program first loads PySpark, Arrow and the source. This takes 1 s of CPU on
an idle machine, but more than 10 s when a dozen programs share a core. Then the query fails with "Python
worker failed to connect back".

So Spark calls a script instead of Python. The script connects and sends the secret within a few milliseconds
of CPU, and then replaces itself by Python, where this module passes the open connection to PySpark. The
script runs other programs of Spark unchanged.

    Spark ── exec ──▶ script: connect ── exec ──▶ this module: load ──▶ PySpark's worker: connect
                          │                                                   │
                          └──────────────── one connection ───────────────────┘

PySpark gets the path of a Unix domain socket instead, because it sends no secret on those. The path is only a
placeholder for the open connection.
"""

from __future__ import annotations

import logging
import os
import re
import runpy
import shlex
import socket
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

_log = logging.getLogger("magnetar.spark")

PLACE: Final = "PYTHON_WORKER_FACTORY_SOCK_PATH"
"""Environment variable in which PySpark finds the path to connect to."""
_PATH: Final = "magnetar-connection-"
"""Begin of the placeholder path, which ends with the number of the descriptor."""
_NAMEABLE: Final = re.compile(r"[^'\"\\\n]+")
"""Paths that the shell and Python read as the same text."""

_LAUNCHER: Final = """#!/bin/sh
'''exec' {quoted} -IS "$0" "$@"
'''
# The shell reads the line above as a command, Python as a text: a path with spaces, or a long one, would not
# fit behind #!. Written by magnetar.spark.worker_start, which tells what it is for.
import os
import sys


def connected(port, secret):
    import _socket

    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    connection.connect(("127.0.0.1", port))
    connection.sendall(len(secret).to_bytes(4, "big") + secret)
    answer = b""
    while len(answer) < 6:
        part = connection.recv(6 - len(answer))
        if not part:
            sys.exit("Spark closed the connection of a worker that told its secret")
        answer += part
    if answer != b"\\0\\0\\0\\2ok":
        sys.exit("Spark did not accept the secret of a worker")
    descriptor = connection.detach()
    os.set_inheritable(descriptor, True)
    return descriptor


arguments = sys.argv[1:]
port = os.environ.get("PYTHON_WORKER_FACTORY_PORT", "")
secret = os.environ.get("PYTHON_WORKER_FACTORY_SECRET")
local = os.environ.get("SPARK_PREFER_IPV6", "").lower() != "true"
if port.isdigit() and secret is not None and local and arguments[:1] == ["-m"]:
    try:
        descriptor = connected(int(port), secret.encode())
    except OSError:
        pass  # PySpark tries again, and tells what is wrong.
    else:
        os.environ["{place}"] = "{path}" + str(descriptor)
        del os.environ["PYTHON_WORKER_FACTORY_SECRET"]
        arguments[:1] = ["-c", "from magnetar.spark.worker_start import main; main()"]
os.execv({python!r}, [{python!r}, *arguments])
"""


def launcher(python: str, cache_dir: Path) -> Path | None:
    """The script for this Python, which is written into `cache_dir` unless it exists.

    None when the path has quotes or a backslash, or the script cannot be written.
    """
    if not _NAMEABLE.fullmatch(python):
        return None
    text = _LAUNCHER.format(python=python, quoted=shlex.quote(python), place=PLACE, path=_PATH)
    # Each Python environment has its own script.
    script = cache_dir / "python" / f"python-{sha256(python.encode()).hexdigest()[:12]}"
    try:
        if not script.exists() or script.read_text() != text:
            script.parent.mkdir(parents=True, exist_ok=True)
            # Renamed into place, so that a process that starts at the same time sees a whole file.
            new = script.with_name(f"{script.name}.{os.getpid()}")
            new.write_text(text)
            new.chmod(0o755)
            new.replace(script)
    except OSError as error:
        _log.warning("workers of Spark start as it has them, as %s cannot be written: %s", script, error)
        return None
    return script


def hand_over(path: str) -> None:
    """Lets a socket of this process that connects to `path` take over the open connection."""

    def connect(self: socket.socket, address: str | tuple[object, ...]) -> None:
        if address != path:
            original(self, address)
            return
        del socket.socket.connect
        descriptor = int(path.removeprefix(_PATH))
        os.dup2(descriptor, self.fileno(), inheritable=False)
        os.close(descriptor)
        # The blocking mode belongs to the connection, not to the descriptor.
        self.settimeout(self.gettimeout())

    original = socket.socket.connect
    # Hides the inherited method until the connection is taken over.
    socket.socket.connect = connect  # type: ignore[assignment, method-assign]  # that is the purpose


def main() -> None:
    """Runs the module that Spark names in the arguments."""
    del sys.argv[0]
    path = os.environ.get(PLACE, "")
    if path.startswith(_PATH):
        hand_over(path)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
