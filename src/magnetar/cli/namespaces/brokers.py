"""`magnetar brokers`."""

from __future__ import annotations

from typing import Final

from magnetar.cli.verbs import Verb, group

VERBS: Final = (
    Verb(name="list", help="Show the brokers that run.", path="brokers", example="brokers list"),
    Verb(
        name="health",
        help="Publish a message, wait until it is durable, read it back.",
        path="brokers/health",
        example="brokers health",
    ),
    Verb(
        name="version", help="Show the broker's version.", path="brokers/version", example="brokers version"
    ),
    Verb(
        name="leader",
        help="Show the broker that evens the load of all brokers.",
        path="brokers/leaderBroker",
        example="brokers leader",
    ),
    Verb(
        name="settings",
        help="Show the settings in force.",
        path="brokers/configuration/runtime",
        example="brokers settings",
    ),
    Verb(
        name="changed-settings",
        help="Show settings that were changed while the broker runs.",
        path="brokers/configuration/values",
        example="brokers changed-settings -o json",
    ),
    Verb(
        name="set",
        help="Change the setting NAME while the broker runs, and for its next starts.",
        method="POST",
        path="brokers/configuration/{name}/{value}",
        done="{name} is {value}",
        example="brokers set maxProducersPerTopic 100",
    ),
    Verb(
        name="unset",
        help="Restore the value of the setting NAME from the start.",
        method="DELETE",
        path="brokers/configuration/{name}",
        done="{name} is what was set at start",
        example="brokers unset maxProducersPerTopic",
    ),
)

brokers = group("brokers", "Brokers: health, version, settings while they run.", VERBS)
