"""Lets the client's failover test start brokers of ours where it would start containers.

The test asks `testcontainers` for a container with an image, variables and ports. A package of that name,
which is in the path of the test's process alone, starts a standalone in its place, from the same variables.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_TOOLS = Path(__file__).parent


def environment(folder: Path) -> dict[str, str]:
    """Variables for the test's process; `folder` gets what it needs, and the brokers' data."""
    stand_in = folder / "testcontainers" / "core"
    stand_in.mkdir(parents=True)
    (stand_in / "container.py").write_text("from suite_container import DockerContainer\n")
    docker = folder / "bin" / "docker"
    docker.parent.mkdir()
    # The test only looks whether there is one.
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(docker.parent), os.environ.get("PATH", "/usr/bin:/bin")]),
        "PYTHONPATH": os.pathsep.join([str(folder), str(_TOOLS)]),
        "MAGNETAR_SUITE_FOLDER": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
