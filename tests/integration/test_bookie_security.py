"""TLS, certificates and passwords between our ledger client and our bookies, over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from magnetar.base.errors import DiskFullError, LedgerError, StartupError
from magnetar.base.ids import LedgerId
from magnetar.bookie.network.connection import BookieConnection
from magnetar.bookie.network.server import BookieServer, ServerOptions
from magnetar.bookie.served import Wait
from magnetar.bookie.waiting import WaitingReads
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions, LedgerUser
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.server.bookies.bookie_security import BookieCredentials, BookieSecurity
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.requests import AddRun, Read, StartTls
from magnetar.wire.bookkeeper.responses import Added, ReadDone, Response, TlsStarts
from magnetar.wire.bookkeeper.status import Status
from support.bookie_nodes import BookieNodes, bookie_nodes
from support.certificates import Authority
from support.ledger_clusters import Marks
from support.storage import until

pytestmark = pytest.mark.one_process("own")

VERSIONS = pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])


class Files(NamedTuple):
    """Authorities and certificates of all roles."""

    authority: Path
    bookie: tuple[Path, Path]
    broker: tuple[Path, Path]
    writer: tuple[Path, Path]
    users: Path

    def security(self, *, roles: tuple[str, ...] = (), users: bool = False) -> ServerOptions:
        said = BookieSecurity(
            tls_certificate=self.bookie[0],
            tls_key=self.bookie[1],
            tls_trust_certs=self.authority,
            tls_required=True,
            authorized_roles=roles,
            users=self.users if users else None,
        )
        return ServerOptions(tls=said.tls(), access=said.access())

    def trust(self, shown: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority))
        if shown is not None:
            context.load_cert_chain(*shown)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    users = folder / "users"
    users.write_text("# who may\nbookkeeper:secret\n")
    return Files(
        authority.file,
        authority.issue("bookie"),
        authority.issue("broker"),
        authority.issue("somebody", unit="0:writer;1:cluster"),
        users,
    )


def run(folder: Path, server: ServerOptions, story: Callable[[BookieNodes], Awaitable[None]]) -> None:
    async def main() -> None:
        async with bookie_nodes(folder, 0) as nodes:
            await nodes.start("a", server)
            await story(nodes)

    asyncio.run(main())


async def write_and_read(nodes: BookieNodes, options: LedgerClientOptions) -> None:
    """Raises LedgerError."""
    client = LedgerClient(Cluster(nodes.registry, nodes.bookies, options))
    try:
        marks = Marks()
        writer = await client.create(LedgerOptions(layout=QuorumLayout(1, 1, 1)), marks)
        written = [bytes([number]) * 40_000 for number in range(20)]
        writer.append(written)
        await marks.reach(19)
        read = await writer.read(0, 19, 1 << 20)
        assert [entry.payload for entry in read] == written[: len(read)]
        await writer.close()
    finally:
        await client.close()


def options_of(*, use_v2: bool, tls: ssl.SSLContext | None, user: str = "") -> LedgerClientOptions:
    named = LedgerUser("bookkeeper", user) if user else None
    return LedgerClientOptions(
        use_v2=use_v2, tls=tls, user=named, replacement_wait_s=0.0, answer_timeout_s=5.0
    )


@VERSIONS
def test_entries_go_under_tls(tmp_path: Path, files: Files, use_v2: bool) -> None:
    async def story(nodes: BookieNodes) -> None:
        await write_and_read(nodes, options_of(use_v2=use_v2, tls=files.trust()))
        with pytest.raises(LedgerError):
            await write_and_read(nodes, options_of(use_v2=use_v2, tls=None))
        # It trusts no authority of ours.
        with pytest.raises(LedgerError):
            await write_and_read(nodes, options_of(use_v2=use_v2, tls=ssl.create_default_context()))

    run(tmp_path, files.security(), story)


@VERSIONS
def test_a_certificate_with_a_role_is_let_in(tmp_path: Path, files: Files, use_v2: bool) -> None:
    async def story(nodes: BookieNodes) -> None:
        await write_and_read(nodes, options_of(use_v2=use_v2, tls=files.trust(files.writer)))
        for shown in (files.broker, None):
            with pytest.raises(LedgerError):
                await write_and_read(nodes, options_of(use_v2=use_v2, tls=files.trust(shown)))

    run(tmp_path, files.security(roles=("writer",)), story)


@VERSIONS
def test_a_password_is_proven_under_tls(tmp_path: Path, files: Files, use_v2: bool) -> None:
    async def story(nodes: BookieNodes) -> None:
        await write_and_read(nodes, options_of(use_v2=use_v2, tls=files.trust(), user="secret"))
        for user in ("wrong", ""):
            with pytest.raises(LedgerError):
                await write_and_read(nodes, options_of(use_v2=use_v2, tls=files.trust(), user=user))

    run(tmp_path, files.security(users=True), story)


def test_new_files_count_for_who_comes_after(tmp_path: Path, files: Files) -> None:
    """A user that is gone, and another certificate, without a restart."""
    users = tmp_path / "users"
    users.write_text("bookkeeper:secret\n")
    pair = tmp_path / "bookie.pem", tmp_path / "bookie.key"
    for source, target in zip(files.bookie, pair, strict=True):
        shutil.copy(source, target)
    security = BookieSecurity(tls_certificate=pair[0], tls_key=pair[1], tls_required=True, users=users)
    credentials = BookieCredentials(security)

    async def story(nodes: BookieNodes) -> None:
        await write_and_read(nodes, options_of(use_v2=True, tls=files.trust(), user="secret"))
        users.write_text("bookkeeper:another\n")
        pair[1].write_text("broken")
        await credentials.files.look()
        assert [each.name for each in credentials.files.watched if each.stale] == ["serving tls"]
        await write_and_read(nodes, options_of(use_v2=True, tls=files.trust(), user="another"))
        with pytest.raises(LedgerError):
            await write_and_read(nodes, options_of(use_v2=True, tls=files.trust(), user="secret"))
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        other = Authority(elsewhere)
        for source, target in zip(other.issue("bookie"), pair, strict=True):
            shutil.copy(source, target)
        await credentials.files.look()
        trust = ssl.create_default_context(cafile=str(other.file))
        await write_and_read(nodes, options_of(use_v2=True, tls=trust, user="another"))
        with pytest.raises(LedgerError):
            await write_and_read(nodes, options_of(use_v2=True, tls=files.trust(), user="another"))

    run(tmp_path / "nodes", ServerOptions(tls=credentials.tls, access=credentials.access), story)


def test_who_proves_a_password_to_a_bookie_that_asks_for_none_is_served(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes) -> None:
        await write_and_read(nodes, options_of(use_v2=True, tls=None, user="secret"))
        with pytest.raises(LedgerError):
            await write_and_read(nodes, options_of(use_v2=True, tls=ssl.create_default_context()))

    run(tmp_path, ServerOptions(), story)


async def said_in_clear(nodes: BookieNodes, pieces: list[bytes], *, is_v2: bool) -> list[Response]:
    """What a bookie answers until it ends the connection, or has answered once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", nodes.nodes["a"].port)
    writer.write(b"".join(pieces))
    got = b""
    parser = BookieClientParser(is_v2=is_v2)
    responses: list[Response] = []
    while not responses and (more := await asyncio.wait_for(reader.read(1 << 16), 30)):
        got += more
        responses, _ = parser.parse(got, len(got))
    writer.close()
    return responses


