"""Documents, read from top to bottom, do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.document_blocks import blocks_of

REPOSITORY = Path(__file__).parents[2]
WALK = REPOSITORY / "tests" / "support" / "document_walk.py"
DEADLINE_S = 600

pytestmark = pytest.mark.process


def followed() -> list[str]:
    """Documents with something to follow."""
    documents = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    named = [path.relative_to(REPOSITORY).as_posix() for path in documents]
    return [
        name for name in named if any(block.is_followed for block in blocks_of(REPOSITORY / name, named=name))
    ]


def can_have_a_network() -> bool:
    """Whether this machine lets its users make networks of their own."""
    try:
        made = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return made.returncode == 0


@pytest.mark.skipif(not can_have_a_network(), reason="needs user namespaces: documents name fixed ports")
@pytest.mark.parametrize("document", followed())
def test_a_reader_gets_what_the_document_says(document: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, str(WALK), document, str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-12_000:]
