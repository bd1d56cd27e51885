"""The chart, rendered: `deploy/helm/rendered` has what Helm makes of each file of values in the chart's `ci`.

The rendered manifests name the digest of the chart that they were made from, so that a test without Helm
notices that one of the two was changed alone.
"""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Final

from deployment.processes import DEPLOY, RENDERED

CHART: Final = DEPLOY / "helm" / "magnetar"
KUBERNETES: Final = "1.34.2"
"""The version whose API the manifests are checked against."""
MARK: Final = "# Made by ./dev deploy render; digest of the chart:"


def cases() -> dict[str, Path]:
    """Files of values by name."""
    return {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*.yaml"))}


def digest() -> str:
    """Of names and contents of the chart's files."""
    found = sha256()
    for path in sorted(CHART.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            found.update(f"{path.relative_to(CHART).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest()


def render(helm: Path, values: Path) -> str:
    """The manifests, as Helm makes them without a cluster. Raises CalledProcessError."""
    command = [str(helm), "template", "r", str(CHART), "--namespace", "streams", "--values", str(values)]
    made = subprocess.run(
        [*command, "--kube-version", KUBERNETES], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return f"{MARK} {digest()}\n{made}"


def write_all(helm: Path) -> None:
    """Writes the rendered file of each case, and removes those of cases that are gone."""
    for path in RENDERED.glob("*.yaml"):
        path.unlink()
    for name, values in cases().items():
        (RENDERED / f"{name}.yaml").write_text(render(helm, values), encoding="utf-8")