def test_in_clear_nothing_is_given_and_nothing_goes_before_tls(tmp_path: Path, files: Files) -> None:
    async def story(nodes: BookieNodes) -> None:
        run_of_one = AddRun(7, bytes(20))
        run_of_one.entry_ids, run_of_one.entries = [0], [bytes(64)]
        (added,) = await said_in_clear(nodes, encode_request(run_of_one, is_v2=True), is_v2=True)
        assert isinstance(added, Added)
        assert added.status is Status.UNAUTHORIZED
        (read,) = await said_in_clear(nodes, encode_request(Read(7, 0, 5), is_v2=False), is_v2=False)
        assert isinstance(read, ReadDone)
        assert read.status is Status.UNAUTHORIZED
        start = encode_request(StartTls(1), is_v2=False)
        (starts,) = await said_in_clear(nodes, start, is_v2=False)
        assert starts == TlsStarts(Status.OK, 1)
        # A client that put a request behind it in clear is not heard under TLS.
        reader, writer = await asyncio.open_connection("127.0.0.1", nodes.nodes["a"].port)
        writer.write(b"".join(start + encode_request(Read(7, 0, 5), is_v2=False)))
        got = b""
        with contextlib.suppress(ConnectionResetError):
            got = await asyncio.wait_for(reader.read(), 30)
        heard, _ = BookieClientParser(is_v2=False).parse(got, len(got))
        assert all(isinstance(each, TlsStarts) for each in heard)
        writer.close()
        assert nodes.nodes["a"].server.known_ledgers() == set()

    run(tmp_path, files.security(), story)


