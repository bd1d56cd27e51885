"""The removal test: what breaks when the folder of a feature is deleted is its plug points, and no more.

`feature_plugs.txt` names, for each feature of the broker, the modules outside its folder that import it. A
new line there is a new plug point, which needs a reason; most features have their policy, their setting and
one place in the broker.
"""

from __future__ import annotations

from pathlib import Path

from support.sources import import_edges

PLUGS = Path(__file__).parent / "feature_plugs.txt"


def declared() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    feature = ""
    for line in PLUGS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            feature = line
            found[feature] = []
        elif line.strip() and not line.startswith("#"):
            found[feature].append(line.strip())
    return found


def importers(feature: str, edges: dict[str, set[str]]) -> list[str]:
    room = f"magnetar.broker.{feature}."
    return sorted(
        name.removeprefix("magnetar.")
        for name, wanted in edges.items()
        if not name.startswith(room) and any(other.startswith(room) for other in wanted)
    )


def test_a_feature_is_known_at_its_plug_points_only() -> None:
    edges = import_edges()
    assert {feature: importers(feature, edges) for feature in declared()} == declared()


def test_every_feature_is_in_the_table() -> None:
    broker = Path(__file__).parents[2] / "src" / "magnetar" / "broker"
    core = {"dispatch", "handlers", "policies", "registry", "session", "subscription", "topic"}
    rooms = {path.parent.name for path in broker.glob("*/__init__.py")}
    assert sorted(declared()) == sorted(rooms - core)
