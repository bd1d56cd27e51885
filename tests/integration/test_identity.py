"""Metadata that is missing, older, foreign or damaged costs no acknowledged message.

Each story: the official client publishes to a real standalone, metadata is changed under it, the start
refuses or goes on, the remedy is applied, and every message is read again.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("folder")]

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
TOPIC = "persistent://public/default/kept-{}"


class Server:
    """One data folder, and what was acknowledged in it."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "settings.toml"
        # Topics stay without a subscription.
        settings.write_text("retention_minutes = -1\nretention_mib = -1\nprewrite_bytes_per_s = 0\n")
        self.process = StandaloneProcess(folder, options=("--config", str(settings), *options))
        self.metadata = self.process.data_dir / "metadata" / "metadata.db"
        self.acknowledged: dict[str, list[bytes]] = {}

    def publish(self, *topics: str, count: int = 20) -> None:
        client = pulsar.Client(self.process.broker_url, logger=QUIET)
        for topic in topics:
            producer = client.create_producer(topic)
            known = self.acknowledged.setdefault(topic, [])
            for number in range(count):
                message = f"{topic} {len(known)} {number}".encode()
                producer.send(message)
                known.append(message)
        client.close()

    def check(self) -> None:
        """Everything acknowledged is there, in order, once."""
        client = pulsar.Client(self.process.broker_url, logger=QUIET)
        for topic, expected in self.acknowledged.items():
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            found = []
            while reader.has_message_available():
                found.append(reader.read_next(10_000).data())
            assert found == expected, topic
        client.close()

    def refused(self) -> str:
        """What a start says that does not come about."""
        before = len(self.process.log_text())
        try:
            self.process.start()
        except AssertionError:
            self.process.kill()
            return self.process.log_text()[before:]
        raise AssertionError("it started")

    def storage(self, *words: str) -> str:
        command = [sys.executable, "-m", "magnetar", "storage", *words, "--data", str(self.process.data_dir)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "ours")
    made.process.start()
    yield made
    made.process.kill()


def test_older_metadata(server: Server, tmp_path: Path) -> None:
    server.publish(TOPIC.format(1))
    server.process.stop()
    shutil.copy(server.metadata, tmp_path / "older.db")
    server.process.start()
    server.publish(TOPIC.format(1), TOPIC.format(2))
    server.process.kill()
    # Kills leave the newest in the write-ahead log.
    server.process.start()
    server.process.stop()
    shutil.copy(server.metadata, tmp_path / "newer.db")
    shutil.copy(tmp_path / "older.db", server.metadata)
    server.process.start()
    log = server.process.log_text()
    assert "restored from an older copy" in log
    assert "is kept in quarantine" in log
    listed = server.storage("quarantine", "list")
    assert "doubted: the metadata was restored from an older copy" in listed
    # What is written now gets ids of its own, and is there after the next start.
    new = {TOPIC.format(3): []}
    kept, server.acknowledged = server.acknowledged, new  # type: ignore[assignment]  # filled right below
    server.publish(TOPIC.format(3))
    server.process.kill()
    server.process.start()
    server.check()
    server.process.stop()
    # The remedy: the newer metadata is found after all.
    shutil.copy(tmp_path / "newer.db", server.metadata)
    server.process.start()
    server.acknowledged = kept
    server.check()


def test_missing_and_foreign_metadata(server: Server, tmp_path: Path) -> None:
    server.publish(TOPIC.format(1), TOPIC.format(2))
    server.process.stop()
    shutil.move(server.metadata, tmp_path / "right.db")
    assert "is missing" in server.refused()
    other = Server(tmp_path / "other")
    other.process.start()
    other.publish(TOPIC.format(1))
    other.process.stop()
    shutil.copy(other.metadata, server.metadata)
    assert "belongs to metadata" in server.refused()
    assert "belongs to metadata" in server.refused()
    server.metadata.unlink()
    # No backup: without topics, but with every message in quarantine.
    server.storage("accept", "--yes")
    server.process.start()
    assert "is kept in quarantine" in server.process.log_text()
    server.process.stop()
    # Found after all. It is of another lineage now, and an operator must say that it is right.
    shutil.copy(tmp_path / "right.db", server.metadata)
    server.process.start()
    server.check()


