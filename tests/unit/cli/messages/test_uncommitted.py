"""`magnetar consume --isolation read-uncommitted`: every stored message with the state of its transaction."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from magnetar.adminclient.admin import Admin
from magnetar.cli.main import main
from magnetar.client.client import Client
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry


def stored(number: int, payload: bytes, txn: str | None, state: str | None) -> dict[str, Any]:
    entry = build_entry(
        pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=number), payload
    )
    return {
        "ledgerId": 5,
        "entryId": number,
        "lastIndex": number,
        "brokerTime": number,
        "transaction": txn,
        "transactionState": state,
        "entry": base64.b64encode(entry).decode(),
    }


PAGES = {
    "0": [stored(0, b"before", None, None), stored(1, b"lost", "(0,0)", "aborted")],
    "2": [stored(2, b"kept", "(0,1)", "committed"), stored(3, b"open", "(3,7)", "open")],
}


@pytest.fixture
def magnetar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(_: Admin, method: str, path: str, *, query: dict[str, str]) -> Any:
        assert (method, path) == ("GET", "/admin/v2/persistent/public/default/t/allEntries")
        return PAGES.get(query["entry"], [])

    monkeypatch.setattr(Admin, "call", call)
    monkeypatch.setattr(Client, "partitions", lambda *_: 0)

    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["consume", "t", "--raw", *words])
        said = capsys.readouterr()
        return int(str(ended.value.code or 0)), said.out + said.err

    return run


def test_every_message_is_shown_with_its_state(magnetar: Any) -> None:
    lines = ["plain - before", "aborted (0,0) lost", "committed (0,1) kept", "open (3,7) open"]
    assert magnetar("--isolation", "read-uncommitted") == (0, "\n".join(lines) + "\n")
    assert magnetar("--isolation", "read-uncommitted", "--last", "1")[1] == lines[-1] + "\n"
    only = ("--filter", 'transaction_state == "open"', "--format", "{id}")
    assert magnetar("--isolation", "read-uncommitted", *only)[1] == "5:3\n"


def test_it_only_looks(magnetar: Any) -> None:
    code, said = magnetar("--isolation", "read-uncommitted", "--follow")
    assert code != 0
    assert "leave out --follow" in said
