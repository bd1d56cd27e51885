"""An update changes what may change, and says what must stay."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.functions.config.completing import config_of
from magnetar.functions.config.function_config import FunctionConfig
from magnetar.functions.config.given import given_of
from magnetar.functions.config.updating import updated
from magnetar.functions.refusals import InvalidConfigError
from support.functions import config

NAMES = {"tenant": "public", "namespace": "default", "name": "ex"}


def after(before: FunctionConfig, **given: Any) -> FunctionConfig:
    return config_of(updated(before, given_of({**NAMES, **given})))


def test_nothing_given_changes_nothing() -> None:
    before = config(parallelism=2, userConfig={"a": 1}, retainOrdering=True, subName="s")
    assert after(before) == before
    assert after(before, py="other.py", inputs=["in"], processingGuarantees="ATLEAST_ONCE") == before


def test_what_is_given_replaces_what_was() -> None:
    before = config(userConfig={"a": 1}, resources={"cpu": 2}, inputSpecs={"in": {"schemaType": "json"}})
    found = after(
        before,
        parallelism=4,
        userConfig={"b": 2},
        resources={"ram": 5},
        output="elsewhere",
        className="ex.Other",
        inputSpecs={"in": {"schemaType": "avro"}},
        maxMessageRetries=3,
        cleanupSubscription=False,
    )
    assert (found.parallelism, found.user_config, found.output) == (4, {"b": 2}, "elsewhere")
    assert (found.resources.cpu, found.resources.ram) == (2, 5)
    assert (found.class_name, found.max_message_retries, found.cleanup_subscription) == ("ex.Other", 3, False)
    assert found.inputs["in"].schema_type == "avro"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"tenant": "other"}, "Tenants differ"),
        ({"namespace": "other"}, "Namespaces differ"),
        ({"name": "other"}, "Function Names differ"),
        ({"inputs": ["other"]}, "Input Topics cannot be altered"),
        ({"topicsPattern": "in"}, "isRegexPattern for input topic in cannot be altered"),
        ({"processingGuarantees": "MANUAL"}, "Processing Guarantees cannot be altered"),
        ({"retainOrdering": True}, "Retain Ordering cannot be altered"),
        ({"retainKeyOrdering": True}, "Retain Key Ordering cannot be altered"),
        ({"runtime": "GO"}, "Runtime cannot be altered"),
        ({"autoAck": False}, "AutoAck cannot be altered"),
        ({"subName": "s"}, "Subscription Name cannot be altered"),
        ({"outputSchemaType": "json"}, "Output Schema mismatch"),
        ({"outputSerdeClassName": "S"}, "Output Serde mismatch"),
    ],
)
def test_what_must_stay_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        after(config(), **given)
