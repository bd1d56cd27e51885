"""The tour's broker ends with the tour, however that ends."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]

TOUR = """
import signal, sys, threading
from pathlib import Path
from magnetar.demo.broker_process import BrokerProcess

broker = BrokerProcess(Path(sys.argv[1]))
broker.wait_ready(threading.Event())
print(broker.pid, flush=True)
signal.pause()
"""


def test_a_tour_that_is_killed_leaves_no_broker(tmp_path: Path) -> None:
    tour = subprocess.Popen([sys.executable, "-c", TOUR, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert tour.stdout is not None
    with tour.stdout as told:
        broker = int(told.readline())
        # A handle of the process: its number may be another process's later.
        handle = os.pidfd_open(broker)
    tour.kill()
    tour.wait()
    try:
        ended, _, _ = select.select([handle], [], [], 240)
        assert ended, f"the broker, process {broker}, does not end"
    finally:
        os.close(handle)
    assert "stopped" in (tmp_path / "broker.log").read_text()
