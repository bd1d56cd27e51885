"""TLS, roles and passwords between Apache's clients and our bookies, and the other way round."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from magnetar.base.errors import LedgerError
from magnetar.ledger.client.ledger_client import LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions, LedgerUser
from magnetar.ledger.quorum.layout import QuorumLayout
from support.apache_bookkeeper import PASSWORD, ApacheBookKeeper, ShellError
from support.bookie_process import BookieProcess
from support.certificates import Authority
from support.ledger_clusters import LedgerWorld, Marks
from support.official import connect
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

SIMPLE_TEST = ("simpletest", "-ensemble", "1", "-writeQuorum", "1", "-ackQuorum", "1", "-numEntries", "50")
FIRST_IDS = itertools.count(0, 1_000)
VERSIONS = pytest.mark.parametrize("use_v2", [False, True], ids=["v3", "v2"])
SASL = {"clientAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLClientProviderFactory"}


class World:
    """Certificates."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        self.authority = authority.file
        self.bookie = authority.issue("bookie")
        self.writer = authority.issue("somebody", unit="0:writer")
        self.stranger = authority.issue("stranger", unit="0:stranger")
        self.users = folder / "users"
        self.users.write_text(f"bookkeeper:{PASSWORD}\n")

    def settings(self, shown: tuple[Path, Path], prefix: str) -> dict[str, str]:
        """Apache's settings of TLS; `prefix`: `tls` of bookies, `client` of clients."""
        return {
            "tlsProvider": "JDK",
            "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
            "tlsClientAuthentication": "true",
            "tlsCertificatePath": str(shown[0]),
            f"{prefix}KeyStoreType": "PEM",
            f"{prefix}KeyStore": str(shown[1]),
            f"{prefix}TrustStoreType": "PEM",
            f"{prefix}TrustStore": str(self.authority),
        }

    def context(self, shown: tuple[Path, Path]) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(*shown)
        return context


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["role", "password"])
def ours(
    request: pytest.FixtureRequest,
    apache: ApacheBookKeeper,
    world: World,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """What a bookie of ours asks for: a certificate with a role, or a password."""
    asks = str(request.param)
    options = ["--users", str(world.users)]
    if asks == "role":
        options = ["--tls-certificate", str(world.bookie[0]), "--tls-key", str(world.bookie[1])]
        options += ["--tls-trust-certs", str(world.authority), "--authorized-role", "writer"]
    bookie = BookieProcess(tmp_path_factory.mktemp(asks), f"zk://{apache.zookeeper}/ours-{asks}", *options)
    bookie.begin()
    bookie.wait()
    yield asks
    bookie.stop()


def write(apache: ApacheBookKeeper, asks: str, more: Mapping[str, str], *, use_v2: bool = False) -> None:
    """Raises ShellError."""
    said = apache.shell(*SIMPLE_TEST, root=f"/ours-{asks}", use_v2=use_v2, more=more)
    if "50 entries written" not in said:
        # Some failures are printed and end with 0.
        raise ShellError(said)


@VERSIONS
def test_apaches_client_is_let_in_by_our_bookie(
    apache: ApacheBookKeeper, ours: str, world: World, use_v2: bool
) -> None:
    more = SASL if ours == "password" else world.settings(world.writer, "client")
    write(apache, ours, more, use_v2=use_v2)


def test_and_is_not_without(apache: ApacheBookKeeper, ours: str, world: World) -> None:
    more = {} if ours == "password" else world.settings(world.stranger, "client")
    with pytest.raises(ShellError):
        write(apache, ours, more)


def test_a_broker_is_let_in_by_our_bookie(
    apache: ApacheBookKeeper, ours: str, world: World, tmp_path: Path
) -> None:
    said = {f"MAGNETAR_LEDGER_{name}": "1" for name in ("ENSEMBLE_SIZE", "WRITE_QUORUM", "ACK_QUORUM")}
    # Brokers of one cluster have one set of topics, on whichever bookies.
    said["MAGNETAR_CLUSTER"] = f"broker-{ours}"
    if ours == "role":
        said["MAGNETAR_BOOKIE_TLS"] = "true"
        said["MAGNETAR_BOOKIE_TLS_CA"] = str(world.authority)
        said["MAGNETAR_BOOKIE_TLS_CERTIFICATE"] = str(world.writer[0])
        said["MAGNETAR_BOOKIE_TLS_KEY"] = str(world.writer[1])
    else:
        password = tmp_path / "password"
        password.write_text(PASSWORD)
        said |= {"MAGNETAR_BOOKIE_USER": "bookkeeper", "MAGNETAR_BOOKIE_PASSWORD": str(password)}
    metadata = ("--metadata", f"zk://{apache.zookeeper}/ours-{ours}")
    with StandaloneProcess(tmp_path / "broker", options=metadata, environment=said) as process:
        client = connect(process)
        consumer = client.subscribe("shown", "all")
        client.create_producer("shown").send(b"let in")
        assert consumer.receive(10_000).data() == b"let in"
        client.close()


BOOKIES = {
    "role": {
        "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.tls.BookieAuthZFactory",
        "authorizedRoles": "writer",
    },
    "password": {
        "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory",
    },
}


@pytest.mark.parametrize("asks", BOOKIES)
def test_our_client_is_let_in_by_apaches_bookie(apache: ApacheBookKeeper, world: World, asks: str) -> None:
    root, name = f"/secured-{asks}", f"secured-{asks}"
    apache.shell("initnewcluster", root=root)
    bookie = apache.start_bookie(name, root, world.settings(world.bookie, "tls") | BOOKIES[asks])

    async def story(options: LedgerClientOptions) -> None:
        world = LedgerWorld([bookie], first_id=next(FIRST_IDS))
        async with world.client(options) as client:
            marks = Marks()
            writer = await client.create(LedgerOptions(layout=QuorumLayout(1, 1, 1)), marks)
            payloads = [b"%d" % number for number in range(100)]
            writer.append(payloads)
            await marks.reach(99)
            assert [entry.payload for entry in await writer.read(0, 99, 1 << 20)] == payloads

    def options(user: str, shown: tuple[Path, Path], *, use_v2: bool) -> LedgerClientOptions:
        named = LedgerUser("bookkeeper", user) if asks == "password" else None
        context = world.context(shown)
        return LedgerClientOptions(use_v2=use_v2, tls=context, user=named, replacement_wait_s=0.0)

    try:
        for use_v2 in (False, True):
            asyncio.run(story(options(PASSWORD, world.writer, use_v2=use_v2)))
            with pytest.raises(LedgerError):
                asyncio.run(story(options("wrong", world.stranger, use_v2=use_v2)))
    finally:
        apache.stop_bookie(name)
