"""`/admin/v3/packages`: packages by type, name and version.

Source: Pulsar's `PackagesBase`; 409 for a version that exists, as Pulsar documents.
"""

from __future__ import annotations

import json
from typing import Final

from magnetar.admin.calls.call import Call, Operation, Route, StoredBody, check_properties
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.functions.receiving import functions_of, received
from magnetar.functions.catalogue.package_files import StoredFile
from magnetar.functions.catalogue.package_name import PackageName, check_type
from magnetar.functions.catalogue.records import PackageRecord

_N: Final = "/admin/v3/packages/{type}/{tenant}/{namespace}"
_P: Final = f"{_N}/{{package}}"
_V: Final = f"{_P}/{{version}}"
_TEXT_CHARS_MAX: Final = 4_096
_METADATA: Final = {
    "type": "object",
    "properties": {
        "description": {"type": "string"},
        "contact": {"type": "string"},
        "properties": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def _name(call: Call) -> PackageName:
    """The package of the path. Raises InvalidPackageNameError, InvalidNamespaceNameError."""
    params = call.params
    return PackageName.of(
        params["type"], call.namespace(), params["package"], params.get("version", "latest")
    )


async def list_packages(call: Call) -> object:
    """Names of the packages of a type in a namespace."""
    check_type(call.params["type"])
    return await (await functions_of(call)).packages.names(call.params["type"], call.namespace())


async def list_versions(call: Call) -> object:
    """Versions of a package."""
    return await (await functions_of(call)).packages.versions(_name(call))


async def download_package(call: Call) -> StoredBody:
    """The file of a version."""
    functions = await functions_of(call)
    record = await functions.packages.get(_name(call))
    return StoredBody(await functions.files.checked(record.file), record.file.bytes)


async def upload_package(call: Call) -> None:
    """Uploads a version, which does not change afterwards."""
    async with received(call, file_part="file") as taken:
        if taken.file is None:
            raise BadRequestError("part file of the body is missing")
        name = _name(call)
        await call.broker.policies.namespace(name.namespace)
        await (await functions_of(call)).packages.add(name, _described(taken.text("metadata"), taken.file))
        taken.keep()


async def delete_package(call: Call) -> None:
    """Deletes a version; functions made of it keep their copies."""
    await (await functions_of(call)).packages.delete(_name(call))


async def get_metadata(call: Call) -> object:
    """Description, contact, properties and times of a version."""
    record = await (await functions_of(call)).packages.get(_name(call))
    return record.document()


async def set_metadata(call: Call) -> None:
    """Replaces description, contact and properties of a version."""
    packages, name = (await functions_of(call)).packages, _name(call)
    record = await packages.get(name)
    await packages.describe(name, _described(call.body.decode("utf-8", "replace"), record.file))


def _described(text: str, file: StoredFile) -> PackageRecord:
    """A record with the metadata of a body. Raises BadRequestError, PreconditionFailedError."""
    try:
        document = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the metadata are not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadRequestError("the metadata must be a JSON object")
    words: dict[str, str] = {}
    for field in ("description", "contact"):
        word = document.get(field) or ""
        if not isinstance(word, str) or len(word) > _TEXT_CHARS_MAX:
            raise BadRequestError(f"{field} must be a text of at most {_TEXT_CHARS_MAX} characters")
        words[field] = word
    properties = document.get("properties") or {}
    if not isinstance(properties, dict) or not all(isinstance(each, str) for each in properties.values()):
        raise BadRequestError("properties must be an object of texts")
    return PackageRecord(file, words["description"], words["contact"], check_properties(properties))


ROUTES: list[Route] = [
    ("GET", _N, list_packages),
    ("GET", _P, list_versions),
    ("GET", _V, download_package),
    ("POST", _V, Operation(upload_package, upload={"file": "file", "metadata": "text"})),
    ("DELETE", _V, delete_package),
    ("GET", f"{_V}/metadata", get_metadata),
    ("PUT", f"{_V}/metadata", Operation(set_metadata, body=_METADATA)),
]
