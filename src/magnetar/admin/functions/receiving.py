"""Takes an upload: small parts into memory, one file into the folder of files, as both arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from magnetar.admin.calls.call import Call
from magnetar.admin.calls.errors import BadRequestError, NotImplementedHereError, TooLargeError
from magnetar.admin.calls.multipart import Multipart, PartBegins, PartBytes, boundary_of
from magnetar.functions.catalogue.package_files import Arriving, PackageFiles, StoredFile
from magnetar.functions.catalogue.package_name import file_name_of
from magnetar.functions.service import Functions

PARTS_BYTES_MAX: Final = 6 << 20
"""Most bytes of all small parts of a body: a trigger may send a message of the largest usual size."""


async def functions_of(call: Call) -> Functions:
    """The functions of this process. Raises NotImplementedHereError, PackagesFullError, MetadataError."""
    if call.broker.functions is None:
        raise NotImplementedHereError(
            "functions are switched off on this broker, or it is one of a cluster: they are offered by"
            " `magnetar standalone`, also with --processes, with `functions = true`"
        )
    return await call.broker.functions()


class Received:
    """The parts of a body."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        """Small parts by name."""
        self.file: StoredFile | None = None
        """The file, if there was one; removed afterwards unless `keep` was called."""
        self.kept = False

    def text(self, name: str) -> str:
        """A small part as a text, trimmed; "" when it is not there. Raises BadRequestError."""
        try:
            return self.parts.get(name, b"").decode().strip()
        except UnicodeDecodeError as error:
            raise BadRequestError(f"part {name} of the body is not UTF-8") from error

    def keep(self) -> None:
        """A record names the file now."""
        self.kept = True


@asynccontextmanager
async def received(call: Call, *, file_part: str = "") -> AsyncIterator[Received]:
    """The parts of the body; `file_part` goes into the folder of files ("": none).

    Raises BadRequestError, TooLargeError, TooSlowError, and the errors of the folder.
    """
    taken, files = Received(), (await functions_of(call)).files
    try:
        await _take(call, file_part, files, taken)
        yield taken
    finally:
        if taken.file is not None and not taken.kept:
            await files.remove(taken.file)


async def _take(call: Call, file_part: str, files: PackageFiles, taken: Received) -> None:
    assert call.pieces is not None, "the route declares an upload"
    parser = Multipart(boundary_of(call.headers.get("content-type", "")))
    arriving: Arriving | None = None
    name, small, total = "", bytearray(), 0
    try:
        async for piece in call.pieces:
            for event in parser.feed(piece):
                if isinstance(event, PartBegins):
                    name, small = event.name, bytearray()
                    if name == file_part and event.file_name is not None:
                        if taken.file is not None:
                            raise BadRequestError(f"the body has two parts {file_part}")
                        arriving = files.begin(file_name_of(event.file_name))
                elif isinstance(event, PartBytes) and arriving is not None:
                    await arriving.write(event.data)
                elif isinstance(event, PartBytes):
                    total += len(event.data)
                    if total > PARTS_BYTES_MAX:
                        raise TooLargeError(f"the parts of the body have more than {PARTS_BYTES_MAX} bytes")
                    small += event.data
                elif arriving is not None:
                    taken.file, arriving = await arriving.finish(), None
                else:
                    taken.parts[name] = bytes(small)
        parser.end()
    finally:
        if arriving is not None:
            await arriving.discard()
