"""`./dev release`: what is in it, whether it may be, and which key says so."""

from __future__ import annotations

import base64
import datetime
import gzip
import io
import json
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import release
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from supply import advisories, building, licences, lock, provenance, sbom

REPOSITORY = Path(__file__).parents[3]
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
LOCK = """\
# made
Some_Package==1.2 \\
    --hash=sha256:bb \\
    --hash=sha256:aa
other==3 ; sys_platform == 'win32' \\
    --hash=sha256:cc
"""
SOME, OTHER = (lock.Locked("some-package", "1.2", "", ("aa", "bb")), lock.Locked("other", "3", "x", ("cc",)))


def test_the_lock_is_read() -> None:
    some, other = lock.parse(LOCK)
    assert some == SOME
    assert (other.name, other.version, other.marker) == ("other", "3", "sys_platform == 'win32'")
    for wrong in ("loose>=1 \\\n    --hash=sha256:aa\n", "bare==1\n"):
        with pytest.raises(ValueError, match="names no version, or no hash"):
            lock.parse(wrong)


def test_what_is_locked_may_be_used_and_has_no_listed_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    listed = advisories.read(advisories.FILE.read_text())
    locked, said = release.checked(listed.date)
    assert len(locked) > 50
    assert "old" not in said
    assert "that list is old" in release.checked(listed.date + datetime.timedelta(days=31))[1]


# -- licences ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MIT AND BSD-3-Clause", True),
        ("GPL-3.0-only OR MIT AND BSD-3-Clause", True),
        ("(MIT OR GPL-3.0-only) AND MIT", False),
        ("MITIGATED", False),
    ],
)
def test_licences_are_allowed_by_their_expression(expression: str, allowed: bool) -> None:
    assert licences.is_allowed(expression, frozenset({"MIT", "BSD-3-Clause"})) is allowed


