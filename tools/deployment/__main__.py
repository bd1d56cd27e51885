"""`./dev deploy`: the files of `deploy/`, checked and rendered.

check     with the programs that read these files elsewhere: tools/deployment/checks.py
render    renders the chart anew: deploy/helm/rendered
list      the processes that the files start
"""

from __future__ import annotations

import sys

from deployment import chart
from deployment.checks import check, go_tool
from deployment.processes import all_processes


def main(arguments: list[str]) -> int:
    """The exit code."""
    match arguments:
        case ["check"]:
            return 1 if check() else 0
        case ["render"]:
            chart.write_all(go_tool("helm"))
        case ["list"]:
            for process in all_processes():
                print(f"{process.place}: magnetar {' '.join(process.arguments)}")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
