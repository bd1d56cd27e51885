"""Exactly once, while drivers and executors are killed at random.

The short form runs always. The long one is `MAGNETAR_KILL_ROUNDS=60 pytest -s tests/e2e/test_spark_kill.py`;
MAGNETAR_KILL_SEED makes other choices, MAGNETAR_KILL_MINUTES ends the rounds early. Moments differ from run
to run.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from support.spark_kills import KINDS, KilledQuery
from support.spark_topics import new_topic
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

ROUNDS = int(os.environ.get("MAGNETAR_KILL_ROUNDS", "3"))
SEED = int(os.environ.get("MAGNETAR_KILL_SEED", "1"))
MINUTES = float(os.environ.get("MAGNETAR_KILL_MINUTES", "inf"))
MASTER = os.environ.get("MAGNETAR_KILL_MASTER", "local-cluster[2,1,1024]")


def test_nothing_is_lost_or_doubled(standalone_folder: StandaloneProcess, tmp_path: Path) -> None:
    standalone = standalone_folder.start()
    topics = (new_topic(standalone, partitions=2), new_topic(standalone, partitions=2))
    query = KilledQuery(standalone, *topics, tmp_path, SEED, MASTER)
    end_s = time.monotonic() + 60 * MINUTES
    try:
        for number in range(ROUNDS):
            if time.monotonic() > end_s:
                break
            kind = KINDS[number % len(KINDS)]
            query.round(kind)
            print(f"round {number + 1} of {ROUNDS}: killed a {kind}", flush=True)
        query.finish()
        rows, lost, doubled = query.check()
    finally:
        query.close()
    print(f"seed {SEED}: {dict(query.kills)} killed, {rows} rows, {lost} lost, {doubled} doubled")
    assert (lost, doubled) == (0, 0)