def test_what_cannot_be_had_ends_the_start(files: Files, tmp_path: Path) -> None:
    nobody = tmp_path / "users"
    nobody.write_text("\n")
    broken = tmp_path / "broken"
    broken.write_text("no colon\n")
    for wrong in (
        BookieSecurity(tls_certificate=files.bookie[0]),
        BookieSecurity(tls_required=True),
        BookieSecurity(
            tls_certificate=files.bookie[0], tls_key=files.bookie[1], authorized_roles=("broker",)
        ),
        BookieSecurity(users=nobody),
        BookieSecurity(users=broken),
        BookieSecurity(users=tmp_path / "not there"),
    ):
        with pytest.raises(StartupError):
            wrong.access()
    with pytest.raises(StartupError, match="cannot be used"):
        BookieSecurity(tls_certificate=files.users, tls_key=files.bookie[1]).tls()


def test_one_connection_too_many_and_who_shows_nothing_are_dropped(tmp_path: Path, files: Files) -> None:
    async def story(nodes: BookieNodes) -> None:
        port = nodes.nodes["a"].port
        first, first_writer = await asyncio.open_connection("127.0.0.1", port)
        second, second_writer = await asyncio.open_connection("127.0.0.1", port)
        for reader in (second, first):
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
        first_writer.close()
        second_writer.close()

    options = replace(files.security(users=True), connections_max=1, outside_s=1.0)
    run(tmp_path, options, story)


