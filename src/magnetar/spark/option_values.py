"""Options as Spark passes them: texts by case-insensitive names.

Names of Spark's Kafka source and of pulsar-spark are accepted where they mean the same, so that jobs move
over with few changes. An unknown option is an error that names the nearest known one.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from magnetar.spark.errors import OptionError

SYNONYMS: Final = {
    "serviceurl": "service.url",
    "adminurl": "admin.url",
    "subscribe": "topics",
    "path": "topics",
    "subscribepattern": "topicspattern",
    "topicpattern": "topicspattern",
    "maxoffsetspertrigger": "maxrowspertrigger",
    "minoffsetspertrigger": "minrowspertrigger",
    "startingtime": "startingtimestamp",
    "endingtime": "endingtimestamp",
    "startingoffsetsbytimestamp": "startingtimestamp",
    "endingoffsetsbytimestamp": "endingtimestamp",
    "predefinedsubscription": "subscription",
    "subscriptionname": "subscription",
    "kafka.group.id": "subscription",
    "maxrecordsperpartition": "maxrowsperpartition",
    "token": "auth.token",
    "txnappid": "writeid",
    "txnversion": "batchid",
    "pulsar.client.authparams": "auth.params",
    "pulsar.client.authpluginclassname": "auth.plugin",
    "pulsar.client.tlstrustcertsfilepath": "tls.trustcertsfile",
    "pulsar.client.tlscertificatefilepath": "tls.certificatefile",
    "pulsar.client.tlskeyfilepath": "tls.keyfile",
    "pulsar.client.tlshostnameverificationenable": "tls.validatehostname",
    "pulsar.client.operationtimeoutms": "requesttimeoutms",
    "pulsar.client.connectiontimeoutms": "connecttimeoutms",
    "pulsar.producer.compressiontype": "compression",
}
"""Lower-case synonym to lower-case name."""

_SPARK_OWN: Final = frozenset(("checkpointlocation", "queryname", "outputmode"))
"""Names that Spark itself adds to the options."""

_WITHOUT_EFFECT: Final = frozenset(
    (
        "subscriptionprefix",
        "groupidprefix",
        "polltimeoutms",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
    )
)
"""What other sources need for their consumers, and this one, which has none, takes and leaves."""

_PREFIXES_WITHOUT_EFFECT: Final = ("pulsar.reader.", "pulsar.admin.")

_TOLD_APART: Final = {
    "kafka.bootstrap.servers": "this source speaks Pulsar's protocol: give service.url=pulsar://host:6650",
}
"""Lower-case names of options of other sources, with the reason why they cannot work here."""


def canonical_names(options: Mapping[str, str]) -> dict[str, str]:
    """`options` with lower-case names and without synonyms.

    Raises OptionError when two names of one option are given.
    """
    found: dict[str, str] = {}
    for key, value in options.items():
        name = SYNONYMS.get(key.lower(), key.lower())
        if found.setdefault(name, value) != value:
            raise OptionError(f"option {name!r} is given twice, by two of its names")
    return found


class OptionValues:
    """Reads values from a mapping of options, and knows the valid names."""

    def __init__(self, options: Mapping[str, str], valid: tuple[str, ...]) -> None:
        """Raises OptionError for an unknown name, and for an option that two of its names set differently."""
        names = {name.lower(): name for name in valid}
        self._values: dict[str, str] = {}
        for key, value in options.items():
            lower = key.lower()
            name = SYNONYMS.get(lower, lower)
            if name in _SPARK_OWN or name in _WITHOUT_EFFECT or name.startswith(_PREFIXES_WITHOUT_EFFECT):
                continue
            if name == "topics" and name not in names:
                name = "topic"  # The sink writes to one topic.
            if name not in names:
                raise OptionError(_unknown(key, valid))
            if name in self._values and self._values[name] != value:
                raise OptionError(f"option {names[name]!r} is given twice, by two of its names")
            self._values[name] = value

    def text(self, name: str, default: str = "") -> str:
        """The value without surrounding blanks."""
        return self._values.get(name.lower(), default).strip()

    def number(self, name: str) -> int | None:
        """A positive whole number; None when the option is not given."""
        text = self.text(name)
        if not text:
            return None
        # Sizes and rows may be written with separators.
        digits = text.replace("_", "").replace(",", "")
        if not (digits.isascii() and digits.isdigit() and int(digits) > 0):
            raise OptionError(f"{name}={text!r}: expected a whole number above 0")
        return int(digits)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise OptionError(f"{name}={text!r}: expected true or false")
        return default if not text else text == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of `choices`, of which the first is the default."""
        text = self.text(name, choices[0]).lower().replace("-", "_")
        if text not in choices:
            raise OptionError(f"{name}={text!r}: expected one of {', '.join(choices)}")
        return text


def _unknown(key: str, valid: tuple[str, ...]) -> str:
    """The error text for an unknown name, with the nearest valid one."""
    told = _TOLD_APART.get(key.lower())
    if told:
        return f"unknown option {key!r}: {told}"
    shown = {name.lower(): name for name in valid}
    # Synonyms of valid options count too; the text shows the option's own name.
    shown |= {alias: shown[name] for alias, name in SYNONYMS.items() if name in shown}
    near = get_close_matches(key.lower(), shown, n=1, cutoff=0.6)
    meant = f"did you mean {shown[near[0]]!r}? There are" if near else "there are"
    return f"unknown option {key!r}; {meant} {', '.join(sorted(valid))}"
