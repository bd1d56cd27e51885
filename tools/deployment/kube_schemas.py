"""JSON schemas of Kubernetes' objects, made of the description of its API that its sources have.

`kubeconform` asks for a file for each kind. The description is Swagger 2: a definition for each type, and
these name each other. Here every object is closed, so that a misspelt field is found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

JSON = dict[str, "JSON"] | list["JSON"] | str | int | float | bool | None

LOCATION: Final = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
_TYPES: Final = "types.json"
_LOOSE: Final = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": ["string", "integer"],
    "io.k8s.apimachinery.pkg.api.resource.Quantity": ["string", "number"],
}
"""Types that are a text in the description and may be a number."""


def write(swagger: Path, folder: Path) -> int:
    """Writes `types.json` and a file for each kind; returns the number of kinds."""
    definitions = json.loads(swagger.read_text(encoding="utf-8"))["definitions"]
    types = {name: _closed(name, definition) for name, definition in definitions.items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _TYPES).write_text(json.dumps({"definitions": types}))
    count = 0
    for name, definition in definitions.items():
        for file in _files(definition):
            (folder / file).write_text(json.dumps({"$ref": f"{_TYPES}#/definitions/{name}"}))
            count += 1
    return count


def _files(definition: dict[str, JSON]) -> Iterator[str]:
    """Names of the files that kubeconform asks for: kind, first part of the group, version."""
    kinds = definition.get("x-kubernetes-group-version-kind")
    for each in kinds if isinstance(kinds, list) else ():
        assert isinstance(each, dict)
        group = str(each["group"]).partition(".")[0]
        parts = (str(each["kind"]).lower(), group, str(each["version"]).lower())
        yield f"{'-'.join(part for part in parts if part)}.json"


def _closed(name: str, definition: JSON) -> JSON:
    if name in _LOOSE:
        return {"type": list[JSON](_LOOSE[name])}
    made = _of(definition)
    if isinstance(made, dict) and "properties" in made:
        made["additionalProperties"] = False
    return made


def _of(value: JSON) -> JSON:
    if isinstance(value, list):
        return [_of(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _of(each) for name, each in value.items() if not name.startswith("x-") and name != "format"}
    if isinstance(kept.get("description"), str):
        # The text about a type; a property of that name is an object.
        del kept["description"]
    return kept
