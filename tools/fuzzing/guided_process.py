"""One harness under atheris, in a process of its own. Nothing is imported before it is instrumented."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Final

_SLOWER: Final = 10
"""How many times as long an instrumented harness may take."""


def main(arguments: list[str]) -> None:
    """In the process of its own: never returns."""
    import atheris  # beside the environment

    with atheris.instrument_imports(include=["magnetar"]):
        from fuzzing.catalogue import HARNESSES
    harness = HARNESSES[arguments[1]]

    def one(data: bytes) -> None:
        began_s = time.process_time()
        with contextlib.suppress(harness.refusals):
            harness.run(data)
        # libFuzzer's own bound counts time in which other processes ran.
        took_s = time.process_time() - began_s
        if took_s > _SLOWER * harness.seconds_max:
            raise RuntimeError(f"it took {took_s:.1f} s of a processor")

    atheris.Setup([arguments[0], *arguments[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