def test_licences_that_are_unknown_or_not_allowed_are_named() -> None:
    rules = licences.Rules(frozenset({"MIT"}), {"other": "GPL-3.0-only"}, {"gone": "why"})
    with pytest.raises(licences.LicenceError) as error:
        licences.licences([SOME, OTHER], rules)
    for word in (
        "some-package: its licence is not known",
        "other: GPL-3.0-only is not among",
        "gone stands in",
    ):
        assert word in str(error.value)
    rules = licences.Rules(
        frozenset({"MIT"}),
        {"some-package": "MIT", "other": "GPL-3.0-only"},
        {"other": "a program of its own"},
    )
    assert licences.licences([SOME, OTHER], rules) == rules.packages


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"License-Expression": "MIT OR Zlib", "License": "BSD"}, "MIT OR Zlib"),
        ({"License": "Apache-2.0"}, "Apache-2.0"),
        ({"License": "a text of many lines", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, ""),
        ({}, ""),
    ],
)
def test_a_licence_is_what_metadata_says_beyond_doubt(
    fields: dict[str, str], said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "x-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()) + "\n")
    assert licences.said(metadata.PathDistribution(folder).metadata) == said


# -- advisories ----------------------------------------------------------------------------------------


def listed(
    *ranges: tuple[str, str, str], versions: tuple[str, ...] = (), **more: Any
) -> advisories.Advisories:
    spans = [{"type": "ECOSYSTEM", "events": [{"introduced": a}, {kind: b}]} for a, kind, b in ranges]
    package = {"ecosystem": "PyPI", "name": "Some.Package"}
    entry = {"id": "X-1", "affected": [{"package": package, "ranges": spans, "versions": versions}], **more}
    return advisories.Advisories(AT.date(), (entry,))


@pytest.mark.parametrize(
    ("known", "hit", "fixed"),
    [
        (listed(("0", "fixed", "1.3")), True, "1.3"),
        (listed(("0", "fixed", "1.2")), False, ""),
        (listed(("1.2", "fixed", "1.10")), True, "1.10"),
        (listed(("1.2.1", "fixed", "1.10")), False, ""),
        (listed(("0", "fixed", "1.0"), ("1.1", "fixed", "2")), True, "2"),
        (listed(("0", "last_affected", "1.2.0")), True, ""),
        (listed(("0", "last_affected", "1.1")), False, ""),
        (listed(versions=("nonsense", "1.2.0")), True, ""),
        (listed(("0", "fixed", "9"), withdrawn="2026-01-01T00:00:00Z"), False, ""),
    ],
)
def test_faults_are_found_by_version(known: advisories.Advisories, hit: bool, fixed: str) -> None:
    found = advisories.matching([SOME, OTHER], known)
    assert found == ([advisories.Found("some-package", "1.2", "X-1", fixed)] if hit else [])


def test_a_range_that_never_ends_and_one_of_another_kind() -> None:
    package = {"ecosystem": "PyPI", "name": "some-package"}
    ends = {"type": "ECOSYSTEM", "events": [{"introduced": "1"}]}
    git = {"type": "GIT", "events": [{"introduced": "0"}]}
    for spans, hit in (([ends], True), ([git], False)):
        entry = {"id": "X", "affected": [{"package": package, "ranges": spans}]}
        assert bool(advisories.matching([SOME], advisories.Advisories(AT.date(), (entry,)))) is hit
    entry["affected"] = [{"package": {**package, "ecosystem": "npm"}, "ranges": [ends]}]
    assert advisories.matching([SOME], advisories.Advisories(AT.date(), (entry,))) == []


def test_a_list_is_taken_from_files_of_all_packages() -> None:
    mine = dict(listed(("0", "fixed", "1.3")).entries[0])
    foreign = {"id": "Y", "affected": [{"package": {"ecosystem": "PyPI", "name": "foreign"}}]}
    text = advisories.taken(map(json.dumps, (foreign, mine)), {"some-package"}, AT.date())
    taken = advisories.read(text)
    assert (taken.date, [each["id"] for each in taken.entries]) == (AT.date(), ["X-1"])
    with pytest.raises(ValueError, match="has no id"):
        advisories.read('{"date": "2026-01-01", "advisories": [{}]}')


# -- the bill of materials -----------------------------------------------------------------------------

PROJECT = {
    "name": "magnetar",
    "version": "1",
    "license": "Apache-2.0",
    "dependencies": ["some-package>=1"],
    "optional-dependencies": {"more": ["other; x"]},
}


def test_the_bill_names_what_is_required_optional_and_for_development() -> None:
    developing = lock.Locked("tool", "1", "", ("dd",))
    needs: dict[str, list[str]] = {"some-package": [], "other": ["some-package", "gone"], "tool": ["other"]}
    known = {"some-package": "MIT", "other": "MIT", "tool": "MIT"}
    made = sbom.bill(PROJECT, [OTHER, developing, SOME], known, needs, at=AT)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    scopes = {each["name"]: each["scope"] for each in made["components"]}
    assert scopes == {"other": "optional", "some-package": "required", "tool": "excluded"}
    edges = {each["ref"]: each["dependsOn"] for each in made["dependencies"]}
    assert edges["pkg:pypi/other@3"] == ["pkg:pypi/some-package@1.2"]
    assert edges["pkg:pypi/magnetar@1"] == ["pkg:pypi/some-package@1.2"]
    references = [each["bom-ref"] for each in made["components"]]
    assert len(set(references)) == len(references)
    assert {ref for each in edges.values() for ref in each} <= set(edges)
    assert made == sbom.bill(PROJECT, [SOME, OTHER, developing], known, needs, at=AT), "whatever the order"


def test_the_bill_of_this_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    locked = lock.parse(lock.LOCK.read_text())
    made = release._bill(locked, AT)
    scopes = {each["name"]: each["scope"] for each in made["components"]}
    assert scopes["uvicorn"] == scopes["h11"] == "required"
    assert scopes["cryptography"] == "optional"
    assert scopes["ruff"] == "excluded"
    assert len(made["components"]) == len(locked)
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert made["metadata"]["component"]["version"] == project["version"]
    for component in made["components"]:
        assert all(len(each["content"]) == 64 for each in component["hashes"])


# -- provenance ----------------------------------------------------------------------------------------


def pem_of(key: Any) -> bytes:
    made: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made


def signed(folder: Path, key: Ed25519PrivateKey | None) -> dict[str, Any]:
    file = folder / "magnetar.whl"
    file.write_bytes(b"content")
    (folder / "lock").write_bytes(b"lock")
    told = provenance.statement(
        [file], commit="c" * 40, lock=folder / "lock", builder="urn:x", epoch_s=7, python="3"
    )
    return provenance.envelope(told, key)


def test_what_was_signed_is_verified_and_nothing_else(tmp_path: Path) -> None:
    key = provenance.private_key(pem_of(Ed25519PrivateKey.generate()))
    made = signed(tmp_path, key)
    assert provenance.verified(made, key.public_key(), tmp_path) == ["magnetar.whl"]
    payload = json.loads(base64.b64decode(made["payload"]))
    assert payload["_type"] == "https://in-toto.io/Statement/v1"
    assert payload["predicate"]["buildDefinition"]["externalParameters"] == {"commit": "c" * 40}
    assert made["signatures"][0]["keyid"] == provenance.key_id(key.public_key())

    def refused(document: dict[str, Any], by: Ed25519PrivateKey = key) -> None:
        with pytest.raises(provenance.ProvenanceError):
            provenance.verified(document, by.public_key(), tmp_path)

    refused(made, Ed25519PrivateKey.generate())
    refused(signed(tmp_path, None))
    refused({**made, "payload": base64.b64encode(json.dumps(payload).encode() + b" ").decode()})
    refused({**made, "payloadType": "text/plain"})
    refused({**made, "signatures": [{"sig": "no base 64"}]})
    refused({})
    (tmp_path / "magnetar.whl").write_bytes(b"other")
    refused(made)
    (tmp_path / "magnetar.whl").unlink()
    refused(made)


def test_the_signature_is_over_what_the_format_says(tmp_path: Path) -> None:
    """DSSE's own example of what is signed."""
    assert provenance._signed("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_other_keys_are_no_keys() -> None:
    for wrong in (pem_of(ec.generate_private_key(ec.SECP256R1())), b"nothing"):
        with pytest.raises(provenance.ProvenanceError):
            provenance.private_key(wrong)
        with pytest.raises(provenance.ProvenanceError):
            provenance.public_key(wrong)


# -- building ------------------------------------------------------------------------------------------


def archive(names: list[str], *, mode: int, mtime: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime, member.uname = len(name), mode, mtime, str(mtime)
            made.addfile(member, io.BytesIO(name.encode()))
    return out.getvalue()


def test_source_archives_of_the_same_files_are_the_same() -> None:
    one = building.settled(archive(["a", "b"], mode=0o600, mtime=1), 1_700_000_000)
    assert one == building.settled(archive(["b", "a"], mode=0o664, mtime=2), 1_700_000_000)
    assert one != building.settled(archive(["a", "c"], mode=0o664, mtime=2), 1_700_000_000)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(one))) as read:
        assert [(each.name, each.mode, each.mtime, each.uname) for each in read] == [
            ("a", 0o644, 1_700_000_000, ""),
            ("b", 0o644, 1_700_000_000, ""),
        ]


def wheel(names: list[str], *, mode: int, year: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name in names:
            member = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
            member.external_attr = mode << 16
            made.writestr(member, name)
    return out.getvalue()


def test_wheels_of_the_same_files_are_the_same() -> None:
    names = ["b.py", "x.dist-info/RECORD", "y.py"]
    one = building.settled_wheel(wheel(names, mode=0o600, year=2001), 1_700_000_000)
    assert one == building.settled_wheel(wheel(names[::-1], mode=0o664, year=2002), 1_700_000_000)
    with zipfile.ZipFile(io.BytesIO(one)) as read:
        assert read.namelist() == ["b.py", "y.py", "x.dist-info/RECORD"]
        assert read.getinfo("b.py").date_time[:3] == (2023, 11, 14)


def test_errors_are_told_and_end_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPOSITORY)
    (tmp_path / "key").write_bytes(b"none")
    assert release.main([str(tmp_path / "out"), "--key", str(tmp_path / "key")]) == 1
    assert "not a private key in PEM" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
