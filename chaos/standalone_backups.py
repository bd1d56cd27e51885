"""Backups that `./dev chaos standalone` makes while everything goes on, and folders that it makes of them in
the end."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pulsar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.standalone import (  # type: ignore[import-not-found]  # needs the path above
    StandaloneProcess,
)

COMMAND_S: Final = 300.0
RESTORED_MAX: Final = 3
"""Each takes as long as reading everything."""
DAMAGES: Final = ("corrupt data", "in limbo", "doubted")
"""What a folder made of a backup must not say when it starts."""


class ChaosBackups:
    """Backups and restores of one broker's data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._repository = folder / "backups"
        self._thread: threading.Thread | None = None
        self._made: list[tuple[str, dict[str, set[int]]]] = []
        """Ids, and what was acknowledged when the backup began, by topic."""

    def begin(self, http_url: str, acknowledged: Mapping[str, set[int]]) -> str:
        """Makes one, unless one is being made; the broker may be killed meanwhile."""
        if self._thread is not None and self._thread.is_alive():
            return "under way"
        before = {topic: set(numbers) for topic, numbers in acknowledged.items()}
        self._thread = threading.Thread(target=self._make, args=(http_url, before), daemon=True)
        self._thread.start()
        return "begun"

    def _make(self, http_url: str, before: dict[str, set[int]]) -> None:
        done = magnetar("backup", "create", str(self._repository), "--admin-url", http_url, "-o", "json")
        if done.returncode == 0:
            self._made.append((json.loads(done.stdout)["backup"], before))

    def faults(
        self,
        chance: random.Random,
        options: tuple[str, ...],
        stored: Callable[[pulsar.Client, str], set[int]],
    ) -> list[str]:
        """What is wrong with some of the backups. `stored` reads the numbers of a topic's messages."""
        if self._thread is not None:
            self._thread.join(COMMAND_S)
        chosen = chance.sample(self._made, min(RESTORED_MAX, len(self._made)))
        print(f"{len(self._made)} backups, {len(chosen)} restored", flush=True)
        return [wrong for made in chosen for wrong in self._faults(*made, options, stored)]

    def _faults(
        self,
        backup_id: str,
        before: dict[str, set[int]],
        options: tuple[str, ...],
        stored: Callable[[pulsar.Client, str], set[int]],
    ) -> list[str]:
        folder = self._folder / backup_id
        done = magnetar("restore", str(self._repository), backup_id, "--data", str(folder / "data"))
        if done.returncode:
            return [f"backup {backup_id}: {done.stdout}{done.stderr}"]
        wrong = []
        with StandaloneProcess(folder, data_dir=folder / "data", options=options) as copy:
            client = pulsar.Client(copy.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            for topic, acknowledged in before.items():
                if lost := sorted(acknowledged - stored(client, topic)):
                    wrong.append(f"backup {backup_id}: {topic}: {len(lost)} are lost, from {lost[0]} on")
            client.close()
            wrong += [
                f"backup {backup_id}: {line}"
                for line in copy.log_text().splitlines()
                if any(damage in line for damage in DAMAGES)
            ]
        return wrong


def magnetar(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line."""
    return subprocess.run(
        [sys.executable, "-m", "magnetar", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
