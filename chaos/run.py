"""One run: a cluster, its clients, the faults of a schedule, and what the clients' history says in the
end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from chaos import workload
from chaos.faults import Faults, impossible
from chaos.history import AGAIN, Recorder, by_topic, events
from chaos.network import Network
from chaos.outcome import Outcome
from chaos.processes import CALL_S, Cluster, Server, running, wait_for
from chaos.rules import Violation, violations
from chaos.schedule import Fault, Shape

NAMESPACE: Final = "admin/v2/namespaces/public/default"
TOPICS: Final = "admin/v2/persistent/public/default"
SETTINGS: Final = {
    "MAGNETAR_LEDGER_ENSEMBLE_SIZE": "3",
    "MAGNETAR_LEDGER_WRITE_QUORUM": "3",
    "MAGNETAR_LEDGER_ACK_QUORUM": "2",
}


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    seconds: float
    faults: list[Fault]
    shape: Shape
    kind: str
    """The metadata service: `etcd` or `zk`."""
    rate: float
    """Messages a second, of each client and topic."""
    patience_s: float
    """How long servers and clients may need, once everything is well again, and after the kill of everything.
    What is missing then is reported."""
    sources: Path | None = None
    """What the servers run, where it is not what is installed."""


class Run:
    """A run in a folder of its own, which keeps the logs and the history."""

    def __init__(self, folder: Path, plan: Plan, tell: Callable[[str], None]) -> None:
        """`tell` gets what a person wants to see meanwhile."""
        self._folder = folder
        self._plan = plan
        self._tell = tell
        environment = {**SETTINGS, **({"PYTHONPATH": str(plan.sources)} if plan.sources else {})}
        self._cluster = Cluster(folder, Network(plan.shape.all), plan.shape, plan.kind, environment)
        self._history = Recorder(folder / "rig.history")
        self._stuck: list[Violation] = []
        self._until_s = 0.0
        """What is waited for must be there by then."""

    def run(self) -> Outcome:
        """Runs everything. Raises TimeoutError when the cluster does not even start."""
        with running(self._cluster):
            self._prepare()
            clients = [self._client(name) for name in self._plan.shape.clients]
            try:
                for each in clients:
                    each.start()
                began_s = time.monotonic()
                done = self._execute(began_s)
                self._settle(clients)
            finally:
                for each in clients:
                    each.kill()
            self._owners()
            self._read("reader")
            self._restart()
            self._read(AGAIN)
        self._history.close()
        found = events(sorted(self._folder.glob("*.history")))
        topics = by_topic(found)
        lives = {name: server.lives for name, server in self._cluster.servers.items()}
        wrong = [*self._stuck, *violations(topics.values())]
        return Outcome(began_s, found, topics, wrong, done, lives)

    def _prepare(self) -> None:
        broker = self._plan.shape.brokers[0]
        retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        self._cluster.call(broker, "POST", f"{NAMESPACE}/retention", retention)
        for topic in workload.TOPICS:
            self._cluster.call(broker, "PUT", f"{TOPICS}/{topic.name}")
            if topic.name.startswith("dedup"):
                self._cluster.call(broker, "POST", f"{TOPICS}/{topic.name}/deduplicationEnabled", body=True)

    def _client(self, name: str, *options: str, member: str = "") -> Server:
        command = [*self._cluster.network.command(member or name), sys.executable, "-m", "chaos.workload"]
        command += ["--name", name, "--service-url", self._cluster.service_url, "--folder", str(self._folder)]
        command += ["--rate", str(self._plan.rate), *options]
        root = Path(__file__).parents[1]
        return Server(name, self._folder, command, {"PYTHONPATH": str(root)})

    # -- faults ------------------------------------------------------------------------------------

    def _execute(self, began_s: float) -> list[tuple[float, float, Fault]]:
        faults = Faults(self._cluster)
        not_here = impossible(self._cluster)
        steps: list[tuple[float, bool, Fault]] = []
        for fault in self._plan.faults:
            if fault.kind in not_here:
                self._tell(f"{fault}: left out: {not_here[fault.kind]}")
            else:
                # One that is over at once ends after its begin nevertheless.
                end_s = max(fault.end_s, fault.at_s + 0.001)
                steps += [(fault.at_s, True, fault), (end_s, False, fault)]
        begun: dict[Fault, float] = {}
        done = []
        for at_s, is_begin, fault in sorted(steps, key=lambda each: (each[0], each[1])):
            time.sleep(max(0.0, began_s + at_s - time.monotonic()))  # the schedule is one of times
            now_s = time.monotonic()
            if is_begin:
                self._tell(f"{now_s - began_s:7.1f} s  {fault.kind} {' '.join(fault.targets)}")
                faults.begin(fault)
                begun[fault] = now_s
            else:
                faults.end(fault)
                done.append((begun[fault], time.monotonic(), fault))
        time.sleep(max(0.0, began_s + self._plan.seconds - time.monotonic()))  # the rest of the run
        return done

    # -- the end -----------------------------------------------------------------------------------

    def _settle(self, clients: list[Server]) -> None:
        """Everything is well: returns when all receipts are there and all subscriptions empty, or late."""
        self._tell("all faults are over")
        self._until_s = time.monotonic() + self._plan.patience_s
        self._serving((*self._cluster.shape.bookies, *self._cluster.shape.brokers))
        (self._folder / workload.PUBLISHING_ENDS).touch()
        self._receipts(clients)
        for topic in workload.TOPICS:
            for name in topic.subscriptions:
                self._expect_empty(topic.name, name)
                self._note_cursor(topic.name, name)
        (self._folder / workload.ALL_ENDS).touch()
        for client in clients:
            self._expect_end(client)

    def _receipts(self, clients: list[Server]) -> None:
        for client in clients:
            for topic in workload.TOPICS:
                told = self._folder / f"{client.name}.{topic.name}.settled"
                self._expect(topic.name, told.exists, f"{client.name} has all receipts")
                if told.exists() and told.read_text() != "0":
                    what = f"{told.read_text()} messages of {client.name} have no receipt"
                    self._stuck.append(Violation("stuck", topic.name, what))

    def _expect_empty(self, topic: str, subscription: str) -> None:
        what = f"{subscription} has acknowledged everything"
        self._expect(topic, lambda: self._backlog(topic, subscription) == 0, what)

    def _expect_end(self, process: Server) -> None:
        self._expect(process.name, lambda: not process.is_running, f"{process.name} has ended")

    @property
    def _left_s(self) -> float:
        # Everything has a look at least: what was ready long ago is not late.
        return max(1.0, self._until_s - time.monotonic())

    def _expect(self, where: str, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_for(condition, self._left_s, what)
        except TimeoutError as error:
            self._tell(f"{where}: {error}")
            self._stuck.append(Violation("stuck", where, str(error)))

    def _ask(self, path: str) -> Any:
        """The answer of the first broker that has one; None if none has."""
        for broker in self._plan.shape.brokers:
            try:
                return self._cluster.call(broker, "GET", path)
            except OSError as error:
                self._history.note("unanswered", "", broker, note=f"{path}: {error}")
        return None

    def _backlog(self, topic: str, subscription: str) -> int | None:
        stats = self._ask(f"{TOPICS}/{topic}/stats?getPreciseBacklog=true")
        found = (stats or {}).get("subscriptions", {}).get(subscription)
        return None if found is None else int(found["msgBacklog"])

    def _note_cursor(self, topic: str, subscription: str) -> None:
        stats = self._ask(f"{TOPICS}/{topic}/internalStats") or {}
        cursor = stats.get("cursors", {}).get(subscription, {})
        at = {
            "marked": _place(cursor.get("markDeletePosition")),
            "last": _place(stats.get("lastConfirmedEntry")),
            "backlog": self._backlog(topic, subscription),
        }
        self._history.note("cursor", topic, subscription, note=json.dumps(at))

    def _owners(self) -> None:
        """Notes which brokers serve each topic: those that answer for it and do not send on."""
        opener = build_opener(_Stay())
        for topic in workload.TOPICS:
            for broker in self._plan.shape.brokers:
                url = self._cluster.url(broker, f"{TOPICS}/{topic.name}/internalStats")
                try:
                    with opener.open(Request(url), timeout=CALL_S):
                        self._history.note("served", topic.name, broker)
                except HTTPError as error:
                    error.close()
                except OSError as error:
                    self._history.note("unanswered", topic.name, broker, note=f"internalStats: {error}")

    def _restart(self) -> None:
        """Kills all brokers and bookies at once, and starts them."""
        servers = (*self._cluster.shape.bookies, *self._cluster.shape.brokers)
        for name in servers:
            self._cluster.servers[name].kill()
        self._until_s = time.monotonic() + self._plan.patience_s
        for topic in workload.TOPICS:
            self._history.note("restarted", topic.name, "rig")
        self._serving(servers)

    def _serving(self, names: tuple[str, ...]) -> None:
        """Starts what does not run; returns when all serve, or late."""
        for name in (*self._cluster.shape.metadata, *names):
            self._cluster.servers[name].start()
        for name in names:
            try:
                self._cluster.wait(name, self._left_s)
            except TimeoutError as error:
                self._stuck.append(Violation("stuck", name, str(error)))

    def _read(self, name: str) -> None:
        reader = self._client(name, "--read", member=self._plan.shape.clients[0])
        reader.start()
        self._expect_end(reader)
        reader.kill()


class _Stay(HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _place(text: str | None) -> list[int] | None:
    """Ledger and entry of a position as Pulsar writes it."""
    if not text:
        return None
    ledger, _, entry = text.partition(":")
    return [int(ledger), int(entry)]
