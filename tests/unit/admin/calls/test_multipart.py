"""Multipart bodies, whole, byte by byte, with everything that clients write differently, and broken ones."""

from __future__ import annotations

import pytest

from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.calls.multipart import (
    HEAD_BYTES_MAX,
    PARTS_MAX,
    Multipart,
    PartBegins,
    PartBytes,
    PartEnds,
    boundary_of,
)


def read(body: bytes, *, pieces_of: int = 1 << 20, boundary: bytes = b"B") -> list[tuple[PartBegins, bytes]]:
    """The parts of a body that arrives in pieces."""
    parser, found, data = Multipart(boundary), [], b""
    for at in range(0, len(body), pieces_of):
        for event in parser.feed(body[at : at + pieces_of]):
            if isinstance(event, PartBegins):
                begun, data = event, b""
            elif isinstance(event, PartBytes):
                data += event.data
            else:
                assert isinstance(event, PartEnds)
                found.append((begun, data))
    parser.end()
    return found


BODY = (
    b"preamble\r\n--B \t\r\n"
    # Go's admin client writes a blank behind the name.
    b'Content-Disposition: form-data; name="functionConfig" \r\nContent-Type: application/json\r\n\r\n{"a":1}'
    b'\r\n--B\r\ncontent-disposition: FORM-DATA; filename="a \\"b\\".py"; name=data\r\n\r\n'
    b'\r\n--B\r\nX: y\r\nContent-Disposition: form-data; name="odd"\r\n\r\nline\r\n--C\r\n--\r\n\r\n--'
    b"\r\n--B--\r\nepilogue --B\r\n"
)
PARTS = [
    (PartBegins("functionConfig", None), b'{"a":1}'),
    (PartBegins("data", 'a "b".py'), b""),
    (PartBegins("odd", None), b"line\r\n--C\r\n--\r\n\r\n--"),
]


@pytest.mark.parametrize("pieces_of", [1, 2, 3, 5, 7, 64, 1000])
def test_parts_are_the_same_in_pieces_of_any_size(pieces_of: int) -> None:
    assert read(BODY, pieces_of=pieces_of) == PARTS


def test_a_part_of_many_bytes_is_not_kept() -> None:
    parser = Multipart(b"B")
    parser.feed(b'--B\r\nContent-Disposition: form-data; name="d"; filename="f"\r\n\r\n')
    for _ in range(50):
        events = parser.feed(b"\r\n--" * 5_000)
        assert sum(len(event.data) for event in events if isinstance(event, PartBytes)) > 19_000


def test_the_boundary_of_a_content_type() -> None:
    assert boundary_of("multipart/form-data; boundary=x") == b"x"
    assert boundary_of('Multipart/Form-Data;charset=utf-8;boundary="x y"; a=b') == b"x y"
    for wrong in (
        "",
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "x" * 5_000,
    ):
        with pytest.raises(BadRequestError, match="multipart/form-data"):
            boundary_of(wrong)
    with pytest.raises(BadRequestError):
        boundary_of(f"multipart/form-data; boundary={'b' * 71}")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "ends within a part, or has none"),
        (b"--B", "ends within a part, or has none"),
        (BODY[:60], "ends within a part, or has none"),
        (BODY[: BODY.index(b"--B--")], "ends within a part, or has none"),
        (b"no boundary " * 1_000, "does not begin with its boundary"),
        (b"--Bx\r\n\r\n", "not at the end of its line"),
        (b"--B" + b" " * 20_000, "not at the end of its line"),
        (b"--B\r\n\r\nx\r\n--B--", "has no name"),
        (b"--B\r\nContent-Disposition: form-data; name=\r\n\r\nx\r\n--B--", "has no name"),
        (b"--B\r\nContent-Disposition: attachment; name=a\r\n\r\nx\r\n--B--", "has no name"),
        (b'--B\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n--B--', "not UTF-8"),
        (b"--B\r\nX: " + b"y" * HEAD_BYTES_MAX, "headers of a part"),
        (b"--B\r\nX: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n", "headers of a part"),
    ],
)
def test_what_is_not_such_a_body_is_refused(body: bytes, reason: str) -> None:
    for pieces_of in (1, 1 << 20):
        with pytest.raises(BadRequestError, match=reason):
            read(body, pieces_of=pieces_of)


def test_a_body_has_a_bounded_number_of_parts() -> None:
    part = b"--B\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n"
    assert len(read(part * PARTS_MAX + b"--B--")) == PARTS_MAX
    with pytest.raises(BadRequestError, match="more than 16 parts"):
        read(part * (PARTS_MAX + 1) + b"--B--")
