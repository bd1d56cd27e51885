"""A standalone of ours that behaves as the container which a test of the official client asks for."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from suite_services import standalone

_PORTS = {6650: "PULSAR_PREFIX_brokerServicePort", 8080: "PULSAR_PREFIX_webServicePort"}
"""Ports in the container, and what sets the port that takes their place."""


class DockerContainer:
    """The part of testcontainers' class that the test uses; the image and its command do not matter."""

    def __init__(self, image: str) -> None:
        self._environment: dict[str, str] = {}
        self._running = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(os.environ["MAGNETAR_SUITE_FOLDER"])

    def with_env(self, name: str, value: str) -> DockerContainer:
        """A variable of the container: Pulsar's settings, by their plain names."""
        self._environment[name] = value
        return self

    def with_bind_ports(self, container: int, host: int) -> DockerContainer:
        """The port under which the test reaches a port of the container."""
        self._environment[_PORTS[container]] = str(host)
        return self

    def with_command(self, command: str) -> DockerContainer:
        """What runs in the container is known."""
        return self

    def start(self) -> DockerContainer:
        """Returns when the broker is ready."""
        folder = self._folder / self._environment["clusterName"]
        self._process = self._running.enter_context(
            standalone(folder, environment=self._environment, cwd=self._folder)
        )
        return self

    def stop(self) -> None:
        """Safe at any time."""
        self._running.close()

    def get_wrapped_container(self) -> DockerContainer:
        """What docker's library would know of the container."""
        return self

    def kill(self, signal: str) -> None:
        """Ends the broker in good order."""
        assert signal == "SIGTERM"
        assert self._process is not None
        self._process.terminate()

    def logs(self) -> bytes:
        """What the broker has printed."""
        return (self._folder / self._environment["clusterName"] / "log").read_bytes()
