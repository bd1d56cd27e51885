"""What is in it: a bill of materials from the lock file and the metadata of installed packages.

Format: CycloneDX 1.6, JSON. Equal inputs give equal bytes.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from supply.lock import Locked, canonical

_NAMESPACE = uuid.UUID("7b1f6a0e-6f0a-4a53-9f64-3d1c6f1f7a55")


def needs_of(name: str) -> list[str]:
    """What an installed package needs without extras; [] of one that is not installed here."""
    try:
        requires = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    plain = (each for each in requires if "extra ==" not in each)
    return sorted({canonical(re.split(r"[^\w.-]", each, maxsplit=1)[0]) for each in plain})


def closure(roots: Iterable[str], needs: Mapping[str, Sequence[str]]) -> set[str]:
    """The packages, and all that they need."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in needs and name not in found:
            found.add(name)
            waiting += needs[name]
    return found


def bill(
    project: Mapping[str, Any],
    locked: Sequence[Locked],
    licences: Mapping[str, str],
    needs: Mapping[str, Sequence[str]],
    *,
    at: datetime.datetime,
) -> dict[str, Any]:
    """`project`: the table `project` of pyproject.toml. `licences`, `needs`: by name. `at`: when it was made.

    Scope `required` is what every installation has, `optional` what an extra brings, `excluded` what only
    development needs.
    """
    own = canonical(project["name"])
    reference = f"pkg:pypi/{own}@{project['version']}"
    required = closure(map(_name, project["dependencies"]), needs)
    extras = project.get("optional-dependencies", {})
    optional = closure((_name(each) for some in extras.values() for each in some), needs) - required
    references = {each.name: _reference(each) for each in locked}
    components = []
    for each in sorted(locked, key=lambda each: (each.name, each.version)):
        scope = "required" if each.name in required else "optional" if each.name in optional else "excluded"
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": _reference(each),
            "name": each.name,
            "version": each.version,
            "purl": _reference(each),
            "scope": scope,
            "licenses": [{"expression": licences[each.name]}],
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in each.hashes],
        }
        if each.marker:
            component["properties"] = [{"name": "magnetar:marker", "value": each.marker}]
        components.append(component)
    dependencies = [
        {
            "ref": references[name],
            "dependsOn": sorted(references[other] for other in needs[name] if other in references),
        }
        for name in sorted(references)
    ]
    direct = sorted(references[name] for name in map(_name, project["dependencies"]) if name in references)
    serial = uuid.uuid5(_NAMESPACE, " ".join([reference, *sorted(references.values())]))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": reference,
                "name": own,
                "version": project["version"],
                "purl": reference,
                "licenses": [{"expression": project["license"]}],
            },
        },
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": direct}, *dependencies],
    }


def _name(requirement: str) -> str:
    return canonical(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])


def _reference(each: Locked) -> str:
    return f"pkg:pypi/{each.name}@{each.version}"
