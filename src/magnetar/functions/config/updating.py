"""Merges what an update gives into a function's configuration, or refuses what must stay (pure).

Source: Pulsar's `FunctionConfigUtils.validateUpdate`; fields that Pulsar drops from an
update, such as `subscriptionPosition`, are taken.
"""

from __future__ import annotations

from typing import Final, cast

from magnetar.functions.config.function_config import FunctionConfig
from magnetar.functions.config.given import Given, given_of, inputs_of, is_pattern
from magnetar.functions.config.showing import document_of
from magnetar.functions.refusals import InvalidConfigError

_KEPT: Final = {
    "outputSerdeClassName": "Output Serde mismatch",
    "outputSchemaType": "Output Schema mismatch",
    "processingGuarantees": "Processing Guarantees cannot be altered",
    "retainOrdering": "Retain Ordering cannot be altered",
    "retainKeyOrdering": "Retain Key Ordering cannot be altered",
    "runtime": "Runtime cannot be altered",
    "autoAck": "AutoAck cannot be altered",
    "subName": "Subscription Name cannot be altered",
}
"""Fields that an update must not change, with Pulsar's words."""
_NAMES: Final = {
    "tenant": "Tenants differ",
    "namespace": "Namespaces differ",
    "name": "Function Names differ",
}
_INPUTS: Final = ("inputs", "topicsPattern", "customSerdeInputs", "customSchemaInputs", "inputSpecs")
_PACKAGES: Final = ("jar", "py", "go", "fqfn")


def updated(existing: FunctionConfig, given: Given) -> Given:
    """The whole configuration after the update, still to be checked. Raises InvalidConfigError."""
    before = given_of(document_of(existing))
    for field, words in _NAMES.items():
        if given.get(field) != before.get(field):
            raise InvalidConfigError(words)
    for field, words in _KEPT.items():
        if field in given and given.get(field) != before.get(field):
            raise InvalidConfigError(words)
    merged = dict(before)
    merged.update(
        {name: value for name, value in given.items() if name not in _INPUTS and name not in _PACKAGES}
    )
    inputs = dict(before.get("inputSpecs", {}))
    for topic, consumer in inputs_of(given).items():
        if topic not in inputs:
            raise InvalidConfigError("Input Topics cannot be altered")
        if is_pattern(consumer) != is_pattern(inputs[topic]):
            raise InvalidConfigError(f"isRegexPattern for input topic {topic} cannot be altered")
        if topic in given.get("inputSpecs", {}) or consumer:
            inputs[topic] = consumer
    merged["inputSpecs"] = inputs
    if "resources" in given:
        merged["resources"] = {**before.get("resources", {}), **given["resources"]}
    return cast(Given, merged)
