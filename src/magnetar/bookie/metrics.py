"""What `/metrics` says of a segment store. Read at scrape time."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.bookie.store import SegmentStore
from magnetar.observability.metrics import Exposition
from magnetar.runtime.syncer import HelperSyncer


def collect(store: SegmentStore, out: Exposition) -> Iterable[None]:
    """Adds the store's samples to a scrape."""
    segments = list(store.segments)
    out.gauge("magnetar_segments", "Segments of the message store.", len(segments))
    damages = sum(len(segment.damages) for segment in segments)
    out.gauge("magnetar_segment_damages", "Places in segments whose bytes were found damaged.", damages)
    done = store.rewriter.reclaimed
    out.counter(
        "magnetar_segments_rewritten_total",
        "Mostly dead segments written anew without the rest.",
        done.segments,
    )
    out.counter(
        "magnetar_rewrite_copied_bytes_total", "Bytes of living entries copied for that.", done.copied_bytes
    )
    out.counter("magnetar_rewrite_freed_bytes_total", "Bytes given back by that.", done.freed_bytes)
    supply = store.supply
    out.gauge("magnetar_spare_segments", "Files that wait to become segments.", len(supply.spares))
    out.counter("magnetar_segments_recycled_total", "Segments made of such a file.", supply.recycled)
    out.counter(
        "magnetar_prewritten_bytes_total",
        "Zeros written into such files ahead of need.",
        supply.prewriter.written_bytes,
    )
    if isinstance(store.syncer, HelperSyncer):
        store.syncer.latency.collect(
            out, "magnetar_sync_seconds", "How long the disk took to make a group of entries durable."
        )
    yield
