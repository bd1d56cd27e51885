"""One harness under atheris, in a process of its own. Nothing is imported before it is instrumented."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> None:
    """In the process of its own: never returns."""
    import atheris  # beside the environment

    with atheris.instrument_imports(include=["magnetar"]):
        from fuzzing.catalogue import HARNESSES
    harness = HARNESSES[arguments[1]]

    def one(data: bytes) -> None:
        try:
            harness.run(data)
        except harness.refusals:
            return

    atheris.Setup([arguments[0], *arguments[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
