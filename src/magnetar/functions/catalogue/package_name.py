"""Names of packages: `TYPE://TENANT/NAMESPACE/NAME@VERSION`, and of the files that hold them (pure).

Source: Pulsar's `PackageName`, `PackageType`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.base.names import NamespaceName, encode_local
from magnetar.functions.refusals import InvalidPackageNameError
from magnetar.metadata import keys

TYPES: Final = ("function", "sink", "source")
LATEST: Final = "latest"
"""Version of a name that gives none."""
PART_CHARS_MAX: Final = 255
"""Most characters of a part of a name; in UTF-8 and percent-encoded it is a part of a key."""
FILE_NAME_BYTES_MAX: Final = 200
"""Most bytes of a file's name; file systems take 255."""


@dataclass(frozen=True, slots=True)
class PackageName:
    """One version of a package."""

    type: str
    namespace: NamespaceName
    name: str
    version: str = LATEST

    @classmethod
    def of(cls, kind: str, namespace: NamespaceName, name: str, version: str = LATEST) -> PackageName:
        """A name from its parts. Raises InvalidPackageNameError."""
        check_type(kind)
        found = cls(kind, namespace, name, version)
        for what, part in (("name", name), ("version", version)):
            if not _is_part(part):
                raise InvalidPackageNameError(
                    f"Invalid package {what} '{part[:100]}' in package name '{found}'"
                )
        return found

    @classmethod
    def parse(cls, text: str) -> PackageName:
        """Reads a name; without `@` the version is LATEST. Raises InvalidPackageNameError."""
        kind, separator, rest = text.partition("://")
        path, _, version = rest.partition("@")
        parts = path.split("/")
        if not separator or len(parts) != 3 or "@" in version:
            raise InvalidPackageNameError(
                f"Invalid package name '{text[:200]}'", remedy="write TYPE://TENANT/NAMESPACE/NAME@VERSION"
            )
        return cls.of(kind, NamespaceName.parse("/".join(parts[:2])), parts[2], version or LATEST)

    def __str__(self) -> str:
        return f"{self.type}://{self.namespace}/{self.name}@{self.version}"

    @property
    def key(self) -> str:
        """Key of the record of this version."""
        return f"{versions_key(self)}/{encode_local(self.version)}"


def versions_key(name: PackageName) -> str:
    """Key whose children are the versions of a package."""
    return f"{packages_key(name.type, name.namespace)}/{encode_local(name.name)}"


def packages_key(kind: str, namespace: NamespaceName) -> str:
    """Key whose children are the packages of a namespace."""
    return f"{keys.PACKAGES}/{kind}/{namespace}"


def check_type(kind: str) -> None:
    """Raises InvalidPackageNameError unless it is a type of packages."""
    if kind not in TYPES:
        raise InvalidPackageNameError(
            f"Invalid package domain: '{kind[:100]}'", remedy=f"a type is one of {', '.join(TYPES)}"
        )


def is_package_url(url: str) -> bool:
    """Whether a URL names a package that is stored here."""
    return url.partition("://")[0] in TYPES and "://" in url


def file_name_of(sent: str) -> str:
    """The name under which an uploaded file is kept: the last part of what the client sent.

    Raises InvalidPackageNameError: it becomes a name on this machine's disk.
    """
    name = sent.replace("\\", "/").rpartition("/")[2].strip()
    if not name or name.startswith(".") or not name.isprintable():
        raise InvalidPackageNameError(
            f"the file name {sent[:100]!r} cannot be used",
            remedy="send a file whose name has printable characters and does not begin with a dot",
        )
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidPackageNameError("the file name is not Unicode text") from None
    if size > FILE_NAME_BYTES_MAX:
        raise InvalidPackageNameError(f"the file name has more than {FILE_NAME_BYTES_MAX} bytes")
    return name


def _is_part(text: str) -> bool:
    return (
        bool(text)
        and len(text) <= PART_CHARS_MAX
        and text not in (".", "..")
        and text.isprintable()
        and not any(mark in text for mark in "/\\@")
    )
