"""Makes the private environment that `./dev` works in. Needs nothing but Python's own library.

    .venv/               the environment: exactly the packages of requirements/lock.txt, by hash
    .venv/.tools/        a second environment with pip and uv, so that neither is among them
    .venv/.setup.lock    held by the one set-up that runs; the system drops it with the process
    .venv/.unfinished    there while packages are written; found by the next set-up after a crash
    .venv/.stamp         what the environment was made from; written last

Usage: environment.py ROOT STAMP
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import IO, NoReturn

ROOM_BYTES_MIN = 2_000_000_000
"""The packages take 1.3 GB, and their archives pass through the same disk as a rule."""

NETWORK = re.compile(
    r"dns error|error sending request|Failed to fetch|Could not connect|operation timed out|"
    r"Temporary failure in name resolution|Max retries exceeded|NewConnectionError|ConnectTimeout|"
    r"Read timed out|ProxyError|SSLError|CERTIFICATE|certificate|Connection refused|Network is unreachable|"
    r"from versions: none|tunnel error",
)
DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|os error 28")
PROGRESS = re.compile(r"\s*(Downloading|Downloaded|Building|Built|Prepared|Installed)\b")
WRONG_HASH = re.compile(r"[Hh]ash mismatch|DO NOT MATCH THE HASHES")


class SetupError(Exception):
    """The environment cannot be made; the message names cause and remedy."""


def main(root: Path, stamp: str) -> None:
    """Brings `.venv` up to date, waiting for another set-up that runs."""
    home = root / ".venv"
    home.mkdir(exist_ok=True)
    with (home / ".setup.lock").open("w") as lock:
        wait_for(lock)
        stamp_file = home / ".stamp"
        made_from = stamp_file.read_text() if stamp_file.exists() else ""
        if made_from == stamp and usable(home):
            return
        same_packages = made_from.split()[:2] == stamp.split()[:2] and usable(home)
        stamp_file.unlink(missing_ok=True)
        if not same_packages:
            install(root, home)
        link(root, home)
        # Renamed into place, so that a crash leaves the whole stamp or none.
        new = home / ".stamp.new"
        new.write_text(stamp)
        new.replace(stamp_file)


def wait_for(lock: IO[str]) -> None:
    """Takes the lock, saying so when another set-up holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another set-up of this clone is running; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def usable(home: Path) -> bool:
    """Whether the environment is whole and its interpreter still runs."""
    if (home / ".unfinished").exists():
        return False
    try:
        found = subprocess.run([home / "bin" / "python", "-c", ""], stdin=subprocess.DEVNULL, check=False)
    except OSError:
        return False
    return found.returncode == 0


