"""A bookie of Apache's, to be measured beside ours: the tests' jars and driver, Apache's own defaults."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

JAVA_OPTIONS: Final = ("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC")
SETTINGS: Final = {
    "journalPreAllocSizeMB": "16",
    "journalMaxGroupWaitMSec": "2",
    "skipListSizeLimit": str(64 << 20),
    "flushInterval": "10000",
    "maxPendingAddRequestsPerThread": "100000",
}
"""What the tests set otherwise, as Apache's own defaults have it; but for the last one, 10,000, which would
refuse what the load has under way."""
FLUSHED_S: Final = 12.0
"""After so long without a request everything that is written twice was written twice."""


@contextmanager
def apache_bookie(folder: Path) -> Iterator[tuple[int, int]]:
    """Pid and port of a bookie, in whose process its ZooKeeper is, too.

    Journal and entry logs lie on the disk of `folder`. Raises the tests' NotHereError without Java or Maven.
    """
    tests = str(Path(__file__).parents[1] / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    support: Any = importlib.import_module("support.apache_bookkeeper")
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="bench-apache-") as scratch,
        support.apache_bookkeeper(Path(scratch), java_options=JAVA_OPTIONS) as apache,
    ):
        apache.shell("initnewcluster", root="/ledgers")
        address = apache.start_bookie("bookie", more=SETTINGS)
        yield apache.pid, int(address.rpartition(":")[2])
