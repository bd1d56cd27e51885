"""What went wrong in protobuf for Python, tried on our messages: a test for each CVE, named after it.

All that have a test stand in `tests/unit/auth/cves.txt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from magnetar.wire import pulsar_pb2
from magnetar.wire.bookkeeper import bookkeeper_pb2

FILES = (pulsar_pb2.DESCRIPTOR, bookkeeper_pb2.DESCRIPTOR)
DEPTH = 500
"""Groups within each other; protobuf follows 100."""


def every_message(kinds: Any) -> Iterator[Descriptor]:
    for kind in kinds:
        yield kind
        yield from every_message(kind.nested_types)


MESSAGES = [kind for file in FILES for kind in every_message(file.message_types_by_name.values())]


@pytest.mark.parametrize(
    "message", [pulsar_pb2.BaseCommand, pulsar_pb2.MessageMetadata, bookkeeper_pb2.Request]
)
def test_cve_2025_4565_groups_within_groups(message: Any) -> None:
    """They are refused as damaged, never with a RecursionError."""
    begin, end = b"\xfb\x07", b"\xfc\x07"  # of field 127, which no message has
    with pytest.raises(DecodeError):
        message.FromString(begin * DEPTH + end * DEPTH)


def test_cve_2022_1941_and_2026_0994_nothing_takes_message_sets_or_any() -> None:
    assert len(MESSAGES) > 80
    for kind in MESSAGES:
        assert not kind.GetOptions().message_set_wire_format, kind.full_name
        for field in kind.fields:
            taken = field.message_type
            assert taken is None or not taken.full_name.startswith("google.protobuf."), field.full_name
