"""Why a subscription does not dispatch, asked over HTTP and by the command."""

from __future__ import annotations

import json
from typing import Any

import pytest

from magnetar.adminclient.admin import Admin
from magnetar.cli.main import main
from support.admin_api import AdminApi, T, with_api


def test_one_subscription_or_all() -> None:
    async def story(api: AdminApi) -> None:
        await api.publish("t", b"0")
        await api.done("PUT", f"{T}/t/subscription/new", "earliest")
        await api.done("PUT", f"{T}/t/subscription/old", "earliest")
        await api.done("POST", f"{T}/t/subscription/old/skip_all")
        (one,) = await api.get(f"{T}/t/subscription/new/explain")
        assert one["state"] == "no-consumers"
        assert one["reason"] == "no consumer is connected; the backlog is 1 entries"
        assert one["consumers"] == []
        assert [each["subscription"] for each in await api.get(f"{T}/t/explain")] == ["new", "old"]
        assert (await api.refused("GET", f"{T}/t/subscription/none/explain"))[0] == 404

    with_api(story)


def test_the_command_prints_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    consumer = {"name": "c", "state": "no-permits", "reason": "it asks for no messages (permits: 0)"}
    answer: list[Any] = [
        {
            "topic": "t",
            "subscription": "s",
            "state": "no-permits",
            "reason": "because",
            "consumers": [consumer],
        }
    ]

    def call(_: Admin, method: str, path: str, *args: object, **more: object) -> Any:
        asked.append(f"{method} {path}")
        return answer

    monkeypatch.setattr(Admin, "call", call)
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit):
            main(["topics", "explain", "a b", "--subscription", "x/y", *more])
    out = capsys.readouterr().out
    assert out.startswith("s on t: no-permits: because\n  c: no-permits: it asks")
    assert json.loads(out[out.index("[") :]) == answer
    assert asked[0] == ("GET /admin/v2/persistent/public/default/a%20b/subscription/x%2Fy/explain")
