"""Pulsar's own `pulsar-admin` (Java, unmodified) against a broker of ours, by transcripts.

A transcript is a text file. Its lines:

    # a remark
    $ group command arguments     run this; it must succeed
    > text                        and print this, white space aside
    ! text another                or it must fail, and these words stand in what it says
    ? name pattern                keeps what the pattern's group matches in the output as ${name}

All run in one Java process (`AdminDriver.java`). `$ send topic text ...` is ours: it publishes.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import string
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pulsar

from support import java_client

HERE = Path(__file__).parents[1] / "compat" / "pulsar_admin"
TRANSCRIPTS = HERE / "commands"

NOT_RUN = {
    "documents generate": "writes the tool's own manual, asks no broker",
    "functions localrun": "runs a function in the tool itself, asks no broker",
    "sinks localrun": "runs a connector in the tool itself, asks no broker",
    "sources localrun": "runs a connector in the tool itself, asks no broker",
    "proxy-stats connections": "asks a proxy",
    "proxy-stats topics": "asks a proxy",
    "schemas extract": "reads a class out of a Java archive, and uploads as `schemas upload` does",
}
"""Commands that no transcript has, and why."""


@dataclass
class Step:
    """A command and what is expected of it."""

    line: int
    """In the transcript, from 1."""
    command: str
    printed: list[str] = field(default_factory=list)
    refused: list[str] | None = None
    """Words of the refusal; None: it must succeed."""
    kept: list[tuple[str, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Group and command."""
        return " ".join(self.command.split()[:2])


@dataclass(frozen=True)
class Outcome:
    """How a step went."""

    transcript: str
    step: Step
    problem: str
    """"" when everything was as expected."""


def steps_of(text: str) -> list[Step]:
    """The steps of a transcript. Raises ValueError."""
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        mark, _, rest = line.partition(" ")
        if mark in ("#", ""):
            continue
        if mark == "$":
            steps.append(Step(number, rest))
        elif mark == ">":
            steps[-1].printed.append(rest)
        elif mark == "!":
            steps[-1].refused = rest.split()
        elif mark == "?":
            name, _, pattern = rest.partition(" ")
            steps[-1].kept.append((name, pattern))
        else:
            raise ValueError(f"line {number} begins with none of # $ > ! ?: {line}")
    return steps


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


class PulsarAdmin:
    """The Java process."""

    def __init__(self, classes: Path, broker_url: str, http_url: str) -> None:
        """Compiles the driver into `classes`. Raises NotHereError."""
        self._broker_url = broker_url
        path = java_client.class_path(HERE)
        compiling = ["javac", "-proc:none", "-nowarn", "-cp", path, "-d", str(classes)]
        subprocess.run([*compiling, str(HERE / "AdminDriver.java")], check=True, capture_output=True)
        self._process = subprocess.Popen(
            [
                "java",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                f"{classes}{os.pathsep}{path}",
                "AdminDriver",
                http_url,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        """Ends the process."""
        self._pipe(self._process.stdin).close()
        self._pipe(self._process.stdout).close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def run(self, words: list[str]) -> tuple[int, str, str]:
        """Exit code, output and complaints of one command."""
        if words[0] == "send":
            self._send(words[1], words[2:])
            return 0, "", ""
        stdin = self._pipe(self._process.stdin)
        stdin.write("\t".join(words) + "\n")
        stdin.flush()
        line = self._pipe(self._process.stdout).readline()
        assert line, f"the Java process ended at {words}"
        code, out, err = line.rstrip("\n").split(" ")
        return int(code), base64.b64decode(out).decode(), base64.b64decode(err).decode()

    def _send(self, topic: str, texts: list[str]) -> None:
        client = pulsar.Client(self._broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(topic, batching_enabled=False)
        for text in texts:
            producer.send(text.encode())
        client.close()

    def names(self) -> list[str]:
        """Groups and commands that there are."""
        return self.run(["names"])[1].splitlines()

    def play(self, transcript: Path, known: Mapping[str, str]) -> Iterator[Outcome]:
        """Runs all steps, also after one that failed."""
        variables = dict(known)
        for step in steps_of(transcript.read_text(encoding="utf-8")):
            code, out, err = self.run(_words(step.command, variables))
            for name, pattern in step.kept:
                found = re.search(pattern, out)
                variables[name] = found[1] if found else "-1"
            printed = [string.Template(text).safe_substitute(variables) for text in step.printed]
            problem = _problem(step, printed, code, out, err)
            yield Outcome(transcript.stem, step, problem)


def _words(command: str, variables: Mapping[str, str]) -> list[str]:
    # JSON in a command keeps its quotes. Variables come last: a path may have a space.
    has_json = "{" in re.sub(r"\$\{\w+\}", "", command)
    words = command.split() if has_json else shlex.split(command)
    return [string.Template(word).safe_substitute(variables) for word in words]


def _problem(step: Step, printed: list[str], code: int, out: str, err: str) -> str:
    said = f"exit code {code}\n{out}{err}".strip()
    if step.refused is not None:
        missing = [word for word in step.refused if word not in out + err]
        if code == 0:
            return f"it succeeded: {said}"
        return f"{missing} not in: {said}" if missing else ""
    if code != 0:
        return said
    missing = [text for text in printed if _squeezed(text) not in _squeezed(out)]
    return f"{missing} not in: {said}" if missing else ""


def table(outcomes: list[Outcome], version: str) -> str:
    """The page of the documents: a line a command."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if not outcome.step.command.startswith("send "):
            found.setdefault(outcome.step.name, []).append(outcome)
    results = {name: _result(each) for name, each in found.items()}
    counts = {kind: sum(1 for kept in results.values() if kept.startswith(kind)) for kind in _KINDS}
    lines = [
        "# pulsar-admin",
        "",
        f"Pulsar's own `pulsar-admin` ({version}, Java, unmodified) against a standalone of ours.",
        "`./dev compat pulsar-admin` writes this page; `tests/compat/pulsar_admin/commands` has what was run",
        "and what was expected, and `tests/compat/pulsar_admin/test_pulsar_admin.py` runs it all.",
        "",
        f"{len(results)} commands: "
        + ", ".join(f"{count} {_KINDS[kind]}" for kind, count in counts.items())
        + ".",
        "",
        "| Command | Result | Runs | Transcript |",
        "|---|---|---|---|",
    ]
    for name in sorted(found):
        places = ", ".join(sorted({outcome.transcript for outcome in found[name]}))
        lines.append(f"| `{name}` | {results[name]} | {len(found[name])} | {places} |")
    lines += ["", "Not run:", ""]
    lines += [f"- `{name}`: {reason}" for name, reason in sorted(NOT_RUN.items())]
    return "\n".join(lines) + "\n"


_KINDS = {
    "works": "work",
    "501": "are answered 501 with the reason",
    "503": "are answered 503 while no worker runs functions",
    "**fails**": "do not do what is expected",
}


def _result(outcomes: list[Outcome]) -> str:
    if any(outcome.problem for outcome in outcomes):
        return "**fails**"
    refused = [outcome.step.refused for outcome in outcomes]
    for status, meaning in (("501", "not offered"), ("503", "no worker")):
        if all(words is not None and status in words for words in refused):
            return f"{status}, {meaning}"
    return "works"
