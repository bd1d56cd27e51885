"""Commands for operators: codes, settings, secrets, figures, completion, what is wrong with a machine."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.admin_server import FakeAdminServer
from magnetar.base.redaction import REMOVED, scrubbed, without_secrets
from magnetar.cli.diagnosis import doctor
from magnetar.cli.diagnosis.canaries import Canary, canaries_of, summary
from magnetar.cli.diagnosis.explain import CODES
from magnetar.cli.diagnosis.samples import parsed
from magnetar.cli.diagnosis.top import rows_of, slow_transactions
from magnetar.cli.processes.config_command import descriptions
from magnetar.server.settings.setting_values import KEYS
from magnetar.wire import pulsar_pb2 as pb


def test_every_code_of_the_protocol_is_explained() -> None:
    assert set(pb.ServerError.keys()) <= set(CODES)
    assert all(each.meaning and each.remedy for each in CODES.values())


@pytest.mark.parametrize("spelling", ["ProducerBusy", "16", "producerbusy", "ProducerBusyException"])
def test_a_code_in_any_spelling(magnetar: Callable[..., Any], spelling: str) -> None:
    assert json.loads(magnetar("explain", spelling, "-o", "json").out)["code"] == "ProducerBusy"


def test_an_unknown_code_and_all_of_them(magnetar: Callable[..., Any]) -> None:
    assert "did you mean ProducerBusy?" in magnetar("explain", "ProducrBsy").err
    assert len(json.loads(magnetar("explain", "-o", "json").out)) == len(CODES)


def test_settings_without_a_start(magnetar: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    secret = "data:;base64," + "QUJD" * 12
    file.write_text(f'broker_port = 7\ntoken_secret_key = "{secret}"\nauthentication = "token"\n')
    assert magnetar("config", "check", file).out == f"{file} is valid\n"
    shown = magnetar("config", "show", "--config", file, "-o", "json")
    assert json.loads(shown.out)["broker_port"] == 7
    assert "QUJD" not in shown.out
    file.write_text("brokr_port = 7\n")
    ended = magnetar("config", "check", file)
    assert (ended.code, "did you mean 'broker_port'?" in ended.err) == (1, True)
    said = json.loads(magnetar("config", "explain", "broker_port", "-o", "json").out)
    assert (said["default"], said["variable"]) == (6650, "MAGNETAR_BROKER_PORT")
    assert "did you mean broker_port?" in magnetar("config", "explain", "broker-prt").err


def test_most_settings_say_what_they_are() -> None:
    described = descriptions()
    assert described.keys() <= set(KEYS)
    assert len(described) > len(KEYS) * 0.8


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(magnetar: Callable[..., Any], shell: str) -> None:
    assert "_MAGNETAR_COMPLETE" in magnetar("completion", shell).out


def test_a_shell_asks_for_words(magnetar: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MAGNETAR_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "magnetar to")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert magnetar().out.split() == ["plain,topics", "plain,top", "plain,tokens"]
    monkeypatch.setenv("COMP_WORDS", "magnetar topics po")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert magnetar().out.split() == ["plain,policies"]


def test_secrets_do_not_leave() -> None:
    document = {
        "brokerClientAuthenticationParameters": "token:abc",
        "tokenSecretKey": "data:;base64,QUJDREVGRw==",
        "openid_key_id_cache_miss_refresh_seconds": 300,
        "token_allowed_clock_skew_seconds": 60,
        "note": "Authorization: Bearer abcdefgh.ijkl",
        "list": [{"password": "x", "user": "ada"}, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"],
        "url": "http://ada:pw@host:1/x",
        "empty_token": "",
    }
    shown = without_secrets(document)
    assert shown == {
        "brokerClientAuthenticationParameters": REMOVED,
        "tokenSecretKey": REMOVED,
        "openid_key_id_cache_miss_refresh_seconds": 300,
        "token_allowed_clock_skew_seconds": 60,
        "note": f"Authorization: {REMOVED}",
        "list": [{"password": REMOVED, "user": "ada"}, REMOVED],
        "url": f"http{REMOVED}host:1/x",
        "empty_token": "",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2 user=ada", f"password={REMOVED} user=ada"),
        ("password: 'hunter 2', user: ada", f"password: {REMOVED}, user: ada"),
        (
            '{"tlsKeyStorePassword": "hunter \\\\ 2", "user": "ada"}',
            f'{{"tlsKeyStorePassword": {REMOVED}, "user": "ada"}}',
        ),
        ("his password is hunter2", f"his password is {REMOVED}"),
        ("secret_key = hunter2", f"secret_key = {REMOVED}"),
        ("token_allowed_clock_skew_seconds=60", "token_allowed_clock_skew_seconds=60"),
        ("a token ended", "a token ended"),
    ],
)
def test_secrets_of_free_text_do_not_leave(text: str, shown: str) -> None:
    assert scrubbed(text) == shown


def test_a_bundle_is_made_although_nobody_answers(magnetar: Callable[..., Any], tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("INFO role ada came with Bearer abcdefghijkl\n")
    file = tmp_path / "b.tar.gz"
    address = ("--admin-url", "http://127.0.0.1:1", "--url", "pulsar://127.0.0.1:1")
    assert magnetar("debug", "bundle", file, "--log", log, *address).code == 0
    with tarfile.open(file) as archive:
        texts = {each.name: archive.extractfile(each) for each in archive}
        contents = {name: found.read().decode() for name, found in texts.items() if found is not None}
    assert "cannot be reached" in contents["magnetar-debug/settings.json"]
    assert contents["magnetar-debug/logs/broker.log"] == f"INFO role ada came with {REMOVED}\n"
    assert file.stat().st_mode & 0o077 == 0


METRICS = """# TYPE pulsar_in_messages_total counter
pulsar_in_messages_total{cluster="c",topic="persistent://a/b/x\\"y"} %d
pulsar_msg_backlog{cluster="c",topic="persistent://a/b/x\\"y"} 3
pulsar_in_messages_total{cluster="c",topic="persistent://a/b/z"} 7
pulsar_in_messages_total{cluster="c"} 100
"""


def test_rates_are_those_between_two_looks() -> None:
    names = {"pulsar_in_messages_total": "in", "pulsar_msg_backlog": "backlog"}
    before, now = (parsed(METRICS % count, names, ("topic",)) for count in (10, 30))
    assert rows_of(before, now, 2.0, "in/s", 5) == [
        {"topic": 'a/b/x"y', "in/s": 10.0, "backlog": 3},
        {"topic": "a/b/z", "in/s": 0.0},
    ]
    assert [row["topic"] for row in rows_of({}, now, 0.0, "backlog", 1)] == ['a/b/x"y']


SLOW = """\
pulsar_txn_active_count{cluster="c",coordinator_id="0"} 2
pulsar_txn_active_count{cluster="c",coordinator_id="7"} 1
magnetar_transaction_oldest_seconds{cluster="c"} %s
"""


def test_top_tells_of_transactions_that_are_open_for_long() -> None:
    assert slow_transactions(SLOW % "9.9") == ""
    assert slow_transactions("") == ""
    assert slow_transactions(SLOW % "75.2").startswith("transactions: 3 open, the oldest for 75 s; it holds")


def test_top_asks_for_the_transactions_of_all_brokers(magnetar: Callable[..., Any]) -> None:
    slow = {"(0,1)": {"openTimestamp": 1}, "(3,7)": {"openTimestamp": 5}}
    path = "GET /admin/v3/transactions/slowTransactions/10000"
    with FakeAdminServer() as fake:
        place = ("top", "--admin-url", fake.url, "--looks", 2, "--interval", 0.1)
        fake.answers = {"GET /metrics": "", path: slow}
        shown = magnetar(*place).out
        assert shown.count("transactions: 2 open for 10 s or longer, the oldest for ") == 2
        fake.answers[path] = {}
        assert "transactions" not in magnetar(*place).out
        fake.asked.clear()
        fake.answers[path] = (501, {"reason": "they are off"}, {})
        fake.answers["GET /metrics"] = SLOW % "75.2"
        assert magnetar(*place).out.count("transactions: 3 open, the oldest for 75 s") == 2
        assert [each.path for each in fake.asked].count(path.removeprefix("GET ")) == 1


def test_the_machine_is_looked_at(magnetar: Callable[..., Any], tmp_path: Path) -> None:
    found = {each.check: each for each in doctor.machine(tmp_path / "not" / "there")}
    assert found.keys() == {"python", "disk", "sync", "open files"}
    assert found["python"].state == doctor.GOOD
    absent = ("--admin-url", "http://127.0.0.1:1", "--url", "pulsar://127.0.0.1:1", "--data", tmp_path)
    ended = magnetar("doctor", *absent, "-o", "json")
    assert ended.code == 7
    states = {each["check"]: each["state"] for each in json.loads(ended.out)}
    assert (states["broker"], states["admin API"], states["health"]) == (doctor.BAD,) * 3


def test_canaries_stand_in_one_line() -> None:
    text = "".join(
        f'magnetar_canary_{name}{{cluster="c",namespace="{namespace}"}} {value}\n'
        for namespace, up in (("a/b", 1), ("a/c", 0))
        for name, value in (
            ("sent_total", 10),
            ("received_total", 8),
            ("lost_total", 2 - 2 * up),
            ("refused_total", 0),
            ("up", up),
            ("end_to_end_seconds_sum", 0.04),
        )
    )
    found = canaries_of(text)
    assert found == [Canary("a/b", True, 10, 0, 0, 5.0), Canary("a/c", False, 10, 2, 0, 5.0)]
    assert summary(found) == "canaries: 1 of 2 DOWN (a/c), 2 messages lost, 5.0 ms end to end on average"
    assert summary(found[:1]) == "canaries: 1 up, 0 messages lost, 5.0 ms end to end on average"
    assert summary([]) == ""
