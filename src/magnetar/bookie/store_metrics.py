"""The `/metrics` of segment stores, read at scrape time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from magnetar.bookie.segment_store import SegmentStore
from magnetar.observability.histogram import Histogram
from magnetar.observability.metrics import Exposition
from magnetar.runtime.syncer import HelperSyncer


def collect(stores: Sequence[SegmentStore], out: Exposition) -> Iterable[None]:
    """Adds the sums over all stores of a process to a scrape."""
    segments = [segment for store in stores for segment in store.segments]
    out.gauge("magnetar_segments", "Segments of the message store.", len(segments))
    damages = sum(len(segment.damages) for segment in segments)
    out.gauge("magnetar_segment_damages", "Damaged places that were found in segments.", damages)
    missing = sum(segment.is_missing for segment in segments)
    out.gauge("magnetar_segments_missing", "Segments whose files were lost.", missing)
    out.counter(
        "magnetar_segment_indexes_rebuilt_total",
        "Damaged indexes of segments that were rebuilt from the blocks.",
        sum(store.reader.indexes_rebuilt for store in stores),
    )
    rewritten = [store.rewriter.reclaimed for store in stores]
    out.counter(
        "magnetar_segments_rewritten_total",
        "Segments with few living entries that were rewritten without the deleted ones.",
        sum(done.segments for done in rewritten),
    )
    out.counter(
        "magnetar_rewrite_copied_bytes_total",
        "Bytes of living entries copied when segments were rewritten.",
        sum(done.copied_bytes for done in rewritten),
    )
    out.counter(
        "magnetar_rewrite_freed_bytes_total",
        "Bytes of disk space freed by rewriting segments.",
        sum(done.freed_bytes for done in rewritten),
    )
    supplies = [store.supply for store in stores]
    out.gauge(
        "magnetar_spare_segments",
        "Spare files that are kept to become segments.",
        sum(len(supply.spares) for supply in supplies),
    )
    out.counter(
        "magnetar_segments_recycled_total",
        "Segments made of a spare file.",
        sum(supply.recycled for supply in supplies),
    )
    out.counter(
        "magnetar_prewritten_bytes_total",
        "Bytes of zeros written into spare files in advance.",
        sum(supply.prewriter.written_bytes for supply in supplies),
    )
    latencies = [store.syncer.latency for store in stores if isinstance(store.syncer, HelperSyncer)]
    if latencies:
        _sum_of(latencies).collect(
            out, "magnetar_sync_seconds", "Time in which the disk made a group of entries durable."
        )
    yield


def _sum_of(histograms: Sequence[Histogram]) -> Histogram:
    if len(histograms) == 1:
        return histograms[0]
    whole = Histogram(histograms[0].bounds)
    whole.counts = [sum(counts) for counts in zip(*(each.counts for each in histograms), strict=True)]
    whole.sum_s = sum(each.sum_s for each in histograms)
    return whole
