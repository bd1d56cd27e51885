"""Multipart bodies of requests (pure). Source: RFC 7578."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class FormFile:
    """A file of a form."""

    name: str
    data: bytes


Form = Mapping[str, str | FormFile]
"""Parts of a body by name, texts and files, in their order."""


def encode(form: Form) -> tuple[bytes, str]:
    """The body, and its Content-Type. The boundary is made of the contents, so that they cannot hold it."""
    digest = sha256()
    for value in form.values():
        digest.update(value.data if isinstance(value, FormFile) else value.encode())
    boundary = f"magnetar-{digest.hexdigest()[:40]}"
    pieces: list[bytes] = []
    for name, value in form.items():
        file = f'; filename="{_quoted(value.name)}"' if isinstance(value, FormFile) else ""
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"{file}\r\n\r\n'
        data = value.data if isinstance(value, FormFile) else value.encode()
        pieces += [head.encode(), data, b"\r\n"]
    pieces.append(f"--{boundary}--\r\n".encode())
    return b"".join(pieces), f"multipart/form-data; boundary={boundary}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", " ").replace("\n", " ")
