"""What tiered storage has done since the process began. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from magnetar.observability.metrics import Exposition, labels

BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Upper bounds of the histograms of reads."""


class Latency:
    """A histogram of seconds."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """One measurement."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


class OffloadFigures:
    """Counters and histograms, read at each scrape."""

    def __init__(self) -> None:
        self.ledgers = 0
        """Ledgers copied, compared and recorded."""
        self.copied_bytes = 0
        """Bytes of the entries of these ledgers."""
        self.object_bytes = 0
        """Bytes of the objects of these ledgers."""
        self.errors = 0
        """Attempts that failed."""
        self.write_errors = 0
        """Attempts that failed because of the store."""
        self.read_errors = 0
        self.read_bytes = 0
        """Bytes of entries that were read from copies."""
        self.merged = 0
        """Small objects that were merged into larger ones."""
        self.deleted = 0
        """Objects deleted, with their ledgers or as orphans."""
        self.orphans = 0
        """Deleted objects that no list named."""
        self.kept = 0
        """Objects that no list names and that are older than this installation's ownership of the store."""
        self.local_deleted = 0
        """Ledgers deleted from the bookies after they were copied."""
        self.share = 0.0
        """Share of time that offloading takes now."""
        self.data_latency = Latency()
        self.index_latency = Latency()
        self.ledger_latency = Latency()

    def read(self, size_bytes: int, seconds: float) -> None:
        """Counts the read of a piece of a copy."""
        self.read_bytes += size_bytes
        self.data_latency.add(seconds)

    def looked_up(self, seconds: float) -> None:
        """Counts the look-up of a place in a copy."""
        self.index_latency.add(seconds)

    def collect(self, out: Exposition) -> Iterable[None]:
        """Collector of `/metrics`; metrics that Pulsar has too bear Pulsar's names."""
        counters = {
            "brk_ledgeroffloader_offload_error": ("Offloads of a ledger that failed.", self.errors),
            "brk_ledgeroffloader_write_storage_error": ("Writes to a store that failed.", self.write_errors),
            "brk_ledgeroffloader_read_offload_error": ("Reads of copies that failed.", self.read_errors),
            "brk_ledgeroffloader_read_bytes": ("Bytes of entries read from copies.", self.read_bytes),
            "magnetar_offloaded_ledgers_total": ("Ledgers copied and compared.", self.ledgers),
            "magnetar_offloaded_bytes_total": ("Bytes of the copied entries.", self.copied_bytes),
            "magnetar_offloaded_object_bytes_total": ("Bytes of the objects written.", self.object_bytes),
            "magnetar_offload_local_deleted_total": ("Ledgers deleted from the bookies.", self.local_deleted),
            "magnetar_offload_orphans_total": ("Objects that no log named, deleted.", self.orphans),
            "magnetar_offload_merged_total": ("Small objects that were merged.", self.merged),
        }
        for name, (text, value) in counters.items():
            out.counter(name, text, value)
        out.counter(
            "brk_ledgeroffloader_delete_offload_ops",
            "Objects deleted from a store.",
            self.deleted,
            labels(("status", "succeed")),
        )
        out.gauge(
            "magnetar_offload_objects_kept", "Objects that no log names, from before this owner.", self.kept
        )
        out.gauge("magnetar_offload_share", "Share of time that offloading takes now, 0 to 1.", self.share)
        for name, text, latency in (
            ("data", "Reads of copies.", self.data_latency),
            ("index", "Look-ups in copies.", self.index_latency),
        ):
            out.histogram(
                f"brk_ledgeroffloader_read_offload_{name}_latency_seconds",
                text,
                BOUNDS_S,
                latency.counts,
                latency.sum_s,
            )
        out.histogram(
            "brk_ledgeroffloader_read_ledger_latency_seconds",
            "Duration of reads of ledgers to be copied.",
            BOUNDS_S,
            self.ledger_latency.counts,
            self.ledger_latency.sum_s,
        )
        return ()
