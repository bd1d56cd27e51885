"""SerDe: values of functions to bytes and back, as Pulsar's Python functions do it.

Source: pulsar-client-python, `pulsar/functions/serde.py`.
"""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.functions.errors import BadResultError


class SerDe(ABC):
    """Base class of a user's SerDe."""

    @abstractmethod
    def serialize(self, input: object) -> bytes:  # noqa: A002  # Pulsar's name
        """The bytes of a value."""

    @abstractmethod
    def deserialize(self, input_bytes: bytes) -> object:
        """The value of the bytes."""


class PickleSerDe(SerDe):
    """Pickles values. Reading one runs code of its producer: only for topics of trusted producers."""

    def serialize(self, input: object) -> bytes:  # noqa: A002  # Pulsar's name
        return pickle.dumps(input)

    def deserialize(self, input_bytes: bytes) -> object:
        return pickle.loads(input_bytes)


class IdentitySerDe(SerDe):
    """Pulsar's default: it guesses. `12` arrives as an int, `nan` as a float, `1j` as a complex, other text
    as str, and what is not UTF-8 as bytes."""

    def serialize(self, input: object) -> bytes:  # noqa: A002  # Pulsar's name
        return plain_bytes(input)

    def deserialize(self, input_bytes: bytes) -> object:
        return guessed(input_bytes)


_NO_NUMBER: Final = frozenset(
    byte for byte in range(0x21, 0x7F) if chr(byte) not in "0123456789+-.(" and chr(byte) not in "iInNjJ_"
)
"""First bytes of texts that are not numbers: only white space, signs, digits, `inf`, `nan`, `j`
and brackets begin one."""


def guessed(data: bytes) -> object:
    """The value as `IdentitySerDe` guesses it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    if data and data[0] in _NO_NUMBER:
        return text
    for number in (int, float, complex):
        try:
            return number(text)
        except ValueError:  # No number of this kind: the next one is tried.
            continue
    return text


def plain_bytes(value: object) -> bytes:
    """The bytes of bytes, str, int, float or complex: of these very types, as in Pulsar. Raises
    BadResultError."""
    kind = type(value)
    if kind is bytes:
        return value  # type: ignore[return-value]  # mypy does not narrow by the exact type
    if kind is str or kind is int or kind is float or kind is complex:
        return str(value).encode()
    raise BadResultError(
        f"a value of type {kind.__name__} cannot be published: return bytes, str, int, float or dict, or name"
        " an output SerDe"
    )


def output_bytes(value: object) -> bytes:
    """As `plain_bytes`, and a dict as JSON."""
    if type(value) is dict:
        return json.dumps(value, separators=(",", ":")).encode()
    return plain_bytes(value)


def decoder_of(annotation: object) -> Callable[[bytes], object] | None:
    """What decodes an input whose parameter has this annotation; None when the annotation says nothing.

    bytes, str, int, float, bool (`true` or `false`), dict (JSON); also as texts.
    """
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if getattr(annotation, "__origin__", None) is not None:
        name = getattr(annotation.__origin__, "__name__", "")  # type: ignore[attr-defined]  # just looked at
    return _DECODERS.get(name.partition("[")[0])


def _truth(data: bytes) -> bool:
    if data in (b"true", b"false"):
        return data == b"true"
    raise ValueError(f"{data[:20]!r} is neither true nor false")


_DECODERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "bytes": bytes,
    "str": bytes.decode,
    "int": int,
    "float": float,
    "bool": _truth,
    "dict": json.loads,
    "Mapping": json.loads,
}
