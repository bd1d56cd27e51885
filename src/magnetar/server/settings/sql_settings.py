"""Settings of SQL over the network."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.query_bounds import QueryBounds
from magnetar.server.settings.limit_settings import LimitSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSettings(LimitSettings):
    """The settings of `POST /sql` and of Flight SQL."""

    flight_sql: bool = False
    """True: tools reach topics by Arrow Flight SQL on a port of its own: over TLS where `tls_certificate` is
    set. It has the limits and rights of `POST /sql`, and needs the extra `flight`."""
    flight_sql_port: int = 32010
    """Port of Flight SQL; 0: any free one. From 0 to 65,535."""
    sql_queries_max: int = 2
    """Number of queries of `POST /sql` and of Flight SQL that run at the same time, each in a process of its
    own; further ones wait for 10 s, then they are refused. 0: both are off. At least 0."""
    sql_seconds_max: int = 60
    """Longest time, in seconds, of a query of `POST /sql`, until its last row is sent; then it is ended. At
    least 1."""
    sql_memory_mib: int = 768
    """Most memory, in MiB, of the process of a query; with more it is ended. 256 MiB of it are not for the
    engine, which uses the disk when the rest is too small. At least 384."""
    sql_spill_mib: int = 4096
    """Most space on the disk, in MiB, that a query may use for what does not fit into its memory. At least
    0."""
    sql_rows_max: int = 1_000_000
    """Number of rows of a result of `POST /sql`; one with more is an error. At least 1."""


def query_bounds(settings: SqlSettings) -> QueryBounds:
    """The bounds of queries."""
    return QueryBounds(
        queries_max=settings.sql_queries_max,
        seconds_max=settings.sql_seconds_max,
        memory_mib=settings.sql_memory_mib,
        spill_mib=settings.sql_spill_mib,
        rows_max=settings.sql_rows_max,
    )
