"""What tools send is read with the shapes of Pulsar's FunctionConfig."""

from __future__ import annotations

import pytest

from magnetar.functions.config.given import given_of, inputs_of, is_pattern
from magnetar.functions.refusals import InvalidConfigError


def test_null_empty_and_unknown_fields_are_not_given() -> None:
    assert given_of({"tenant": None, "className": "", "futureField": 1, "parallelism": 2}) == {
        "parallelism": 2
    }


def test_inputs_stand_in_five_places() -> None:
    given = given_of(
        {
            "inputs": ["a", "e"],
            "topicsPattern": "b.*",
            "customSerdeInputs": {"c": "S"},
            "customSchemaInputs": {
                "d": '{"schemaType": "AVRO", "schemaProperties": {"p": "1"}}',
                "f": "json",
            },
            "inputSpecs": {
                "e": {"isRegexPattern": True, "receiverQueueSize": 5},
                "g": {"regexPattern": True},
            },
        }
    )
    found = inputs_of(given)
    assert found == {
        "a": {},
        "b.*": {"isRegexPattern": True},
        "c": {"serdeClassName": "S"},
        "d": {"schemaType": "AVRO", "schemaProperties": {"p": "1"}},
        "e": {"isRegexPattern": True, "receiverQueueSize": 5},
        "f": {"schemaType": "json"},
        "g": {"regexPattern": True},
    }
    assert [topic for topic, each in found.items() if is_pattern(each)] == ["e", "b.*", "g"]


def test_a_custom_schema_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="Topic d has an incorrect schema Info"):
        inputs_of(given_of({"customSchemaInputs": {"d": "{"}}))


def test_a_wrong_value_is_refused_by_its_place() -> None:
    for document, reason in (
        ([], "must be an object"),
        ({"inputs": "a"}, "inputs must be a list"),
        ({"inputs": [[]]}, r"inputs\[0\] must be a text"),
        ({"inputSpecs": {"t": {"receiverQueueSize": "x"}}}, "inputSpecs.t.receiverQueueSize must be a whole"),
        ({"resources": {"cpu": "fast"}}, "resources.cpu must be a number"),
        ({"processingGuarantees": "TWICE"}, "processingGuarantees must be one of ATLEAST_ONCE"),
        ({"parallelism": 1 << 40}, "parallelism is out of range"),
        ({"autoAck": "maybe"}, "autoAck must be true or false"),
        ({"className": "\ud800"}, "className is not Unicode text"),
        ({"className": "a\0"}, "className holds a zero character"),
    ):
        with pytest.raises(InvalidConfigError, match=reason):
            given_of(document)
