"""`./dev build`: compiles the hot modules in the work tree, beside their sources; git ignores the result.

    ./dev build            compiles, and says what
    ./dev build --clean    removes it again
    ./dev build --check    builds a copy, and runs the tests of the hot modules with both twins

Needs a C compiler and Python's headers. A source that is edited afterwards turns the whole build off
until the next `./dev build`; nothing old ever runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import twin_build

TESTS = (
    "tests/unit/wire",
    "tests/wire",
    "tests/property/test_wire_codecs.py",
    "tests/property/test_session_commands.py",
)
"""Tests of what is compiled. Many others use it (tools/twin_tests.py)."""

QUESTION = """
import magnetar.wire.server as server
from magnetar import twin
print(twin.description(), server.__file__)
"""

COPIED = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
"""What a build needs besides src, tools and requirements."""


def main(arguments: list[str]) -> int:
    """Run in the project's root; 0 when it worked."""
    if arguments not in ([], ["--clean"], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments == ["--clean"]:
        print(f"removed {clean(twin_build.ROOT)} files")
        return 0
    if not twin_build.has_compiler():
        print("no C compiler with Python's headers here: nothing to build, the pure twin runs")
        return 0 if arguments else 1
    return check() if arguments else build(twin_build.ROOT)


def build(root: Path) -> int:
    """Compiles in the tree at `root` and leaves the stamp that says from what."""
    twin = twin_build.load_twin()
    clean(root)
    started = time.monotonic()
    before = twin.fingerprint(root / twin_build.PACKAGE)
    environment = {**os.environ, "MAGNETAR_PURE": ""}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        clean(root)
        print(done.stdout[-4000:] + done.stderr[-4000:], file=sys.stderr)
        return 1
    # Taken before: an edit while it compiled makes the build stale, as it should.
    (root / twin_build.PACKAGE / twin.STAMP).write_text(before)
    for name in twin.MODULES:
        print(f"compiled {name}")
    seconds = time.monotonic() - started
    print(f"{len(twin.MODULES)} modules in {seconds:.0f} s; MAGNETAR_PURE=1 turns them off")
    return 0


def clean(root: Path) -> int:
    """Removes what `build` made in the tree at `root`; how many files."""
    twin = twin_build.load_twin()
    package = root / twin_build.PACKAGE
    stems = [Path(twin.source_of(package, name)).with_suffix("") for name in twin.MODULES]
    stems.append(package.parent / f"{twin_build.GROUP}__mypyc")
    found = [path for stem in stems for path in stem.parent.glob(f"{stem.name}.*") if is_library(path)]
    found += [path for path in [package / twin.STAMP] if path.exists()]
    for path in found:
        path.unlink()
    shutil.rmtree(root / "build", ignore_errors=True)
    return len(found)


def is_library(path: Path) -> bool:
    """Whether an extension module, of any interpreter."""
    return path.suffix in (".so", ".pyd")


def check() -> int:
    """The tests of the hot modules with both twins, on a copy, so that the tree stays as it is."""
    try:
        with compiled_copy() as root:
            codes = [run(root, pure) for pure in ("", "1")]
    except BuildFailedError:
        return 1
    print("both twins pass" if codes == [0, 0] else f"FAILED: compiled {codes[0]}, pure {codes[1]}")
    return max(codes)


class BuildFailedError(Exception):
    """It did not compile; what the compiler said was printed."""


def copy_sources(root: Path) -> None:
    """Puts what a build needs into the folder `root`, which is there, without anything that was built."""
    for folder in ("src", "tools", "requirements"):
        ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__", "*.egg-info", ".built")
        shutil.copytree(twin_build.ROOT / folder, root / folder, ignore=ignored)
    for file in COPIED:
        shutil.copy2(twin_build.ROOT / file, root / file)


@contextmanager
def compiled_copy() -> Iterator[Path]:
    """A folder with a compiled copy of the sources, for the body. Raises BuildFailedError."""
    with tempfile.TemporaryDirectory(prefix="magnetar-twins-") as name:
        root = Path(name)
        copy_sources(root)
        if build(root):
            raise BuildFailedError
        yield root


def environment_of(root: Path, pure: str = "") -> dict[str, str]:
    """Variables with which Python imports the copy at `root`; `pure` is MAGNETAR_PURE."""
    # Before the folders of the environment, where the work tree is.
    return {"MAGNETAR_PURE": pure, "PYTHONPATH": str(root / "src")}


def is_meant(root: Path, pure: str = "") -> bool:
    """Whether Python imports that twin of the copy at `root`; says what it imports when it does not."""
    environment = {**os.environ, **environment_of(root, pure)}
    asked = [sys.executable, "-c", QUESTION]
    said = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    if said.stdout.startswith(f"{'pure Python' if pure else 'compiled'} {root}"):
        return True
    print(f"not the twin that was meant: {said.stdout}{said.stderr}", file=sys.stderr)
    return False


def run(root: Path, pure: str) -> int:
    """Pytest with one of the twins in `root`; its exit code, or 1 when it would be the wrong twin."""
    print(f"== {'pure Python' if pure else 'compiled'}", flush=True)
    if not is_meant(root, pure):
        return 1
    command = [sys.executable, "-m", "pytest", "-n", "2", *TESTS]
    environment = {**os.environ, **environment_of(root, pure)}
    return subprocess.run(command, env=environment, cwd=twin_build.ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
