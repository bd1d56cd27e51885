"""What the connections of a loop share: one write for all of them at the end of a tick."""

from __future__ import annotations

import asyncio

from magnetar.broker.session.shared_buffer import SharedBuffer


class Written:
    """A connection with something to write; the first calls of its write fail."""

    def __init__(self, name: str, log: list[str], failures: int = 0) -> None:
        self.name, self._log, self._failures = name, log, failures

    def write_out(self) -> None:
        if self._failures:
            self._failures -= 1
            raise OSError(f"{self.name} is broken")
        self._log.append(self.name)


def test_what_a_tick_answered_is_written_when_it_ends_and_an_error_costs_no_other_its_answer() -> None:
    async def story() -> None:
        loop, log, errors = asyncio.get_running_loop(), list[str](), list[str]()
        loop.set_exception_handler(lambda _, context: errors.append(str(context["exception"])))
        shared = SharedBuffer()
        for written in (Written("a", log), Written("b", log, failures=1), Written("c", log)):
            shared.write_soon(written)
        assert log == [], "the tick has not ended"
        await asyncio.sleep(0)
        assert (log, errors) == (["a"], ["b is broken"])
        await asyncio.sleep(0)
        assert log == ["a", "c"]

    asyncio.run(story())
