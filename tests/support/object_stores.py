"""Real servers of object stores, on free ports of this machine.

They are looked for in `PATH` and the folders of `MAGNETAR_TEST_SERVERS` (docs/tiered-storage.md says how to
get them). A test whose server is missing is skipped, and the reason names it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from pyarrow import fs

from support.gcs_uploads import uploads_for
from support.standalone import wait_until

START_S = 60.0
BUCKET = "history"
S3_USER, S3_SECRET = "history-user", "history-secret-0123456789"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Public: every emulator of this account has it."""


@dataclass(frozen=True)
class RunningStore:
    """A server with an empty bucket."""

    url: str
    """For `offload_url`."""
    environment: dict[str, str]
    """Credentials, as the broker gets them."""
    secret: str
    """What no log may show."""


def program(name: str) -> str:
    """Path of a server's program; skips the test where there is none."""
    folders = [os.environ.get("MAGNETAR_TEST_SERVERS", ""), os.environ.get("PATH", "")]
    found = shutil.which(name, path=os.pathsep.join(filter(None, folders)))
    if found is None:
        pytest.skip(f"{name} is not installed: put it into PATH or a folder of MAGNETAR_TEST_SERVERS")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


@contextmanager
def _running(command: list[str], port: int, folder: Path, **environment: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "server.log").read_text(errors="replace")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(answers, START_S, f"{command[0]} answers")
        yield
    finally:
        process.kill()
        process.wait()


def _until_made(make: Callable[[], object]) -> None:
    """A server that has a port may not be ready yet."""
    errors: list[Exception] = []

    def made() -> bool:
        try:
            make()
        except OSError as error:
            errors.append(error)
            return False
        return True

    wait_until(made, START_S, "the bucket made")


def _s3(port: int) -> RunningStore:
    files = fs.S3FileSystem(
        access_key=S3_USER,
        secret_key=S3_SECRET,
        endpoint_override=f"127.0.0.1:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    _until_made(lambda: files.create_dir(BUCKET))
    return RunningStore(
        f"s3://{BUCKET}/topics?endpoint=http://127.0.0.1:{port}&region=us-east-1",
        {"AWS_ACCESS_KEY_ID": S3_USER, "AWS_SECRET_ACCESS_KEY": S3_SECRET},
        S3_SECRET,
    )


@contextmanager
def minio(folder: Path) -> Iterator[RunningStore]:
    """S3 by MinIO."""
    port = free_port()
    command = [program("minio"), "server", str(folder / "data"), "--address", f"127.0.0.1:{port}", "--quiet"]
    users = {"MINIO_ROOT_USER": S3_USER, "MINIO_ROOT_PASSWORD": S3_SECRET}
    with _running(command, port, folder, **users):
        yield _s3(port)


@contextmanager
def moto(folder: Path) -> Iterator[RunningStore]:
    """S3 by moto, which looks at no signature."""
    port = free_port()
    with _running([program("moto_server"), "-H", "127.0.0.1", "-p", str(port)], port, folder):
        yield _s3(port)


@contextmanager
def azurite(folder: Path) -> Iterator[RunningStore]:
    """Azure Blob Storage by azurite."""
    port = free_port()
    command = [program("azurite-blob"), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
    command += ["--location", str(folder / "data"), "--skipApiVersionCheck", "--disableTelemetry"]
    with _running(command, port, folder):
        files = fs.AzureFileSystem(
            AZURE_ACCOUNT,
            account_key=AZURE_KEY,
            blob_storage_authority=f"127.0.0.1:{port}",
            blob_storage_scheme="http",
        )
        _until_made(lambda: files.create_dir(BUCKET))
        yield RunningStore(
            f"az://{AZURE_ACCOUNT}/{BUCKET}/topics?endpoint=http://127.0.0.1:{port}/{AZURE_ACCOUNT}",
            {"AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY},
            AZURE_KEY,
        )


@contextmanager
def fake_gcs(folder: Path) -> Iterator[RunningStore]:
    """Google Cloud Storage by fake-gcs-server; it looks at no credentials."""
    port = free_port()
    command = [program("fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-backend", "memory", "-public-host", f"127.0.0.1:{port}"]
    with _running(command, port, folder), uploads_for(port) as proxy:
        bucket = json.dumps({"name": BUCKET}).encode()
        where = f"http://127.0.0.1:{port}/storage/v1/b?project=p"
        request = Request(where, bucket, {"Content-Type": "application/json"})
        _until_made(lambda: urlopen(request).close())
        yield RunningStore(f"gs://{BUCKET}/topics?endpoint=http://127.0.0.1:{proxy}", {}, "")


@contextmanager
def hadoop(folder: Path) -> Iterator[RunningStore]:
    """HDFS by Hadoop's own mini-cluster, which trusts what clients say of themselves."""
    port = free_port()
    command = program("mini-hadoop")
    found = Path(command).parent
    java = Path(shutil.which("java") or pytest.skip("there is no Java")).resolve().parents[1]
    environment = {
        "JAVA_HOME": os.environ.get("JAVA_HOME", str(java)),
        "ARROW_LIBHDFS_DIR": str(found),
        "CLASSPATH": os.pathsep.join(map(str, sorted(found.glob("jars/*.jar")))),
    }
    with _running([command, str(folder / "data"), str(port)], port, folder):
        # The NameNode answers before it knows the DataNode.
        log = folder / "server.log"
        wait_until(lambda: "ready" in log.read_text(errors="replace").split(), START_S, "Hadoop is ready")
        yield RunningStore(f"hdfs://localhost:{port}/topics?user=history&replication=1", environment, "")


SERVERS = {
    "minio": minio,
    "moto": moto,
    "azurite": azurite,
    "fake-gcs-server": fake_gcs,
    "hadoop": hadoop,
}
