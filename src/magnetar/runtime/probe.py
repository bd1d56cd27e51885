"""Whether anything listens at an address."""

from __future__ import annotations

import asyncio
import contextlib


async def refuses(host: str, port: int, *, within_s: float) -> bool:
    """True only when the machine answers that nothing listens there; silence and other errors are False."""
    try:
        async with asyncio.timeout(within_s):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        # It says nothing, or something else.
        return False
    writer.close()
    with contextlib.suppress(OSError):  # it listens, which was the question
        await writer.wait_closed()
    return False