def test_messages_that_are_gone_or_older(server: Server, tmp_path: Path) -> None:
    bookie = server.process.data_dir / "bookie"
    server.publish(TOPIC.format(1))
    server.process.stop()
    shutil.copytree(bookie, tmp_path / "older")
    server.process.start()
    server.publish(TOPIC.format(1))
    server.process.stop()
    shutil.move(bookie, tmp_path / "right")
    assert "and " in (said := server.refused())
    assert "has none" in said
    shutil.rmtree(bookie, ignore_errors=True)
    shutil.copytree(tmp_path / "older", bookie)
    assert "is an older copy than its metadata" in server.refused()
    shutil.rmtree(bookie)
    shutil.move(tmp_path / "right", bookie)
    server.process.start()
    server.check()


def test_flipped_bits(server: Server) -> None:
    server.publish(*(TOPIC.format(number) for number in range(5)), count=2)
    server.process.stop()
    whole = server.metadata.read_bytes()
    chance = random.Random(3)
    keys = [at for at in range(len(whole)) if whole[at : at + 1].isalnum()]
    refused = 0
    for place in chance.sample(keys, 4):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        server.metadata.write_bytes(damaged)
        try:
            server.process.start()
        except AssertionError:
            refused += 1
            server.process.kill()
            assert "metadata.db" in server.process.log_text()
            continue
        server.check()
        server.process.stop()
        whole = server.metadata.read_bytes()
    assert refused
    server.metadata.write_bytes(whole)
    server.process.start()
    server.check()


def test_damaged_metadata_is_made_anew(server: Server) -> None:
    topics = [TOPIC.format(number) for number in range(3)]
    server.publish(*topics)
    server.process.stop()
    whole = server.metadata.read_bytes()
    at = -1
    while (at := whole.index(b"kept-1", at + 1)) >= 0:
        damaged = bytearray(whole)
        damaged[at + 5] ^= 2
        server.metadata.write_bytes(damaged)
        try:
            server.process.start()
        except AssertionError:
            server.process.kill()
            break
        # What was hit was a page that is not in use.
        server.process.stop()
        whole = server.metadata.read_bytes()
    assert "storage rebuild-metadata" in server.process.log_text()
    assert "persistent/kept-1" in server.storage("rebuild-metadata", "--yes")
    server.process.start()
    assert "restored from an older copy" in server.process.log_text()
    server.check()


def test_an_older_copy_of_a_bookie_beside_the_broker(tmp_path: Path) -> None:
    server = Server(tmp_path / "ours", "--bookies", "3")
    bookie = server.process.data_dir / "bookies" / "bookie-1"
    try:
        server.process.start()
        server.publish(TOPIC.format(1))
        server.process.stop()
        shutil.copytree(bookie, tmp_path / "older")
        server.process.start()
        server.publish(TOPIC.format(1), TOPIC.format(2))
        server.process.stop()
        bookie.rename(tmp_path / "newer")
        shutil.copytree(tmp_path / "older", bookie)
        assert "the folder of bookie-1 is an older copy" in server.refused()
        # No folder has the newer one any more; the others have all of it, and this one denies nothing.
        told = server.storage("accept", "--yes")
        assert "bookie-1: the folder is of" in told
        server.process.start()
        assert "all ledgers are in limbo" in server.process.log_text()
        server.publish(TOPIC.format(2))
        server.check()
        assert alive(bookie)["read_only"], "it takes nothing that a recovery does not bring"
        server.storage("readmit", "bookie-1", "--yes")
        for _ in range(2):
            server.process.stop()
            server.process.start()
            assert not alive(bookie)["read_only"]
        server.publish(TOPIC.format(3))
        server.check()
        server.process.stop()
    finally:
        server.process.kill()


def alive(bookie: Path) -> dict[str, Any]:
    """What a bookie beside a broker tells the others of itself."""
    told: dict[str, Any] = json.loads((bookie.parent / "alive" / bookie.name).read_text())
    return told
