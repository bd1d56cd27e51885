"""Spark's own cluster manager on this machine: a master and two workers, each a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pyspark

from magnetar.spark.java import find_java_home
from support.standalone import wait_until

DEADLINE_S = 90.0
WORKERS = 2


class SparkCluster:
    """Started on entry, ended on exit; `master` is its URL."""

    def __init__(self, folder: Path) -> None:
        self.master = ""
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        try:
            self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            self.master = self._awaited("master", r"Starting Spark master at (spark://\S+)")
            for number in range(WORKERS):
                name = f"worker-{number}"
                work = ["--work-dir", str(self._folder / name), "--cores", "1", "--memory", "1g"]
                self._start(name, "org.apache.spark.deploy.worker.Worker", "--port", "0", *work, self.master)
            for number in range(WORKERS):
                self._awaited(f"worker-{number}", r"(Successfully registered with master)")
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        home = find_java_home(os.environ)
        jars = Path(pyspark.__file__).parent / "jars"
        command = [str(home / "bin" / "java"), "-Xmx256m", "-cp", f"{jars}/*", kind]
        command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
        environment = {
            **os.environ,
            # A driver whose path has a space in it names its Python without one: workers find it there.
            "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", ""))),
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(jars.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Spark's scripts, which are not used, find this out.
            "SPARK_SCALA_VERSION": "2.13",
        }
        with self._log(name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self._folder,
                )
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _awaited(self, name: str, pattern: str) -> str:
        """What the pattern's group matches in the log, once it is there."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, self._log(name).read_text(errors="replace"))

        wait_until(lambda: found() is not None or self._ended(), DEADLINE_S, f"{name} is ready")
        match = found()
        assert match is not None, self._log(name).read_text(errors="replace")
        return match[1]

    def _ended(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    def close(self) -> None:
        """Ends all processes; workers take their executors along."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(DEADLINE_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
