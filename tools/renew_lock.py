"""`./dev lock`: renews requirements/*.txt with uv: exact versions and hashes, no download addresses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path("requirements")
OPTIONS = ("--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate")
OF_THE_IMAGE = {
    "image.txt": ("--extra", "auth", "--extra", "etcd", "--extra", "otel", "pyproject.toml"),
    "image-history.txt": (
        *("--extra", "auth", "--extra", "etcd", "--extra", "otel", "--extra", "lake"),
        "pyproject.toml",
    ),
    "image-build.txt": (str(REQUIREMENTS / "image-build.in"),),
}
"""What the image installs: parts of the lock, with its versions and hashes."""
EXTRAS = (
    "--extra",
    "auth",
    "--extra",
    "spark",
    "--extra",
    "pipelines",
    "--extra",
    "lake",
    "--extra",
    "sql",
    "--extra",
    "flight",
    "--extra",
    "otel",
    "--extra",
    "demo",
    "--extra",
    "compat",
    "--group",
    "dev",
)


def main() -> int:
    """Run in the project's root. Takes the newest versions within the bounds of pyproject.toml."""
    uv = [".venv/.tools/bin/python", "-m", "uv", "pip", "compile", "--quiet", *OPTIONS]
    for command in (
        [*uv, "--upgrade", *EXTRAS, "pyproject.toml", "-o", str(REQUIREMENTS / "lock.txt")],
        [*uv, "--upgrade", str(REQUIREMENTS / "iceberg.in"), "-o", str(REQUIREMENTS / "iceberg.txt")],
        [*uv, "--upgrade", str(REQUIREMENTS / "fuzz.in"), "-o", str(REQUIREMENTS / "fuzz.txt")],
        [*uv, "--upgrade", str(REQUIREMENTS / "uv.in"), "-o", str(REQUIREMENTS / "uv.txt")],
        [*uv, "--upgrade", str(REQUIREMENTS / "deploy.in"), "-o", str(REQUIREMENTS / "deploy.txt")],
        *(
            [*uv, "-c", str(REQUIREMENTS / "lock.txt"), *sources, "-o", str(REQUIREMENTS / name)]
            for name, sources in OF_THE_IMAGE.items()
        ),
    ):
        code = subprocess.run(command, check=False).returncode
        if code != 0:
            return code
    print("renewed; the next ./dev command installs it. Run ./dev check and ./dev test before committing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
