"""What one call asks the owners of its parts, partitions or bundles: each for its own, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from magnetar.admin.calls import other_brokers
from magnetar.admin.calls.call import Call
from magnetar.admin.calls.errors import status_of
from magnetar.admin.calls.other_brokers import BrokerCall
from magnetar.base.errors import MagnetarError
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.runtime.tasks import settled

ASKED_AT_ONCE: Final = 16
"""Most parts that one call asks about at the same time."""

_Part = TypeVar("_Part")


class OwnersAsked(Generic[_Part]):
    """The parts of what a call is about, with the brokers that serve them."""

    def __init__(self, call: Call, places: Mapping[_Part, BrokerUrls | None]) -> None:
        """`places`: None for a part of this broker. Raises OtherBrokerError when the caller's credentials
        cannot be shown to another broker."""
        self._call = call
        self._places = places
        self._room = asyncio.Semaphore(ASKED_AT_ONCE)
        self._failed = False
        self._headers = other_brokers.credentials(call.headers, known=call.identity is not None)

    @property
    def parts(self) -> list[_Part]:
        """All of them, in their order."""
        return list(self._places)

    def is_here(self, part: _Part) -> bool:
        """Whether this broker serves it."""
        return self._places[part] is None

    async def each(
        self,
        question_of: Callable[[_Part], BrokerCall],
        here: Callable[[_Part], Awaitable[object]],
        parts: Iterable[_Part],
    ) -> dict[_Part, object]:
        """Asks about these parts, at the same time; `here` answers for those of this broker. A part that is
        not there (404) has no answer.

        Raises another error once all that was begun has ended; nothing is begun after it. Raises the 404 when
        no part is there.
        """
        asked = list(parts)
        self._failed = False
        results = await settled(self._one(part, question_of, here) for part in asked)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            if not (isinstance(error, MagnetarError) and status_of(error) == 404):
                raise error
        if errors and len(errors) == len(asked):
            raise errors[0]
        return {
            part: result
            for part, result in zip(asked, results, strict=True)
            if not isinstance(result, BaseException)
        }

    async def _one(
        self,
        part: _Part,
        question_of: Callable[[_Part], BrokerCall],
        here: Callable[[_Part], Awaitable[object]],
    ) -> object:
        async with self._room:
            if self._failed:
                # Others fail during the wait below too: what was begun ends.
                return None
            try:
                broker = self._places[part]
                if broker is None:
                    return await here(part)
                call = self._call
                return await other_brokers.ask(
                    call.service.exchanged, broker, question_of(part), self._headers, secure=call.secure
                )
            except MagnetarError as error:
                if status_of(error) != 404:
                    self._failed = True
                raise
            except BaseException:
                self._failed = True
                raise
