"""kill -9 while transactions run: each input has its output once in both topics, whatever was interrupted.

Every round starts the broker on the same data, lets a worker take inputs, write outputs and acknowledge in
transactions, of which a fifth is aborted, and kills the broker at a random moment. What was ending then is
ended again: the answer must be what readers see.

MAGNETAR_TXN_ROUNDS, MAGNETAR_TXN_INPUTS and MAGNETAR_TXN_AT_ONCE make it larger, MAGNETAR_TXN_BOOKIES keeps
messages on so many bookies beside the broker; MAGNETAR_KILL_SEED replays its random choices.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from support.standalone import StandaloneProcess
from support.transaction_worker import IN, OUTS, History, LostError, Worker, check, everything_in, fill

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("kills")]

ROUNDS = int(os.environ.get("MAGNETAR_TXN_ROUNDS", "4"))
ON = {"MAGNETAR_TRANSACTIONS": "true"}
AT_ONCE = int(os.environ.get("MAGNETAR_TXN_AT_ONCE", "50"))
INPUTS = int(os.environ.get("MAGNETAR_TXN_INPUTS", "1500"))
BOOKIES = os.environ.get("MAGNETAR_TXN_BOOKIES", "0")


def work_until_killed(process: StandaloneProcess, history: History, chance: random.Random) -> None:
    killer = threading.Timer(chance.uniform(0.2, 2.0), process.kill)
    worker = Worker(process.broker_url, history, chance, at_once=AT_ONCE)
    try:
        worker.resolve()
        killer.start()
        while True:
            worker.round()
    except (LostError, OSError):
        history.kills += 1
    finally:
        killer.join()
        worker.close()


def work_to_the_end(process: StandaloneProcess, history: History, chance: random.Random) -> None:
    worker = Worker(process.broker_url, history, chance, at_once=AT_ONCE)
    try:
        worker.resolve()
        idle = 0
        while idle < 4:
            idle = 0 if worker.round() else idle + 1
    finally:
        worker.close()


def test_each_input_has_its_output_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("MAGNETAR_KILL_SEED", "0")) or random.randrange(1 << 32)
    print(f"MAGNETAR_KILL_SEED={seed}")
    chance = random.Random(seed)
    history = History()
    options = ("--bookies", BOOKIES)
    with StandaloneProcess(tmp_path, ephemeral=False, environment=ON, options=options) as process:
        fill(process.broker_url, INPUTS)
        for _ in range(ROUNDS):
            work_until_killed(process, history, chance)
            began = time.monotonic()
            process.start()
            print(f"back after {time.monotonic() - began:.2f} s, {len(history.attempts)} transactions")
        work_to_the_end(process, history, chance)
        outputs = [everything_in(process.broker_url, name) for name in OUTS]
        check(history, outputs, INPUTS)
        stats = process.admin("GET", f"{IN.replace('://', '/')}/stats")
        assert stats["subscriptions"]["work"]["msgBacklog"] == 0
        # The same again after a clean restart: nothing depends on what a process remembers.
        process.stop()
        process.start()
        assert [everything_in(process.broker_url, name) for name in OUTS] == outputs
    committed, aborted = history.count("committed"), history.count("aborted")
    print(f"{committed} transactions committed, {aborted} aborted, {history.kills} kills")
