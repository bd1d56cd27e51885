"""What does the vectorised Avro decoder save over a library that makes an object of each value?

    python -m bench.avro_codecs [--values N]

Records of four fields become an Arrow table: by `magnetar.arrow`, a field of all values at a time, and by
fastavro, a dictionary for each record and a table of them. The best CPU time of three runs of each.
See docs/decisions/0028-own-avro.md.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa

from magnetar.arrow.avro_types import arrow_type, parse_avro
from magnetar.arrow.avro_values import AvroValues

RECORD: Final[dict[str, Any]] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
RUNS: Final = 3


def records(count: int) -> list[bytes]:
    """Encoded by the library, each for itself."""
    schema = fastavro.parse_schema(RECORD)
    made = []
    for number in range(count):
        row = {"id": number, "name": f"name-{number % 100}", "amount": number / 7}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {**row, "note": None if number % 3 else "x"})
        made.append(out.getvalue())
    return made


def cpu_s(work: Callable[[], object]) -> float:
    """Seconds of CPU of the fastest of RUNS runs."""
    taken = []
    for _ in range(RUNS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def main() -> None:
    """Prints values a second of CPU, of each way."""
    parser = argparse.ArgumentParser(prog="python -m bench.avro_codecs", description=__doc__)
    parser.add_argument("--values", type=int, default=100_000)
    count = parser.parse_args().values
    rows = records(count)
    schema = fastavro.parse_schema(RECORD)
    text = json.dumps(RECORD).encode()
    values = AvroValues(arrow_type(parse_avro(text)), text)
    data = np.frombuffer(b"".join(rows), np.uint8)
    ends = np.cumsum([len(row) for row in rows])
    starts = np.concatenate((np.zeros(1, ends.dtype), ends[:-1]))
    everything = np.ones(count, np.bool_)

    def nothing(_: str) -> pa.Array:
        raise AssertionError("no other column is needed")

    def own() -> pa.Array:
        return values.decode(data, starts, ends, everything, nothing)

    def library() -> pa.Table:
        return pa.Table.from_pylist(
            [fastavro.schemaless_reader(io.BytesIO(row), schema, None) for row in rows]
        )

    assert own().to_pylist() == library().to_pylist(), "both decode the same"
    for name, work in (("magnetar.arrow", own), ("fastavro", library)):
        print(f"{name:15} {count / cpu_s(work):12,.0f} values/s")


if __name__ == "__main__":
    main()
