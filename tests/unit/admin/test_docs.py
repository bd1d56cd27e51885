"""The manual names every path that is answered, with its methods, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from magnetar.admin.routes import all_routes
from magnetar.observability.metrics import Registry

MANUAL = Path(__file__).parents[3] / "docs" / "admin.md"
SHORT = {
    "N": "/admin/v2/namespaces/{tenant}/{namespace}",
    "T": "/admin/v2/persistent/{tenant}/{namespace}/{topic}",
    "S": "/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}",
    "X": "/admin/v2/non-persistent/{tenant}/{namespace}/{topic}",
}


def test_the_table_of_paths_is_complete() -> None:
    written: dict[str, set[str]] = {}
    for methods, path in re.findall(r"^\| ([A-Z ]+) \| `([^`]+)` \|", MANUAL.read_text(), re.MULTILINE):
        head, slash, rest = path.partition("/")
        written[SHORT.get(head, head) + slash + rest] = set(methods.split())
    answered: dict[str, set[str]] = {}
    for method, path, _ in all_routes(Registry()):
        if method != "*":
            answered.setdefault(path, set()).add(method)
    assert written == answered
