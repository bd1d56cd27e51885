"""Tables over offloaded history of a standalone, as readers of other projects see them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from support.history_topics import DEADLINE_S, HistoryTopic, Seen
from support.standalone import StandaloneProcess, wait_until

MESSAGES = "marker_type is null and is_compacted_out = false and raw_entry is null"
"""Rows that are messages; see docs/lake.md."""


def catalog_of(process: StandaloneProcess) -> Catalog:
    """The catalog as another program opens it."""
    return load_catalog("magnetar", type="sql", uri=f"sqlite:///{process.data_dir / 'lake' / 'catalog.db'}")


def table_of(history: HistoryTopic, name: str = "history") -> Table | None:
    if not (history.process.data_dir / "lake" / "catalog.db").exists():
        return None
    try:
        return catalog_of(history.process).load_table(("public__default", name))
    except (NoSuchTableError, OperationalError):
        # The first program that opens the file creates the catalog, and the other one may find half of it.
        return None


def rows_of(table: Table) -> list[Seen]:
    """Messages of a table as `HistoryTopic.read` gives them."""
    rows: list[dict[str, Any]] = table.scan(row_filter=MESSAGES).to_arrow().to_pylist()
    rows.sort(key=lambda row: (row["ledger_id"], row["entry_id"], row["batch_index"]))
    return [
        Seen(
            row["ledger_id"],
            row["entry_id"],
            row["batch_index"],
            row["payload"],
            row["key"].decode(),
            tuple(sorted(row["properties"])),
            int(row["publish_time"].timestamp() * 1000 + 0.5),
            int(row["event_time"].timestamp() * 1000 + 0.5),
        )
        for row in rows
    ]


def wait_for_files(history: HistoryTopic, count: int, name: str = "history") -> Table:
    def there() -> bool:
        table = table_of(history, name)
        return table is not None and len(list(table.scan().plan_files())) == count

    wait_until(there, DEADLINE_S, f"{count} files in the table")
    table = table_of(history, name)
    assert table is not None
    return table


def lake(process: StandaloneProcess, *words: str) -> tuple[int, Any]:
    """`magnetar lake …`: how it ended and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "magnetar", "lake", *words, "-o", "json", "--admin-url", process.http_url],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    # What takes long says on standard error how far it is.
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)
