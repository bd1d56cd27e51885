"""Makes a process one of several brokers of a cluster: `magnetar broker`.

Features of a standalone server that a broker of a cluster lacks are refused here, before anything is opened:
see docs/decisions/0030-many-brokers.md.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar import __version__
from magnetar.base.clock import Clock
from magnetar.base.errors import StartupError
from magnetar.broker.balance.balance import Balance
from magnetar.broker.balance.load_meter import LoadMeter
from magnetar.broker.listeners import Addresses, Listeners
from magnetar.broker.ownership.namespace_share import share_of
from magnetar.broker.ownership.owners import Owners
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.broker.service import Broker
from magnetar.broker.transactions.several import SharedTransactions
from magnetar.runtime.probe import refuses
from magnetar.server.addresses import own_name, socket_name
from magnetar.server.banner import Endpoints
from magnetar.server.processes.neighbours import shared_urls, siblings_of
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.ledger_settings import SERVED

if TYPE_CHECKING:
    from magnetar.server.processes.member import SharingProcess

_PROBE_S: Final = 1.0
"""Seconds for the answer of a broker that may be dead."""


def check(config: StandaloneConfig) -> None:
    """Raises StartupError for settings that a broker of a cluster does not support."""
    if config.metadata_url.partition("+")[0].partition(":")[0] not in ("zk", "etcd", "served"):
        raise StartupError(
            "brokers of a cluster share a metadata service: give --metadata zk://… or etcd://…;"
            " for one broker, start magnetar standalone"
        )
    thresholds = (config.offload_threshold_bytes, config.offload_threshold_seconds)
    history = (
        max(thresholds) >= 0 or config.offload_max_age_seconds or config.lake_catalog not in ("", "none")
    )
    if history and not config.offload_url and not config.metadata_url.startswith(SERVED):
        raise StartupError(
            "brokers of a cluster keep history in a store that all of them reach: set offload_url, the same"
            " for all of them, or leave the other settings of history out"
        )


def join(
    broker: Broker,
    config: StandaloneConfig,
    endpoints: Endpoints,
    clock: Clock,
    member: SharingProcess | None,
) -> None:
    """Prepares the broker to join the cluster when it starts. `member`: it is one of several processes."""
    broker.policies.documents.share()
    broker.transactions = SharedTransactions(broker)
    meter = LoadMeter(broker, clock, lambda name: owners.ownership.bundle_of(name))
    urls = _urls(config, endpoints, broker.listeners)
    if member is not None:
        urls = shared_urls(config, urls, member.seat)
        broker.siblings = siblings_of(config, urls, member.seat)
    owners = broker.owners = Owners(
        broker,
        urls,
        socket=socket_name(config.plain_host or config.host, broker.listeners.http_port),
        probe=partial(refuses, within_s=_PROBE_S),
        load=meter.read,
        version=__version__,
    )
    owners.balance = balance = Balance(broker, owners, meter)
    broker.unloaded.share_of = partial(share_of, owners, broker.store)
    broker.collectors.append(balance.collect_metrics)


def _urls(config: StandaloneConfig, endpoints: Endpoints, listeners: Listeners) -> BrokerUrls:
    plain = own_name(config.advertised_address, config.plain_host or config.host)
    with_tls = own_name(config.advertised_address, config.host)
    own = Addresses(
        plain=f"pulsar://{plain}:{listeners.plain_port}",
        tls=f"pulsar+ssl://{with_tls}:{listeners.tls_port}" if endpoints.broker_tls_url else "",
        http=f"http://{plain}:{listeners.http_port}",
        https=f"https://{with_tls}:{listeners.https_port}" if endpoints.https_url else "",
    )
    if not listeners.internal:
        return BrokerUrls(own)
    if config.processes > 1:
        # Whether a process is there must be seen at its own port. A listener is an address of the shared one.
        return BrokerUrls(own, listeners.named)
    told = listeners.named[listeners.internal]
    # The name of a broker is that of its own HTTP port, whatever a listener says.
    return BrokerUrls(Addresses(told.plain, told.tls, own.http, own.https), listeners.named)
