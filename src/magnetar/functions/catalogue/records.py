"""Records of functions, packages and uploaded files, as bytes of the metadata store (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.auth.identity import Identity
from magnetar.functions.catalogue.owners import document_of_owner, owner_of
from magnetar.functions.catalogue.package_files import StoredFile
from magnetar.functions.config.checks import check
from magnetar.functions.config.completing import config_of
from magnetar.functions.config.function_config import FunctionConfig
from magnetar.functions.config.given import given_of
from magnetar.functions.config.showing import document_of
from magnetar.functions.refusals import InvalidConfigError
from magnetar.metadata.documents import DamagedDocumentError, object_of


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """What is stored of a function."""

    config: FunctionConfig
    package: StoredFile | None
    """The user's code; None for a built-in."""
    source: str = ""
    """Name of the package that the code is a copy of; empty: the code was uploaded with the function."""
    version: int = 0
    """Grows with every update, and is larger than that of any function of this name that was deleted."""
    stopped: frozenset[int] = frozenset()
    created_ms: int = 0
    """Unix ms, as the next one."""
    updated_ms: int = 0
    owner: Identity | None = None
    """Whose rights its code has, see `owners.py`; None: it was created without authentication."""

    def encode(self) -> bytes:
        """For the store."""
        return json.dumps(
            {
                "version": self.version,
                "config": document_of(self.config),
                "package": None if self.package is None else self.package.document(),
                "source": self.source,
                "stopped": sorted(self.stopped),
                "created": self.created_ms,
                "updated": self.updated_ms,
                "owner": None if self.owner is None else document_of_owner(self.owner),
            }
        ).encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> FunctionRecord:
        """From the store. Raises DamagedDocumentError."""
        document = object_of(path, data)
        try:
            given = given_of(document["config"])
            check(given)
            package = document.get("package")
            return cls(
                config=config_of(given),
                package=None if package is None else StoredFile.of(package),
                source=str(document.get("source") or ""),
                version=_number(document["version"]),
                stopped=frozenset(_number(each) for each in document.get("stopped") or ()),
                created_ms=_number(document.get("created", 0)),
                updated_ms=_number(document.get("updated", 0)),
                owner=owner_of(document.get("owner")),
            )
        except (InvalidConfigError, KeyError, TypeError, ValueError) as error:
            raise DamagedDocumentError(path, f"{type(error).__name__}: {error}"[:300]) from error


@dataclass(frozen=True, slots=True)
class PackageRecord:
    """What is stored of one version of a package, or of an uploaded file."""

    file: StoredFile
    description: str = ""
    contact: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0
    """Unix ms, as the next one."""
    updated_ms: int = 0

    def encode(self) -> bytes:
        """For the store."""
        return json.dumps({"file": self.file.document(), **self.document()}).encode()

    def document(self) -> dict[str, object]:
        """Its metadata as Pulsar shows them."""
        return {
            "description": self.description,
            "contact": self.contact,
            "createTime": self.created_ms,
            "modificationTime": self.updated_ms,
            "properties": dict(self.properties),
        }

    @classmethod
    def decode(cls, path: str, data: bytes) -> PackageRecord:
        """From the store. Raises DamagedDocumentError."""
        document = object_of(path, data)
        try:
            properties = document.get("properties") or {}
            return cls(
                file=StoredFile.of(document["file"]),
                description=str(document.get("description") or ""),
                contact=str(document.get("contact") or ""),
                properties={str(name): str(value) for name, value in properties.items()},
                created_ms=_number(document.get("createTime", 0)),
                updated_ms=_number(document.get("modificationTime", 0)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DamagedDocumentError(path, f"{type(error).__name__}: {error}"[:300]) from error


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError("not a number from 0 on")
    return value
