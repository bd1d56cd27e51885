"""The processes of Magnetar that the files of `deploy/` start: their options, variables and probes.

The chart is read as `deploy/helm/rendered` has it, because only Helm reads its templates.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
IMAGE: Final = DEPLOY / "image" / "Containerfile"
COMPOSE: Final = DEPLOY / "compose" / "compose.yaml"
UNITS: Final = DEPLOY / "systemd"
JOB: Final = DEPLOY / "nomad" / "magnetar.nomad.hcl"
RENDERED: Final = DEPLOY / "helm" / "rendered"

_HEALTH: Final = "magnetar-health"
_OF_A_MACHINE: Final = "/etc/magnetar/"
_DYNAMIC: Final = 20_000
"""Stands, with the place of the port in its group, for one that Nomad chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A page that is asked whether the process serves."""

    port: int
    path: str
    """"": a connection is enough."""
    tls: bool = False
    inside: bool = False
    """Whether it is asked from where the process runs, so that a port of 127.0.0.1 is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A process that a file starts."""

    place: str
    """File, and the part of it."""
    arguments: tuple[str, ...]
    """What follows `magnetar`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    probes: tuple[Probe, ...] = ()

    @property
    def settings_file(self) -> Path | None:
        """The example of its settings, for a process with `--config`."""
        for option, value in zip(self.arguments, self.arguments[1:], strict=False):
            if option == "--config":
                return UNITS / "etc" / value.removeprefix(_OF_A_MACHINE)
        return None


def all_processes() -> list[Deployed]:
    """Those of every file."""
    return [*of_image(), *of_compose(), *of_units(), *of_job(), *of_chart()]


def of_image() -> Iterator[Deployed]:
    """What the image starts without a command."""
    text = IMAGE.read_text(encoding="utf-8")
    entry, command = (_list(text, word) for word in ("ENTRYPOINT", "CMD"))
    (health,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)
    assert entry[-1] == "magnetar"
    yield Deployed(place=IMAGE.name, arguments=tuple(command), probes=tuple(_asked(yaml.safe_load(health))))


def _list(text: str, word: str) -> list[str]:
    (found,) = re.findall(rf"^{word} (\[.*\])$", text, re.MULTILINE)
    return [str(each) for each in yaml.safe_load(found)]


def _asked(command: Sequence[str]) -> Iterator[Probe]:
    """The probe of a command in the container."""
    if list(command)[:1] == ["CMD"]:
        command = command[1:]
    if list(command)[:1] == [_HEALTH]:
        parts = urlsplit(command[1])
        assert parts.hostname == "127.0.0.1"
        yield Probe(port=parts.port or 80, path=parts.path, inside=True)


def of_compose() -> Iterator[Deployed]:
    """Services of the compose file that have the image."""
    document = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    for name, service in document["services"].items():
        if "magnetar" in service["image"]:
            yield Deployed(
                place=f"{COMPOSE.name} {name}",
                arguments=tuple(service["command"]),
                variables=service.get("environment") or {},
                probes=tuple(_asked(service.get("healthcheck", {}).get("test") or [])),
            )


def of_units() -> Iterator[Deployed]:
    """Units of systemd, with the examples of their files in `etc`."""
    for path in sorted(UNITS.glob("*.service")):
        text = path.read_text(encoding="utf-8")
        variables: dict[str, str] = {}
        for file in re.findall(r"^EnvironmentFile=(-?)(\S+)$", text, re.MULTILINE):
            example = UNITS / "etc" / file[1].removeprefix(_OF_A_MACHINE)
            if example.exists() or not file[0]:
                variables |= _variables(example)
        (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        program, *rest = line.split()
        assert program == "/opt/magnetar/bin/magnetar"
        arguments: list[str] = []
        for word in rest:
            if re.fullmatch(r"\$\w+", word):
                arguments += shlex.split(variables[word[1:]])
            else:
                arguments.append(_with(word, r"\$\{(\w+)\}", variables))
        yield Deployed(place=path.name, arguments=tuple(arguments), variables=variables)


def _with(text: str, pattern: str, values: Mapping[str, str]) -> str:
    """`text` with the value of each name that the pattern finds."""
    return re.sub(pattern, lambda found: values[found[1]], text)


def _variables(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def of_job() -> Iterator[Deployed]:
    """Tasks of the Nomad job."""
    text = JOB.read_text(encoding="utf-8")
    for group, inside in _blocks(text, "group"):
        ports = {
            name: int(re.sub(r"\D", "", rest) or _DYNAMIC + place)
            for place, (name, rest) in enumerate(re.findall(r'port "(\w+)" \{([^}]*)\}', inside))
        }
        checked = [
            Probe(port=ports[re.findall(r'port\s+= "(\w+)"', service)[0]], path=path)
            for _, service in _blocks(inside, "service")
            for path in re.findall(r'path\s+= "([^"]+)"', service)
        ]
        for task, body in _blocks(inside, "task"):
            (given,) = re.findall(r"args\s+= \[(.*?)\]", body, re.DOTALL)
            values = [text or name for text, name in re.findall(r'"([^"]*)"|var\.(\w+)', given)]
            set_here = next((inner for _, inner in _blocks(body, "env")), "")
            yield Deployed(
                place=f"{JOB.name} {group} {task}",
                arguments=tuple(_filled(value, ports) for value in values),
                variables=dict(re.findall(r'^\s*(\w+)\s+= "([^"]*)"$', set_here, re.MULTILINE)),
                probes=tuple(checked) if task == group else (),
            )


def _filled(value: str, ports: Mapping[str, int]) -> str:
    """What Nomad makes of a value."""
    value = _with(value, r"\$\{NOMAD_PORT_(\w+)\}", {name: str(port) for name, port in ports.items()})
    return "zk://zk1:2181/ledgers" if value == "metadata" else re.sub(r"\$\{[\w.-]+\}", "10.0.0.1", value)


def _blocks(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """Label and text of the blocks of a kind, of a language with braces."""
    for found in re.finditer(rf'^\s*{kind}(?: "(\w+)")? \{{$', text, re.MULTILINE):
        depth, at = 1, found.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        yield found[1] or "", text[found.end() : at - 1]


def of_chart() -> Iterator[Deployed]:
    """Containers of the rendered manifests that have the image."""
    for path in sorted(RENDERED.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document and "template" in document.get("spec", {}):
                yield from _pods(f"{path.name} {document['metadata']['name']}", document["spec"]["template"])


def _pods(place: str, template: Mapping[str, object]) -> Iterator[Deployed]:
    spec = template["spec"]
    assert isinstance(spec, dict)
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        if not container["image"].startswith("localhost/magnetar"):
            continue
        ports = {each["name"]: each["containerPort"] for each in container.get("ports", ())}
        probes = [container[name] for name in container if name.endswith("Probe")]
        variables = {each["name"]: each.get("value", "x") for each in container.get("env", ())}
        yield Deployed(
            place=f"{place} {container['name']}",
            arguments=tuple(_with(each, r"\$\((\w+)\)", variables) for each in container["args"]),
            variables=variables,
            probes=tuple(found for probe in probes for found in _probed(probe, ports)),
        )


def _probed(probe: Mapping[str, dict[str, object]], ports: Mapping[str, int]) -> Iterator[Probe]:
    if "exec" in probe:
        command = probe["exec"]["command"]
        assert isinstance(command, list)
        yield from _asked(command)
        return
    asked = probe.get("httpGet") or probe["tcpSocket"]
    yield Probe(
        port=ports[str(asked["port"])], path=str(asked.get("path", "")), tls=asked.get("scheme") == "HTTPS"
    )
