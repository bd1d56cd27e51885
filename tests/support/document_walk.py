"""Follows a document from top to bottom, as written, in a network of its own.

    unshare -rn python tests/support/document_walk.py DOCUMENT FOLDER

Ports are those that the document names: no other program is in this network. HOME and the working folder are
FOLDER; documents with `./dev` are followed in a clone. The exit code is 1 when the document is wrong; the
output names the place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from document_blocks import Block, blocks_of

REPOSITORY = Path(__file__).parents[2]
BLOCK_S = 240.0
SERVES_S = 60.0
ASK_AGAIN_S = 0.5

SIOCSIFFLAGS = 0x8914
IFF_UP = 1

PYTHON = r"""
import sys, traceback
names = {"__name__": "__main__"}
while text := sys.stdin.readline():
    block = bytes.fromhex(text).decode()
    try:
        exec(compile(block, "<block>", "exec"), names)
        ended = "0"
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        ended = "1"
    print("\n--ended " + ended, flush=True)
"""


class WrongError(Exception):
    """The document does not do what it says."""


class Reader:
    """Types the commands of a document, as a reader does."""

    def __init__(self, folder: Path, *, in_clone: bool) -> None:
        self._folder = REPOSITORY if in_clone else folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")},
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONUNBUFFERED": "1",
        }
        # Where a reader's session would keep things, instead of in HOME.
        for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "PYTHONPATH"):
            self._environment.pop(name, None)
        self._servers: list[subprocess.Popen[bytes]] = []
        self._python: subprocess.Popen[str] | None = None
        self._said: queue.Queue[str] = queue.Queue()

    def follow(self, block: Block) -> None:
        """Does what the block says. Raises WrongError."""
        if not block.is_followed:
            return
        print(f"== {block.place} {block.word} {block.argument}", flush=True)
        if block.word == "as":
            (self._folder / block.argument).write_text(block.text + "\n")
        elif block.word == "serves":
            self._serve(block)
        else:
            self._try(block)

    def close(self) -> None:
        """Ends what still runs."""
        if self._python is not None:
            self._python.kill()
            self._python.wait()
        for server in reversed(self._servers):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()

    def _try(self, block: Block) -> None:
        deadline = time.monotonic() + BLOCK_S
        while True:
            code, said = self._run(block, deadline)
            right = (code != 0) == (block.word == "fails") and block.argument in said
            if right or block.word != "until" or time.monotonic() > deadline:
                break
            time.sleep(ASK_AGAIN_S)
        print(said, flush=True)
        if not right:
            wants = f", and {block.argument!r} in what it says" if block.argument else ""
            ends = "an error" if block.word == "fails" else "exit code 0"
            raise WrongError(f"{block.place}: ended with {code}; wanted {ends}{wants}")

    def _run(self, block: Block, deadline: float) -> tuple[int, str]:
        if block.language == "python":
            return self._run_python(block, deadline)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BLOCK_S,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def _run_python(self, block: Block, deadline: float) -> tuple[int, str]:
        """All Python of a document is typed into one interpreter."""
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-c", PYTHON],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            threading.Thread(target=self._listen, args=(self._python,), daemon=True).start()
        assert self._python.stdin is not None
        self._python.stdin.write(block.text.encode().hex() + "\n")
        self._python.stdin.flush()
        said: list[str] = []
        while True:
            try:
                line = self._said.get(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                return 124, "".join(said) + "\nno answer in time"
            if line.startswith("--ended "):
                return int(line.split()[1]), "".join(said)
            said.append(line)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._said.put(line)
        self._said.put("--ended 1")

    def _serve(self, block: Block) -> None:
        self._servers.append(
            subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", block.script],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        deadline = time.monotonic() + SERVES_S
        while not _takes_clients():
            if self._servers[-1].poll() is not None or time.monotonic() > deadline:
                raise WrongError(f"{block.place}: does not serve")
            time.sleep(0.05)


def _takes_clients() -> bool:
    try:
        with urlopen("http://localhost:8080/admin/v2/brokers/health", timeout=5):
            return True
    except HTTPError as error:
        # The server runs, and wants a token.
        return error.code in (401, 403)
    except (URLError, OSError):
        return False


def bring_up_loopback() -> None:
    """A new network has a loopback device that is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


@contextlib.contextmanager
def reader(folder: Path, *, in_clone: bool) -> Iterator[Reader]:
    """A reader; what it started is stopped at the end."""
    one = Reader(folder, in_clone=in_clone)
    try:
        yield one
    finally:
        one.close()


def main(document: str, folder: str) -> int:
    """Follows one document."""
    bring_up_loopback()
    blocks = blocks_of(REPOSITORY / document, named=document)
    in_clone = any(block.is_followed and "./dev " in block.text for block in blocks)
    try:
        with reader(Path(folder), in_clone=in_clone) as one:
            for block in blocks:
                one.follow(block)
    except (WrongError, subprocess.TimeoutExpired) as error:
        print(f"WRONG: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
