"""Opens metadata services by URL: kind of store, servers and root of BookKeeper's tree.

    zk://HOST:PORT,HOST:PORT/ledgers                 any layout of ledgers
    zk+hierarchical://HOST:PORT;HOST:PORT/ledgers    this layout only (BookKeeper's metadataServiceUri)
    etcd://HOST:PORT,HOST:PORT/ledgers
    sqlite:/PATH/FILE                                a file, for one process at a time
    memory:                                          within one process; lost when it ends

The path is the root of BookKeeper's tree, `/ledgers` by default; it is not a chroot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import StartupError
from magnetar.metadata.bookkeeper.bookkeeper_tree import DEFAULT_ROOT
from magnetar.metadata.bookkeeper.ledger_layouts import LedgerLayout
from magnetar.metadata.store import MetadataStore

ZOOKEEPER_PORT: Final = 2181
ETCD_PORT: Final = 2379

_LAYOUTS: Final = {layout.value: layout for layout in LedgerLayout} | {"null": None}


class MetadataUrlError(StartupError):
    """The URL does not name a metadata service."""


@dataclass(frozen=True, slots=True)
class MetadataUrl:
    """A metadata service."""

    kind: str
    """`zk`, `etcd`, `sqlite` or `memory`."""
    addresses: tuple[tuple[str, int], ...] = ()
    file: str = ""
    """Path of the file of `sqlite`; empty for the other kinds."""
    root: str = DEFAULT_ROOT
    """Root of BookKeeper's tree."""
    layout: LedgerLayout | None = None
    """The layout that the tree must have; None: any."""


def parse_metadata_url(url: str) -> MetadataUrl:
    """The service that a URL names. Raises MetadataUrlError."""
    scheme, colon, rest = url.partition(":")
    kind, _, layout_name = scheme.partition("+")
    if not colon:
        raise MetadataUrlError(f"{url!r} is not a URL of a metadata service, as zk://HOST:PORT/ledgers is")
    if kind == "memory" and not rest:
        return MetadataUrl("memory")
    if kind == "sqlite" and rest:
        return MetadataUrl("sqlite", file="/" + rest.lstrip("/") if rest.startswith("/") else rest)
    if kind not in ("zk", "etcd") or not rest.startswith("//"):
        raise MetadataUrlError(f"{url!r}: metadata services are zk:, etcd:, sqlite: and memory:")
    if layout_name and (kind != "zk" or layout_name not in _LAYOUTS):
        raise MetadataUrlError(f"{url!r}: a layout of ledgers that is not known: {layout_name}")
    hosts, slash, path = rest[2:].partition("/")
    port = ZOOKEEPER_PORT if kind == "zk" else ETCD_PORT
    addresses = tuple(_address(url, host, port) for host in hosts.replace(";", ",").split(","))
    root = f"/{path.strip('/')}" if slash and path.strip("/") else DEFAULT_ROOT
    return MetadataUrl(kind, addresses, root=root, layout=_LAYOUTS.get(layout_name))


async def open_metadata(
    url: MetadataUrl, clock: Clock, *, session_timeout_ms: int = 30_000, call_timeout_s: float = 30.0
) -> MetadataStore:
    """Opens the store; the modules of a kind of store are imported only when it is opened.

    `session_timeout_ms`: milliseconds that ephemeral values stay without contact, on stores over a network.
    `call_timeout_s`: seconds that a call waits for a connection there.
    Raises StoreUnreachableError, StartupError.
    """
    if url.kind == "zk":
        from magnetar.metadata.zookeeper.zookeeper_store import ZooKeeperMetadataStore

        return await ZooKeeperMetadataStore.open(
            url.addresses, session_timeout_ms=session_timeout_ms, call_timeout_s=call_timeout_s
        )
    if url.kind == "etcd":
        from magnetar.metadata.etcd.etcd_store import EtcdMetadataStore

        return await EtcdMetadataStore.open(
            url.addresses, session_timeout_ms=session_timeout_ms, call_timeout_s=call_timeout_s
        )
    if url.kind == "sqlite":
        from magnetar.metadata.embedded import EmbeddedMetadataStore

        return EmbeddedMetadataStore.open(url.file, clock=clock)
    from magnetar.metadata.memory import MemoryMetadataStore

    return MemoryMetadataStore(clock)


def _address(url: str, text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(default_port)
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise MetadataUrlError(f"{url!r}: {text!r} is not a host with a port")
    return host.strip("[]"), int(port)
