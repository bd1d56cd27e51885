"""Options that configure a function, and the configuration that they make."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import click

from magnetar.adminclient.form import Form, FormFile

_F = TypeVar("_F", bound=Callable[..., object])

_PACKAGES: Final = {".whl": "py", ".zip": "py", ".py": "py", ".jar": "jar", ".nar": "jar"}
"""Field of a configuration by the ending of a file's name; Go's programs have none."""

_OPTIONS: Final = (
    click.option(
        "--class-name", help="Class or module of the code, as `module.Class`.  [from the file's name]"
    ),
    click.option("--input", "inputs", multiple=True, help="Topic to read; may be repeated.  [none]"),
    click.option(
        "--topics-pattern", help="Topics to read, such as persistent://public/default/in-.*.  [none]"
    ),
    click.option("--output-topic", help="Topic for the results.  [none]"),
    click.option("--parallelism", type=click.IntRange(min=1), help="Number of instances.  [1]"),
    click.option(
        "--guarantees",
        type=click.Choice(
            ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE", "MANUAL"), case_sensitive=False
        ),
        help="How often a message counts.  [ATLEAST_ONCE]",
    ),
    click.option("--retain-ordering", is_flag=True, help="Process the messages of a topic in their order."),
    click.option("--retain-key-ordering", is_flag=True, help="Process the messages of a key in their order."),
    click.option("--subscription", help="Name of the subscription to each input.  [tenant/namespace/name]"),
    click.option(
        "--from",
        "position",
        type=click.Choice(("latest", "earliest"), case_sensitive=False),
        help="Where a new subscription begins.  [latest]",
    ),
    click.option("--retries", type=click.IntRange(min=0), help="Deliveries after the first one.  [no limit]"),
    click.option("--dead-letter-topic", help="Topic of messages that fail often; needs --retries.  [none]"),
    click.option(
        "--keep-subscriptions", is_flag=True, help="Keep subscriptions and state when it is deleted."
    ),
    click.option("--log-topic", help="Topic of the code's log records.  [none]"),
    click.option("--user-config", help="Values for the code, a JSON object.  [none]"),
    click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path),
        help="File with the configuration in Pulsar's JSON; other options win.  [none]",
    ),
    click.option("--package", help="Package of the code, as function://public/default/ex@1.0.  [none]"),
)

_FIELDS: Final = {
    "class_name": "className",
    "topics_pattern": "topicsPattern",
    "output_topic": "output",
    "parallelism": "parallelism",
    "subscription": "subName",
    "retries": "maxMessageRetries",
    "dead_letter_topic": "deadLetterTopic",
    "log_topic": "logTopic",
}
"""Fields of a configuration that are options as they are."""


def configures(command: _F) -> _F:
    """Adds the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def form_of(code: Path | None, given: Mapping[str, object], *, creates: bool) -> Form:
    """The body that creates or updates a function. Raises click.BadParameter."""
    config = config_document(code, given, creates=creates)
    parts: dict[str, str | FormFile] = {}
    if given["package"] is not None:
        parts["url"] = str(given["package"])
    elif code is not None:
        parts["data"] = file_part(code)
    return {"functionConfig": json.dumps(config), **parts}


def config_document(code: Path | None, given: Mapping[str, object], *, creates: bool) -> dict[str, object]:
    """The configuration in Pulsar's JSON. Raises click.BadParameter."""
    config = _from_file(given["file"])
    config |= {field: given[option] for option, field in _FIELDS.items() if given[option] is not None}
    if given["inputs"]:
        assert isinstance(given["inputs"], tuple)
        config["inputs"] = list(given["inputs"])
    if given["guarantees"]:
        config["processingGuarantees"] = str(given["guarantees"]).upper()
    if given["position"]:
        config["subscriptionPosition"] = str(given["position"]).capitalize()
    for flag, field in (("retain_ordering", "retainOrdering"), ("retain_key_ordering", "retainKeyOrdering")):
        if given[flag]:
            config[field] = True
    if given["keep_subscriptions"]:
        config["cleanupSubscription"] = False
    if given["user_config"] is not None:
        config["userConfig"] = _object(str(given["user_config"]), "--user-config")
    package = given["package"]
    if package is not None:
        if code is not None:
            raise click.BadParameter("give a file or a package, not both", param_hint="--package")
        config.setdefault("py", package)
    elif code is not None:
        config[_PACKAGES.get(code.suffix, "go")] = code.name
        if creates and code.suffix == ".py":
            config.setdefault("className", code.stem)
    return config


def file_part(file: Path) -> FormFile:
    """A file of this machine. Raises click.BadParameter."""
    try:
        return FormFile(file.name, file.read_bytes())
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be read: {error.strerror}") from error


def _from_file(file: object) -> dict[str, object]:
    if not isinstance(file, Path):
        return {}
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file} cannot be read: {error}", param_hint="--config") from error
    return _object(text, "--config")


def _object(text: str, option: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint=option) from error
    if not isinstance(found, dict):
        raise click.BadParameter("it is not a JSON object", param_hint=option)
    return found
