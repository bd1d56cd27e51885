"""`./dev release`: wheel, source archive, bill of materials and provenance of the commit that is checked out.

What is built is built twice, elsewhere, with another umask and time zone, and must be equal. Nothing is made
when a licence is not allowed, or a package has a fault that the stored list knows.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion
from supply import advisories, building, licences, lock, provenance, sbom

BUILDER = "urn:magnetar:builder:by-hand"
BILL = "sbom.cdx.json"
STATEMENT = "provenance.intoto.json"


class ReleaseError(Exception):
    """There is no release; says why."""


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 1 where there is no release, or what is verified is not what was signed."""
    options = _options(arguments)
    try:
        if options.take_advisories:
            _take(options.take_advisories, datetime.datetime.now(datetime.UTC).date())
        elif options.check:
            print(checked(datetime.datetime.now(datetime.UTC).date())[1])
        elif options.verify:
            _verify(options.folder, options.verify)
        else:
            _release(options.folder, options.key, options.builder)
    except (
        ReleaseError,
        building.BuildError,
        licences.LicenceError,
        provenance.ProvenanceError,
        OSError,
        ValueError,
    ) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev release", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("dist"), help="where to [dist]")
    parser.add_argument("--key", type=Path, help="ed25519 private key, PEM, that signs the provenance")
    parser.add_argument("--builder", default=BUILDER, help="URI of the builder")
    parser.add_argument("--check", action="store_true", help="licences and known faults only")
    parser.add_argument(
        "--take-advisories", type=Path, metavar="FOLDER", help="renew the stored list from OSV files"
    )
    parser.add_argument("--verify", type=Path, metavar="PUBLIC_KEY", help="a folder that was made so")
    return parser.parse_args(arguments)


def checked(today: datetime.date) -> tuple[list[lock.Locked], str]:
    """The packages of the lock, and a word on them. Raises LicenceError, ReleaseError."""
    locked = lock.parse(lock.LOCK.read_text())
    rules = licences.read_rules(licences.FILE.read_text())
    licences.licences(locked, rules)
    try:
        listed = advisories.read(advisories.FILE.read_text())
        found = advisories.matching(locked, listed)
    except (ValueError, KeyError, InvalidVersion) as error:
        raise ReleaseError(f"{advisories.FILE}: {error}") from error
    if found:
        raise ReleaseError("known faults: " + "; ".join(map(str, found)))
    said = f"{len(locked)} packages: licences allowed, none of {len(listed.entries)} listed faults"
    said += f" (list of {listed.date})"
    if (today - listed.date).days > advisories.OLD_DAYS:
        said += f"; that list is old, bring {advisories.FILE} up to date"
    return locked, said


def _release(folder: Path, key_file: Path | None, builder: str) -> None:
    key = None if key_file is None else provenance.private_key(key_file.read_bytes())
    if building.git("status", "--porcelain"):
        raise ReleaseError("there is what is not committed: a release is made of a commit")
    if folder.exists() and any(folder.iterdir()):
        raise ReleaseError(f"{folder} is not empty; name a new folder")
    commit = building.git("rev-parse", "HEAD").decode().strip()
    epoch_s = int(building.git("log", "-1", "--format=%ct"))
    at = datetime.datetime.fromtimestamp(epoch_s, datetime.UTC)
    locked, said = checked(datetime.datetime.now(datetime.UTC).date())
    print(said)
    with tempfile.TemporaryDirectory() as scratch:
        made = building.twice(building.git("archive", "HEAD"), Path(scratch), epoch_s=epoch_s)
        folder.mkdir(parents=True, exist_ok=True)
        files = [Path(shutil.copy(each, folder)) for each in made]
    files.append(_write(folder / BILL, _bill(locked, at)))
    told = provenance.statement(
        files,
        commit=commit,
        lock=lock.LOCK,
        builder=builder,
        epoch_s=epoch_s,
        python=platform.python_version(),
    )
    _write(folder / STATEMENT, provenance.envelope(told, key))
    for file in files:
        print(f"{provenance.digest_of(file)}  {file}")
    print(
        f"{folder / STATEMENT} is signed by key {provenance.key_id(key.public_key())}"
        if key is not None
        else f"{folder / STATEMENT} is not signed: --key FILE signs it"
    )


def _bill(locked: list[lock.Locked], at: datetime.datetime) -> dict[str, Any]:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    known = licences.licences(locked, licences.read_rules(licences.FILE.read_text()))
    needs = {each.name: sbom.needs_of(each.name) for each in locked}
    return sbom.bill(project, locked, known, needs, at=at)


def _take(folder: Path, today: datetime.date) -> None:
    names = {each.name for each in lock.parse(lock.LOCK.read_text())}
    text = advisories.taken((each.read_text() for each in sorted(folder.glob("*.json"))), names, today)
    advisories.FILE.write_text(text)
    print(f"{advisories.FILE} has {len(advisories.read(text).entries)} advisories")


def _write(file: Path, document: dict[str, Any]) -> Path:
    file.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    return file


def _verify(folder: Path, key_file: Path) -> None:
    key = provenance.public_key(key_file.read_bytes())
    document = json.loads((folder / STATEMENT).read_text())
    for name in provenance.verified(document, key, folder):
        print(f"{name}: as it was signed")


if __name__ == "__main__":
    sys.exit(main())
