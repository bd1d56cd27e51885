"""Lets requests wait until there is memory for them: reads until their answers are within the bounds of
`outflow.py`, all requests while many of their client wait for indexes of ledgers.

A client whose request waits is not read, and its later requests wait behind: they keep their order. What
waits is looked at whenever a client has taken its answers, and begins in the turns of its client. When
clients that do not take theirs use up the whole budget, they lose their connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.bookie.network.connection import BookieConnection
from magnetar.bookie.network.outflow import OF_ONE_BYTES, Outflow
from magnetar.runtime.tasks import call_later
from magnetar.wire.bookkeeper.requests import BatchRead, ListEntries, Read, ReadLac, Request, StartTls

_log = logging.getLogger("magnetar.bookie.network")

READS: Final = (Read, BatchRead, ReadLac, ListEntries)
_BROUGHT_MAX: Final = 16
"""Reads of a client that wait for the device; further ones wait for these."""
_LOADING_MAX: Final = 16
"""Requests of a client that wait for indexes of ledgers; further ones, whatever they ask for, wait for
these."""
_LOOK_S: Final = 1.0
"""Seconds between two looks for clients that do not take their answers while others wait."""


class ReadBudget:
    """The answers of one bookie."""

    def __init__(
        self, of_all_max: int, may_wait: Callable[[BookieConnection, Request], bool] = lambda *_: True
    ) -> None:
        """`of_all_max`: bytes of answers under way, from which on reads wait. `may_wait`: whether the rules
        have a place for a read that would wait for a fence."""
        self.outflow: Final = Outflow(OF_ONE_BYTES, of_all_max)
        self._may_wait: Final = may_wait
        self._loop = asyncio.get_running_loop()
        self._bringing: Counter[BookieConnection] = Counter()
        self._loading: Counter[BookieConnection] = Counter()
        self._behind: dict[BookieConnection, list[Request]] = {}
        """Requests that wait. The client that waits for longest is in front."""
        self._looks = False
        self._looks_for_stuck = False

    # -- what is under way ----------------------------------------------------------------------------

    def answering(self, connection: BookieConnection, size: int) -> None:
        """An answer of so many bytes is under way."""
        self.outflow.add(connection, size, self._loop.time())

    def taken(self, connection: BookieConnection) -> None:
        """The client has taken all its answers but some kilobytes."""
        self.outflow.taken(connection)
        self.look_soon()

    def brings(self, connection: BookieConnection) -> None:
        """A read waits for the device, until `brought`."""
        self._bringing[connection] += 1

    def brought(self, connection: BookieConnection) -> None:
        """Ends one `brings`."""
        self._bringing[connection] -= 1
        if not self._bringing[connection]:
            del self._bringing[connection]
        self.look_soon()

    def loads(self, connection: BookieConnection) -> None:
        """A request waits for the index of its ledger, until `loaded`."""
        self._loading[connection] += 1

    def loaded(self, connection: BookieConnection) -> None:
        """Ends one `loads`."""
        self._loading[connection] -= 1
        if not self._loading[connection]:
            del self._loading[connection]
        self.look_soon()

    def gone(self, connection: BookieConnection) -> None:
        """The client has disconnected: what waits is dropped."""
        self._behind.pop(connection, None)
        self.taken(connection)

    # -- what waits -----------------------------------------------------------------------------------

    def may_begin(self, connection: BookieConnection, request: Request) -> bool:
        """Whether there is memory for one more request of a client."""
        if self._loading.get(connection, 0) >= _LOADING_MAX:
            return False
        if not isinstance(request, READS):
            return True
        return (
            self._bringing[connection] < _BROUGHT_MAX
            and self.outflow.may_answer(connection)
            and self._may_wait(connection, request)
        )

    def takes(self, connection: BookieConnection, request: Request) -> bool:
        """Whether a request may be handled now; otherwise it is to be `put_off`."""
        return connection not in self._behind and self.may_begin(connection, request)

    def put_off(
        self, connection: BookieConnection, requests: Sequence[Request], *, in_front: bool = False
    ) -> None:
        """Handles requests, in their order, once the first of them may be; `in_front`: before those that
        wait. A lost connection has none."""
        if connection.is_lost:
            return
        if any(isinstance(request, StartTls) for request in requests):
            # What follows it in clear would be taken for what came under TLS. No client begins TLS so late.
            _log.warning("%s: connection closed: START_TLS behind reads", connection.peer)
            connection.close()
            return
        behind = self._behind.get(connection)
        if behind is None:
            self._behind[connection] = list(requests)
            connection.hold()
        elif in_front:
            behind[:0] = requests
        else:
            behind += requests
        # Some are put off although they may begin, when their turn of the loop is over.
        self.look_soon()
        self._watch()

    def _watch(self) -> None:
        if self._behind and self.outflow.is_full and not self._looks_for_stuck:
            self._looks_for_stuck = True
            call_later(_LOOK_S, self._end_stuck)

    def look_soon(self) -> None:
        """What waits may be within the bounds now."""
        if self._behind and not self._looks:
            self._looks = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looks = False
        for connection, requests in self._behind.items():
            # Not even looked at otherwise: hundreds of requests of a client that takes nothing may wait.
            if self.may_begin(connection, requests[0]):
                connection.wait_turn()
        self._watch()

    def go_on(self, connection: BookieConnection) -> None:
        """A client's turn of the loop: handles a piece of what waits, if there is memory for the first of
        it."""
        requests = self._behind.get(connection)
        if requests is None or not self.may_begin(connection, requests[0]):
            return
        # When it is put off again, it waits behind the others.
        del self._behind[connection]
        connection.handle(requests)
        connection.release()
        self._watch()

    def _end_stuck(self) -> None:
        self._looks_for_stuck = False
        if not (self._behind and self.outflow.is_full):
            return
        stuck = dict.fromkeys(self.outflow.stuck(self._loop.time()))
        if all(connection in stuck for connection in self._behind):
            # No other client waits.
            stuck.clear()
        for connection in stuck:
            assert isinstance(connection, BookieConnection)
            _log.warning("%s: connection closed: it takes no answers, and others wait", connection.peer)
            connection.close()
        self._looks_for_stuck = True
        call_later(_LOOK_S, self._end_stuck)
