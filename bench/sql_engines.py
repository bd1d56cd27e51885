"""Which engine for SQL: DuckDB or DataFusion, over files of history and a scan of Arrow's?

    python -m bench.sql_engines FILE...          files of history, as `python -m bench.sql` leaves them

Each engine runs in a process of its own, which tells the seconds of its import, of a count and an aggregate
over the files, and of the same aggregate over record batches of 32,768 rows that Python makes, as those of
a topic's tail are. The second of two runs is shown, except for the import; `first_` is from the start of the
process to the first count. `_mb` is its largest resident memory. DataFusion is not
installed with Magnetar: install it for this measurement.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

AGGREGATE: Final = (
    "SELECT {0} AS c, count(*) AS n, avg({1}) AS d FROM {2} WHERE {3} > 1000 GROUP BY 1 ORDER BY 1"
)


def _twice(run: Callable[[], Any]) -> tuple[float, Any]:
    found = run()
    begun_s = time.perf_counter()
    found = run()
    return time.perf_counter() - begun_s, found


def _rows(files: list[str]) -> tuple[Any, Callable[[], Iterator[Any]]]:
    """The schema and the batches of a tenth of the rows."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    table = ds.dataset(files).to_table(
        columns={name: ds.field("value", name) for name in ("carrier", "delay", "distance")}
    )
    batches = table.slice(0, table.num_rows // 10).to_batches(max_chunksize=32_768)
    return pa.schema(table.schema), lambda: iter(batches)


def duckdb(files: list[str]) -> dict[str, float]:
    """The figures of DuckDB."""
    begun_s = time.perf_counter()
    import duckdb as engine

    results = {"import_s": time.perf_counter() - begun_s}
    listed = ", ".join(f"'{path}'" for path in files)
    connection = engine.connect()
    source = f"read_parquet([{listed}])"
    connection.execute(f"SELECT count(*) FROM {source}").fetchall()
    results["first_s"] = time.perf_counter() - begun_s
    results["count_s"], _ = _twice(lambda: connection.execute(f"SELECT count(*) FROM {source}").fetchall())
    text = AGGREGATE.format("value.carrier", "value.delay", source, "value.distance")
    results["aggregate_s"], _ = _twice(lambda: connection.execute(text).fetchall())
    results["mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    import pyarrow as pa

    schema, batches = _rows(files)

    def scan() -> object:
        connection.register("rows", pa.RecordBatchReader.from_batches(schema, batches()))
        return connection.execute(AGGREGATE.format("carrier", "delay", "rows", "distance")).fetchall()

    results["scan_s"], _ = _twice(scan)
    return results


def datafusion(files: list[str]) -> dict[str, float]:
    """The figures of DataFusion."""
    begun_s = time.perf_counter()
    engine = import_module("datafusion")

    results = {"import_s": time.perf_counter() - begun_s}
    context = engine.SessionContext()
    import pyarrow.dataset as ds

    if len({path.rpartition("/")[0] for path in files}) == 1:
        context.register_parquet("files", files[0].rpartition("/")[0])
    else:
        context.register_dataset("files", ds.dataset(files))
    context.sql("SELECT count(*) FROM files").collect()
    results["first_s"] = time.perf_counter() - begun_s
    results["count_s"], _ = _twice(lambda: context.sql("SELECT count(*) FROM files").collect())
    text = AGGREGATE.format("value['carrier']", "value['delay']", "files", "value['distance']")
    results["aggregate_s"], _ = _twice(lambda: context.sql(text).collect())
    results["mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    import pyarrow as pa

    schema, batches = _rows(files)

    def scan() -> object:
        context.deregister_table("rows")
        context.register_dataset("rows", ds.InMemoryDataset(pa.Table.from_batches(batches(), schema)))
        return context.sql(AGGREGATE.format("carrier", "delay", "rows", "distance")).collect()

    results["scan_s"], _ = _twice(scan)
    return results


def main() -> None:
    """Measures both, or with the name of one first, that one."""
    names = {"duckdb": duckdb, "datafusion": datafusion}
    if sys.argv[1] in names:
        print(json.dumps(names[sys.argv[1]](sys.argv[2:])))
        return
    for name in names:
        command = [sys.executable, "-m", "bench.sql_engines", name, *sys.argv[1:]]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{name:12}", "  ".join(f"{key} {value:,.3f}" for key, value in found.items()))


if __name__ == "__main__":
    main()
