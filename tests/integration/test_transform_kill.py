"""kill -9 of the broker and of the program while it consumes, transforms and produces: each input has its
output once.

The program is the one of docs/transactions.md. The broker comes back on the same port, and the program goes
on; a program that was killed is started again. MAGNETAR_TRANSFORM_ROUNDS makes it longer, MAGNETAR_KILL_SEED
replays its random choices.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.standalone import StandaloneProcess
from support.transaction_worker import IN, OUTS, everything_in, fill

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("kills")]

ROUNDS = int(os.environ.get("MAGNETAR_TRANSFORM_ROUNDS", "4"))
INPUTS = 3_000
TTL_S = 3.0
PROGRAM = f"""
import sys
from magnetar.client.client import Client
from magnetar.client.transforming import TransformLimits, transform

with Client(sys.argv[1]) as client:
    transform(
        client, {IN!r}, "doubling", {OUTS[0]!r}, lambda message: [b"%d" % (2 * int(message.value))],
        limits=TransformLimits(entries=5, ttl_s={TTL_S}), idle_s={3 * TTL_S},
    )
"""


def started(process: StandaloneProcess) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, process.broker_url], stderr=subprocess.PIPE)


def test_each_input_has_its_output_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("MAGNETAR_KILL_SEED", "0")) or random.randrange(1 << 32)
    print(f"MAGNETAR_KILL_SEED={seed}")
    chance = random.Random(seed)
    environment = {"MAGNETAR_TRANSACTIONS": "true"}
    with StandaloneProcess(tmp_path, environment=environment) as process:
        process._options = ("--port", str(urlsplit(process.broker_url).port))
        fill(process.broker_url, INPUTS)
        program = started(process)
        try:
            for number in range(ROUNDS):
                # When the kill comes is chance, by the printed seed; what must hold does not depend on it.
                time.sleep(chance.uniform(0.3, 1.5))
                if number % 2:
                    program.kill()
                    program.communicate()
                    program = started(process)
                else:
                    process.kill()
                    process.start()
            _, complaints = program.communicate(timeout=120)
            assert program.returncode == 0, complaints.decode()[-3000:]
        finally:
            program.kill()
            program.communicate()
        outputs = everything_in(process.broker_url, OUTS[0])
        assert sorted(outputs) == [2 * number for number in range(INPUTS)]
        stats = process.admin("GET", f"{IN.replace('://', '/')}/stats")
        assert stats["subscriptions"]["doubling"]["msgBacklog"] == 0