def install(root: Path, home: Path) -> None:
    """Makes the environment anew and puts the locked packages into it."""
    version = sys.version.split()[0]
    say(f"setting up a private environment in {home} with Python {version} (once; a minute or two)")
    free = shutil.disk_usage(home).free
    if free < ROOM_BYTES_MIN:
        raise disk_full(home)
    clean(home)
    unfinished = home / ".unfinished"
    unfinished.touch()
    say("[1/3] environment")
    make_venv(home, with_pip=False)
    tools = home / ".tools"
    make_venv(tools, with_pip=True)
    say("[2/3] installer")
    log = (home / "setup.log").open("w")
    with log:
        pip = [str(tools / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        has_uv = install_uv(root, pip, log)
        count = len(re.findall(r"^[a-z0-9]", (root / "requirements" / "lock.txt").read_text(), re.MULTILINE))
        say(f"[3/3] {count} packages, about 600 MB to download")
        install_packages(root, home, pip, log, has_uv=has_uv)
    unfinished.unlink()
    say("done")


def clean(home: Path) -> None:
    """Removes what an earlier set-up made, but not the lock that this one holds."""
    for entry in home.iterdir():
        if entry.name != ".setup.lock":
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def make_venv(place: Path, *, with_pip: bool) -> None:
    """An empty environment at `place`, which may exist."""
    try:
        venv.EnvBuilder(symlinks=True, with_pip=with_pip).create(place)
    except subprocess.CalledProcessError as error:
        output = (error.output or b"").decode(errors="replace") if isinstance(error.output, bytes) else ""
        if DISK_FULL.search(output):
            raise disk_full(place) from None
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise SetupError(
            f"Python {version} cannot make environments with pip (ensurepip failed); install the complete "
            f"Python (Debian, Ubuntu: apt install python{version}-venv) or name another with MAGNETAR_PYTHON"
        ) from None


def install_uv(root: Path, pip: list[str], log: IO[str]) -> bool:
    """Fetches uv like any package; False where there is none for this platform."""
    code, output = run([*pip, "install", "--require-hashes", "-r", str(root / "requirements/uv.txt")], log)
    if code != 0:
        refuse(root, output, fatal=(DISK_FULL, NETWORK))
        say("  no uv for this platform; pip does the work, more slowly")
    return code == 0


def install_packages(root: Path, home: Path, pip: list[str], log: IO[str], *, has_uv: bool) -> None:
    """Installs the lock with uv, or with pip when uv cannot."""
    lock = str(root / "requirements" / "lock.txt")
    python = str(home / "bin" / "python")
    if has_uv:
        uv = [pip[0], "-m", "uv", "--no-config", "pip", "sync", "--python", python, "--require-hashes"]
        code, output = run([*uv, "--build-constraints", lock, lock], log, environment=uv_environment(pip))
        if code == 0:
            return
        refuse(root, output, fatal=(DISK_FULL,))
        say("  uv could not finish; trying again with pip")
    code, output = run([*pip, "--python", python, "install", "--require-hashes", "-r", lock], log)
    if code != 0:
        refuse(root, output, fatal=(DISK_FULL, WRONG_HASH, NETWORK))
        raise SetupError(f"installing the packages failed; the reason is at the end of {home / 'setup.log'}")


def uv_environment(pip: list[str]) -> dict[str, str]:
    """What uv must be told so that it finds packages where pip is configured to find them."""
    found = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False)
    settings = dict(re.findall(r"^(?:[\w-]+|:env:)\.([\w-]+)='(.*)'$", found.stdout, re.MULTILINE))
    environment = dict(os.environ)
    for setting, variable in (
        ("index-url", "UV_DEFAULT_INDEX"),
        ("extra-index-url", "UV_INDEX"),
        ("cert", "SSL_CERT_FILE"),
    ):
        if settings.get(setting):
            environment.setdefault(variable, settings[setting])
    return environment


def run(command: list[str], log: IO[str], environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Runs a step, shows its progress, keeps all of it in the log. Returns exit code and output."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines: list[str] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line)
            log.write(line)
            if PROGRESS.match(line):
                say(f"  {line.strip()}")
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.wait()
    log.flush()
    return process.returncode, "".join(lines)


def refuse(root: Path, output: str, *, fatal: tuple[re.Pattern[str], ...]) -> None:
    """Raises what a failed step means when its output shows one of the `fatal` causes."""
    for cause in fatal:
        if not cause.search(output):
            continue
        if cause is DISK_FULL:
            raise disk_full(root)
        if cause is WRONG_HASH:
            raise SetupError(
                "a package from the registry differs from the one that was locked; nothing of it was "
                "installed. Try again; if it stays so, tell the maintainers"
            )
        raise SetupError(
            "the package registry cannot be reached; check the network, and proxy or mirror if there is one "
            "(HTTPS_PROXY, pip's index-url and cert are honoured), then run the same command again. "
            f"Details: {root / '.venv' / 'setup.log'}"
        )


def disk_full(place: Path) -> SetupError:
    """What to say when the environment does not fit."""
    free_mb = shutil.disk_usage(place).free // 1_000_000
    return SetupError(
        f"the disk of {place} has {free_mb} MB left and the environment needs about "
        f"{ROOM_BYTES_MIN // 1_000_000} MB; free some, then run the same command again"
    )


def link(root: Path, home: Path) -> None:
    """Makes `magnetar` importable from the work tree and the command runnable, wherever the clone lies."""
    library = next((home / "lib").glob("python3*")) / "site-packages"
    (library / "magnetar-work-tree.pth").write_text(f"{root / 'src'}\n")
    script = home / "bin" / "magnetar"
    # A "#!" line cannot hold a path with spaces, so the shell starts the interpreter.
    script.write_text('#!/bin/sh\nexec "$(dirname -- "$0")/python" -m magnetar "$@"\n')
    script.chmod(0o755)


def say(text: str) -> None:
    """Progress goes to stderr: the output belongs to the command that is to run."""
    print(text, file=sys.stderr, flush=True)


def stop(signum: int, frame: object) -> NoReturn:
    """SIGTERM ends the set-up like Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except SetupError as error:
        sys.exit(f"dev: {error}")
    except KeyboardInterrupt:
        say("\ndev: set-up interrupted; the same command takes it up again")
        sys.exit(130)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            sys.exit(f"dev: {disk_full(Path(sys.argv[1]))}")
        sys.exit(f"dev: set-up failed: {error}")
