"""When the end of a log at rest is marked."""

from __future__ import annotations

import asyncio

from magnetar.bookie.idle_mark import IdleMark


async def earlier_timers() -> None:
    """Returns when all timers that are due by now have run: they do in their order."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0, passed.set)
    await passed.wait()


def test_a_log_at_rest_is_marked_once() -> None:
    async def main() -> None:
        due = asyncio.Event()
        mark = IdleMark(0, due.set)
        mark.committed(is_mark=False)
        mark.rests()
        await due.wait()
        due.clear()
        mark.committed(is_mark=True)
        mark.rests()
        await earlier_timers()
        assert not due.is_set(), "its last block is a mark"

    asyncio.run(main())


def test_what_is_committed_meanwhile_puts_it_off() -> None:
    async def main() -> None:
        commits = 0
        seen: list[int] = []
        done = asyncio.Event()

        def due() -> None:
            seen.append(commits)
            done.set()

        mark = IdleMark(0, due)
        for commits in (1, 2):  # noqa: B007  # `due` reads it
            mark.committed(is_mark=False)
            mark.rests()
        await done.wait()
        assert seen == [2]

    asyncio.run(main())


def test_a_closed_log_gets_none() -> None:
    async def main() -> None:
        called: list[None] = []
        mark = IdleMark(0, lambda: called.append(None))
        mark.committed(is_mark=False)
        mark.rests()
        mark.end()
        mark.committed(is_mark=False)
        mark.rests()
        await earlier_timers()
        assert not called

    asyncio.run(main())
