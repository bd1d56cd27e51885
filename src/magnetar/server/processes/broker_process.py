"""The program of one broker process of several: `python -m magnetar.server.processes.broker_process NUMBER
FD`.

Only the supervisor starts it. The first line on the descriptor FD is the seat of the process (`seat.py`).
"""

from __future__ import annotations

import gc
import socket
import sys
from pathlib import Path
from typing import Final

_READ_BYTES: Final = 1 << 16


def _first_line(control: socket.socket) -> str:
    """Leaves what is behind the line to the event loop."""
    line = b""
    while not line.endswith(b"\n"):
        seen = control.recv(_READ_BYTES, socket.MSG_PEEK)
        if not seen:
            raise SystemExit("the supervisor is gone")
        line += control.recv(seen.find(b"\n") + 1 or len(seen))
    return line.decode()


def main() -> int:
    """Runs the process; returns its exit code."""
    # What is imported stays: `Heap.settle` starts the collector again.
    gc.disable()
    control = socket.socket(fileno=int(sys.argv[2]))
    from magnetar.base.errors import MagnetarError
    from magnetar.observability import logs
    from magnetar.server.processes.member import SharingProcess
    from magnetar.server.processes.seat import Seat
    from magnetar.server.settings.loading import in_cluster, load
    from magnetar.server.standalone import run

    member = SharingProcess(Seat.decode(_first_line(control)), control)
    seat = member.seat
    try:
        config = in_cluster(load(seat.overrides, file=Path(seat.config) if seat.config else None).config)
        logs.configure(
            level=config.log_level,
            as_json=config.log_json,
            per_minute_max=config.log_event_records_per_minute,
            process=seat.number,
        )
        return run(member.config(config), shares=True, member=member)
    except MagnetarError as error:
        sys.stderr.write(f"magnetar: process {seat.number}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
