"""Every request of a bookie's protocol, in both versions × the role that sends it: what its port answers."""

from __future__ import annotations

import asyncio
import contextlib
import typing
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from magnetar.auth.digest_md5 import DigestClient
from magnetar.bookie.network.access import NO_AUTHENTICATION, SASL, Access
from magnetar.bookie.network.server import ServerOptions
from magnetar.wire.bookkeeper import bookkeeper_pb2 as pb
from magnetar.wire.bookkeeper import requests as asked
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.responses import AuthDone, ReadDone, Response
from magnetar.wire.bookkeeper.status import Status
from support.bookie_nodes import BookieNodes, bookie_nodes

pytestmark = pytest.mark.one_process("own")

KEY: Final = b"k" * 20
OTHER_KEY: Final = b"o" * 20
LEDGER: Final = 7
OWN_LEDGERS: Final = (-1_001, -1_002, -1, -(1 << 63))
"""Ledgers of the bookie's own, whose records hold the keys of all others, and ids that no ledger has."""
USERS: Final = {"owner": "secret", "other": "another"}
CLOSED: Final = None
"""No answer: the connection ends."""
UNLIMITED_S: Final = 600.0
ANSWER_S: Final = 60.0


def add(ledger_id: int, key: bytes, *, is_v2: bool, recovery: bool = False) -> asked.AddRun:
    run = asked.AddRun(ledger_id, key, recovery=recovery, v3=not is_v2)
    head = ledger_id.to_bytes(8, "big", signed=True) + bytes(8) + (-1).to_bytes(8, "big", signed=True)
    run.entry_ids, run.entries = [0], [head + bytes(100)]
    run.txn_ids = None if is_v2 else [5]
    return run


class Case(typing.NamedTuple):
    """A request, and its answers."""

    request: Callable[[int, bytes, bool], asked.Request]
    """Made from a ledger's id, a key, and whether it is of version 2."""
    kind: type
    stranger: Status | None
    """The answer to a client that has not authenticated."""
    other: Status
    """The answer to an authenticated client that does not have the ledger's key."""
    negative: Status | None = Status.BAD_REQUEST
    """About a ledger of the bookie's own; None when the request is about no ledger."""
    versions: tuple[bool, ...] = (True, False)
    """Whether version 2, for each version that has it."""


V2, V3 = (True,), (False,)
NO, OK, BAD = Status.UNAUTHORIZED, Status.OK, Status.BAD_REQUEST
CASES: Final = {
    "add": Case(lambda ledger, key, v2: add(ledger, key, is_v2=v2), asked.AddRun, NO, NO),
    "recovery's add": Case(
        lambda ledger, key, v2: add(ledger, key, is_v2=v2, recovery=True), asked.AddRun, NO, NO
    ),
    "read": Case(lambda ledger, key, v2: asked.Read(ledger, 0, None if v2 else 5), asked.Read, NO, OK),
    "read of the last": Case(
        lambda ledger, key, v2: asked.Read(ledger, asked.LAST_ENTRY, None if v2 else 5), asked.Read, NO, OK
    ),
    "fence": Case(
        lambda ledger, key, v2: asked.Read(ledger, 0, None if v2 else 5, fence=True, master_key=key),
        asked.Read,
        NO,
        NO,
    ),
    "read that waits": Case(
        lambda ledger, key, v2: asked.Read(ledger, 0, 5, previous_lac=-1, timeout_ms=1),
        asked.Read,
        NO,
        OK,
        versions=V3,
    ),
    "batch": Case(
        lambda ledger, key, v2: asked.BatchRead(ledger, 0, 1, 10, 1_000),
        asked.BatchRead,
        CLOSED,
        OK,
        versions=V2,
    ),
    "batch with a fence": Case(
        lambda ledger, key, v2: asked.BatchRead(ledger, 0, 1, 10, 1_000, fence=True, master_key=key),
        asked.BatchRead,
        CLOSED,
        BAD,
        versions=V2,
    ),
    "write of the LAC": Case(
        lambda ledger, key, v2: asked.WriteLac(ledger, 9, key, bytes(40), 5),
        asked.WriteLac,
        NO,
        NO,
        versions=V3,
    ),
    "read of the LAC": Case(
        lambda ledger, key, v2: asked.ReadLac(ledger, 5), asked.ReadLac, NO, OK, versions=V3
    ),
    "force": Case(
        lambda ledger, key, v2: asked.ForceLedger(ledger, 5), asked.ForceLedger, NO, OK, versions=V3
    ),
    "list": Case(
        lambda ledger, key, v2: asked.ListEntries(ledger, 5), asked.ListEntries, NO, OK, versions=V3
    ),
    "disk space": Case(
        lambda ledger, key, v2: asked.BookieInfo(5, capacity=True, free=True),
        asked.BookieInfo,
        NO,
        OK,
        None,
        V3,
    ),
    "unknown operation": Case(
        lambda ledger, key, v2: asked.Unserved(0, 5), asked.Unserved, NO, BAD, None, V3
    ),
    "TLS, which it has not": Case(
        lambda ledger, key, v2: asked.StartTls(5), asked.StartTls, BAD, BAD, None, V3
    ),
}
CELLS: Final = [(name, is_v2) for name, case in CASES.items() for is_v2 in case.versions]


