"""Packages by type, name and version, as Pulsar's tools use them."""

from __future__ import annotations

import json
from pathlib import Path

from support.functions import FunctionsApi, P, with_functions

V = f"{P}/pack/1.0"
METADATA = json.dumps({"description": "what", "contact": "who", "properties": {"a": "b"}, "createTime": 7})


def test_a_package_lives(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        api = found.api
        assert await api.get(P) == []
        sent = await found.send("POST", V, {"metadata": METADATA, "file": ("pack.zip", b"data")})
        assert sent.status == 204
        assert (await api.get(P), await api.get(f"{P}/pack")) == (["pack"], ["1.0"])
        answer = await api.call("GET", V)
        assert (answer.status, answer.body) == (200, b"data")
        shown = await api.get(f"{V}/metadata")
        assert shown.pop("createTime") == shown.pop("modificationTime")
        assert shown == {"description": "what", "contact": "who", "properties": {"a": "b"}}
        api.clock.advance(5)
        await api.done("PUT", f"{V}/metadata", {"description": "else", "contact": None, "properties": None})
        shown = await api.get(f"{V}/metadata")
        assert shown["modificationTime"] - shown["createTime"] == 5
        assert (shown["description"], shown["contact"]) == ("else", "")
        again = await found.send("POST", V, {"metadata": METADATA, "file": ("pack.zip", b"other")})
        assert (again.status, found.kept()) == (409, ["pack.zip"])
        await api.done("DELETE", V)
        assert (await api.refused("GET", V), found.kept()) == (
            (404, "Package 'function://public/default/pack@1.0' does not exist"),
            [],
        )

    with_functions(tmp_path, story)


def test_wrong_packages_are_refused(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        api = found.api
        file = ("pack.zip", b"data")
        for path, metadata, status in (
            (V.replace("/function/", "/driver/"), "{}", 412),
            (V.replace("/pack/", "/a%5Cb/"), "{}", 412),
            (V.replace("/pack/", "/%2E%2E/"), "{}", 412),
            (V.replace("/default/", "/none/"), "{}", 404),
            (V, "{", 400),
            (V, "[]", 400),
            (V, '{"description": 7}', 400),
            (V, '{"properties": {"a": 1}}', 400),
            (V, json.dumps({"contact": "x" * 5_000}), 400),
        ):
            answer = await found.send("POST", path, {"metadata": metadata, "file": file})
            assert (answer.status, found.kept()) == (status, []), path
        assert (await found.send("POST", V, {"metadata": "{}"})).status == 400
        for path in (f"{P}/pack", V, f"{V}/metadata"):
            assert (await api.refused("GET", path))[0] == 404
        assert (await api.refused("GET", P.replace("/function/", "/driver/")))[0] == 412
        assert (await api.refused("PUT", f"{V}/metadata", {}))[0] == 404
        assert (await api.refused("DELETE", V))[0] == 404

    with_functions(tmp_path, story)
