"""Each process that has secrets in memory leaves no core dump: it says so before it serves."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.runtime import loop as event_loop
from magnetar.server import proxy_process, standalone
from magnetar.server.bookies import autorecovery, bookie
from magnetar.server.bookies.autorecovery import AutoRecoveryConfig
from magnetar.server.processes import supervisor
from magnetar.server.security import core_dumps
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.ledger_settings import LedgerSettings
from magnetar.server.settings.proxy_settings import ProxySettings

KEY = "data:;base64,c2VjcmV0"
SECRETS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "clients authenticate": {"authentication": "token"},
    "TLS": {"tls_certificate": Path("a"), "tls_key": Path("b")},
    "a password for bookies": {"bookie_user": "u", "bookie_password": KEY},
    "a key for bookies": {"bookie_tls_key": Path("k"), "bookie_tls_certificate": Path("c")},
}


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened: core dumps are forbidden, then the loop runs."""
    told: list[str] = []

    def run(work: Coroutine[object, object, int]) -> int:
        work.close()
        told.append("runs")
        return 0

    monkeypatch.setattr(core_dumps, "forbid", lambda: told.append("forbidden"))
    monkeypatch.setattr(event_loop, "run", run)
    return told


def free(**secrets: Any) -> StandaloneConfig:
    return StandaloneConfig(broker_port=0, http_port=0, **secrets)


def supervised(config: StandaloneConfig) -> None:
    supervisor.run(config, None, {}, storage=False)


PROGRAMS: dict[str, Callable[[StandaloneConfig], object]] = {
    "broker": standalone.run,
    "proxy": lambda config: proxy_process.run(config, ProxySettings()),
    "supervisor": supervised,
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_process_with_secrets_leaves_no_core_dump(
    forbidden: list[str], monkeypatch: pytest.MonkeyPatch, program: str, secret: str
) -> None:
    monkeypatch.setattr(supervisor, "Reservations", lambda *_: None)
    monkeypatch.setattr(supervisor, "Supervisor", lambda *_, **__: _Nothing())
    PROGRAMS[program](free(**SECRETS[secret]))
    assert forbidden == (["runs"] if secret == "nothing" else ["forbidden", "runs"])


class _Nothing:
    async def run(self) -> int:
        return 0


@pytest.mark.parametrize("secret", ["nothing", "a password for bookies", "a key for bookies"])
def test_auto_recovery(forbidden: list[str], secret: str) -> None:
    settings = LedgerSettings(**SECRETS[secret])
    autorecovery.run(AutoRecoveryConfig(metadata="zk://a/ledgers", node_id="n", bookies=settings))
    assert forbidden == (["runs"] if secret == "nothing" else ["forbidden", "runs"])


def test_every_program_of_a_server_is_here() -> None:
    """Bookies have a test with a process: `integration/test_secrets.py`."""
    server = Path(standalone.__file__).parent
    serving = {
        path.relative_to(server).as_posix()
        for path in server.rglob("*.py")
        if "event_loop.run(" in path.read_text(encoding="utf-8")
    }
    forbidding = {
        path.relative_to(server).as_posix()
        for path in server.rglob("*.py")
        if "core_dumps.forbid()" in path.read_text(encoding="utf-8")
    }
    assert bookie.__name__.endswith("bookies.bookie")
    # The limit of the broker counts for bookies that it starts; decommissioning needs no secret.
    without = {"bookies/local_bookie.py", "bookies/decommission.py"}
    assert serving - forbidding == without, "a process without the protection"
    assert len(forbidding) >= 5


def test_the_limit_is_set() -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        core_dumps.forbid()
        assert resource.getrlimit(resource.RLIMIT_CORE)[0] in (0, 1)
    finally:
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, before)
