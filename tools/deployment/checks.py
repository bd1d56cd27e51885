"""The checks of `deploy/` that need other programs, and where these come from.

| Program | From | Pinned by |
|---|---|---|
| helm, kubeconform, compose-go, hclfmt | Go modules, compiled here | `deploy/check/go.sum` |
| Kubernetes' description of its API | a Go module, of which one file is read | the hash below |
| hadolint | a wheel | `requirements/deploy.txt` |
| systemd-analyze | the machine | – |
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deployment import chart, kube_schemas
from deployment.processes import COMPOSE, DEPLOY, IMAGE, JOB, RENDERED, ROOT, UNITS, all_processes
from deployment.starts import WrongError, check_process
from magnetar.base.errors import StartupError

_TOOLS: Final = ROOT / ".venv" / "deploy"
_KUBERNETES_SUM: Final = "h1:WQdDvYJazkmkwSncgNwGvVtaCt4TYXIU3wSMRgvp3MI="
_EXPOSURE_MAX: Final = 20
"""Tenths of systemd's figure for what a unit may do, from 0 to 100: above it the check fails."""
_GO: Final = {
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform",
    "compose-go": "github.com/compose-spec/compose-go/v2/cmd",
    "hclfmt": "github.com/hashicorp/hcl/v2/cmd/hclfmt",
}


class MissingError(Exception):
    """A program is not there, and how to get it."""


def check() -> int:
    """Runs every check; the number of those that failed."""
    steps: list[tuple[str, Callable[[], None]]] = [
        ("every process: options, settings, probes", _processes),
        ("units of systemd: verify", _units),
        ("units of systemd: exposure", _exposure),
        ("image recipe: hadolint", _recipe),
        ("compose file: compose-go", _compose),
        ("Nomad job: syntax, by hclfmt", _job),
        ("chart: helm lint", _lint),
        ("chart: rendered manifests are of this chart", _rendered),
        (f"chart: kubeconform, Kubernetes {chart.KUBERNETES}", _conforms),
    ]
    failed = 0
    for name, step in steps:
        try:
            step()
            result = "passed"
        except MissingError as error:
            result = f"skipped: {error}"
        except (subprocess.CalledProcessError, AssertionError, WrongError, StartupError) as error:
            failed += 1
            result = f"FAILED: {error}"
        print(f"{name}: {result}", flush=True)
    return failed


def go_tool(name: str) -> Path:
    """Compiles a program, once. Raises MissingError, CalledProcessError."""
    program = _TOOLS / name
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise MissingError("go is not installed")
    _TOOLS.mkdir(parents=True, exist_ok=True)
    print(f"compiling {name}, a few minutes on first use", flush=True)
    new = program.with_suffix(".new")
    # `readonly`: what is not in go.sum is refused.
    command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(new), _GO[name]]
    subprocess.run(command, cwd=DEPLOY / "check", check=True)
    new.replace(program)
    return program


def _schemas() -> Path:
    """The folder of the schemas. Raises MissingError, CalledProcessError."""
    folder = _TOOLS / f"kubernetes-{chart.KUBERNETES}"
    if (folder / "types.json").exists():
        return folder
    go = shutil.which("go")
    if go is None:
        raise MissingError("go is not installed")
    module = f"k8s.io/kubernetes@v{chart.KUBERNETES}"
    # The sum above is compared below; the public list of sums may be out of reach.
    environment = {**os.environ, "GONOSUMDB": "k8s.io/kubernetes", "GOFLAGS": "-mod=mod"}
    found = json.loads(
        subprocess.run(
            [go, "mod", "download", "-json", module], env=environment, stdout=subprocess.PIPE, check=True
        ).stdout
    )
    assert found["Sum"] == _KUBERNETES_SUM, f"{module} has the sum {found['Sum']}, not that of this file"
    count = kube_schemas.write(Path(found["Dir"]) / "api" / "openapi-spec" / "swagger.json", folder)
    print(f"made schemas of {count} kinds", flush=True)
    return folder


def _hadolint() -> Path:
    folder = _TOOLS / "hadolint"
    program = folder / "bin" / "hadolint"
    if not program.exists():
        uv = [str(ROOT / ".venv" / ".tools" / "bin" / "python"), "-m", "uv", "pip", "install", "--quiet"]
        pinned = [
            "--require-hashes",
            "--target",
            str(folder),
            "-r",
            str(ROOT / "requirements" / "deploy.txt"),
        ]
        subprocess.run([*uv, "--python", sys.executable, *pinned], check=True)
    return program


def _systemd(*arguments: str) -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        raise MissingError("systemd-analyze is not installed")
    units = sorted(str(path) for path in UNITS.glob("*.service"))
    done = subprocess.run(
        [program, *arguments, *units],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    # A machine that has no Magnetar installed lacks the program; the unit is right all the same.
    lines = [
        line for line in done.stdout.splitlines() if "/opt/magnetar/bin/magnetar is not exec" not in line
    ]
    mistakes = [line for line in lines if ".service:" in line and "Command" not in line]
    assert done.returncode == 0 or (arguments[0] == "verify" and not mistakes), "\n".join(lines)
    return "\n".join(lines)


def _processes() -> None:
    for process in all_processes():
        check_process(process)


def _units() -> None:
    said = _systemd("verify")
    assert "Unknown key" not in said, said


def _exposure() -> None:
    _systemd("security", "--offline=true", f"--threshold={_EXPOSURE_MAX}")


def _recipe() -> None:
    # DL3008: versions of Debian's packages are those of the base, which is named by its digest.
    subprocess.run([str(_hadolint()), "--ignore", "DL3008", str(IMAGE)], check=True)


def _compose() -> None:
    subprocess.run([str(go_tool("compose-go")), str(COMPOSE)], stdout=subprocess.DEVNULL, check=True)


def _job() -> None:
    subprocess.run([str(go_tool("hclfmt")), "-check", str(JOB)], stdout=subprocess.DEVNULL, check=True)


def _lint() -> None:
    for values in chart.cases().values():
        command = [str(go_tool("helm")), "lint", "--strict", "--quiet", str(chart.CHART)]
        subprocess.run([*command, "--kube-version", chart.KUBERNETES, "--values", str(values)], check=True)


def _rendered() -> None:
    for name, values in chart.cases().items():
        made = chart.render(go_tool("helm"), values)
        assert (RENDERED / f"{name}.yaml").read_text(encoding="utf-8") == made, (
            f"{name}.yaml is not what Helm makes now: ./dev deploy render"
        )


def _conforms() -> None:
    location = f"{_schemas()}/{kube_schemas.LOCATION}"
    files = [str(path) for path in sorted(RENDERED.glob("*.yaml"))]
    command = [str(go_tool("kubeconform")), "-strict", "-summary", "-schema-location", location, *files]
    subprocess.run(command, check=True)
