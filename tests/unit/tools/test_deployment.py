"""What the files of `deploy/` give to a process is what it takes, and their probes ask pages that it has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml
from deployment import chart
from deployment.kube_schemas import write
from deployment.processes import IMAGE, RENDERED, ROOT, UNITS, Deployed, Probe, all_processes
from deployment.starts import WrongError, check_probe, check_process, doors_of

from magnetar.base.errors import StartupError

PROCESSES = all_processes()


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.place)
def test_a_process_would_start_and_answer_its_probes(process: Deployed) -> None:
    check_process(process)


def test_every_role_is_in_every_way_to_deploy() -> None:
    found: dict[str, set[str]] = {}
    for process in PROCESSES:
        found.setdefault(process.place.split()[0], set()).add(process.arguments[0])
    members = {"bookie", "autorecovery", "broker", "proxy"}
    assert found["compose.yaml"] == members | {"cluster"}
    assert found["magnetar.nomad.hcl"] == members | {"cluster"}
    assert found["secured.yaml"] == found["plain.yaml"] == members | {"cluster"}
    assert found["external.yaml"] == members - {"proxy"} | {"cluster"}
    assert found["standalone.yaml"] == {"standalone"}
    assert {path.name for path in UNITS.glob("*.service")} == {
        f"magnetar-{role}.service" for role in members | {"standalone"}
    }


def test_every_process_that_serves_is_probed() -> None:
    bare = [
        process.place for process in PROCESSES if not process.probes and process.arguments[0] != "cluster"
    ]
    # systemd asks no page: the process itself says when it is ready.
    assert {place for place in bare if not place.endswith(".service")} == set()
    for path in UNITS.glob("*.service"):
        assert "\nType=notify\n" in path.read_text()


def wrong(**changes: object) -> Deployed:
    good = next(process for process in PROCESSES if process.place == "plain.yaml r-magnetar-broker broker")
    return replace(good, **changes)  # type: ignore[arg-type]


def test_what_a_process_does_not_take_is_noticed() -> None:
    good = wrong()
    for broken in (
        wrong(arguments=(*good.arguments, "--no-such-option")),
        wrong(arguments=("brokr",)),
        wrong(variables={**good.variables, "MAGNETAR_RETENTION_MINUTE": "60"}),
        wrong(variables={**good.variables, "MAGNETAR_RETENTION_MINUTES": "-2"}),
        wrong(variables={**good.variables, "MAGNETAR_INSECURE": "false"}),
        wrong(variables={**good.variables, "MAGNETAR_TRANSACTIONS": "maybe"}),
    ):
        with pytest.raises((WrongError, StartupError, click.UsageError)):
            doors_of(broken)


@pytest.mark.parametrize(
    "probe",
    [
        Probe(port=8081, path="/status.html"),
        Probe(port=8080, path="/status"),
        Probe(port=8080, path="/metrics"),
        Probe(port=8080, path="/admin/v2/brokers/health"),
        Probe(port=8080, path="/status.html", tls=True),
    ],
)
def test_a_probe_that_would_fail_is_noticed(probe: Probe) -> None:
    with pytest.raises(WrongError):
        check_probe(probe, doors_of(wrong()))


def test_a_probe_from_outside_reaches_no_port_of_the_loopback() -> None:
    proxy = next(process for process in PROCESSES if process.place == "secured.yaml r-magnetar-proxy proxy")
    with pytest.raises(WrongError, match=r"127\.0\.0\.1 only"):
        check_probe(Probe(port=8080, path="/status.html"), doors_of(proxy))


def test_the_rendered_manifests_are_of_this_chart() -> None:
    assert {path.stem for path in RENDERED.glob("*.yaml")} == chart.cases().keys()
    first = f"{chart.MARK} {chart.digest()}\n"
    stale = [path.name for path in RENDERED.glob("*.yaml") if not path.read_text().startswith(first)]
    assert stale == [], "render the chart anew: ./dev deploy render"


def manifests() -> Iterator[tuple[str, Mapping[str, object]]]:
    for path in RENDERED.glob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if document:
                yield path.name, document


def pods() -> Iterator[tuple[str, dict[str, object]]]:
    """Pod templates."""
    for name, document in manifests():
        spec = document.get("spec", {})
        if isinstance(spec, dict) and "template" in spec:
            yield name, spec["template"]


def test_services_and_policies_name_ports_of_their_pods() -> None:
    ports: dict[tuple[str, str], set[str]] = {}
    for name, template in pods():
        metadata, spec = template["metadata"], template["spec"]
        assert isinstance(metadata, dict)
        assert isinstance(spec, dict)
        part = metadata["labels"]["app.kubernetes.io/component"]
        ports[name, part] = {port["name"] for each in spec["containers"] for port in each.get("ports", ())}
    seen = 0
    for name, document in manifests():
        spec = document.get("spec")
        assert spec is None or isinstance(spec, dict)
        if document["kind"] == "Service" and spec is not None:
            part = spec["selector"]["app.kubernetes.io/component"]
            named = {each["targetPort"] for each in spec["ports"]}
        elif document["kind"] == "NetworkPolicy" and spec is not None:
            part = spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            named = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
        else:
            continue
        seen += 1
        assert named <= ports[name, part], (name, part)
    assert seen > 20


def test_no_pod_is_root_or_writes_to_its_image() -> None:
    for name, template in pods():
        spec = template["spec"]
        assert isinstance(spec, dict)
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["automountServiceAccountToken"] is False, name
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]


def rows(name: str) -> dict[str, list[str]]:
    """Hashes by requirement, of a file of pinned packages."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        if not line.startswith(" "):
            requirement = line.partition(" ")[0]
        found.setdefault(requirement, []).extend(re.findall(r"--hash=(\S+)", line))
    return found


