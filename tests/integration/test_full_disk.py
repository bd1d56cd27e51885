"""A disk that is full to the last byte: what makes room works, also after kill -9, then all goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.loop_images import make_image, mounted, why_impossible
from support.raw_client import RawClient
from support.sessions import send
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("folder")]

MIB = 1 << 20
NAMESPACE = "persistent/public/default"
TOPICS = 5


def fill_up(disk: Path) -> None:
    """Takes every byte that is left."""
    fd = os.open(disk / "ballast", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (MIB, 4096, 512):
            try:
                while os.write(fd, os.urandom(size)):
                    pass
            except OSError:
                continue
    finally:
        os.close(fd)


def publish(process: StandaloneProcess, number: int, count: int = 8) -> None:
    topic = f"persistent://public/default/t{number}"
    with RawClient(process.broker_url) as client:
        client.open_consumer(topic, subscription="s", permits=1)
        client.open_producer(topic)
        for i in range(count):
            client.send(send(1, i, os.urandom(MIB)))
        client.wait(lambda: len(client.receipts) == count, "receipts")


@pytest.mark.parametrize("killed", [False, True])
def test_a_full_disk_does_not_block_its_own_relief(tmp_path: Path, killed: bool) -> None:
    """Deletion answered 507, and a start after kill -9 was refused although recovery frees space."""
    if (reason := why_impossible(tmp_path)) is not None:
        pytest.skip(reason)
    image = tmp_path / "disk.img"
    make_image(image, 160 * MIB)
    with mounted(image, tmp_path / "disk") as disk:
        process = StandaloneProcess(
            tmp_path / "standalone",
            data_dir=disk / "data",
            environment={
                "MAGNETAR_SEGMENT_BYTES": str(4 * MIB),
                "MAGNETAR_LEDGER_ROLLOVER_MIN_SECONDS": "0",
                # The mark of a disk that fills has tests of its own, and is looked at now and then only.
                "MAGNETAR_DISK_FULL_PERCENT": "100",
            },
        )
        try:
            process.start()
            for number in range(TOPICS):
                publish(process, number)
            fill_up(disk)
            if killed:
                process.kill()
                fill_up(disk)
                process.start()
            process.admin("POST", f"{NAMESPACE}/t0/subscription/s/skip_all")
            process.admin("POST", f"{NAMESPACE}/t1/subscription/s/skip/3")
            process.admin("POST", f"{NAMESPACE}/t2/subscription/s/expireMessages/0")
            policy = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
            process.admin("POST", "namespaces/public/default/retention", policy)
            process.admin("DELETE", f"{NAMESPACE}/t3/subscription/s?force=true")
            process.admin("DELETE", f"{NAMESPACE}/t3?force=true")
            process.admin("DELETE", f"{NAMESPACE}/t4?force=true")
            wait_until(lambda: os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize > 8 * MIB, 30, "room")
            publish(process, 1, 2)
            assert process.stop() == 0
        finally:
            process.kill()
