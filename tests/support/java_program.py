"""A Java program of the tests that runs beside them and takes its orders on standard input."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_END_S = 20.0
"""Seconds in which it must end once its standard input has."""


@contextmanager
def java_program(
    folder: Path, source: Path, class_path: str, options: Sequence[str], arguments: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Compiles a file with the class of its name into `folder`, and runs that. `options`: of the JVM;
    `arguments`: of the program."""
    classes = folder / "classes"
    classes.mkdir(parents=True)
    subprocess.run(
        ["javac", "-proc:none", "-nowarn", "-cp", class_path, "-d", str(classes), str(source)],
        check=True,
        capture_output=True,
    )
    command = ["java", *options, "-cp", f"{classes}{os.pathsep}{class_path}", source.stem, *arguments]
    with (folder / "java.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            yield process
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
