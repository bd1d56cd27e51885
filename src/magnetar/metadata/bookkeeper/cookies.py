"""The cookie: which disks belong to a bookie, as text.

    "5" LF                              version of the layout of the disks
    bookieHost: "127.0.0.1:3181"        CookieFormat as protobuf text
    journalDir: "/a,/b"                 folders joined by commas
    ledgerDirs: "2\\t/c\\t/d"             their number, then each, joined by tabs (escaped as in protobuf
    text) instanceId: "..."                   id of the cluster
    indexDirs: "1\\t/e"                  only when they differ from the folders of ledgers

The same bytes lie in the metadata store and in the file VERSION of each folder.

Source: BookKeeper's Cookie, layout version 5.
"""

from __future__ import annotations

from typing import Final

from google.protobuf import text_format

from magnetar.base.errors import MetadataError
from magnetar.metadata.bookkeeper.nodes_pb2 import CookieFormat
from magnetar.metadata.bookkeeper.registry import Cookie

LAYOUT_VERSION: Final = 5
"""Version of a bookie's folders. Version 3 has no protobuf, version 4 no folders of indexes."""


class CookieError(MetadataError):
    """The value is not a cookie, or is a cookie of an unknown version."""


def encode_cookie(cookie: Cookie) -> bytes:
    """The value of the node and of the file. Raises CookieError when a folder's name has a comma or a tab."""
    every = (*cookie.journal_folders, *cookie.ledger_folders, *(cookie.index_folders or ()))
    if any("\t" in folder or "," in folder for folder in every):
        raise CookieError(f"a bookie's folders may have no comma and no tab in their names: {every}")
    message = CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=",".join(cookie.journal_folders),
        ledgerDirs=_counted(cookie.ledger_folders),
    )
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id
    if cookie.index_folders is not None:
        message.indexDirs = _counted(cookie.index_folders)
    return f"{LAYOUT_VERSION}\n{text_format.MessageToString(message, as_utf8=False)}".encode()


def decode_cookie(value: bytes) -> Cookie:
    """The cookie from its value. Raises CookieError."""
    version, newline, body = value.partition(b"\n")
    if not newline or version.strip() not in (b"4", b"5"):
        raise CookieError(f"a cookie of a version that is not known: {value[:80]!r}")
    message = CookieFormat()
    try:
        text_format.Parse(body, message, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise CookieError(f"the cookie is damaged: {error}") from error
    return Cookie(
        bookie_id=message.bookieHost,
        journal_folders=tuple(message.journalDir.split(",")),
        ledger_folders=_folders(message.ledgerDirs),
        instance_id=message.instanceId if message.HasField("instanceId") else None,
        index_folders=_folders(message.indexDirs) if message.HasField("indexDirs") else None,
    )


def _counted(folders: tuple[str, ...]) -> str:
    return "\t".join((str(len(folders)), *folders))


def _folders(counted: str) -> tuple[str, ...]:
    count, *folders = counted.split("\t")
    if count != str(len(folders)):
        raise CookieError(f"a list of folders whose count is wrong: {counted!r}")
    return tuple(folders)
