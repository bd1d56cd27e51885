"""Records survive their encoding; anything else is refused by its path."""

from __future__ import annotations

import json

import pytest

from magnetar.auth.identity import Identity
from magnetar.functions.catalogue.package_files import StoredFile
from magnetar.functions.catalogue.records import FunctionRecord, PackageRecord
from magnetar.metadata.documents import DamagedDocumentError
from support.functions import config

FILE = StoredFile("a" * 32, "ex.py", 3, "ff")
FUNCTION = FunctionRecord(
    config(parallelism=3),
    FILE,
    source="function://public/default/ex@1",
    version=7,
    stopped=frozenset((0, 2)),
    created_ms=5,
    updated_ms=6,
    owner=Identity("ada", also=("team",), along=(("root",),)),
)
PACKAGE = PackageRecord(FILE, "what", "who", {"a": "b"}, 5, 6)


def test_a_function_is_kept() -> None:
    assert FunctionRecord.decode("/f", FUNCTION.encode()) == FUNCTION
    built_in = FunctionRecord(config(), None)
    assert FunctionRecord.decode("/f", built_in.encode()) == built_in


def test_a_package_is_kept() -> None:
    assert PackageRecord.decode("/p", PACKAGE.encode()) == PACKAGE
    assert PACKAGE.document() == {
        "description": "what",
        "contact": "who",
        "createTime": 5,
        "modificationTime": 6,
        "properties": {"a": "b"},
    }


@pytest.mark.parametrize("field", ["version", "config", "package", "stopped", "owner"])
@pytest.mark.parametrize("value", [-1, "x", True, [-1], {"a": 1}])
def test_another_value_in_a_record_is_refused_by_its_path(field: str, value: object) -> None:
    document = {**json.loads(FUNCTION.encode()), field: value}
    with pytest.raises(DamagedDocumentError, match="/f"):
        FunctionRecord.decode("/f", json.dumps(document).encode())


def test_a_package_without_its_file_is_refused() -> None:
    for document in (
        {},
        {"file": 7},
        {"file": FILE.document(), "properties": 7},
        {"file": FILE.document(), "createTime": -1},
    ):
        with pytest.raises(DamagedDocumentError, match="/p"):
            PackageRecord.decode("/p", json.dumps(document).encode())