@pytest.mark.parametrize("name", ["image.txt", "image-history.txt", "image-build.txt"])
def test_the_image_has_the_versions_of_the_lock(name: str) -> None:
    lock = rows("lock.txt")
    for requirement, hashes in rows(name).items():
        assert lock.get(requirement) == hashes, requirement


def test_the_image_has_what_its_extras_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, extras in {
        "image.txt": ("auth", "etcd", "otel"),
        "image-history.txt": ("auth", "etcd", "lake"),
    }.items():
        wanted = [
            *project["dependencies"],
            *(each for extra in extras for each in project["optional-dependencies"][extra]),
        ]
        pinned = {requirement.partition("==")[0] for requirement in rows(name)}
        assert {re.split(r"[\[<>=;]", each)[0] for each in wanted} <= pinned


def test_the_recipe_copies_what_is_there_and_lets_through_what_it_copies() -> None:
    ignored = IMAGE.with_name("Containerfile.dockerignore").read_text().split("\n")
    for line in re.findall(r"^COPY (?!--from)(.*)$", IMAGE.read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored or any(each.startswith(f"!{source}/") for each in ignored), source


def test_every_example_of_settings_is_used() -> None:
    assert {process.settings_file for process in PROCESSES} - {None} == set((UNITS / "etc").glob("*.toml"))


def test_schemas_are_closed_and_follow_names(tmp_path: Path) -> None:
    swagger = tmp_path / "swagger.json"
    swagger.write_text(
        '{"definitions": {"a.Pod": {"description": "d", "type": "object",'
        ' "properties": {"description": {"type": "string", "format": "x"}},'
        ' "x-kubernetes-group-version-kind": [{"group": "apps.k8s.io", "kind": "Pod", "version": "v1"}]}}}'
    )
    assert write(swagger, tmp_path / "made") == 1
    made = yaml.safe_load((tmp_path / "made" / "types.json").read_text())["definitions"]["a.Pod"]
    assert made == {
        "type": "object",
        "properties": {"description": {"type": "string"}},
        "additionalProperties": False,
    }
    reference = yaml.safe_load((tmp_path / "made" / "pod-apps-v1.json").read_text())
    assert reference == {"$ref": "types.json#/definitions/a.Pod"}
