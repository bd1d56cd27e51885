"""Secrets that can be recognised go into a broker in every way, and come out of it in none."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from passlib.hash import apr_md5_crypt

from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.requests import AddRun, Read
from magnetar.wire.bookkeeper.responses import Added, ReadDone, Response
from magnetar.wire.bookkeeper.status import Status
from support.certificates import Authority
from support.raw_client import RawClient
from support.sessions import Type, command
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

DEADLINE_S = 60
KEY = b"sesame-key-sesame-key-sesame-key"
PASSWORD = "sesame-password"
BOOKIE_PASSWORD = "sesame-bookies"
WRONG = "sesame-wrong-password"


def token(role: str, key: bytes = KEY, **claims: object) -> str:
    return jwt.encode({"alg": "HS256"}, {"sub": role, **claims}, OctKey.import_key(key))


ROOT = token("root")
FORGED = token("root", KEY[::-1])
ENDED = token("root", exp=1)


class Kept:
    """A broker with bookies beside it, and everything about it that must stay secret."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "users").write_text(f"ali:{(hashed := apr_md5_crypt.hash(PASSWORD))}\n")
        certificate, private = Authority(folder).issue("localhost")
        settings = {
            "authentication": "token,basic",
            "superuser_roles": "root",
            "token_secret_key": f"data:;base64,{base64.b64encode(KEY).decode()}",
            "basic_users": str(folder / "users"),
            "tls_certificate": str(certificate),
            "tls_key": str(private),
            "broker_tls_port": 0,
            "https_port": 0,
            "bookie_user": "apache",
            "bookie_password": f"data:;base64,{base64.b64encode(BOOKIE_PASSWORD.encode()).decode()}",
            "log_level": "debug",
        }
        file = folder / "secure.toml"
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        self.process = StandaloneProcess(
            folder / "process", options=("--config", str(file), "--bookies", "2")
        ).start()
        body = "".join(private.read_text().splitlines()[1:-1])
        words = (KEY.decode(), PASSWORD, BOOKIE_PASSWORD, WRONG, hashed, body, ROOT, FORGED, ENDED)
        encoded = [base64.b64encode(each.encode()).decode().rstrip("=") for each in words[:4]]
        signatures = [each.rpartition(".")[2] for each in (ROOT, FORGED, ENDED)]
        self.words = (*words, *encoded, *signatures)

    def leaks(self, where: str, text: str) -> list[tuple[str, str]]:
        """What of it stands in a text, with the words around it."""
        found = [(word, text.find(word)) for word in self.words if word in text]
        return [(where, text[max(0, at - 80) : at + len(word)]) for word, at in found]

    def admin(
        self, path: str, *, method: str = "GET", authorization: str = f"Bearer {ROOT}", body: bytes = b""
    ) -> str:
        """The answer of a call, whatever its status."""
        headers = {"Authorization": authorization, "Content-Type": "application/json"}
        asked = urllib.request.Request(self.process.http_url + path, body or None, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.read().decode()) + str(error.headers)

    def bookies(self) -> list[dict[str, object]]:
        alive = self.process.data_dir / "bookies" / "alive"
        return [json.loads((alive / f"bookie-{number}").read_bytes()) for number in (1, 2)]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    made = Kept(tmp_path_factory.mktemp("secrets"))
    with made.process:
        yield made


def over_the_wire(kept: Kept) -> list[str]:
    """What clients with good and bad credentials are told."""
    told = []
    for method, data in (
        ("token", ROOT),
        ("token", FORGED),
        ("token", ENDED),
        ("token", f"{ROOT}x"),
        ("basic", f"ali:{PASSWORD}"),
        ("basic", f"ali:{WRONG}"),
        ("basic", WRONG),
        ("unknown", PASSWORD),
        ("", WRONG),
    ):
        with RawClient(kept.process.broker_url, handshake=False) as client:
            fields = {"client_version": "test", "protocol_version": 21}
            client.send(command(Type.CONNECT, **fields, auth_method_name=method, auth_data=data.encode()))
            client.wait(lambda client=client: client.closed or client.seen, "an answer")  # type: ignore[misc]  # bound by its default
            told += [str(each) for each in client.seen]
    return told


