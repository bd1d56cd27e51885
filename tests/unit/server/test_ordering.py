"""The order in which a standalone closes is the one that docs/internals/ordering.md tells."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.standalone import Standalone

_PAGE = Path(__file__).parents[3] / "docs" / "internals" / "ordering.md"


class _Noted(contextlib.AsyncExitStack):
    """Notes what it will call."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.settled = asyncio.Event()

    def push_async_callback(self, callback: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
        self.names.append(callback.__qualname__)
        return super().push_async_callback(callback, *args, **more)

    def callback(self, callback: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
        self.names.append(callback.__qualname__)
        if callback.__qualname__ == "LoopWatch.close":
            self.settled.set()
        return super().callback(callback, *args, **more)


def test_a_standalone_closes_in_the_order_that_the_document_tells(tmp_path: Path) -> None:
    told = re.findall(
        r"^\d+\. `([A-Za-z]+\.[a-z]+)`", _PAGE.read_text().partition("## Close")[2], re.MULTILINE
    )
    noted = _Noted()

    async def story() -> None:
        config = StandaloneConfig(data_dir=tmp_path / "data", broker_port=0, http_port=0)
        standalone = Standalone(replace(config, flight_sql=True, flight_sql_port=0))
        standalone._cleanup = noted
        try:
            await standalone.start()
            standalone.begin_rest()
            await noted.settled.wait()
        finally:
            await standalone.close()

    asyncio.run(asyncio.wait_for(story(), 60))
    assert told == noted.names[::-1]
