"""The addresses of the processes of this machine, computed from their ports (pure)."""

from __future__ import annotations

from dataclasses import replace

from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.broker.siblings.siblings import NOT_SHARED, Siblings, name_of
from magnetar.server.addresses import own_name
from magnetar.server.processes.seat import FUNCTIONS_NUMBER, Ports, Seat
from magnetar.server.settings.config import StandaloneConfig


def addresses_of(config: StandaloneConfig, ports: Ports) -> Addresses:
    """The URLs of listeners on these ports."""
    plain = own_name(config.advertised_address, config.plain_host or config.host)
    with_tls = own_name(config.advertised_address, config.host)
    return Addresses(
        plain=f"pulsar://{plain}:{ports.broker}",
        tls=f"pulsar+ssl://{with_tls}:{ports.broker_tls}" if ports.broker_tls else "",
        http=f"http://{plain}:{ports.http}",
        https=f"https://{with_tls}:{ports.https}" if ports.https else "",
    )


def shared_urls(config: StandaloneConfig, own: BrokerUrls, seat: Seat) -> BrokerUrls:
    """The URLs of a process, with the shared ones where clients are led through the shared port."""
    if not config.processes_one_port:
        return own
    shared = addresses_of(config, seat.shared)
    if own.listeners:
        name = config.internal_listener or next(iter(own.listeners))
        told = own.listeners[name]
        shared = Addresses(told.plain, told.tls, told.http or shared.http, told.https or shared.https)
    return replace(own, shared=shared)


def siblings_of(config: StandaloneConfig, own: BrokerUrls, seat: Seat) -> Siblings:
    """The other processes, as the process of `seat` knows them."""
    others = {
        number: addresses_of(config, ports) for number, ports in seat.own.items() if number != seat.number
    }
    ids = frozenset(BrokerUrls(each).broker_id for each in others.values())
    elsewhere = config.functions and seat.storage and not seat.has_functions
    functions = BrokerUrls(others[FUNCTIONS_NUMBER]) if elsewhere else None
    if not config.processes_one_port:
        return Siblings(own, ids=ids, ports=NOT_SHARED, functions=functions)
    return Siblings(
        own,
        {name_of(each.plain): seat.place(number) for number, each in others.items()},
        ids,
        frozenset((seat.shared.broker, seat.ports.broker)),
        functions,
    )
