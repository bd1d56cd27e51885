"""Runs a connection's requests in the background and answers those that fail."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError
from magnetar.broker.errors import told, wire_code
from magnetar.broker.session.requests import NumberedCommand, Refusal, Request, RequestLine
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.ports import SessionPort

_log = logging.getLogger("magnetar.broker.session")

_CROWDED: Final = "requests in line"
"""Reason for which a connection is not read."""


def owner_of(session: SessionPort) -> str:
    """The owner in whose turns the commands run: the connection's role, or its address."""
    return session.peer.rpartition(":")[0] if session.identity is None else session.identity.role


class Requests:
    """The requests of one session."""

    __slots__ = ("_line", "_of")

    def __init__(self, session: SessionPort) -> None:
        # A session that is lost is freed without the garbage collector.
        self._of = weakref.ref(session)
        self._line = RequestLine(session.broker.turns.budget)

    @property
    def crowded(self) -> bool:
        """Whether so many wait that nothing more of the client is to be handled."""
        return self._line.crowded

    def run(
        self,
        request: NumberedCommand,
        work: Coroutine[object, object, None],
        refuse: Refusal,
        *,
        large: bool = False,
    ) -> None:
        """Runs a command in its turn; its error becomes the frame of `refuse`.

        `large`: its answer may be as large as people have made what it asks for.
        """
        self._line.add(Request(request.request_id, work, refuse, request.ByteSize(), large))
        self.begin()
        session = self._of()
        if self._line.crowded and session is not None:
            session.throttle(_CROWDED)

    def run_simple(
        self, request: NumberedCommand, work: Coroutine[object, object, None], *, large: bool = False
    ) -> None:
        """The same for a command whose failure is answered by an ERROR."""
        number = request.request_id
        self.run(request, work, lambda code, text: commands.error(number, code, text), large=large)

    def begin(self) -> None:
        """Begins what is in line, while the connection may take answers and the turn may take requests."""
        line, session = self._line, self._of()
        if session is None:
            return
        turns = session.broker.turns
        while line.is_next and session.ask_output():
            if not turns.begin_one():
                turns.wait(owner_of(session), self)
                return
            self._begin_next(session)

    def go_on(self) -> None:
        """Its turn: one more begins."""
        line, session = self._line, self._of()
        if session is not None and line.is_next and session.ask_output():
            self._begin_next(session)
            if line.is_next:
                session.broker.turns.wait(owner_of(session), self)

    def _begin_next(self, session: SessionPort) -> None:
        request = self._line.begin()
        assert request is not None
        session.broker.tasks.spawn(self._work(session, request))

    async def _work(self, session: SessionPort, request: Request) -> None:
        try:
            await session.broker.quotas.timing(owner_of(session), request.work)
        except MagnetarError as error:
            _log.info("%s: request %d refused: %s", session.peer, request.request_id, error)
            session.reply(request.refuse(wire_code(error), told(error)))
        except Exception:  # noqa: BLE001  # a bug in one command must be answered and must not stop others
            _log.exception("%s: request %d failed", session.peer, request.request_id)
            session.reply(request.refuse(pb.UnknownError, "internal error; the broker's log has the details"))
        finally:
            self._line.end(request)
            self.begin()
            if not self._line.crowded:
                session.unthrottle(_CROWDED)

    def clear(self) -> None:
        """The connection is closed: requests that have not begun never will."""
        if (session := self._of()) is not None:
            session.broker.turns.forget(owner_of(session), self)
        self._line.clear()
