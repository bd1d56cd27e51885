"""Nodes that write and recover ledgers: the cores of `magnetar.ledger.quorum` over a simulated network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.quorum.effects import (
    Advance,
    ChooseBookies,
    Closed,
    Effect,
    Failed,
    ReadMetadata,
    SendAdds,
    SendRead,
    WriteMetadata,
)
from magnetar.ledger.quorum.quorum_writer import QuorumWriter
from magnetar.ledger.quorum.recovery import LedgerRecovery
from magnetar.wire.bookkeeper.requests import AddRun, Read
from magnetar.wire.bookkeeper.responses import Added, ReadDone
from magnetar.wire.bookkeeper.status import Status
from sim.bookies import Asker, BookieNode
from sim.metadata import MetadataNode
from sim.network import Network
from sim.world import World

ANSWER_US = 60_000
"""How long a client waits for an answer."""

Core: TypeAlias = QuorumWriter | LedgerRecovery


class ClientNode:
    """Does what its core asks for, and waits no longer than `ANSWER_US` for anything."""

    is_up = True

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        *,
        bookies: Mapping[str, BookieNode],
        metadata: MetadataNode,
        master_key: bytes,
    ) -> None:
        self.name = name
        self.world = world
        self._network = network
        self._bookies = bookies
        self._metadata = metadata
        self._master_key = master_key
        self._core: Core | None = None
        self._questions = 0
        self._open_questions: set[int] = set()
        self.confirmed = -1
        self.closed: LedgerEnd | None = None
        self.failed: Failed | None = None

    def use(self, core: Core) -> None:
        """Takes a core; what an earlier one asked for is not heard any more."""
        self._core = core
        self._open_questions.clear()
        self.closed = None
        self.failed = None

    def crash(self) -> None:
        """The process is gone; what it sent is on its way."""
        if self.is_up:
            self.world.note(self.name, "crashes")
            self.is_up = False

    @property
    def is_done(self) -> bool:
        """Whether its core is over, or it is gone."""
        return self.closed is not None or self.failed is not None or not self.is_up

    def do(self, effects: Sequence[Effect]) -> None:
        """Carries out what the core asks for."""
        for effect in effects:
            if isinstance(effect, SendAdds):
                self._send_adds(effect)
            elif isinstance(effect, SendRead):
                self._send_read(effect)
            elif isinstance(effect, WriteMetadata):
                self._write_metadata(effect)
            elif isinstance(effect, ReadMetadata):
                self._read_metadata()
            elif isinstance(effect, ChooseBookies):
                self._choose(effect)
            elif isinstance(effect, Advance):
                self.world.note(self.name, "confirms", effect.last_entry)
                self.confirmed = effect.last_entry
            elif isinstance(effect, Closed):
                self.world.note(self.name, "closed at", effect.end)
                self.closed = effect.end
            else:
                assert isinstance(effect, Failed)
                self.world.note(self.name, "failed:", effect.reason)
                self.failed = effect

    def _ask(self) -> int:
        self._questions += 1
        self._open_questions.add(self._questions)
        return self._questions

    def _is_first_answer(self, question: int) -> bool:
        if question not in self._open_questions or not self.is_up:
            return False
        self._open_questions.discard(question)
        return True

    def _send_adds(self, send: SendAdds) -> None:
        assert self._core is not None
        question = self._ask()
        run = AddRun(self._core.ledger_id, self._master_key, recovery=send.recovery)
        run.entry_ids = list(send.entry_ids)
        run.entries = list(send.entries)

        def answered(response: Added) -> None:
            if self._is_first_answer(question):
                assert self._core is not None
                self.do(self._core.added(send.bookie, send.index, response.entry_ids, response.status))

        bookie = self._bookies[send.bookie]
        self._network.send(self, bookie, bookie.add, Asker(self, answered), run)
        silence = Added(run.ledger_id, Status.IO_ERROR, run.entry_ids, None)
        self.world.at(ANSWER_US, answered, silence)

    def _send_read(self, send: SendRead) -> None:
        assert self._core is not None
        question = self._ask()
        key = self._master_key if send.fence else None
        request = Read(self._core.ledger_id, send.entry_id, fence=send.fence, master_key=key)

        def answered(response: ReadDone) -> None:
            core = self._core
            if self._is_first_answer(question) and isinstance(core, LedgerRecovery):
                self.do(core.read(send.bookie, send.index, send.entry_id, response.status, response.entry))

        bookie = self._bookies[send.bookie]
        self._network.send(self, bookie, bookie.read, Asker(self, answered), request)
        self.world.at(ANSWER_US, answered, ReadDone(request.ledger_id, send.entry_id, Status.IO_ERROR))

    def _write_metadata(self, write: WriteMetadata) -> None:
        question = self._ask()

        def answered(version: int | None) -> None:
            if self._is_first_answer(question):
                core = self._core
                assert core is not None
                if version is None:
                    self.do(self.not_written(core, write.expected_version))
                else:
                    self.do(core.metadata_written(version))

        store = self._metadata
        self._network.send(self, store, store.write, self, answered, write.metadata, write.expected_version)
        # Without an answer, it may be written or not.
        self.world.at(ANSWER_US, answered, None)

    def not_written(self, core: Core, expected_version: int) -> list[Effect]:
        """A change of the metadata met another one, or has no answer."""
        return core.metadata_conflict()

    def _read_metadata(self) -> None:
        question = self._ask()

        def answered(value: LedgerMetadata, version: int) -> None:
            if self._is_first_answer(question):
                assert self._core is not None
                self.do(self._core.metadata_read(value, version))

        def silence() -> None:
            if self._is_first_answer(question):
                self._read_metadata()

        self._network.send(self, self._metadata, self._metadata.read, self, answered)
        self.world.at(ANSWER_US, silence)

    def _choose(self, choose: ChooseBookies) -> None:
        # Whether a bookie is up is mostly known, from the store; now and then that is not true any more.
        candidates = [
            name
            for name, bookie in self._bookies.items()
            if name not in choose.exclude
            and not bookie.is_lost
            and (bookie.is_up or self.world.random.random() < 0.2)
        ]
        self.world.random.shuffle(candidates)
        chosen = dict(zip(choose.failed, candidates, strict=False))
        self.world.note(self.name, "replaces", choose.failed, "by", chosen)
        assert self._core is not None
        question = self._ask()

        def answered() -> None:
            if self._is_first_answer(question):
                assert self._core is not None
                self.do(self._core.bookies_chosen(chosen))

        self.world.at(self.world.random.randint(0, 5_000), answered)
