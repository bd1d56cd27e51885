"""Functions are created, shown, changed and deleted as Pulsar's tools expect; no refusal leaves a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from magnetar.auth.authentication import Authentication
from magnetar.auth.token import TokenProvider, new_token, secret_key
from magnetar.base.names import NamespaceName
from magnetar.functions.catalogue import package_files
from support.admin_api import AdminApi, with_api
from support.functions import CODE, GIVEN, V3, F, FunctionsApi, P, with_functions

SECRET = b"s" * 32


def test_a_function_lives(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        api = found.api
        assert await api.get(f"{V3}/public/default") == []
        assert (await found.create()).status == 204
        assert await api.get(f"{V3}/public/default") == ["ex"]
        shown = await api.get(F)
        assert (shown["className"], shown["inputSpecs"].keys(), shown["autoAck"]) == ("ex.Ex", {"in"}, True)
        assert "py" not in shown
        code = await api.call("GET", f"{F}/download")
        assert (code.status, code.body, code.headers["content-length"]) == (200, CODE, str(len(CODE)))
        assert (await found.update(parallelism=2)).status == 204
        assert (await api.get(F))["parallelism"] == 2
        assert (await found.update(code=b"new = 1\n")).status == 204
        assert (await api.call("GET", f"{F}/download")).body == b"new = 1\n"
        assert found.kept() == ["ex.py"], "the former code is gone"
        await api.done("DELETE", F)
        assert (await api.refused("GET", F), found.kept()) == ((404, "Function ex doesn't exist"), [])

    with_functions(tmp_path, story)


@pytest.mark.parametrize(
    ("path", "given", "reason"),
    [
        ("none/default/ex", {}, "Tenant does not exist"),
        ("public/none/ex", {}, "Namespace does not exist"),
        ("public/default/a%2Fb", {}, "Function name is not valid"),
        ("public/default/ex", {"inputs": None}, "No input topic(s) specified for the function"),
        ("public/default/ex", {"parallelism": "x"}, 'parallelism must be a whole number, not "x"'),
        ("public/default/ex", {"jar": "builtin://x"}, "Built-in FUNCTION is not available"),
    ],
)
def test_what_pulsar_refuses_is_refused_with_its_words(
    tmp_path: Path, path: str, given: dict[str, Any], reason: str
) -> None:
    async def story(found: FunctionsApi) -> None:
        answer = await found.create(f"{V3}/{path}", **given)
        assert (answer.status, answer.reason, found.kept()) == (400, reason, [])

    with_functions(tmp_path, story)


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create()
        answer = await found.create()
        assert (answer.status, answer.reason, len(found.kept())) == (400, "Function ex already exists", 1)

    with_functions(tmp_path, story)


def test_names_of_the_path_count(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        assert (await found.create(tenant="other", namespace="x", name="y")).status == 204
        assert (await found.api.get(F))["tenant"] == "public"

    with_functions(tmp_path, story)


def test_code_is_needed_and_must_be_of_the_language(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        config = json.dumps(GIVEN)
        for parts, reason in (
            ({"functionConfig": config}, "Function Package is not provided"),
            ({"functionConfig": config, "data": ("ex.py", b"")}, "Function Package is not provided"),
            ({"data": ("ex.py", CODE)}, "Function config is not provided"),
            ({"functionConfig": "{", "data": ("ex.py", CODE)}, "part functionConfig is not JSON"),
            (
                {"functionConfig": config, "data": ("ex.so", CODE)},
                "a function in Python is a file .py, .whl, .zip",
            ),
            ({"functionConfig": config, "data": ("..", CODE)}, "the file name '..' cannot be used"),
            ({"functionConfig": config, "data": ("ex.py", CODE), "url": "function://a/b/c"}, "not both"),
        ):
            answer = await found.send("POST", F, parts)
            assert (answer.status in (400, 412), found.kept()) == (True, []), answer
            assert reason in answer.reason

    with_functions(tmp_path, story)


def test_other_languages_are_not_offered_yet(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        answer = await found.create(py=None, jar="ex.jar")
        assert (answer.status, found.kept()) == (501, [])
        assert "Java is not offered yet" in answer.reason

    with_functions(tmp_path, story)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "http://169.254.169.254/x", "https://h/x.py", "ftp://h/x", "/etc/passwd", "x"],
)
def test_nothing_is_read_from_addresses(tmp_path: Path, url: str) -> None:
    """CVE-2024-27894: a URL made a worker read local files, and ask other machines."""

    async def story(found: FunctionsApi) -> None:
        answer = await found.send("POST", F, {"functionConfig": json.dumps(GIVEN), "url": url})
        assert answer.status == 400
        assert "Function Package url is not valid" in answer.reason

    with_functions(tmp_path, story)


def test_code_comes_from_a_package_and_outlives_it(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        url = "function://public/default/pack@1"
        parts: dict[str, Any] = {"functionConfig": json.dumps(GIVEN), "url": url}
        answer = await found.send("POST", F, parts)
        assert (answer.status, answer.reason) == (404, f"Package '{url}' does not exist")
        await found.send("POST", f"{P}/pack/1", {"file": ("ex.py", CODE), "metadata": "{}"})
        assert (await found.send("POST", F, parts)).status == 204
        again = await found.send("POST", F, parts)
        assert (again.status, len(found.kept())) == (400, 2), "a refusal leaves no copy"
        await found.api.done("DELETE", f"{P}/pack/1")
        assert (await found.api.call("GET", f"{F}/download")).body == CODE
        await found.api.done("DELETE", F)
        assert found.kept() == []

    with_functions(tmp_path, story)


def test_an_update_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        missing = await found.update(parallelism=2)
        assert (missing.status, missing.reason) == (400, "Function ex doesn't exist")
        await found.create()
        for given, reason in (
            ({}, "Update contains no change"),
            ({"parallelism": 1}, "Update contains no change"),
            ({"inputs": ["other"]}, "Input Topics cannot be altered"),
            ({"parallelism": 0}, "Function parallelism must be a positive number"),
        ):
            answer = await found.update(**given)
            assert (answer.status, answer.reason) == (400, reason)
        answer = await found.update(code=CODE, output="in")
        assert (answer.status, len(found.kept())) == (400, 1)

    with_functions(tmp_path, story)


def test_files_are_uploaded_by_path(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        for data in (b"one", b"three"):
            parts: dict[str, Any] = {"data": ("x.bin", data), "path": "a/b c"}
            assert (await found.send("POST", f"{V3}/upload", parts)).status == 204
        answer = await found.api.call("GET", f"{V3}/download?path=a%2Fb+c")
        assert (answer.status, answer.body, found.kept()) == (200, b"three", ["x.bin"])
        assert (await found.api.refused("GET", f"{V3}/download?path=x"))[0] == 404
        assert (await found.api.refused("GET", f"{V3}/download"))[0] == 400
        for wrong in ({"path": "p"}, {"data": ("x", b"")}, {"data": ("x", b""), "path": "../x"}):
            assert (await found.send("POST", f"{V3}/upload", wrong)).status in (400, 412)
        assert found.kept() == ["x.bin"]

    with_functions(tmp_path, story)


def test_an_upload_that_is_too_large_or_broken_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_files, "_PIECE_BYTES", 10)

    async def story(found: FunctionsApi) -> None:
        found.functions.files.limits = package_files.FileLimits(50, 60)
        answer = await found.create(code=b"x" * 51)
        assert (answer.status, answer.reason) == (413, "the file is larger than 50 bytes")
        assert (await found.create(code=b"x" * 40)).status == 204
        full = await found.create(f"{V3}/public/default/other", code=b"x" * 40)
        assert (full.status, found.kept()) == (507, ["ex.py"])
        for body in (b"", b"--x", b"nothing"):
            kind = {"content-type": "multipart/form-data; boundary=x"}
            assert (await found.api.call("POST", f"{F}2", body, headers=kind)).status == 400
        assert (await found.api.call("POST", f"{F}2", b"{}")).status == 400
        assert (found.kept(), found.functions.files.bytes) == (["ex.py"], 40)

    with_functions(tmp_path, story)


def test_there_are_no_built_in_functions(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        assert await found.api.get(f"{V3}/builtins") == []
        assert await found.api.get(f"{V3}/connectors") == []
        await found.api.done("POST", f"{V3}/builtins/reload")

    with_functions(tmp_path, story)


def test_without_functions_the_answer_says_where_they_are() -> None:
    async def story(api: AdminApi) -> None:
        for path in (F, f"{V3}/public/default", P, "/admin/v2/worker/cluster"):
            status, reason = await api.refused("GET", path)
            assert (status, "functions are switched off" in reason) == (501, True)

    with_api(story)


def test_rights_are_those_of_the_namespace(tmp_path: Path) -> None:
    """The right `functions` of the namespace, as in Pulsar; in other namespaces the right to their topics."""
    auth: dict[str, Any] = {
        "authentication": Authentication({"token": TokenProvider(secret_key(SECRET), leeway_s=0)}),
        "superuser_roles": frozenset(("root",)),
    }

    def as_role(role: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {new_token(SECRET, role, now_s=0, lasts_s=None)}"}

    async def story(found: FunctionsApi) -> None:
        api = found.api

        async def granted(namespace: str, role: str, *actions: str) -> None:
            path = f"/admin/v2/namespaces/{namespace}/permissions/{role}"
            answer = await api.call("POST", path, list(actions), headers=as_role("root"))
            assert answer.status == 204

        async def create(role: str, **more: object) -> int:
            parts: dict[str, Any] = {"functionConfig": json.dumps({**GIVEN, **more}), "data": ("ex.py", CODE)}
            return (await found.send("POST", F, parts, as_role(role))).status

        async def owner() -> object:
            record = await found.functions.catalogue.get(NamespaceName.parse("public/default"), "ex")
            return record.owner and record.owner.speakers

        answer = await api.call("PUT", "/admin/v2/namespaces/public/other", headers=as_role("root"))
        assert answer.status == 204
        await granted("public/default", "ada", "functions")
        await granted("public/default", "eve", "functions", "consume")
        await granted("public/default", "bob", "produce", "consume", "packages")
        assert await create("bob") == 403
        assert await create("ada") == 403, "it may not consume what its function would"
        assert await create("eve") == 403, "nor publish"
        assert await create("eve", output="") == 204
        assert await owner() == (("eve",),)
        assert (await api.call("DELETE", F, headers=as_role("eve"))).status == 204
        await granted("public/default", "ada", "functions", "consume", "produce")
        assert await create("ada", inputs=["public/other/in"]) == 403
        assert await create("ada", logTopic="public/other/log") == 403
        await granted("public/other", "ada", "consume", "produce")
        assert await create("ada", inputs=["public/other/in"], output="public/other/out") == 204
        for role, status in (("ada", 200), ("bob", 403), ("root", 200)):
            assert (await api.call("GET", F, headers=as_role(role))).status == status
        secret = {"file": ("ex.py", CODE), "metadata": ""}
        path = "/admin/v3/packages/function/public/other/theirs/1"
        assert (await found.send("POST", path, secret, as_role("root"))).status == 204
        url: dict[str, Any] = {"functionConfig": "{}", "url": "function://public/other/theirs@1"}
        assert (await found.send("PUT", F, url, as_role("ada"))).status == 403
        assert (await api.call("GET", path, headers=as_role("ada"))).status == 403
        await granted("public/other", "ada", "consume", "produce", "packages")
        assert (await found.send("PUT", F, url, as_role("ada"))).status == 204
        assert await owner() == (("ada",),)
        parallel = {"functionConfig": '{"parallelism": 2}'}
        assert (await found.send("PUT", F, parallel, as_role("root"))).status == 204
        assert await owner() == (("ada",), ("root",)), "the code of ada gets no rights of root"
        upload = {"data": ("x", b"x"), "path": "x"}
        assert (await found.send("POST", f"{V3}/upload", upload, as_role("ada"))).status == 403
        assert len(found.kept()) == 2

    with_functions(tmp_path, story, **auth)