def _of(cells: list[tuple[str, bool]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("name", "is_v2"), cells, ids=[f"{name}, v{2 if is_v2 else 3}" for name, is_v2 in cells]
    )


EACH: Final = _of(CELLS)
ABOUT_A_LEDGER: Final = _of([(name, is_v2) for name, is_v2 in CELLS if CASES[name].negative is not None])


def encoded(request: asked.Request, *, is_v2: bool) -> bytes:
    if isinstance(request, asked.Unserved):
        message = pb.Request()
        message.header.version = pb.VERSION_THREE
        message.header.operation = pb.READ_ENTRY
        message.header.txnId = request.txn_id
        body = message.SerializeToString()
        return len(body).to_bytes(4, "big") + body
    return b"".join(encode_request(request, is_v2=is_v2))


class Caller:
    """A client of the bookie, which speaks one version."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_v2: bool) -> None:
        self._reader = reader
        self._writer = writer
        self._is_v2 = is_v2
        self._parser = BookieClientParser(is_v2=is_v2)

    async def ask(self, request: asked.Request) -> Response | None:
        """The answer; None when the connection ends instead."""
        self._writer.write(encoded(request, is_v2=self._is_v2))
        got = b""
        with contextlib.suppress(ConnectionError):
            while more := await asyncio.wait_for(self._reader.read(1 << 16), ANSWER_S):
                got += more
                answers, _ = self._parser.parse(got, len(got))
                if answers:
                    (answer,) = answers
                    return answer
        return None

    async def challenge(self) -> bytes:
        answer = await self.ask(asked.Auth(SASL, b"", self._txn_id))
        assert isinstance(answer, AuthDone)
        return answer.payload

    async def prove(self, token: bytes) -> Response | None:
        return await self.ask(asked.Auth(SASL, token, self._txn_id))

    async def log_in(self, user: str, password: str) -> Response | None:
        return await self.prove(DigestClient(user, password, "once").answer(await self.challenge()))

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    @property
    def _txn_id(self) -> int | None:
        return None if self._is_v2 else 5


class Port:
    """The port of a bookie that demands a password."""

    def __init__(self, nodes: BookieNodes) -> None:
        self.nodes = nodes
        self._callers: list[Caller] = []

    async def nothing(self, *, is_v2: bool) -> Caller:
        """A client that shows nothing."""
        streams = await asyncio.open_connection("127.0.0.1", self.nodes.nodes["a"].port)
        self._callers.append(Caller(*streams, is_v2=is_v2))
        return self._callers[-1]

    async def half_a_handshake(self, *, is_v2: bool) -> Caller:
        """A client that has its challenge."""
        caller = await self.nothing(is_v2=is_v2)
        assert await caller.challenge()
        return caller

    async def user(self, name: str, *, is_v2: bool) -> Caller:
        """A client that has authenticated."""
        caller = await self.nothing(is_v2=is_v2)
        answer = await caller.log_in(name, USERS[name])
        assert isinstance(answer, AuthDone)
        assert answer.payload.startswith(b"rspauth=")
        return caller

    async def close(self) -> None:
        """Ends all clients."""
        for caller in self._callers:
            await caller.close()


def run(folder: Path, story: Callable[[Port], Awaitable[None]]) -> None:
    async def main() -> None:
        async with bookie_nodes(folder, 0) as nodes:
            await nodes.start("a", ServerOptions(access=Access(users=USERS), outside_s=UNLIMITED_S))
            port = Port(nodes)
            try:
                owner = await port.user("owner", is_v2=True)
                assert status(await owner.ask(add(LEDGER, KEY, is_v2=True))) is OK
                await story(port)
                # Whatever was tried, the ledger is as it was, and its owner may still add.
                assert status(await owner.ask(add(LEDGER, KEY, is_v2=True))) is OK
                read = await owner.ask(asked.Read(LEDGER, 0))
                assert isinstance(read, ReadDone)
                assert read.entry == add(LEDGER, KEY, is_v2=True).entries[0]
                assert nodes.nodes["a"].server.known_ledgers() == {LEDGER}
            finally:
                await port.close()

    asyncio.run(main())


def status(answer: Response | None) -> Status | None:
    return CLOSED if answer is None else getattr(answer, "status", Status.OK)


def test_every_request_has_a_row() -> None:
    """A request that is added says here which roles may send it."""
    assert {case.kind for case in CASES.values()} | {asked.Auth} == set(typing.get_args(asked.Request))


@EACH
def test_a_stranger_gets_nothing(tmp_path: Path, name: str, is_v2: bool) -> None:
    async def story(port: Port) -> None:
        for comes in (port.nothing, port.half_a_handshake):
            caller = await comes(is_v2=is_v2)
            request = CASES[name].request(LEDGER, KEY, is_v2)
            assert status(await caller.ask(request)) is CASES[name].stranger, comes

    run(tmp_path, story)


@EACH
def test_a_user_changes_no_ledger_without_its_key(tmp_path: Path, name: str, is_v2: bool) -> None:
    async def story(port: Port) -> None:
        caller = await port.user("other", is_v2=is_v2)
        for key in (OTHER_KEY, bytes(20)):
            request = CASES[name].request(LEDGER, key, is_v2)
            assert status(await caller.ask(request)) is CASES[name].other

    run(tmp_path, story)


@ABOUT_A_LEDGER
def test_ledgers_of_the_bookies_own_are_nobodys(tmp_path: Path, name: str, is_v2: bool) -> None:
    """A fence of one made it known; then it could be read, with the keys of all ledgers, and each search for
    deleted ledgers failed."""
    case = CASES[name]

    async def story(port: Port) -> None:
        caller = await port.user("other", is_v2=is_v2)
        for ledger_id in OWN_LEDGERS:
            assert status(await caller.ask(case.request(ledger_id, OTHER_KEY, is_v2))) is case.negative

    run(tmp_path, story)


@pytest.mark.parametrize("is_v2", [True, False], ids=["v2", "v3"])
def test_a_proof_counts_on_its_connection_and_once(tmp_path: Path, is_v2: bool) -> None:
    async def story(port: Port) -> None:
        right = await port.nothing(is_v2=is_v2)
        token = DigestClient("owner", USERS["owner"], "once").answer(await right.challenge())
        wrong = DigestClient("owner", "wrong", "once").answer(
            await (await port.nothing(is_v2=is_v2)).challenge()
        )
        for tried in (token, wrong, b"", b"\xff" * 60_000, b'username="' + b"\\a" * 30_000, b"a=1," * 900):
            caller = await port.half_a_handshake(is_v2=is_v2)
            assert status(await caller.prove(tried)) is (CLOSED if is_v2 else Status.UNAUTHORIZED)
            assert await caller.ask(asked.Read(LEDGER, 0, None if is_v2 else 5)) is None
        assert status(await right.prove(token)) is Status.OK
        # A client that is in is told that nothing more is demanded.
        again = await right.prove(token)
        assert isinstance(again, AuthDone)
        assert (again.plugin, again.payload) == (NO_AUTHENTICATION, b"")

    run(tmp_path, story)
