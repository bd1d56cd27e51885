"""Entries become rows and rows become entries again: nothing that a consumer sees is lost."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from magnetar.base.entries import EntryRun
from magnetar.base.names import TopicName
from magnetar.client.compression import decompress
from magnetar.history.building import build_rows
from magnetar.history.metadata import Rows
from magnetar.history.rebuild import rebuild
from magnetar.history.vectors import read_vector
from magnetar.wire.payload import checksum_matches, parse_metadata, split_entry
from support.cases import cases
from support.history_entries import ledgers

TOPIC = TopicName.parse("history")


def flat(runs: list[EntryRun]) -> list[tuple[int, bytes, int, int, int]]:
    """Entry id, entry, count, index and broker time of each entry."""
    return [
        (
            run.first_entry + at,
            entry,
            run.count_of(at),
            run.base_index + sum(map(run.count_of, range(at))),
            run.broker_time_ms,
        )
        for run in runs
        for at, entry in enumerate(run.entries)
    ]


def assert_same(stored: bytes, rebuilt: bytes) -> None:
    """Equal; or compressed both, with the same metadata, plain payload, and a checksum that is right."""
    if stored == rebuilt:
        return
    before, after = split_entry(stored), split_entry(rebuilt)
    assert after.metadata == before.metadata
    assert (before.checksum is None) == (after.checksum is None)
    assert checksum_matches(rebuilt)
    metadata = parse_metadata(before.metadata)
    assert metadata.compression, "only compressed entries may differ"
    size = metadata.uncompressed_size
    kind = metadata.compression
    assert decompress(kind, before.payload, size, TOPIC) == decompress(kind, after.payload, size, TOPIC)


@settings(
    max_examples=cases(200),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(ledgers())
def test_rows_are_entries(runs: list[EntryRun]) -> None:
    batch = build_rows(read_vector(runs))
    batch.validate(full=True)
    rebuilt = rebuild(Rows.of_table(batch))
    again = rebuilt.runs(7, 0, len(rebuilt))
    for before, after in zip(flat(runs), flat(again), strict=True):
        assert before[0] == after[0]
        assert before[2:] == after[2:]
        assert_same(before[1], after[1])
