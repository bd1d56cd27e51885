"""The counters of a ledger client, and its `/metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from magnetar.ledger.client.health import BookieHealth
from magnetar.observability.catalogue import text_of
from magnetar.observability.histogram import Histogram
from magnetar.observability.metrics import Exposition, labels

_GOOD: Final = labels(("success", "true"))
_BAD: Final = labels(("success", "false"))


class ClientMetrics:
    """Counters of one client."""

    __slots__ = (
        "add_seconds",
        "adds",
        "adds_failed",
        "bad_copies",
        "batch_reads",
        "ensemble_changes",
        "metadata_conflicts",
        "read_seconds",
        "reads",
        "reads_failed",
        "recoveries",
        "speculative_reads",
    )

    def __init__(self) -> None:
        self.adds = 0
        """Copies of entries that bookies added."""
        self.adds_failed = 0
        """Adds that were refused or got no answer."""
        self.reads = 0
        self.reads_failed = 0
        self.batch_reads = 0
        """Batch reads whose answers were used."""
        self.speculative_reads = 0
        """Copies requested because another one did not come in time."""
        self.bad_copies = 0
        """Missing or damaged copies that were replaced by good ones."""
        self.ensemble_changes = 0
        self.recoveries = 0
        self.metadata_conflicts = 0
        """Writes of metadata that met another version, or whose outcome was unknown."""
        self.add_seconds = Histogram()
        """Seconds from sending a vector of adds until it is fully answered, per bookie."""
        self.read_seconds = Histogram()


class Counted(Protocol):
    """The client of these counters: `pool.py` `BookiePool`."""

    @property
    def metrics(self) -> ClientMetrics: ...

    @property
    def health(self) -> BookieHealth: ...

    @property
    def now_s(self) -> float: ...

    @property
    def connections(self) -> int: ...


def collect(pool: Counted, out: Exposition) -> Iterable[None]:
    """Adds the samples of one client to a scrape."""
    counts = pool.metrics

    def counter(name: str, value: int, labelled: str = "") -> None:
        out.counter(name, text_of(name), value, labelled)

    counter("magnetar_ledger_client_adds_total", counts.adds, _GOOD)
    counter("magnetar_ledger_client_adds_total", counts.adds_failed, _BAD)
    counter("magnetar_ledger_client_reads_total", counts.reads, _GOOD)
    counter("magnetar_ledger_client_reads_total", counts.reads_failed, _BAD)
    counter("magnetar_ledger_client_batch_reads_total", counts.batch_reads)
    counter("magnetar_ledger_client_speculative_reads_total", counts.speculative_reads)
    counter("magnetar_ledger_client_bad_copies_total", counts.bad_copies)
    counter("magnetar_ledger_client_ensemble_changes_total", counts.ensemble_changes)
    counter("magnetar_ledger_client_recoveries_total", counts.recoveries)
    counter("magnetar_ledger_client_metadata_conflicts_total", counts.metadata_conflicts)
    for name, value in (
        ("magnetar_ledger_client_bookies_quarantined", len(pool.health.quarantined(pool.now_s))),
        ("magnetar_ledger_client_connections", pool.connections),
    ):
        out.gauge(name, text_of(name), value)
    for name, seconds in (
        ("magnetar_ledger_client_add_seconds", counts.add_seconds),
        ("magnetar_ledger_client_read_seconds", counts.read_seconds),
    ):
        seconds.collect(out, name, text_of(name))
    yield