def over_http(kept: Kept) -> list[str]:
    basic = [base64.b64encode(f"ali:{each}".encode()).decode() for each in (PASSWORD, WRONG)]
    authorizations = [f"Bearer {each}" for each in (ROOT, FORGED, ENDED)]
    authorizations += [*(f"Basic {each}" for each in basic), WRONG, f"Basic {WRONG}", ""]
    paths = (
        "/admin/v2/clusters",
        "/admin/v2/brokers/configuration/runtime",
        "/admin/v2/brokers/internal-configuration",
        "/admin/v2/brokers/health",
        "/admin/v2/persistent/public/default/none/stats",
        "/metrics",
        "/nowhere",
    )
    told = [kept.admin(path, authorization=each) for path in paths for each in authorizations]
    told.append(kept.admin("/admin/v2/persistent/public/default/kept", method="PUT"))
    told.append(kept.admin("/topics/persistent/public/default/kept", method="POST", body=b'{"messages":'))
    # Pulsar's clients may put a token into the address of a WebSocket.
    socket_path = "/ws/v2/producer/persistent/public/default/kept?token="
    return told + [kept.admin(socket_path + each, authorization="") for each in (ROOT, FORGED)]


def processes(root: int) -> Iterator[tuple[int, str]]:
    """A process and what it has started, with its arguments."""
    started: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
                started.setdefault(parent, []).append(int(folder.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting += started.get(pid, [])
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield pid, Path(f"/proc/{pid}/cmdline").read_text()


def bundle(kept: Kept) -> Iterator[tuple[str, str]]:
    (kept.folder / "token").write_text(ROOT)
    made = kept.folder / "bundle.tar.gz"
    call = [sys.executable, "-m", "magnetar", "debug", "bundle", str(made)]
    call += ["--log", str(kept.process.log_path), "--admin-url", kept.process.http_url]
    call += ["--token-file", str(kept.folder / "token")]
    ran = subprocess.run(call, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    yield "output", ran.stdout + ran.stderr
    with tarfile.open(made) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            yield member.name, content.read().decode()


def test_no_secret_comes_out(kept: Kept) -> None:
    told = over_the_wire(kept) + over_http(kept)
    found = [leak for answer in told for leak in kept.leaks("answer", answer)]
    running = list(processes(kept.process.pid))
    assert len(running) >= 3, "the broker and its bookies"
    for pid, arguments in running:
        found += kept.leaks("arguments", arguments)
        found += kept.leaks("environment", Path(f"/proc/{pid}/environ").read_text())
        # That of the bookies is made by the broker and never told.
        assert not re.search(r"(?<![\w/-])[\w-]{43}(?![\w/-])", arguments.replace("\0", " ")), arguments
    for name, text in bundle(kept):
        found += kept.leaks(f"bundle {name}", text)
    log = kept.process.log_text()
    assert "refused: credentials of" in log
    found += kept.leaks("log", log)
    assert found == []


def test_no_core_is_dumped(kept: Kept) -> None:
    for pid in (kept.process.pid, *(each["pid"] for each in kept.bookies())):
        limits = Path(f"/proc/{pid}/limits").read_text()
        (soft,) = re.findall(r"^Max core file size +(\S+)", limits, re.MULTILINE)
        assert soft in ("0", "1")


def test_the_data_folder_is_its_owners(kept: Kept) -> None:
    assert kept.process.data_dir.stat().st_mode & 0o777 == 0o700


def asked(port: int, pieces: list[bytes]) -> Response:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
        client.sendall(b"".join(pieces))
        got = b""
        while more := client.recv(1 << 16):
            got += more
            responses, _ = BookieClientParser(is_v2=True).parse(got, len(got))
            if responses:
                return responses[0]
    raise AssertionError("no answer")


def test_bookies_beside_a_broker_that_asks_who_comes_ask_too(kept: Kept) -> None:
    for bookie in kept.bookies():
        port = bookie["port"]
        assert isinstance(port, int)
        add = AddRun(7, bytes(20))
        add.entry_ids, add.entries = [0], [bytes(64)]
        added = asked(port, encode_request(add, is_v2=True))
        assert isinstance(added, Added)
        assert added.status is Status.UNAUTHORIZED
        read = asked(port, encode_request(Read(0, 0, 5), is_v2=True))
        assert isinstance(read, ReadDone)
        assert read.status is Status.UNAUTHORIZED
    said = kept.admin("/admin/v2/persistent/public/default/written", method="PUT")
    assert said == "", said
    with RawClient(kept.process.broker_url, handshake=False) as client:
        fields = {"client_version": "test", "protocol_version": 21, "auth_method_name": "token"}
        client.send(command(Type.CONNECT, **fields, auth_data=ROOT.encode()))
        client.wait(lambda: client.commands(Type.CONNECTED), "CONNECTED")
        client.open_producer("persistent://public/default/written")
        assert len(client.publish(range(10))) == 10
