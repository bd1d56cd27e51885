"""Values as Pulsar's default SerDe guesses them, and as annotations say."""

from __future__ import annotations

import pytest

from magnetar.functions.errors import BadResultError
from magnetar.functions.sdk.serde import decoder_of, guessed, output_bytes, plain_bytes


def as_pulsar_guesses(data: bytes) -> object:
    """`IdentitySerDe.deserialize` of Pulsar's client."""
    for kind in (int, float, complex, str):
        try:
            return kind(data.decode("utf-8"))
        except Exception:  # noqa: BLE001  # it goes on with the next one, whatever happened
            continue
    return data


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"12",
            b"-3.5",
            b" 7 ",
            b"nan",
            b"Infinity",
            b"1j",
            b"(1+2j)",
            b"1_000",
            b"_1",
            b"j",
            b"i",
            b"n",
        ),
        *(b"text", b"{}", b"\xff\xfe", "Grüße".encode(), "٣".encode(), b"1e5", b".5", b"+", b"0x10", b"\t8"),
    ],
)
def test_the_guess_is_that_of_pulsar(data: bytes) -> None:
    expected, found = as_pulsar_guesses(data), guessed(data)
    assert (type(found), repr(found)) == (type(expected), repr(expected))


def test_results_are_encoded_by_their_very_type() -> None:
    assert [plain_bytes(value) for value in (b"b", "ü", 5, 1.5, 2j)] == [
        b"b",
        "ü".encode(),
        b"5",
        b"1.5",
        b"2j",
    ]
    assert output_bytes({"a": 1}) == b'{"a":1}'
    with pytest.raises(BadResultError, match="bool"):
        plain_bytes(True)


def test_annotations_say_how_inputs_are_decoded() -> None:
    assert decoder_of(None) is None
    for annotation in (str, "str"):
        decode = decoder_of(annotation)
        assert decode is not None
        assert decode(b"12") == "12"
    decode = decoder_of(dict[str, int])
    assert decode is not None
    assert decode(b'{"a": 1}') == {"a": 1}