async def outsider(
    nodes: BookieNodes, said: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", nodes.nodes["a"].port)
    writer.write(said)
    return reader, writer


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    got = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while more := await asyncio.wait_for(reader.read(1 << 16), 30):
            got += more
    return bytes(got)


def test_before_authentication_no_large_packet_is_kept(tmp_path: Path, files: Files) -> None:
    """Two hundred such packets were a gigabyte of the bookie's memory."""

    async def story(nodes: BookieNodes) -> None:
        reader, writer = await outsider(nodes, (5_000_000).to_bytes(4, "big") + bytes(1_000))
        assert await until_closed(reader) == b""
        writer.close()
        await write_and_read(nodes, options_of(use_v2=True, tls=files.trust(), user="secret"))

    run(tmp_path, replace(files.security(users=True), outside_s=600.0), story)


def test_who_goes_on_asking_without_authentication_is_closed(tmp_path: Path, files: Files) -> None:
    async def story(nodes: BookieNodes) -> None:
        requests = [b"".join(encode_request(Read(7, number), is_v2=True)) for number in range(1_000)]
        reader, writer = await outsider(nodes, b"".join(requests))
        got = await until_closed(reader)
        answers, _ = BookieClientParser(is_v2=True).parse(got, len(got))
        assert 0 < len(answers) <= 64
        assert {each.status for each in answers if isinstance(each, ReadDone)} == {Status.UNAUTHORIZED}
        writer.close()

    run(tmp_path, replace(files.security(users=True), outside_s=600.0), story)


def test_the_oldest_who_has_not_authenticated_gives_way(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.bookie.network.outsiders.OUTSIDERS_MAX", 2)

    async def story(nodes: BookieNodes) -> None:
        waiting = [await outsider(nodes) for _ in range(3)]
        assert await until_closed(waiting[0][0]) == b""
        assert nodes.nodes["a"].server.connections == 2
        for _, writer in waiting:
            writer.close()

    run(tmp_path, replace(files.security(users=True), outside_s=600.0), story)


def test_who_authenticates_finds_a_place_among_those_who_do_not(tmp_path: Path, files: Files) -> None:
    async def story(nodes: BookieNodes) -> None:
        waiting = [await outsider(nodes) for _ in range(4)]
        await write_and_read(nodes, options_of(use_v2=True, tls=files.trust(), user="secret"))
        for _, writer in waiting:
            writer.close()

    run(tmp_path, replace(files.security(users=True), outside_s=600.0, connections_max=4), story)


def test_a_closed_connection_leaves_no_memory(tmp_path: Path, files: Files) -> None:
    async def story(nodes: BookieNodes) -> None:
        for _ in range(20):
            reader, writer = await outsider(nodes, (5_000_000).to_bytes(4, "big"))
            assert await until_closed(reader) == b""
            writer.close()
        assert nodes.nodes["a"].server.connections == 0
        gc.collect()
        assert not [each for each in gc.get_objects() if type(each) is BookieConnection]

    run(tmp_path, replace(files.security(users=True), outside_s=600.0), story)


ENTRY = AddRun(7, bytes(20))
ENTRY.entry_ids, ENTRY.entries = [0], [(7).to_bytes(8, "big") + bytes(100_000)]
READS = 400


async def asks_for_much(nodes: BookieNodes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that asks for forty megabytes and takes none."""
    reader, writer = await outsider(nodes, b"".join(encode_request(ENTRY, is_v2=True)))
    await asyncio.wait_for(reader.read(1), 30)
    writer.write(b"".join(encode_request(Read(7, 0), is_v2=True)) * READS)
    return reader, writer


async def unsent(nodes: BookieNodes) -> int:
    """Bytes that a bookie keeps for a client that does not take them, once there are some."""
    while True:
        for connection in nodes.nodes["a"].server._connections:
            if size := connection._transport.get_write_buffer_size():
                return int(size)
        await asyncio.sleep(0.001)


def test_answers_are_made_as_they_are_taken(tmp_path: Path) -> None:
    """All answers to 256 KiB of requests were made at once, whatever their size."""

    async def story(nodes: BookieNodes) -> None:
        reader, writer = await asks_for_much(nodes)
        assert await asyncio.wait_for(unsent(nodes), 30) < 3 << 20
        # It is still owed them, and what others ask is answered meanwhile.
        (read,) = await said_in_clear(nodes, encode_request(Read(7, 0, 5), is_v2=False), is_v2=False)
        assert isinstance(read, ReadDone)
        assert read.status is Status.OK
        left = READS * 100_000
        while left > 0:
            left -= len(await asyncio.wait_for(reader.read(1 << 20), 30))
        writer.close()

    run(tmp_path, ServerOptions(), story)


def test_who_takes_no_answers_ends_when_others_wait_for_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.bookie.network.outflow.STUCK_S", 0.0)
    monkeypatch.setattr("magnetar.bookie.network.read_budget._LOOK_S", 0.01)

    async def story(nodes: BookieNodes) -> None:
        _, writer = await asks_for_much(nodes)
        await asyncio.wait_for(unsent(nodes), 30)
        (read,) = await said_in_clear(nodes, encode_request(Read(7, 0, 5), is_v2=False), is_v2=False)
        assert isinstance(read, ReadDone)
        assert read.status is Status.OK
        assert nodes.nodes["a"].server.budget.outflow.total < 1 << 20
        writer.close()

    run(tmp_path, ServerOptions(output_bytes_max=1 << 20), story)


KEY = bytes(20)


async def on_disk(nodes: BookieNodes) -> BookieServer:
    """A bookie with entry 0 of ledger 7, 100 kB."""
    await said_in_clear(nodes, encode_request(ENTRY, is_v2=True), is_v2=True)
    return nodes.nodes["a"].server


def fence_of_7() -> bytes:
    return b"".join(encode_request(Read(7, 0, fence=True, master_key=KEY), is_v2=True))


def polls_of_7(count: int) -> bytes:
    """Each waits for a day, and is answered with 100 kB."""
    polls = [Read(7, 0, number, previous_lac=5, timeout_ms=86_400_000) for number in range(count)]
    return b"".join(piece for poll in polls for piece in encode_request(poll, is_v2=False))


async def takes(reader: asyncio.StreamReader, size: int) -> None:
    """Takes at least so many bytes of answers."""
    while size > 0:
        more = await asyncio.wait_for(reader.read(1 << 20), 30)
        assert more
        size -= len(more)


def test_reads_that_waited_for_a_fence_are_answered_as_they_are_taken(tmp_path: Path) -> None:
    """All answers were made in the turn in which the fence became durable."""

    async def story(nodes: BookieNodes) -> None:
        await on_disk(nodes)
        reader, writer = await outsider(nodes, fence_of_7() * READS)
        assert await asyncio.wait_for(unsent(nodes), 30) < 3 << 20
        await takes(reader, READS * 100_000)
        writer.close()

    run(tmp_path, ServerOptions(), story)


def test_reads_that_waited_for_entries_are_answered_as_they_are_taken(tmp_path: Path) -> None:
    """All answers were made in the turn in which the ledger was fenced."""

    async def story(nodes: BookieNodes) -> None:
        server = await on_disk(nodes)
        reader, writer = await outsider(nodes, polls_of_7(READS))
        await until(lambda: len(server.ledgers._ledgers[LedgerId(7)].tail.waiting) == READS)
        _, other = await outsider(nodes, fence_of_7())
        assert await asyncio.wait_for(unsent(nodes), 30) < 3 << 20
        await takes(reader, READS * 100_000)
        assert server.ledgers.polls.total == 0
        assert not server._waits._timers
        writer.close()
        other.close()

    run(tmp_path, ServerOptions(), story)


def test_a_read_that_waits_ends_with_its_connection(tmp_path: Path) -> None:
    """It was kept until its time was over, and its connection with it."""

    async def story(nodes: BookieNodes) -> None:
        server = await on_disk(nodes)
        reader, writer = await outsider(nodes, polls_of_7(1_025))
        # There is a place for one less.
        answers = await asyncio.wait_for(reader.read(1 << 16), 30)
        (refused,), _ = BookieClientParser(is_v2=False).parse(answers, len(answers))
        assert isinstance(refused, ReadDone)
        assert (refused.txn_id, refused.status) == (1_024, Status.TOO_MANY_REQUESTS)
        assert server.ledgers.polls.total == 1_024
        writer.close()
        await until(lambda: not server.connections)
        assert server.ledgers.polls.total == 0
        assert not server._waits._timers
        gc.collect()
        assert not [each for each in gc.get_objects() if type(each) is BookieConnection]

    run(tmp_path, ServerOptions(), story)


def index_that_waits(server: BookieServer, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """No index is in memory, and none is loaded before the event is set."""
    entries, loads = server.entries, asyncio.Event()
    make_ready = entries.make_ready

    async def late(ledger_id: LedgerId) -> None:
        await loads.wait()
        await make_ready(ledger_id)

    monkeypatch.setattr(entries, "make_ready", late)
    entries.release_idle(-1.0)
    return loads


def test_a_client_with_many_requests_for_an_index_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests were kept without a limit while the index was loaded, and then answered all at once."""

    async def story(nodes: BookieNodes) -> None:
        server = await on_disk(nodes)
        loads = index_that_waits(server, monkeypatch)
        assert not server.entries.is_ready(LedgerId(7))
        reader, writer = await outsider(nodes, b"".join(encode_request(Read(7, 0), is_v2=True)) * READS)
        await until(lambda: any(each._held for each in server._connections))
        assert server.budget._loading.total() == 16
        loads.set()
        assert await asyncio.wait_for(unsent(nodes), 30) < 3 << 20
        await takes(reader, READS * 100_000)
        assert not server.budget._loading
        writer.close()

    run(tmp_path, ServerOptions(), story)


def test_entries_that_wait_for_an_index_count_like_those_that_wait_for_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: BookieNodes) -> None:
        server = await on_disk(nodes)
        loads = index_that_waits(server, monkeypatch)
        reader, writer = await outsider(nodes, b"".join(encode_request(ENTRY, is_v2=True)))
        _, other = await outsider(nodes)
        # No client is read, also none that asks for something else.
        await until(lambda: len(server._connections) == 2 and all(e._held for e in server._connections))
        loads.set()
        assert await asyncio.wait_for(reader.read(1), 30)
        await until(lambda: not any(each._held for each in server._connections))
        writer.close()
        other.close()

    run(tmp_path, ServerOptions(pending_bytes_max=100_000), story)


def test_clients_are_read_again_when_the_disk_is_full(tmp_path: Path) -> None:
    """After too many unsynced bytes they waited for a sync, which did not come when all had failed."""

    async def story(nodes: BookieNodes) -> None:
        server = await on_disk(nodes)
        server._all_held = True
        server.holding.begin()
        server._failed([], DiskFullError("full"))
        (read,) = await said_in_clear(nodes, encode_request(Read(7, 0), is_v2=True), is_v2=True)
        assert isinstance(read, ReadDone)
        assert read.status is Status.OK

    run(tmp_path, ServerOptions(), story)


def test_only_some_reads_of_a_client_wait_for_a_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.bookie.waiting.OF_ONE_MAX", 4)
    waited = []
    begin = WaitingReads.begin

    def counted(reads: WaitingReads, wait: Wait, line: dict[Wait, None]) -> None:
        begin(reads, wait, line)
        waited.append(reads.total)

    monkeypatch.setattr(WaitingReads, "begin", counted)

    async def story(nodes: BookieNodes) -> None:
        await on_disk(nodes)
        reader, writer = await outsider(nodes, fence_of_7() * READS)
        await takes(reader, READS * 100_000)
        assert max(waited) == 4
        writer.close()

    run(tmp_path, ServerOptions(), story)
